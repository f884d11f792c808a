// Package protocol holds what Lacuna itself must know of Kafka's bytes: framing,
// record batches of magic 2, and the tagged fields of Lacuna's extension.
// Requests and responses are kmsg's. The package is pure: no I/O, no clock, no
// goroutine.
package protocol
