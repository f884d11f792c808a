package statestore

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/lacunamq/lacuna/protocol"
)

// Files of offsets in the directory of a store. Kafka Streams keeps the offsets of
// changelogs in the first and those of input topics in the second.
const (
	CheckpointFile = ".checkpoint"
	PositionFile   = ".position"
)

// The first line of a file of offsets is its version, the second the number of offsets,
// and each further one an offset, as words with spaces between.
const (
	// Topic, partition, offset. This is Kafka Streams' form, in which the offset is that of
	// the last record applied, so the next is one more.
	checkpointLast = 0
	// Topic, partition, next offset, first slot, last slot, topic id in hexadecimal. This
	// is Lacuna's.
	checkpointNext = 1
)

// checkpointUnknown is what Kafka Streams writes for a changelog of which it does not
// know how far it has been applied.
const checkpointUnknown = -4

// checkpointMax bounds a file of offsets, in bytes.
const checkpointMax = 64 << 20

// allSlots is what an offset without slots stands for.
var allSlots = protocol.SlotRange{Lo: 0, Hi: math.MaxUint16}

// AppendCheckpoint appends the file of the offsets to dst, in Lacuna's form.
func AppendCheckpoint(dst []byte, offsets []Offset) []byte {
	dst = fmt.Appendf(dst, "%d\n%d\n", checkpointNext, len(offsets))
	for _, o := range offsets {
		dst = fmt.Appendf(dst, "%s %d %d %d %d %x\n", o.Topic, o.Partition, o.Next, o.Slots.Lo, o.Slots.Hi, o.TopicID)
	}
	return dst
}

// ParseCheckpoint reads a file of offsets in Lacuna's form or that of Kafka Streams, whose
// offsets are for all slots and for a topic of any id. An error is ErrCorrupt.
func ParseCheckpoint(data []byte) ([]Offset, error) {
	lines := strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")
	if len(lines) < 2 {
		return nil, fmt.Errorf("%w: offsets file of %d lines", ErrCorrupt, len(lines))
	}
	version, err := strconv.Atoi(strings.TrimSpace(lines[0]))
	if err != nil || version != checkpointLast && version != checkpointNext {
		return nil, fmt.Errorf("%w: offsets file of version %.20q", ErrCorrupt, lines[0])
	}
	count, err := strconv.Atoi(strings.TrimSpace(lines[1]))
	if err != nil || count != len(lines)-2 {
		return nil, fmt.Errorf("%w: offsets file that promises %.20q offsets has %d", ErrCorrupt, lines[1], len(lines)-2)
	}
	var offsets []Offset
	seen := offsetMap{}
	for _, line := range lines[2:] {
		o, known, err := parseCheckpointLine(strings.Fields(line), version)
		if err != nil {
			return nil, fmt.Errorf("%w: offsets file with line %.400q: %w", ErrCorrupt, line, err)
		}
		if !known {
			continue
		}
		before := len(seen[o.log()])
		edits := seen.replace(o.log(), span{o.Slots.Lo, o.Slots.Hi, o.Next}, nil)
		if len(edits) != 1 || len(seen[o.log()]) != before+1 {
			return nil, fmt.Errorf("%w: offsets file with a second offset in line %.400q", ErrCorrupt, line)
		}
		offsets = append(offsets, o)
	}
	return offsets, nil
}

