package configs

import (
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

func invalidConfig(format string, args ...any) error {
	return &Error{kerr.InvalidConfig, fmt.Sprintf(format, args...)}
}

func invalidRequest(format string, args ...any) error {
	return &Error{kerr.InvalidRequest, fmt.Sprintf(format, args...)}
}

// asRequestError is err as INVALID_REQUEST, which is what Kafka answers for values of
// brokers and client metrics.
func asRequestError(err error) error {
	if err == nil {
		return nil
	}
	return &Error{kerr.InvalidRequest, err.Error()}
}
