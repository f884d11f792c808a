package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lacunamq/lacuna/keyfilter"
	"github.com/lacunamq/lacuna/processor"
)

// picture draws the job, a line at a time.
type picture struct {
	begun, last time.Time
	counted     int64     // at the last line
	owners      [keys]int // of each key the worker that has it, or had it last: from 1
}

func (p *picture) begin() {
	p.begun, p.last = time.Now(), time.Now()
	fmt.Println("  time  workers  records/s                           lag  moved keys  keys of each worker")
}

func (p *picture) draw() {
	now, done := time.Now(), counted.Load()
	perSecond := int(float64(done-p.counted) / now.Sub(p.last).Seconds())
	p.last, p.counted = now, done
	moved, has := p.look()
	fmt.Printf("%5.1fs  %7d  %9d  %-20s  %6d  %10d  %d\n", now.Sub(p.begun).Seconds(), len(workers), perSecond,
		strings.Repeat("#", min(perSecond*10 / *rate, 20)), produced.Load()-done, moved, has)
}

// everyoneHasKeys tells whether every worker has keys that it processes.
func (p *picture) everyoneHasKeys() bool {
	return !slices.ContainsFunc(workers, func(w *processor.App) bool {
		return !slices.ContainsFunc(w.Status(), func(t processor.TaskStatus) bool { return len(t.Active) > 0 })
	})
}

// look sees how many keys moved since the last line, and how many each worker has.
func (p *picture) look() (moved int, has []int) {
	before := p.owners
	for i, w := range workers {
		for _, task := range w.Status() {
			for _, a := range task.Active {
				for k := int(a.Partition); k < keys; k += partitions {
					if slot := keyfilter.Slot(keyOf(k), 0); a.Slots.Lo <= slot && slot <= a.Slots.Hi {
						p.owners[k] = i + 1
					}
				}
			}
		}
	}
	has = make([]int, len(workers))
	for k, owner := range p.owners {
		if before[k] > 0 && before[k] != owner {
			moved++
		}
		if owner > 0 {
			has[owner-1]++
		}
	}
	return moved, has
}
