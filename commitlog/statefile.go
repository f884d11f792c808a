package commitlog

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"strings"
)

const (
	stateName   = "state"
	stateHead   = "lacuna partition log, version 1\n"
	stateMaxLen = 16 << 20
)

// logState is what a log knows besides its segments. It is one small text file,
// replaced whole:
//
//	lacuna partition log, version 1
//	start 1200
//	cleaned 900
//	holes 1000
//	suspect 1000 65536
//	epoch 0 0
//	epoch 1 1100
//	crc32c 89abcdef
type logState struct {
	start   int64 // the log start offset: what is below was deleted
	cleaned int64 // compaction has been through what is below
	holes   int64 // ... or was at it: offsets may be missing below

	// suspect names the segment whose fsync failed and the bytes of it that were durable
	// before; the rest is not believed, whatever it looks like. -1: none.
	suspectBase, suspectBytes int64

	epochs epochHistory
}

// newLogState is the state of a log without a state file.
func newLogState() logState {
	return logState{suspectBase: -1, epochs: epochHistory{{epoch: 0, start: 0}}}
}

func (s *logState) appendTo(dst []byte) []byte {
	start := len(dst)
	dst = append(dst, stateHead...)
	dst = fmt.Appendf(dst, "start %d\ncleaned %d\nholes %d\n", s.start, s.cleaned, s.holes)
	if s.suspectBase >= 0 {
		dst = fmt.Appendf(dst, "suspect %d %d\n", s.suspectBase, s.suspectBytes)
	}
	for _, e := range s.epochs {
		dst = fmt.Appendf(dst, "epoch %d %d\n", e.epoch, e.start)
	}
	return fmt.Appendf(dst, "crc32c %08x\n", crc32.Checksum(dst[start:], castagnoli))
}

func parseLogState(b []byte) (logState, error) {
	bad := func(what string) (logState, error) {
		return logState{}, fmt.Errorf("%w: state file: %s", errCorruptFile, what)
	}
	text := string(b)
	sumAt := strings.LastIndex(text, "crc32c ")
	if !strings.HasPrefix(text, stateHead) || sumAt < len(stateHead) {
		return bad("not of version 1")
	}
	if text[sumAt:] != fmt.Sprintf("crc32c %08x\n", crc32.Checksum(b[:sumAt], castagnoli)) {
		return bad("checksum")
	}
	s := logState{suspectBase: -1}
	for line := range strings.Lines(text[len(stateHead):sumAt]) {
		if err := s.parseLine(line); err != nil {
			return bad(err.Error())
		}
	}
	if len(s.epochs) == 0 || s.start < 0 || s.cleaned < 0 || s.holes < 0 || s.suspectBytes < 0 {
		return bad("numbers out of range")
	}
	return s, nil
}

func (s *logState) parseLine(line string) error {
	word, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
	var err error
	switch word {
	case "start":
		_, err = fmt.Sscanf(rest, "%d", &s.start)
	case "cleaned":
		_, err = fmt.Sscanf(rest, "%d", &s.cleaned)
	case "holes":
		_, err = fmt.Sscanf(rest, "%d", &s.holes)
	case "suspect":
		_, err = fmt.Sscanf(rest, "%d %d", &s.suspectBase, &s.suspectBytes)
	case "epoch":
		var e epochStart
		_, err = fmt.Sscanf(rest, "%d %d", &e.epoch, &e.start)
		if n := len(s.epochs); err == nil && n > 0 && (e.epoch <= s.epochs[n-1].epoch || e.start <= s.epochs[n-1].start) {
			return errors.New("epochs out of order")
		}
		s.epochs = append(s.epochs, e)
	default:
		return fmt.Errorf("unknown line %q", line)
	}
	return err
}

// readState reads the state file. found is false if there is none, the state is then
// that of a new log; an unreadable one is errCorruptFile.
func (d *disk) readState() (s logState, found bool, err error) {
	data, err := d.read(stateName, stateMaxLen)
	if errors.Is(err, fs.ErrNotExist) {
		return newLogState(), false, nil
	}
	if err != nil {
		return newLogState(), false, err
	}
	s, err = parseLogState(data)
	if err != nil {
		return newLogState(), true, fmt.Errorf("%s: %w", d.path(stateName), err)
	}
	return s, true, nil
}

// putState replaces the state file; syncDir makes it last.
func (d *disk) putState(s *logState) error {
	if err := d.syncParent(); err != nil {
		return err
	}
	return d.replace(stateName, s.appendTo(nil))
}

// writeState replaces the state file, durably.
func (d *disk) writeState(s *logState) error {
	if err := d.putState(s); err != nil {
		return err
	}
	return d.syncDir()
}
