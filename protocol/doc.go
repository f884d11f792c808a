// Package protocol holds what Lacuna itself must know of Kafka's bytes: frames and
// request headers, record batches of magic 2 with their records and codecs, control
// batches, the answer to Fetch, and the tagged fields of Lacuna's extension. All other
// requests and responses are kmsg's.
//
// The package is pure: no clock, no goroutine, no state but pools of buffers and codecs.
// It trusts no length, count or checksum that it is given: each is checked before it is
// used to allocate, index or loop. In steady state nothing on the paths of produce and
// fetch allocates: what grows is the caller's.
//
//	frame.go           frames, request and response headers
//	batch.go           the header of a batch, and the edits that storing it needs
//	records.go         the records of a decoded batch; headers.go theirs
//	produced.go        what a producer's batch must satisfy
//	builder.go         new batches, and stored ones with some of their records
//	pool.go            what the codecs keep for the next batch
//	marker.go          the control batch that ends a transaction
//	compress*.go       the codecs, with bounded output
//	fetch_response.go  the answer to Fetch without a copy of the records
//	extension*.go      the extension's fields
package protocol
