package tests

import "fmt"

// shareFault is something that is wrong with what the workers of a share group have seen.
type shareFault struct {
	text string
	// timely: it is one if all was seen in time. What somebody was dealt and saw too late is
	// known when he has seen it, which may be after others have had it and seen it.
	timely bool
}

// fault notes what is wrong. Where there is an order it is not known, once a delivery was
// seen late, who has which records of its key.
func (a *shareAccount) fault(format string, args ...any) {
	a.mu.faults = append(a.mu.faults, shareFault{fmt.Sprintf(format, args...), a.ordered})
}

// miscount notes that a count of deliveries is wrong, which is not known if some were not seen.
func (a *shareAccount) miscount(format string, args ...any) {
	a.mu.faults = append(a.mu.faults, shareFault{fmt.Sprintf(format, args...), true})
}

// flaw notes what is wrong whoever has which records.
func (a *shareAccount) flaw(format string, args ...any) {
	a.mu.faults = append(a.mu.faults, shareFault{fmt.Sprintf(format, args...), false})
}

// faults are what is wrong for sure. Workers may see more as long as they are at work.
func (a *shareAccount) faults() (sure []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, f := range a.mu.faults {
		if !f.timely || a.mu.late == 0 {
			sure = append(sure, f.text)
		}
	}
	return sure
}
