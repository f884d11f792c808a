package broker

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// call is one request as its handler sees it.
type call struct {
	// ctx ends when the connection does, and when the broker stops.
	ctx           context.Context
	conn          *conn
	version       int16
	correlationID int32
	clientID      string
	// answer is what a begun request answers when it has nothing to wait for.
	answer kmsg.Response
	// release is called once the answer has been sent or given up.
	release func()
	// unsent is called before it, if the answer could not be sent.
	unsent func()

	room        *room // the request's
	answerBytes int   // of an answer that is larger than its request lets expect
}
