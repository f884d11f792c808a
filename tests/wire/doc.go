// Package wire speaks Kafka's protocol one request at a time, without the caches, the
// retries and the batching of a client, for tests and benchmarks that have to see every
// byte and every answer.
package wire