func parseCheckpointLine(words []string, version int) (o Offset, known bool, err error) {
	if want := map[int]int{checkpointLast: 3, checkpointNext: 6}[version]; len(words) != want {
		return o, false, fmt.Errorf("%d words, not %d", len(words), want)
	}
	partition, err := strconv.ParseInt(words[1], 10, 32)
	if err != nil {
		return o, false, err
	}
	if o.Next, err = strconv.ParseInt(words[2], 10, 64); err != nil {
		return o, false, err
	}
	o.Topic, o.Partition, o.Slots = words[0], int32(partition), allSlots
	if version == checkpointLast {
		if o.Next == checkpointUnknown {
			return o, false, nil
		}
		if o.Next < 0 || o.Next == math.MaxInt64 {
			return o, false, fmt.Errorf("last offset %d", o.Next)
		}
		o.Next++
		return o, true, o.check()
	}
	lo, errLo := strconv.ParseUint(words[3], 10, 16)
	hi, errHi := strconv.ParseUint(words[4], 10, 16)
	id, errID := hex.DecodeString(words[5])
	if errID == nil && len(id) != len(o.TopicID) {
		errID = fmt.Errorf("topic id of %d bytes", len(id))
	}
	if err := errors.Join(errLo, errHi, errID); err != nil {
		return o, false, err
	}
	o.Slots, o.TopicID = protocol.SlotRange{Lo: uint16(lo), Hi: uint16(hi)}, [16]byte(id)
	if o.Next < 0 {
		return o, false, fmt.Errorf("next offset %d", o.Next)
	}
	return o, true, o.check()
}

// readOffsets reads one file of offsets. found is false if there is none.
func readOffsets(fs vfs.FS, dir, name string) (offsets []Offset, found bool, err error) {
	path := fs.PathJoin(dir, name)
	f, err := fs.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("read offsets: %w", err)
	}
	data, err := io.ReadAll(io.LimitReader(f, checkpointMax+1))
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, false, fmt.Errorf("read offsets of %s: %w", path, err)
	}
	if len(data) > checkpointMax {
		return nil, false, fmt.Errorf("read offsets of %s: %w: over %d bytes", path, ErrCorrupt, checkpointMax)
	}
	if offsets, err = ParseCheckpoint(data); err != nil {
		return nil, false, fmt.Errorf("read offsets of %s: %w", path, err)
	}
	return offsets, true, nil
}

// readAllOffsets reads the files of offsets in dir; where both know a source, the lesser
// offset counts. names are the files that there are.
func readAllOffsets(fs vfs.FS, dir string) (offsets offsetMap, names []string, err error) {
	var all []Offset
	for _, name := range []string{CheckpointFile, PositionFile} {
		some, found, err := readOffsets(fs, dir, name)
		if err != nil {
			return nil, nil, err
		}
		if found {
			names = append(names, name)
			all = append(all, some...)
		}
	}
	slices.SortStableFunc(all, func(a, b Offset) int { return cmp.Compare(b.Next, a.Next) })
	offsets = offsetMap{}
	for i := range all {
		offsets.set(&all[i], nil) // the least comes last and stays
	}
	return offsets, names, nil
}

// writeOffsets puts a new checkpoint in the place of the old. A crash leaves one of them.
func writeOffsets(fs vfs.FS, dir string, offsets []Offset) error {
	path := fs.PathJoin(dir, CheckpointFile)
	if err := ReplaceFile(fs, path, AppendCheckpoint(nil, offsets)); err != nil {
		return fmt.Errorf("write offsets to %s: %w", path, err)
	}
	return nil
}

// ReplaceFile puts data in the place of a file, durably, in a directory that there is. A crash
// leaves the old one or the new one.
func ReplaceFile(fs vfs.FS, path string, data []byte) error {
	if err := writeWhole(fs, path+".tmp", data); err != nil {
		return err
	}
	if err := fs.Rename(path+".tmp", path); err != nil {
		return err
	}
	return syncDir(fs, fs.PathDir(path))
}

func writeWhole(fs vfs.FS, path string, data []byte) error {
	f, err := fs.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, bytes.NewReader(data))
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// removeFiles removes files of dir, durably. Those that are not there are no error.
func removeFiles(fs vfs.FS, dir string, names ...string) error {
	for _, name := range names {
		if err := fs.Remove(fs.PathJoin(dir, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("remove offsets: %w", err)
		}
	}
	return syncDir(fs, dir)
}
