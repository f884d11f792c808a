// Limits measures what the machine itself can do: memory, hashes, decoding, loopback,
// disk, Pebble.
package main

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/lacunamq/lacuna/bench/peers/load"
)

// sink takes results, so that the compiler does not leave work out.
var sink uint64

func main() {
	dir := flag.String("dir", os.TempDir(), "where to write")
	only := flag.String("only", "", "mem|hash|wire|acks|net|disk|pebble")
	flag.Parse()
	fmt.Printf("%-46s %12s %12s %12s\n", "", "min", "median", "max")
	for _, part := range []struct {
		name    string
		measure func()
	}{
		{"mem", memory}, {"hash", hashes}, {"wire", wire}, {"acks", acks}, {"net", loopback},
		{"disk", func() { disk(*dir) }}, {"pebble", func() { pebbleCommits(*dir) }},
	} {
		if *only == "" || *only == part.name {
			fmt.Printf("-- %s, load1 %.2f\n", part.name, load.Load1())
			part.measure()
		}
	}
}

// report runs a measurement several times and prints the least, the median and the most.
func report(name, unit string, times int, measure func() float64) {
	var v []float64
	for range times {
		v = append(v, measure())
	}
	slices.Sort(v)
	fmt.Printf("%-46s %12.2f %12.2f %12.2f %s\n", name, v[0], v[len(v)/2], v[len(v)-1], unit)
}

// perOp measures nanoseconds for each of n operations.
func perOp(n int, f func(n int)) func() float64 {
	return func() float64 {
		start := time.Now()
		f(n)
		return float64(time.Since(start).Nanoseconds()) / float64(n)
	}
}
