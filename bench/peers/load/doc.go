// Package load is what the load drivers share: keys and values, a histogram, readings of
// the server's process, the queue workloads, and the line of JSON that tells of a run.
package load
