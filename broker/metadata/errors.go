package metadata

import (
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
)

// Error is a refusal: which of Kafka's errors, and what a person should read.
type Error struct {
	Kind    *kerr.Error
	Message string
}

func (e *Error) Error() string { return e.Message }

func (e *Error) Unwrap() error { return e.Kind }

func refuse(kind error, format string, args ...any) error {
	var ke *kerr.Error
	errors.As(kind, &ke)
	return &Error{Kind: ke, Message: fmt.Sprintf(format, args...)}
}

// The errors of operations, which are Kafka's.
var (
	ErrInvalidTopicName  error = kerr.InvalidTopicException
	ErrTopicExists       error = kerr.TopicAlreadyExists
	ErrUnknownTopic      error = kerr.UnknownTopicID
	ErrInvalidPartitions error = kerr.InvalidPartitions
	ErrInternalTopic     error = kerr.InvalidRequest
)

// ErrBadRecord marks a record that cannot be read or contradicts another: the log holds
// what no operation wrote.
var ErrBadRecord = errors.New("metadata record not understood")
