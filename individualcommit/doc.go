// Package individualcommit keeps what a group has committed of a topic partition when
// any offset can be committed on its own.
package individualcommit
