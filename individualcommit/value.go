package individualcommit

import (
	"encoding/binary"
	"errors"
	"fmt"
)

const (
	snapshotVersion = 0
	deltaVersion    = 0
	pendingVersion  = 0
	countsVersion   = 0
	outcomeVersion  = 0
)

// appendValueHeader begins a value: with its version and the owner epoch, as the key does.
func appendValueHeader(dst []byte, version int16, ownerEpoch int32) []byte {
	dst = binary.BigEndian.AppendUint16(dst, uint16(version))
	return binary.BigEndian.AppendUint32(dst, uint32(ownerEpoch))
}

// openValue reads the header of a value.
func openValue(b []byte, version int16, what string) (fields, error) {
	f := fields{b: b}
	v := f.int16("version")
	f.int32("owner epoch")
	if f.err == nil && v != version {
		return f, fmt.Errorf("%w: %s of version %d", ErrUnknownVersion, what, v)
	}
	return f, nil
}

// snapshot is the value of a snapshot record, a whole ledger but for what is pending:
//
//	Snapshot => version INT16, owner_epoch INT32, generation UVARLONG, last_commit_ms INT64,
//	            stable UVARLONG, ahead UVARLONG, cumulatives UVARLONG,
//	            metadata COMPACT_NULLABLE_STRING, committed PackedRuns
//
// `ahead` is a cumulative commit past the high watermark it found, 0 if there is none;
// `cumulatives` counts the cumulative commits; `committed` are the committed runs above
// the stable offset, which is their base.
type snapshot struct {
	generation   uint64
	lastCommitMs int64
	metadata     *string
	ledger       *Ledger
}

func (s *snapshot) appendTo(dst []byte, ownerEpoch int32, p *packer) []byte {
	l := s.ledger
	dst = appendValueHeader(dst, snapshotVersion, ownerEpoch)
	dst = binary.AppendUvarint(dst, s.generation)
	dst = binary.BigEndian.AppendUint64(dst, uint64(s.lastCommitMs))
	dst = binary.AppendUvarint(dst, uint64(l.stable))
	dst = binary.AppendUvarint(dst, uint64(l.ahead))
	dst = binary.AppendUvarint(dst, l.cumulatives)
	dst = appendNullableString(dst, s.metadata)
	return p.appendRuns(dst, l.above.CountRuns(), l.stable, l.above.Runs(0))
}

func parseSnapshot(b []byte) (snapshot, error) {
	f, err := openValue(b, snapshotVersion, "snapshot")
	if err != nil {
		return snapshot{}, err
	}
	l := new(Ledger)
	s := snapshot{ledger: l, generation: f.uvarint("generation"), lastCommitMs: f.int64("last commit")}
	l.stable = f.offset("stable offset")
	l.ahead = f.offset("committed offset")
	l.cumulatives = f.uvarint("number of cumulative commits")
	s.metadata = f.nullableString("metadata")
	base := f.runs(l.above.Add)
	f.check(l.above.Empty() || base == l.stable, "runs from %d on, the stable offset is %d", base, l.stable)
	if err := f.end(); err != nil {
		return snapshot{}, fmt.Errorf("snapshot: %w", err)
	}
	return s, nil
}

// change is the value of a delta record:
//
//	Delta => version INT16, owner_epoch INT32, generation UVARLONG, last_commit_ms INT64,
//	         floor UVARLONG, move UINT8 [from UVARLONG, to UVARLONG],
//	         metadata COMPACT_NULLABLE_STRING, commit PackedRuns, reopen PackedRuns
//
// `generation` is that of the snapshot it extends. Before the change, all below `floor` is
// committed: the log start or absent offsets had moved the stable offset there; 0 if not.
// A move of 0 has no numbers; for the others see MoveKind. Null metadata changes none. The
// base of runs is one below the first.
type change struct {
	generation   uint64
	lastCommitMs int64
	floor        int64
	metadata     *string
	delta        Delta
}

func (c *change) appendTo(dst []byte, ownerEpoch int32, p *packer) []byte {
	dst = appendValueHeader(dst, deltaVersion, ownerEpoch)
	dst = binary.AppendUvarint(dst, c.generation)
	dst = binary.BigEndian.AppendUint64(dst, uint64(c.lastCommitMs))
	dst = binary.AppendUvarint(dst, uint64(c.floor))
	m := c.delta.Move
	if dst = append(dst, byte(m.Kind)); m.Kind != MoveNone {
		dst = binary.AppendUvarint(dst, uint64(m.From))
		dst = binary.AppendUvarint(dst, uint64(m.To))
	}
	dst = appendNullableString(dst, c.metadata)
	dst = p.appendList(dst, c.delta.Commit)
	return p.appendList(dst, c.delta.Reopen)
}

