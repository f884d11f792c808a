package tests

import (
	"bytes"
	"fmt"
	"strings"
)

// eosDropped tells that an input is acknowledged without an output.
func eosDropped(input int64) bool { return input%37 == 36 }

// eosOutput is what is made of an input.
type eosOutput struct {
	attempt string // the transaction
	of      int    // how many outputs that has
	input   int64  // offset
	key     string
}

func (o *eosOutput) encode() []byte {
	return fmt.Appendf(nil, "output %s %d %d %s", o.attempt, o.of, o.input, o.key)
}

// parseEOSOutput reads an output. A filler, which comes beside the outputs of its attempt,
// has no input.
func parseEOSOutput(value string) (o eosOutput, err error) {
	if attempt, ok := strings.CutPrefix(value, "filler "); ok {
		return eosOutput{attempt: strings.TrimRight(attempt, "\x00"), input: -1}, nil
	}
	_, err = fmt.Sscanf(value, "output %s %d %d %s", &o.attempt, &o.of, &o.input, &o.key)
	if err != nil {
		err = fmt.Errorf("output %.100q: %w", value, err)
	}
	return o, err
}

// eosFiller is so large that a Transactor sends it before its unit of work has returned.
func eosFiller(attempt string) []byte {
	value := bytes.Repeat([]byte{0}, 1<<20)
	copy(value, "filler "+attempt)
	return value
}
