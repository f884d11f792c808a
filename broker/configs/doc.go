// Package configs holds the settings of brokers, topics, groups and client metrics:
// their names, types, defaults and ranges, which are Apache Kafka 4.4's, and Lacuna's
// own; how a value comes about from what was set where; what a change may do; and how
// all of it is described to Kafka's tools.
//
// A setting that Kafka has and that means nothing to a single node, or to batches that
// are kept as they were produced, is still checked, stored and described, since tools
// set it; its documentation says that it has no effect. Settings of features that Lacuna
// does not have, such as TLS keys, are unknown names and refused.
//
// The package is pure.
package configs
