package filter

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"go.uber.org/zap"

	"github.com/lacunamq/lacuna/commitlog"
	"github.com/lacunamq/lacuna/keyfilter"
)

// Log is what a filtered fetch needs of a partition's log; a *commitlog.Log has it.
type Log interface {
	Name() string
	Bounds() commitlog.Bounds
	// Err is commitlog.ErrClosed once the log was closed or removed.
	Err() error
	Read(dst []byte, from int64, o commitlog.ReadOptions) (commitlog.Read, error)

	// Segments lists the segments by their base offsets. What follows takes one of these,
	// and is commitlog.ErrSegmentGone if it was deleted or compacted since.
	Segments() []commitlog.SegmentInfo
	// ReadSegment fills p from pos on, less of it only at the segment's end.
	ReadSegment(s commitlog.SegmentInfo, pos int64, p []byte) (int, error)
	// Position is where the batch lies that holds offset, which the segment reaches
	// beyond, or the first batch behind it.
	Position(s commitlog.SegmentInfo, offset int64) (int64, error)
	// CheckBatch checks a header that was read where offset next is expected, or a batch
	// that began before it if first is set: what a batch's own checksum does not cover.
	CheckBatch(s commitlog.SegmentInfo, b []byte, next int64, first bool) error

	// SideFile reads, and WriteSideFile replaces, a file that lives and dies with the
	// segment; fs.ErrNotExist if there is none.
	SideFile(s commitlog.SegmentInfo, ext string) ([]byte, error)
	WriteSideFile(s commitlog.SegmentInfo, ext string, data []byte) error
}

// Config bounds what a Reader holds. Zero values take the defaults.
type Config struct {
	// DecodedCacheBytes is for decoded batches. Readers of one partition share a batch
	// as long as they are not further apart than this. 64 MiB by default.
	DecodedCacheBytes int64

	// IndexCacheBytes is for slot indexes. A segment whose index alone is larger is read
	// without one. 128 MiB by default.
	IndexCacheBytes int64

	// Decoding bounds the batches that are being decompressed: one that would be larger is
	// passed on as it is. nil: protocol.DefaultMaxDecodedBytes each, one a processor.
	Decoding *commitlog.DecodeLimiter

	// Logger tells of slot indexes that could not be read or saved; nil: nobody.
	Logger *zap.Logger
}

func (c Config) withDefaults() Config {
	if c.DecodedCacheBytes <= 0 {
		c.DecodedCacheBytes = 64 << 20
	}
	if c.IndexCacheBytes <= 0 {
		c.IndexCacheBytes = 128 << 20
	}
	if c.Decoding == nil {
		c.Decoding = commitlog.NewDecodeLimiter(runtime.GOMAXPROCS(0), 0)
	}
	if c.Logger == nil {
		c.Logger = zap.NewNop()
	}
	return c
}

// Reader serves filtered fetches of any number of partitions. Its methods may be called
// from any goroutine.
type Reader struct {
	config  Config
	decoded *decodedCache
	indexes *indexCache
	counts  counters

	mu struct {
		sync.Mutex
		partitions map[Log]*partition
	}
}

// New makes a Reader.
func New(c Config) *Reader {
	c = c.withDefaults()
	r := &Reader{
		config:  c,
		decoded: newDecodedCache(c.DecodedCacheBytes),
		indexes: newIndexCache(c.IndexCacheBytes),
	}
	r.mu.partitions = make(map[Log]*partition)
	return r
}

// Options is what a fetch asks for besides its filter.
type Options struct {
	// UpTo is the high watermark, or the last stable offset under read_committed: no batch
	// that reaches beyond it is looked at.
	UpTo int64

	// MaxBytes bounds what is sent.
	MaxBytes int

	// MinOne lets the first batch through, however large it is.
	MinOne bool

	// MaxScanBytes is fetch.filter.max.scan.bytes: a fetch that has looked at so much of
	// the log and its slot indexes answers with what it has. 0: no bound.
	MaxScanBytes int64
}

// Fetched is the outcome of a fetch.
type Fetched struct {
	// Data is the slice given, with the batches to send appended: as stored when all
	// records of one match, else rebuilt with those that do.
	Data []byte

	// Matching is how many bytes of Data count for min_bytes: all but control batches.
	Matching int

	// Next is where to fetch from next. Every matching record from the asked offset up to
	// it is in Data. It is never above UpTo.
	Next int64

	// ScanBound tells that the fetch stopped at MaxScanBytes, and so answers at once.
	ScanBound bool
}

