package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"

	"github.com/lacunamq/lacuna/processor/assignor"
	"github.com/twmb/franz-go/pkg/kadm"
)

// describedProcessors is what --output json says of a group of processors.
type describedProcessors struct {
	Group string `json:"group"`
	State string `json:"state"`
	// Buckets there are now, and there were when the group was founded; absent while nobody
	// says so, in a rebalance or without members.
	Buckets        int               `json:"buckets,omitempty"`
	InitialBuckets int32             `json:"initial_buckets,omitempty"`
	Members        []processorMember `json:"members"`
	Ledgers        []describedLedger `json:"ledgers"`
}

type processorMember struct {
	ID       string          `json:"id"`
	Name     string          `json:"name,omitempty"`
	ClientID string          `json:"client_id"`
	Host     string          `json:"host"`
	Idle     bool            `json:"idle"`
	Tasks    []processorTask `json:"tasks,omitempty"`
}

type processorTask struct {
	Bucket  int32            `json:"bucket"`
	Active  []processorSlots `json:"active,omitempty"`
	Rebuild []processorSlots `json:"rebuild,omitempty"`
	// SaidLag is that of Rebuild when the member joined; absent if it did not have it yet.
	SaidLag *int64 `json:"said_lag,omitempty"`
}

// processorSlots are key slots of a partition, both ends included.
type processorSlots struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	First     uint16 `json:"first_slot"`
	Last      uint16 `json:"last_slot"`
	// SaidNext, of what is rebuilt, is the next offset that the store had to take in when the member
	// joined; absent if it had taken in nothing of some of the slots.
	SaidNext *int64 `json:"said_next,omitempty"`
}

// saidMember is what a member said when it joined, and what it was told.
type saidMember struct {
	kadm.DescribedGroupMember
	claim      assignor.Claim
	assignment assignor.Assignment
}

// readProcessors reads what the members of a group said and were told. It is empty while
// the group is not stable.
func readProcessors(group kadm.DescribedGroup) ([]saidMember, error) {
	all := make([]saidMember, 0, len(group.Members))
	for _, m := range group.Members {
		said := saidMember{DescribedGroupMember: m}
		if group.Protocol == "" {
			all = append(all, said)
			continue
		}
		join, joined := m.Join.AsConsumer()
		assigned, told := m.Assigned.AsConsumer()
		if !joined || !told {
			return nil, fmt.Errorf("member %s does not speak Kafka's consumer protocol", m.MemberID)
		}
		var err error
		if said.claim, err = assignor.DecodeClaim(join.UserData); err != nil {
			return nil, fmt.Errorf("read what member %s says: %w", m.MemberID, err)
		}
		if said.assignment, err = assignor.DecodeAssignment(assigned.UserData); err != nil {
			return nil, fmt.Errorf("read what member %s is assigned: %w", m.MemberID, err)
		}
		all = append(all, said)
	}
	return all, nil
}

// add adds the members, with the slots that they have.
func (d *describedProcessors) add(said []saidMember) {
	for i := range said {
		s := &said[i]
		if len(s.assignment.Holders) > 0 { // the same of all members of a generation
			d.Buckets, d.InitialBuckets = len(s.assignment.Holders), s.assignment.Group.Initial
		}
		m := processorMember{ID: s.MemberID, Name: s.claim.Name, ClientID: s.ClientID, Host: s.ClientHost,
			Idle: slices.Contains(s.assignment.Idle, s.MemberID)}
		for _, t := range s.assignment.Tasks {
			task := processorTask{Bucket: t.Bucket, SaidLag: saidLag(&s.claim, t),
				Active: slotsOf(&s.assignment.Group, t.Active), Rebuild: slotsOf(&s.assignment.Group, t.Rebuild)}
			for i := range task.Rebuild {
				task.Rebuild[i].SaidNext = saidNext(&s.claim, t.Bucket, &task.Rebuild[i])
			}
			m.Tasks = append(m.Tasks, task)
		}
		d.Members = append(d.Members, m)
	}
	sort.Slice(d.Members, func(i, j int) bool {
		return cmp.Or(cmp.Compare(d.Members[i].Name, d.Members[j].Name), cmp.Compare(d.Members[i].ID, d.Members[j].ID)) < 0
	})
}

