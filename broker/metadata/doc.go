// Package metadata is what the cluster knows of itself: topics and their settings, the
// settings of brokers, groups and client metrics, the producer ids that are given away,
// the finalized features.
//
// An Image is one immutable state of it. Operations look at an image and return the
// records that would change it, or an error with Kafka's code; a Draft applies records,
// alike while the broker runs and when it recovers; the caller logs them in between.
// Records are keyed, so that their log may be compacted; keys are text and values JSON,
// for people to read. The package is pure.
package metadata
