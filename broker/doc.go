// Package broker is the server: listeners and connections, one handler file for each
// API of Kafka's protocol, the coordinators' runtimes, and the I/O and clocks that the
// pure packages leave to it.
//
// A program or a test starts one with Start and ends it with Stop; the lacuna binary
// does the same.
package broker
