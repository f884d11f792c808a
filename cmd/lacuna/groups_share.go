package main

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/lacunamq/lacuna/broker"
	"github.com/lacunamq/lacuna/client"
	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
)

// describedShareGroup is what --output json says of a share group. Share is there if the
// admin listener was asked.
type describedShareGroup struct {
	Group   string                   `json:"group"`
	Type    string                   `json:"type"`
	State   string                   `json:"state"`
	Members []describedMember        `json:"members"`
	Ledgers []describedLedger        `json:"ledgers"`
	Share   *broker.ShareGroupStatus `json:"share,omitempty"`
}

// describeShare shows a share group.
func (c *cli) describeShare(cmd *cobra.Command, adm *kadm.Client, group *kadm.DescribedShareGroup, flags *ledgerFlags, limit int) error {
	d := describedShareGroup{Group: group.GroupID, Type: "share", State: group.GroupState, Members: shareMembers(group)}
	var err error
	if d.Ledgers, err = c.groupLedgers(cmd, adm, group.GroupID, flags); err != nil {
		return err
	}
	if c.admin != "" {
		if d.Share, err = c.shareStatus(cmd.Context(), group.GroupID, flags, limit); err != nil {
			return err
		}
	}
	if c.output == "json" {
		return writeJSON(c.out, d)
	}
	return d.write(c)
}

func shareMembers(g *kadm.DescribedShareGroup) []describedMember {
	members := make([]describedMember, 0, len(g.Members))
	for i := range g.Members {
		m := &g.Members[i]
		d := describedMember{ID: m.MemberID, ClientID: m.ClientID, Host: m.ClientHost}
		for _, t := range m.Assignment.Sorted() {
			for _, n := range t.Partitions {
				d.Assigned = append(d.Assigned, client.TopicPartition{Topic: t.Topic, Partition: n}.String())
			}
		}
		members = append(members, d)
	}
	return members
}

func (d *describedShareGroup) write(c *cli) error {
	mode := ""
	if d.Share != nil {
		mode = ", " + d.Share.Mode
	}
	fmt.Fprintf(c.out, "share group %s, %s%s, %s\n", d.Group, strings.ToLower(d.State), mode, plural(int64(len(d.Members)), "member", "members"))
	if len(d.Members) > 0 {
		fmt.Fprintln(c.out)
		if err := d.memberTable().write(c.out); err != nil {
			return err
		}
	}
	if len(d.Ledgers) == 0 {
		_, err := fmt.Fprintln(c.out, "\nit has begun no partition")
		return err
	}
	fmt.Fprintln(c.out)
	if err := d.ledgerTable().write(c.out); err != nil {
		return err
	}
	if d.Share == nil {
		_, err := fmt.Fprintf(c.out, "\n%s\n", adminHint)
		return err
	}
	return d.writeHeld(c)
}

func (d *describedShareGroup) memberTable() *table {
	if d.Share == nil {
		t := newTable("MEMBER", "CLIENT", "HOST", "ASSIGNED")
		for _, m := range d.Members {
			t.add(m.ID, m.ClientID, m.Host, strings.Join(m.Assigned, " "))
		}
		return t
	}
	t := newTable("MEMBER", "CLIENT", "HOST", ">ACQUIRED", ">OLDEST", "FETCH", "KEY SLOTS")
	for i := range d.Share.Members {
		m := &d.Share.Members[i]
		fetch := "-"
		if m.Waiting {
			fetch = "waits"
		}
		t.add(m.ID, m.ClientID, m.Host, int64(m.Acquired), ageOrDash(m.Acquired > 0, m.AgeMs), fetch, slotsInWords(m.Slots))
	}
	return t
}

