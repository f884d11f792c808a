//go:build !race

package keyfilter

const raceEnabled = false
