// Command lacuna is the broker and the tools around it, in one binary.
//
//	lacuna serve      runs a broker; needs no configuration
//	lacuna topics     creates, lists, describes, deletes and configures topics
//	lacuna produce    writes lines from standard input
//	lacuna consume    writes records to standard output
//	lacuna groups     shows what groups have committed, draws the gaps, reopens, resets
//	lacuna processors shows who of a group of stateful processors has which keys
//	lacuna fsck       checks a data directory while no broker uses it
//	lacuna version    says which version this is
//
// The tools speak Kafka's protocol. All but the parts about slots, keys and single
// offsets work with any Kafka-protocol broker.
package main