// slotsInWords joins the ranges of a partition that touch.
func slotsInWords(slots []broker.SlotRange) string {
	slots = slices.Clone(slots)
	sort.Slice(slots, func(i, j int) bool {
		return cmp.Or(cmp.Compare(slots[i].Topic, slots[j].Topic), cmp.Compare(slots[i].Partition, slots[j].Partition), cmp.Compare(slots[i].First, slots[j].First)) < 0
	})
	var joined []broker.SlotRange
	for _, s := range slots {
		if n := len(joined) - 1; n >= 0 && joined[n].Topic == s.Topic && joined[n].Partition == s.Partition && joined[n].Last+1 == s.First {
			joined[n].Last = s.Last
			continue
		}
		joined = append(joined, s)
	}
	if len(joined) == 0 {
		return "any"
	}
	words := make([]string, len(joined))
	for i, s := range joined {
		words[i] = fmt.Sprintf("%s %d-%d", client.TopicPartition{Topic: s.Topic, Partition: s.Partition}, s.First, s.Last)
	}
	return strings.Join(words, ", ")
}

func ageOrDash(is bool, ms int64) string {
	if !is {
		return "-"
	}
	return age(ms)
}

// age is a duration for people.
func age(ms int64) string {
	d := time.Duration(ms) * time.Millisecond
	switch {
	case d >= 10*time.Second:
		d = d.Round(time.Second)
	case d >= time.Second:
		d = d.Round(100 * time.Millisecond)
	}
	return d.String()
}

func (d *describedShareGroup) ledgerTable() *table {
	heads := []string{"TOPIC", ">PARTITION", ">STABLE", ">MAX COMMIT", ">GAPS", ">OPEN", ">LOG END", ">LAG"}
	if d.Share != nil {
		heads = append(heads, ">ACQUIRED", ">DELAYED", ">PENDING", ">DEAD LETTERS", ">OLDEST")
	}
	t := newTable(append(heads, "ERROR")...)
	for _, l := range d.Ledgers {
		row := []any{l.Topic, l.Partition, offsetOrDash(l.Stable), maxCommitOrDash(l.MaxCommit), l.Gaps, l.Open, l.LogEnd, l.Lag}
		if d.Share != nil {
			row = append(row, d.dealingOf(l.Topic, l.Partition)...)
		}
		t.add(append(row, l.Error)...)
	}
	return t
}

// dealingOf is how a partition is dealt; one that nobody fetches from is not.
func (d *describedShareGroup) dealingOf(topic string, partition int32) []any {
	p := partitionStatus(d.Share, topic, partition)
	if p == nil {
		return []any{"-", "-", "-", "-", "-"}
	}
	oldest := "-"
	if p.Oldest != nil {
		oldest = age(p.Oldest.AgeMs)
	}
	return []any{int64(p.Acquired), int64(p.Delayed), int64(p.Pending), int64(p.DeadLetters), oldest}
}

func partitionStatus(s *broker.ShareGroupStatus, topic string, partition int32) *broker.SharePartitionStatus {
	for i := range s.Partitions {
		if s.Partitions[i].Topic == topic && s.Partitions[i].Partition == partition {
			return &s.Partitions[i]
		}
	}
	return nil
}

// writeHeld lists the acquired records.
func (d *describedShareGroup) writeHeld(c *cli) error {
	t := newTable("TOPIC", ">PARTITION", ">FIRST", ">LAST", ">DELIVERY", ">AGE", ">ENDS IN", "MEMBER")
	more := false
	for i := range d.Share.Partitions {
		p := &d.Share.Partitions[i]
		for _, h := range p.Held {
			t.add(p.Topic, p.Partition, h.First, h.Last, h.Delivery, age(h.AgeMs), age(h.ExpiresInMs), h.Member)
		}
		more = more || p.HeldTo != nil || len(p.Held) == 0 && p.Acquired > 0
	}
	if len(t.rows) == 0 {
		return nil
	}
	fmt.Fprintln(c.out, "\nacquired")
	if err := t.write(c.out); err != nil {
		return err
	}
	if more {
		fmt.Fprintln(c.out, "and more; --limit 0 lists all")
	}
	return nil
}
