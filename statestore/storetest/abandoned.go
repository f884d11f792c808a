// Package storetest helps tests whose state stores meet faults of the disk.
package storetest

import "go.uber.org/goleak"

// Abandoned ignores the goroutines of a Pebble that met a fault of the disk from which it
// has no way back: they stand where they are until the process ends.
func Abandoned() []goleak.Option {
	const pebble = "github.com/cockroachdb/pebble/v2."
	return []goleak.Option{
		goleak.IgnoreAnyFunction("github.com/lacunamq/lacuna/statestore.(*DB).abandon"),
		goleak.IgnoreAnyFunction(pebble + "(*DB).Close"),
		goleak.IgnoreAnyFunction(pebble + "(*DB).AsyncFlush"),
		goleak.IgnoreAnyFunction(pebble + "(*commitPipeline).Commit"),
		goleak.IgnoreAnyFunction(pebble + "(*DB).compact"),
		goleak.IgnoreAnyFunction(pebble + "(*DB).flush"),
		goleak.IgnoreAnyFunction(pebble + "(*cleanupManager).mainLoop"),
		goleak.IgnoreAnyFunction("github.com/cockroachdb/pebble/v2/record.(*LogWriter).flushLoop"),
		goleak.IgnoreAnyFunction("github.com/cockroachdb/pebble/v2/internal/genericcache.(*shard[...]).releaseLoop"),
	}
}