// Fetch appends to dst the batches of log that the filter leaves from offset from on.
// A from below the log start is commitlog.ErrOffsetOutOfRange.
//
// Control batches, and batches that cannot be decoded, are passed as they are. An
// answer may also hold records before from, of the batch that holds it.
func (r *Reader) Fetch(log Log, dst []byte, from int64, f *keyfilter.Filter, o Options) (Fetched, error) {
	if f.All() {
		return r.fetchAll(log, dst, from, o)
	}
	s := scans.Get().(*scan)
	defer s.release()
	s.begin(r, log, dst, from, f, o)
	err := s.run()
	switch {
	case err == nil, s.next > from && !errors.Is(err, commitlog.ErrClosed):
		// What was found before the error is good; the next fetch meets it again.
		return Fetched{Data: s.dst, Matching: s.matching, Next: s.next, ScanBound: s.scanBound && s.next < o.UpTo}, nil
	default:
		return Fetched{Data: s.dst[:len(dst)], Next: from}, fmt.Errorf("filtered fetch of %s from offset %d: %w", log.Name(), from, err)
	}
}

// Scan has visit see, in their order, the batches of log from offset from on in which
// something may match, as far as o.UpTo and o.MaxScanBytes let it, and control batches. It
// returns up to where it went: no record below it that matches was passed over. A batch is
// good until visit returns. Errors are those of Fetch.
func (r *Reader) Scan(log Log, from int64, f *keyfilter.Filter, o Options, visit func(*keyfilter.Decoded)) (next int64, err error) {
	s := scans.Get().(*scan)
	defer s.release()
	s.begin(r, log, nil, from, f, o)
	s.visit = visit
	if err := s.run(); err != nil && (s.next == from || errors.Is(err, commitlog.ErrClosed)) {
		return from, fmt.Errorf("filtered scan of %s from offset %d: %w", log.Name(), from, err)
	}
	return s.next, nil
}

// fetchAll serves a filter that all records match, as that of a reader who has the slots
// to itself: nothing is to be decoded.
func (r *Reader) fetchAll(log Log, dst []byte, from int64, o Options) (Fetched, error) {
	read, err := log.Read(dst, from, commitlog.ReadOptions{MaxBytes: o.MaxBytes, UpTo: o.UpTo, MinOne: o.MinOne})
	if err != nil {
		return Fetched{Data: dst, Next: from}, fmt.Errorf("filtered fetch of %s from offset %d: %w", log.Name(), from, err)
	}
	return Fetched{Data: read.Data, Matching: len(read.Data) - len(dst), Next: read.Next}, nil
}

// partition is the state of a log, which is kept unless the log was closed.
func (r *Reader) partition(log Log) *partition {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.mu.partitions[log]
	if p == nil {
		p = newPartition(r, log)
		if !errors.Is(log.Err(), commitlog.ErrClosed) {
			r.mu.partitions[log] = p
		}
	}
	return p
}

// Forget drops what is held for a log that was closed. Fetches that come later find it so.
func (r *Reader) Forget(log Log) {
	r.mu.Lock()
	p := r.mu.partitions[log]
	delete(r.mu.partitions, log)
	r.mu.Unlock()
	if p != nil {
		p.forget()
	}
}

// counters count since the Reader was made.
type counters struct {
	decodes, undecodable, reads, readBytes atomic.Int64
	indexLoads, indexSaves, indexFaults    atomic.Int64
}

// Stats are counts since the Reader was made, and what it holds now.
type Stats struct {
	BatchesDecoded    int64 // read from a log, decompressed and hashed
	BatchesUndecoded  int64 // of those, passed on whole since they could not be
	SegmentReads      int64 // reads from log files
	SegmentReadBytes  int64
	IndexesLoaded     int64 // slot indexes read back from a file
	IndexesSaved      int64
	IndexFaults       int64 // slot indexes that were bad, or could not be saved
	DecodedCacheBytes int64 // held now
	IndexCacheBytes   int64 // held now
}

// Stats are the counts for metrics.
func (r *Reader) Stats() Stats {
	c := &r.counts
	return Stats{
		BatchesDecoded:    c.decodes.Load(),
		BatchesUndecoded:  c.undecodable.Load(),
		SegmentReads:      c.reads.Load(),
		SegmentReadBytes:  c.readBytes.Load(),
		IndexesLoaded:     c.indexLoads.Load(),
		IndexesSaved:      c.indexSaves.Load(),
		IndexFaults:       c.indexFaults.Load(),
		DecodedCacheBytes: r.decoded.bytes(),
		IndexCacheBytes:   r.indexes.bytes(),
	}
}
