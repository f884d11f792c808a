// Package metadata is what the cluster knows of itself: topics and their settings,
// settings of the broker and of groups, and the producer ids that are given away.
//
// An Image is one immutable state of it. Operations look at an image and return the
// records that would change it; a Draft applies records, alike while the broker runs
// and when it recovers. The package is pure.
package metadata
