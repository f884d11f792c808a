package main

import (
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/lacunamq/lacuna/client"
)

// parseRuns reads offsets as people write them, "7,10-12", both ends included.
func parseRuns(flag, text string) (runs []client.Run, err error) {
	for _, part := range strings.Split(text, ",") {
		from, to, isRange := strings.Cut(strings.TrimSpace(part), "-")
		if !isRange {
			to = from
		}
		first, err1 := strconv.ParseInt(strings.TrimSpace(from), 10, 64)
		last, err2 := strconv.ParseInt(strings.TrimSpace(to), 10, 64)
		if err1 != nil || err2 != nil || first < 0 || last < first || last == math.MaxInt64 {
			return nil, usagef("%s %q: offsets have the form 7,10-12", flag, part)
		}
		runs = append(runs, client.Run{Start: first, End: last + 1})
	}
	return runs, nil
}

// parseSlots reads a slot range, "0-16383", both ends included, or a single slot.
func parseSlots(text string) (client.SlotRange, error) {
	from, to, isRange := strings.Cut(text, "-")
	if !isRange {
		to = from
	}
	lo, err1 := strconv.ParseUint(strings.TrimSpace(from), 10, 16)
	hi, err2 := strconv.ParseUint(strings.TrimSpace(to), 10, 16)
	if err1 != nil || err2 != nil || hi < lo {
		return client.SlotRange{}, usagef("--slots %q: it has the form LO-HI, between 0 and 65535", text)
	}
	return client.SlotRange{Lo: uint16(lo), Hi: uint16(hi)}, nil
}

// parsePosition reads earliest, latest, an offset, or a time: RFC 3339, or a duration ago
// such as "-1h".
func parsePosition(flag, text string, now time.Time) (client.Position, error) {
	switch text {
	case "earliest", "beginning", "start":
		return client.Earliest(), nil
	case "latest", "end":
		return client.Latest(), nil
	}
	if offset, err := strconv.ParseInt(text, 10, 64); err == nil && offset >= 0 {
		return client.At(offset), nil
	}
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return client.Since(at), nil
	}
	if ago, err := time.ParseDuration(text); err == nil && ago < 0 {
		return client.Since(now.Add(ago)), nil
	}
	return client.Position{}, usagef("%s %q: it is earliest, latest, an offset, a time (2026-01-31T12:00:00Z), or how long ago (-1h)", flag, text)
}

// formatRun is a run as people write it, both ends included.
func formatRun(r client.Run) string {
	if r.End == r.Start+1 {
		return strconv.FormatInt(r.Start, 10)
	}
	return strconv.FormatInt(r.Start, 10) + "-" + strconv.FormatInt(r.End-1, 10)
}