// saidLag is the lag that a member said of what it still rebuilds, nil if it did not.
func saidLag(claim *assignor.Claim, t assignor.Task) *int64 {
	for i := range claim.Tasks {
		said := &claim.Tasks[i]
		if said.Bucket == t.Bucket && !said.Rebuild.Intersect(t.Rebuild).Empty() {
			return &said.Lag
		}
	}
	return nil
}

// saidNext is the least offset that a member said its store had come to in some slots, nil if it
// did not say so of all of them.
func saidNext(claim *assignor.Claim, bucket int32, of *processorSlots) (least *int64) {
	slots := int(of.First) // those below were said
	for i := range claim.Tasks {
		if claim.Tasks[i].Bucket != bucket {
			continue
		}
		said := slices.Clone(claim.Tasks[i].Reached)
		sort.Slice(said, func(i, j int) bool { return said[i].Lo < said[j].Lo })
		for _, at := range said {
			if at.Topic != of.Topic || at.Partition != of.Partition || int(at.Lo) > slots || int(at.Hi) < slots || slots > int(of.Last) {
				continue
			}
			slots = int(at.Hi) + 1
			if least == nil || at.Next < *least {
				least = &at.Next
			}
		}
	}
	if slots <= int(of.Last) {
		return nil
	}
	return least
}

func slotsOf(group *assignor.Group, area assignor.Area) (all []processorSlots) {
	for _, topic := range slices.Sorted(maps.Keys(group.Topics)) {
		for _, s := range group.Slots(topic, area) {
			all = append(all, processorSlots{Topic: topic, Partition: s.Partition, First: s.Lo, Last: s.Hi})
		}
	}
	return all
}

func (d *describedProcessors) write(c *cli) error {
	fmt.Fprintf(c.out, "group %s, %s, %s", d.Group, strings.ToLower(d.State), plural(int64(len(d.Members)), "member", "members"))
	if d.Buckets > 0 {
		fmt.Fprintf(c.out, ", %s, founded with %d", plural(int64(d.Buckets), "bucket", "buckets"), d.InitialBuckets)
	}
	fmt.Fprintln(c.out)
	if d.Buckets == 0 {
		fmt.Fprintln(c.out, "which tasks there are is known while the group is stable and has members")
	}
	if err := d.writeMembers(c); err != nil {
		return err
	}
	return writeLedgers(c, d.Ledgers)
}

func (d *describedProcessors) writeMembers(c *cli) error {
	if len(d.Members) == 0 {
		return nil
	}
	members := newTable("MEMBER", "NAME", "CLIENT", "HOST", "BUCKETS")
	tasks := newTable(">BUCKET", "STATE", "NAME", "TOPIC", ">PARTITION", ">SLOTS", ">OFFSET", ">LAG", "MEMBER")
	any := false
	for _, m := range d.Members {
		var buckets []string
		for _, t := range m.Tasks {
			any = true
			buckets = append(buckets, fmt.Sprint(t.Bucket))
			addSlots(tasks, &m, t.Bucket, "active", t.Active, nil)
			addSlots(tasks, &m, t.Bucket, "rebuilding", t.Rebuild, t.SaidLag)
		}
		if m.Idle {
			buckets = []string{"idle"}
		}
		members.add(m.ID, orDash(m.Name), m.ClientID, m.Host, orDash(strings.Join(buckets, " ")))
	}
	fmt.Fprintln(c.out)
	err := members.write(c.out)
	if err != nil || !any {
		return err
	}
	fmt.Fprintln(c.out)
	return tasks.write(c.out)
}

func addSlots(t *table, m *processorMember, bucket int32, state string, slots []processorSlots, lag *int64) {
	for _, s := range slots {
		t.add(bucket, state, orDash(m.Name), s.Topic, s.Partition, fmt.Sprintf("%d-%d", s.First, s.Last), maxCommitOrDash(s.SaidNext), maxCommitOrDash(lag), m.ID)
	}
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
