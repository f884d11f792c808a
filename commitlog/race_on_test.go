//go:build race

package commitlog

// raceSlowdown divides what random tests do when the race detector is on.
const raceSlowdown = 10
