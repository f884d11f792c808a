// Package tests tries to break the whole broker: with bad input, crashes, kills and
// faults of the disk, while it judges the promises that Lacuna makes.
//
// What is random comes from seeds that a failure names. LACUNA_SEEDS multiplies their
// number, and LACUNA_LONG=1 makes the runs as long as continuous integration wants them.
package tests
