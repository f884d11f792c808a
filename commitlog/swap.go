package commitlog

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"go.uber.org/zap"
)

// Compaction writes a segment anew under two other names: the batches as .cleaned, and
// the index as .swap. The durable .swap is the decision: from then on the new files
// replace those of every segment in the range that the index covers, now or at the next
// Open.
const (
	cleanedExt = ".cleaned"
	swapExt    = ".swap"
	droppedExt = ".log.dropped" // a segment that recovery could not use
)

// finishSwap carries out swaps that were decided before a crash, and lists the
// directory again.
func (r *loader) finishSwap(names []string) ([]string, error) {
	d := &r.log.disk
	found := false
	for _, name := range names {
		base, ext, ok := parseSegmentName(name)
		if !ok || ext != swapExt {
			continue
		}
		found = true
		x, err := d.readIndex(base, swapExt)
		if err == nil {
			err = d.checkSwap(&x.header)
		}
		if errors.Is(err, errCorruptFile) {
			r.log.logger.Error("forget a compaction", zap.String("partition", r.log.opts.Name), zap.Error(err))
			err = d.remove(name)
		} else if err == nil {
			err = d.completeSwap(base, x.header.next, names)
		}
		if err != nil {
			return nil, err
		}
	}
	if !found {
		return names, nil
	}
	names, err := d.fs.List(d.dir)
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", d.dir, err)
	}
	return names, nil
}

// checkSwap checks that the batches of a swap are there, as .cleaned or in place already.
func (d *disk) checkSwap(h *indexHeader) error {
	for _, ext := range []string{cleanedExt, logExt} {
		info, err := d.fs.Stat(d.path(segmentName(h.base, ext)))
		switch {
		case err == nil && info.Size() == h.dataBytes:
			return nil
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return err
		case err == nil:
			return fmt.Errorf("%w: %s has %d bytes, its swap says %d", errCorruptFile, d.path(segmentName(h.base, ext)), info.Size(), h.dataBytes)
		}
	}
	return fmt.Errorf("%w: the batches of %s are missing", errCorruptFile, segmentName(h.base, swapExt))
}

// completeSwap puts the new files of the segment at base in place of all of [base,
// next), among names. It may be repeated after a crash at any point.
func (d *disk) completeSwap(base, next int64, names []string) error {
	for _, name := range names {
		b, ext, ok := parseSegmentName(name)
		old := ok && (b == base && ext != logExt && ext != cleanedExt && ext != swapExt || b > base && b < next)
		if !old {
			continue
		}
		if err := d.remove(name); err != nil {
			return err
		}
	}
	cleaned := segmentName(base, cleanedExt)
	if slices.Contains(names, cleaned) {
		err := d.rename(cleaned, segmentName(base, logExt))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := d.syncDir(); err != nil {
		return err
	}
	if err := d.rename(segmentName(base, swapExt), segmentName(base, indexExt)); err != nil {
		return err
	}
	return d.syncDir()
}
