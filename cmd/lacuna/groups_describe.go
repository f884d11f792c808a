package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/lacunamq/lacuna/client"
	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
)

func groupsDescribeCommand(c *cli) *cobra.Command {
	var flags ledgerFlags
	var limit int
	cmd := &cobra.Command{
		Use:   "describe GROUP",
		Short: "Show a group's members, how far it is, and how many gaps it has left",
		Long: `Show a group's members, how far it is, and how many gaps it has left. With --admin, of a
share group also what its members have acquired, for how long and in which delivery, their
key slots, what is delayed, pending or waits for a dead letter, and how old the oldest
record is that is not done.`,
		Example: `  lacuna groups describe billing
  lacuna groups describe billing --admin 127.0.0.1:9093`,
		Args: exactlyOne("group"),
		RunE: func(cmd *cobra.Command, args []string) error {
			adm, err := c.kafkaAdmin()
			if err != nil {
				return err
			}
			defer adm.Close()
			if share := describeShareGroup(cmd.Context(), adm, args[0]); share != nil {
				return c.describeShare(cmd, adm, share, &flags, limit)
			}
			described, err := adm.DescribeGroups(cmd.Context(), args[0])
			if err != nil {
				return c.reach(err)
			}
			group := described[args[0]]
			if group.Err != nil {
				return groupError(args[0], group.Err)
			}
			ledgers, err := c.groupLedgers(cmd, adm, args[0], &flags)
			if err != nil {
				return err
			}
			d := describedGroup{Group: args[0], State: group.State, Members: groupMembers(group), Ledgers: ledgers}
			if c.output == "json" {
				return writeJSON(c.out, d)
			}
			return d.write(c)
		},
	}
	flags.add(cmd)
	cmd.Flags().IntVar(&limit, "limit", 20, "list at most that many runs of acquired records (0: all)")
	return cmd
}

// groupLedgers are the ledgers of a group; of a broker that knows no individual commits,
// its committed offsets, without the columns that it has no word for.
func (c *cli) groupLedgers(cmd *cobra.Command, adm *kadm.Client, group string, flags *ledgerFlags) ([]describedLedger, error) {
	a, err := c.ledgerAdmin()
	if err != nil {
		return nil, err
	}
	defer a.Close()
	all, err := a.Describe(cmd.Context(), group, flags.topics...)
	if errors.As(err, new(*client.FeatureError)) {
		return stockLedgers(cmd, adm, group, flags)
	}
	if err != nil {
		return nil, err
	}
	var ledgers []describedLedger
	for i := range all {
		if flags.wants(all[i].TopicPartition) {
			ledgers = append(ledgers, describeLedger(&all[i]))
		}
	}
	return ledgers, nil
}

func stockLedgers(cmd *cobra.Command, adm *kadm.Client, group string, flags *ledgerFlags) (ledgers []describedLedger, err error) {
	lags, err := adm.Lag(cmd.Context(), group)
	if err != nil {
		return nil, groupError(group, err)
	}
	for _, l := range lags[group].Lag.Sorted() {
		tp := client.TopicPartition{Topic: l.Topic, Partition: l.Partition}
		if flags.wants(tp) && (len(flags.topics) == 0 || slices.Contains(flags.topics, l.Topic)) {
			ledgers = append(ledgers, describedLedger{Topic: l.Topic, Partition: l.Partition, Stable: l.Commit.At,
				LogStart: l.Start.Offset, LogEnd: l.End.Offset, Lag: l.Lag, Error: errorText(l.Err)})
		}
	}
	return ledgers, nil
}

// describedGroup is what --output json says of a group.
type describedGroup struct {
	Group   string            `json:"group"`
	State   string            `json:"state"`
	Members []describedMember `json:"members"`
	Ledgers []describedLedger `json:"ledgers"`
}

type describedMember struct {
	ID       string   `json:"id"`
	ClientID string   `json:"client_id"`
	Host     string   `json:"host"`
	Assigned []string `json:"assigned,omitempty"`
}

// describedLedger is a ledger. MaxCommit is absent where the broker knows no individual
// commits.
type describedLedger struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Stable    int64  `json:"stable"`
	MaxCommit *int64 `json:"max_commit,omitempty"`
	Gaps      int64  `json:"gaps"`
	Open      int64  `json:"open"`
	LogStart  int64  `json:"log_start"`
	LogEnd    int64  `json:"log_end"`
	Lag       int64  `json:"lag"`
	Metadata  string `json:"metadata,omitempty"`
	Error     string `json:"error,omitempty"`
}

func describeLedger(l *client.Ledger) describedLedger {
	return describedLedger{Topic: l.Topic, Partition: l.Partition, Stable: l.Stable, MaxCommit: &l.MaxCommit,
		Gaps: l.Gaps, Open: l.Open, LogStart: l.LogStart, LogEnd: l.LogEnd, Lag: l.Lag(), Metadata: l.Metadata, Error: errorText(l.Err)}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func groupMembers(g kadm.DescribedGroup) []describedMember {
	members := make([]describedMember, 0, len(g.Members))
	for _, m := range g.Members {
		d := describedMember{ID: m.MemberID, ClientID: m.ClientID, Host: m.ClientHost}
		if assigned, ok := m.Assigned.AsConsumer(); ok {
			for _, t := range assigned.Topics {
				for _, n := range t.Partitions {
					d.Assigned = append(d.Assigned, client.TopicPartition{Topic: t.Topic, Partition: n}.String())
				}
			}
		}
		slices.Sort(d.Assigned)
		members = append(members, d)
	}
	return members
}

func (d describedGroup) write(c *cli) error {
	fmt.Fprintf(c.out, "group %s, %s, %s\n", d.Group, strings.ToLower(d.State), plural(int64(len(d.Members)), "member", "members"))
	if len(d.Members) > 0 {
		fmt.Fprintln(c.out)
		t := newTable("MEMBER", "CLIENT", "HOST", "ASSIGNED")
		for _, m := range d.Members {
			t.add(m.ID, m.ClientID, m.Host, strings.Join(m.Assigned, " "))
		}
		if err := t.write(c.out); err != nil {
			return err
		}
	}
	return writeLedgers(c, d.Ledgers)
}

func writeLedgers(c *cli, ledgers []describedLedger) error {
	if len(ledgers) == 0 {
		_, err := fmt.Fprintln(c.out, "\nnothing is committed")
		return err
	}
	fmt.Fprintln(c.out)
	t := newTable("TOPIC", ">PARTITION", ">STABLE", ">MAX COMMIT", ">GAPS", ">OPEN", ">LOG END", ">LAG", "ERROR")
	for _, l := range ledgers {
		t.add(l.Topic, l.Partition, offsetOrDash(l.Stable), maxCommitOrDash(l.MaxCommit), l.Gaps, l.Open, l.LogEnd, l.Lag, l.Error)
	}
	return t.write(c.out)
}

// offsetOrDash is an offset, or a dash if nothing is committed.
func offsetOrDash(offset int64) any {
	if offset < 0 {
		return "-"
	}
	return offset
}

func maxCommitOrDash(offset *int64) any {
	if offset == nil {
		return "-"
	}
	return offsetOrDash(*offset)
}
