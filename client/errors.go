package client

import (
	"errors"
	"fmt"

	"github.com/lacunamq/lacuna/protocol"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

var (
	// ErrClosed is returned by a Reader after Close.
	ErrClosed = errors.New("the reader is closed")

	// ErrNoGroup is returned by calls that need a group, of a Reader that has none.
	ErrNoGroup = errors.New("the reader has no group: give it one with client.Group")

	// ErrNotAssigned is returned by commits to a topic partition that the Reader does
	// not read.
	ErrNotAssigned = errors.New("the reader does not read this topic partition")

	// ErrNoEcho marks an answer without the tagged field that answers our own. The
	// broker, or something between us and it, dropped the field, so nothing can be said
	// about what it did.
	ErrNoEcho = errors.New("the answer lacks the extension's field: the broker, or a proxy before it, dropped it")

	// ErrTopicRecreated marks a topic that was deleted and made anew under the same
	// name since the Reader started. The new topic shares nothing with the old one, and
	// a commit of an old record must not reach it.
	ErrTopicRecreated = errors.New("the topic was deleted and made anew: open a new reader")

	// ErrTruncated marks a record that its log has lost since it was delivered, as after
	// a crash of a broker that runs without fsync. Its offset may hold another record now.
	ErrTruncated = errors.New("the log lost this record after it was delivered")

	// ErrBatchTooLarge marks a batch that decompresses to more than
	// kgo.MaxDecompressBatchBytes allows; 128 MiB, unless [KafkaOpts] sets another bound.
	ErrBatchTooLarge = errors.New("a batch is too large once it is decompressed")

	// ErrBadRuns marks runs of offsets that are empty, inverted or negative.
	ErrBadRuns = errors.New("bad run of offsets")

	// ErrNoPosition marks a partition without a committed offset, or whose position
	// left the log, under [NoReset].
	ErrNoPosition = errors.New("no position to read from, and the reader was told not to reset")
)

// ErrRevoked marks what a [GroupReader], or a Reader of a [Member], could no longer do with
// records that went to another member of the group, or may have.
var ErrRevoked = errors.New("the range of this record was taken from this member of the group")

// revokedError is ErrRevoked with the reason.
type revokedError struct{ err error }

// Error implements error.
func (e *revokedError) Error() string { return ErrRevoked.Error() + ": " + e.err.Error() }

// Unwrap returns the sentinel and the error below.
func (e *revokedError) Unwrap() []error { return []error{ErrRevoked, e.err} }

// fenced tells that a broker knows no such member, or not in that generation.
func fenced(err error) bool {
	return errors.Is(err, kerr.UnknownMemberID) || errors.Is(err, kerr.IllegalGeneration) ||
		errors.Is(err, kerr.FencedInstanceID) || errors.Is(err, kerr.RebalanceInProgress)
}

// FeatureError says that a broker lacks a feature that the call needs: it is not Lacuna,
// is too old, or has the feature switched off.
type FeatureError struct {
	Feature string // as in ApiVersions' supported features
	Broker  string // host:port or node id, as far as known
}

// Error implements error.
func (e *FeatureError) Error() string {
	why := "it is not a Lacuna broker, or an old one"
	if e.Feature == protocol.FeatureIndividualCommit {
		why = "it is not a Lacuna broker, or has individual.commit.enable=false"
	}
	return fmt.Sprintf("broker %s does not offer %s: %s", e.Broker, e.Feature, why)
}

// PartitionError is an error about one topic partition, and one group if Group is not
// empty.
type PartitionError struct {
	Topic     string
	Partition int32
	Group     string
	Doing     string // what was tried, such as "commit"
	Err       error
}

// Error implements error.
func (e *PartitionError) Error() string {
	where := fmt.Sprintf("%s[%d]", e.Topic, e.Partition)
	if e.Group != "" {
		where += " of group " + e.Group
	}
	return fmt.Sprintf("%s %s: %v%s", e.Doing, where, e.Err, advice(e.Err))
}

// Unwrap returns the error below.
func (e *PartitionError) Unwrap() error { return e.Err }

// GroupError is an error about a whole group.
type GroupError struct {
	Group string
	Doing string // what was tried, such as "read the ledger"
	Err   error
}

// Error implements error.
func (e *GroupError) Error() string {
	return fmt.Sprintf("%s of group %s: %v%s", e.Doing, e.Group, e.Err, advice(e.Err))
}

// Unwrap returns the error below.
func (e *GroupError) Unwrap() error { return e.Err }

// advice is what a person can do about err, to be put behind its text; empty if there is
// nothing to add to it.
func advice(err error) string {
	switch {
	case errors.Is(err, ErrRevoked):
		return ""
	case errors.Is(err, kerr.UnknownMemberID), errors.Is(err, kerr.IllegalGeneration), errors.Is(err, kerr.StaleMemberEpoch):
		return " (the group has members; stop its consumers, or use another group)"
	case errors.Is(err, kerr.OffsetOutOfRange):
		return " (an offset at or past the end of the log, or one that retention removed)"
	case errors.Is(err, kerr.PolicyViolation):
		return " (the topic has individual.commit.enable=false, or the broker's ledgers are at individual.commit.max.memory.bytes)"
	case errors.Is(err, kerr.UnknownTopicOrPartition), errors.Is(err, kerr.UnknownTopicID):
		return " (no such topic or partition; it may have been deleted)"
	case errors.Is(err, kerr.GroupIDNotFound):
		return " (no such group, or a group of another type)"
	}
	return ""
}

// retriable tells that the same request may succeed later without anybody's doing.
func retriable(err error) bool {
	switch {
	case err == nil:
		return false
	case errors.Is(err, kerr.UnknownTopicOrPartition), errors.Is(err, kerr.UnknownTopicID):
		return false // retriable to Kafka, while metadata spreads; decided where it matters
	}
	return kerr.IsRetriable(err)
}

// permanent tells that a request that got no answer will not get one later either.
func permanent(err error) bool {
	var code *kerr.Error
	return errors.Is(err, kgo.ErrClientClosed) || errors.As(err, &code) && !code.Retriable
}
