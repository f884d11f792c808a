//go:build !race

package cooperative

const raceEnabled = false
