package client

import (
	"errors"
	"fmt"

	"github.com/lacunamq/lacuna/protocol"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// errUnanswered is what is wrong with an answer that leaves out a partition.
var errUnanswered = errors.New("the broker did not answer for the partition")

// answerError is what is wrong with an answer, in the broker's words where it says more than
// the code; nil if nothing is.
func answerError(code int16, message *string) error {
	err := kerr.ErrorForCode(code)
	if err == nil || message == nil || *message == "" {
		return err
	}
	return fmt.Errorf("%w: %s", err, *message)
}

// findPartition looks a partition up in the topics of an answer, which names them by name or
// by id, as its version has it. open gives what a topic holds, number the number of a
// partition. It fails with errUnanswered.
func findPartition[T, P any](topics []T, tp TopicPartition, id topicID,
	open func(*T) (name string, id topicID, partitions []P), number func(*P) int32,
) (*P, error) {
	for i := range topics {
		name, named, partitions := open(&topics[i])
		if name != tp.Topic && (named == topicID{} || named != id) {
			continue
		}
		for j := range partitions {
			if p := &partitions[j]; number(p) == tp.Partition {
				return p, nil
			}
		}
	}
	return nil, errUnanswered
}

// individualState is what a partition's answer to individual commits says, with its echo.
func individualState(code int16, tags *kmsg.Tags) (protocol.IndividualState, error) {
	if err := kerr.ErrorForCode(code); err != nil {
		return protocol.IndividualState{}, err
	}
	echo, ok := extension(tags)
	if !ok {
		return protocol.IndividualState{}, ErrNoEcho
	}
	return protocol.ParseIndividualState(echo)
}

// extension is the value of the extension's tag, if there is one.
func extension(tags *kmsg.Tags) (value []byte, ok bool) {
	tags.Each(func(tag uint32, v []byte) {
		if tag == protocol.ExtensionTag {
			value, ok = v, true
		}
	})
	return value, ok
}
