//go:build !race

package commitlog

const raceSlowdown = 1