// parse reads a delta record into c, whose slices it reuses.
func (c *change) parse(b []byte) error {
	f, err := openValue(b, deltaVersion, "delta")
	if err != nil {
		return err
	}
	c.generation, c.lastCommitMs, c.floor = f.uvarint("generation"), f.int64("last commit"), f.offset("floor")
	d := &c.delta
	d.Move = Move{Kind: MoveKind(f.int8("move"))}
	f.check(d.Move.Kind <= MoveClamp, "move of kind %d", d.Move.Kind)
	if d.Move.Kind != MoveNone {
		d.Move.From, d.Move.To = f.offset("move"), f.offset("move")
	}
	c.metadata = f.nullableString("metadata")
	d.Commit, d.Reopen = d.Commit[:0], d.Reopen[:0]
	f.runs(func(r Run) { d.Commit = append(d.Commit, r) })
	f.runs(func(r Run) { d.Reopen = append(d.Reopen, r) })
	if err := f.end(); err != nil {
		return fmt.Errorf("delta: %w", err)
	}
	return nil
}

// staged is the value of a pending record, what one TxnOffsetCommit asked for:
//
//	Pending => version INT16, owner_epoch INT32, producer_epoch INT16, offset UVARLONG,
//	           cumulatives UVARLONG, metadata COMPACT_NULLABLE_STRING, commit PackedRuns
//
// `offset` is one more than the cumulative commit, 0 if there is none; it applies at the
// transaction's end unless the ledger has seen more cumulative commits than `cumulatives`
// by then.
type staged struct {
	producerEpoch int16
	offset        int64 // NoOffset: none
	cumulatives   uint64
	metadata      *string
	commit        []Run
	unread        error // why the record cannot be read, with which nothing else is known
}

func (s *staged) appendTo(dst []byte, ownerEpoch int32, p *packer) []byte {
	dst = appendValueHeader(dst, pendingVersion, ownerEpoch)
	dst = binary.BigEndian.AppendUint16(dst, uint16(s.producerEpoch))
	dst = binary.AppendUvarint(dst, uint64(s.offset+1))
	dst = binary.AppendUvarint(dst, s.cumulatives)
	dst = appendNullableString(dst, s.metadata)
	return p.appendList(dst, s.commit)
}

func parseStaged(b []byte) (staged, error) {
	f, err := openValue(b, pendingVersion, "pending")
	if err != nil {
		return staged{}, err
	}
	s := staged{producerEpoch: f.int16("producer epoch")}
	s.offset = f.offset("offset") - 1
	s.cumulatives = f.uvarint("number of cumulative commits")
	s.metadata = f.nullableString("metadata")
	f.runs(func(r Run) { s.commit = append(s.commit, r) })
	if err := f.end(); err != nil {
		return staged{}, fmt.Errorf("pending: %w", err)
	}
	return s, nil
}

// parseCounts reads the value of a record of delivery counts:
//
//	Counts => version INT16, owner_epoch INT32, counts
//
// `counts` is what cooperative.Dispatcher.AppendCounts gives, at least a byte, and is not
// looked at here.
func parseCounts(b []byte) (counts []byte, unknown bool, err error) {
	f, err := openValue(b, countsVersion, "counts")
	if err != nil {
		return nil, errors.Is(err, ErrUnknownVersion), err
	}
	f.check(f.err != nil || len(f.b) > 0, "there are none")
	if f.err != nil {
		return nil, false, fmt.Errorf("counts: %w", f.err)
	}
	return f.b, false, nil
}

// parseOutcome reads the value of a record that says that a transaction was committed:
//
//	Outcome => version INT16, owner_epoch INT32, order UVARLONG
//
// `order` rises with the outcomes that a ledger has at a time, as they were decided.
func parseOutcome(b []byte) (order uint64, err error) {
	f, err := openValue(b, outcomeVersion, "outcome")
	if err != nil {
		return 0, err
	}
	order = f.uvarint("order")
	if err := f.end(); err != nil {
		return 0, fmt.Errorf("outcome: %w", err)
	}
	return order, nil
}
