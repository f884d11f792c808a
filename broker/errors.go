package broker

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/lacunamq/lacuna/broker/metadata"
	"github.com/lacunamq/lacuna/commitlog"
	"github.com/lacunamq/lacuna/protocol"
	"github.com/twmb/franz-go/pkg/kerr"
	"go.uber.org/zap"
)

// wireErrors maps the errors of the packages below to Kafka's codes. The first match
// counts, so a more specific error stands before one that it wraps.
var wireErrors = []struct {
	err  error
	code *kerr.Error
}{
	{protocol.ErrUnsupportedMagic, kerr.InvalidRecord},
	{protocol.ErrInvalidRecord, kerr.InvalidRecord},
	{protocol.ErrTooLarge, kerr.MessageTooLarge},
	{protocol.ErrUnknownCodec, kerr.UnsupportedCompressionType},
	{protocol.ErrCorruptCompression, kerr.InvalidRecord},
	{protocol.ErrInvalidExtension, kerr.InvalidRequest},
	{protocol.ErrInvalidTimestamp, kerr.InvalidTimestamp},
	{protocol.ErrCorruptBatch, kerr.CorruptMessage},
	{commitlog.ErrOffsetOutOfRange, kerr.OffsetOutOfRange},
	{commitlog.ErrOutOfOrderSequence, kerr.OutOfOrderSequenceNumber},
	{commitlog.ErrInvalidTxnState, kerr.InvalidTxnState},
	{commitlog.ErrInvalidProducerEpoch, kerr.InvalidProducerEpoch},
	{commitlog.ErrTooLarge, kerr.MessageTooLarge},
	{commitlog.ErrInvalidTimestamp, kerr.InvalidTimestamp},
	{commitlog.ErrNoSpace, kerr.KafkaStorageError},
	{commitlog.ErrReadOnly, kerr.KafkaStorageError},
	{commitlog.ErrClosed, kerr.NotLeaderForPartition},
	{context.Canceled, kerr.NotLeaderForPartition}, // the broker stops, or nobody is there to be told
}

// errorCode gives the code that a client is answered for err, and a message if there is
// more to say than the code. An error that no client can cause is logged.
func (b *Broker) errorCode(err error) (int16, string) {
	var ke *kerr.Error
	if errors.As(err, &ke) {
		if err == error(ke) {
			return ke.Code, ""
		}
		return ke.Code, err.Error()
	}
	for _, w := range wireErrors {
		if errors.Is(err, w.err) {
			return w.code.Code, err.Error()
		}
	}
	b.log.Error("a request failed", zap.Error(err))
	if diskFault(err) {
		return kerr.KafkaStorageError.Code, err.Error()
	}
	return kerr.UnknownServerError.Code, err.Error()
}

// diskFault tells an error of the file system.
func diskFault(err error) bool {
	var path *fs.PathError
	var link *os.LinkError
	var call *os.SyscallError
	return errors.As(err, &path) || errors.As(err, &link) || errors.As(err, &call)
}

// refusal is an answer of kind that tells a person more than its code.
func refusal(kind *kerr.Error, format string, args ...any) error {
	return &metadata.Error{Kind: kind, Message: fmt.Sprintf(format, args...)}
}

// errorAnswer is errorCode with the message as answers carry it.
func (b *Broker) errorAnswer(err error) (code int16, message *string) {
	code, text := b.errorCode(err)
	if text != "" {
		message = &text
	}
	return code, message
}
