package processor

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lacunamq/lacuna/client"
	"github.com/lacunamq/lacuna/keyfilter"
)

// Slots are read once, however a state divides its offsets and feeds their slots.
func TestNoSlotIsReadTwice(t *testing.T) {
	tp := client.TopicPartition{Topic: "in"}
	slots := rapid.Custom(func(t *rapid.T) client.SlotRange {
		// Few different ends, so that they meet, and those of all slots among them.
		end := rapid.SampledFrom([]int{0, 1, 2, 30000, 30001, keyfilter.Slots - 2, keyfilter.Slots - 1})
		lo, hi := end.Draw(t, "one end"), end.Draw(t, "other end")
		return client.SlotRange{Lo: uint16(min(lo, hi)), Hi: uint16(max(lo, hi))}
	})
	in := func(r client.SlotRange, slot uint16) bool { return r.Lo <= slot && slot <= r.Hi }
	rapid.Check(t, func(t *rapid.T) {
		wanted := piece{tp: tp, spec: feedSpec{slots: slots.Draw(t, "wanted")}, next: 7}
		var feeds []*feed
		for _, r := range rapid.SliceOfN(slots, 0, 4).Draw(t, "feeds") {
			feeds = append(feeds, &feed{spec: feedSpec{slots: r, rebuild: rapid.Bool().Draw(t, "rebuild")}, tps: []client.TopicPartition{tp}})
		}
		left := unread(wanted, feeds)
		for _, slot := range []uint16{0, 1, 2, 3, 29999, 30000, 30001, 30002, keyfilter.Slots - 3, keyfilter.Slots - 2, keyfilter.Slots - 1} {
			want, got := 0, 0
			if in(wanted.spec.slots, slot) {
				want = 1
			}
			for _, f := range feeds {
				if in(f.spec.slots, slot) && !f.spec.rebuild {
					want = 0
				}
			}
			for _, p := range left {
				require.Equal(t, wanted.next, p.next)
				if in(p.spec.slots, slot) {
					got++
				}
			}
			require.Equal(t, want, got, "slot %d of %v, which leaves %v", slot, wanted, left)
		}
		require.Equal(t, []piece{wanted}, unread(wanted, []*feed{{spec: wanted.spec, tps: []client.TopicPartition{{Topic: "other"}}}}))
	})
}
