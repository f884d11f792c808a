//go:build race

package keyfilter

const raceEnabled = true
