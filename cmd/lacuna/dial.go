package main

import (
	"errors"
	"net"
)

// isDialError tells that no connection came about: nobody listens, or no such host.
func isDialError(err error) bool {
	var op *net.OpError
	var dns *net.DNSError
	return errors.As(err, &op) && op.Op == "dial" || errors.As(err, &dns)
}
