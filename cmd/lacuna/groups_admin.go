package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/lacunamq/lacuna/broker"
	"github.com/lacunamq/lacuna/client"
	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
)

// adminFlag is that of commands that say more when they may ask the broker's admin
// listener.
func (c *cli) adminFlag(cmd *cobra.Command) {
	cmd.PersistentFlags().StringVar(&c.admin, "admin", os.Getenv("LACUNA_ADMIN"),
		"where the broker's `serve --admin` listens, HOST:PORT, to see what is acquired (or LACUNA_ADMIN)")
}

// adminHint says how to see more of a share group.
const adminHint = "say with --admin where the broker's `serve --admin` listens to see what its members have acquired"

// errNoShareGroup is the admin listener's answer about a group that is none of share.
var errNoShareGroup = errors.New("no such share group")

// askAdmin asks the admin listener of the broker, and reads its answer.
func (c *cli) askAdmin(ctx context.Context, path string, query url.Values, answer any) error {
	base := c.admin
	if !strings.Contains(base, "://") {
		base = "http://" + base
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(base, "/")+path+"?"+query.Encode(), http.NoBody)
	if err != nil {
		return usagef("--admin %q: %w", c.admin, err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("%w\nno admin listener answers at %s: start the broker with --admin, or say where it is", err, c.admin)
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusOK {
		if err := json.NewDecoder(resp.Body).Decode(answer); err != nil {
			return fmt.Errorf("answer of the admin listener at %s: %w", c.admin, err)
		}
		return nil
	}
	var refused struct{ Error string }
	if err := json.NewDecoder(resp.Body).Decode(&refused); err != nil || refused.Error == "" {
		return fmt.Errorf("the admin listener at %s answers %s: is it that of a Lacuna broker?", c.admin, resp.Status)
	}
	if resp.StatusCode == http.StatusNotFound {
		return fmt.Errorf("%w: %s", errNoShareGroup, refused.Error)
	}
	return errors.New(refused.Error)
}

func shareGroupPath(group string) string { return "/share-groups/" + url.PathEscape(group) }

// shareStatus is the state of a share group, with the chosen partitions of it, of whose
// acquired records at most limit runs are listed, all if it is 0.
func (c *cli) shareStatus(ctx context.Context, group string, flags *ledgerFlags, limit int) (*broker.ShareGroupStatus, error) {
	status := new(broker.ShareGroupStatus)
	if err := c.askAdmin(ctx, shareGroupPath(group), url.Values{"limit": {"0"}}, status); err != nil {
		return nil, err
	}
	status.Partitions = slices.DeleteFunc(status.Partitions, func(p broker.SharePartitionStatus) bool {
		return len(flags.topics) > 0 && !slices.Contains(flags.topics, p.Topic) || !flags.wants(client.TopicPartition{Topic: p.Topic, Partition: p.Partition})
	})
	left := limit
	for i := range status.Partitions {
		p := &status.Partitions[i]
		if p.Acquired == 0 || limit > 0 && left == 0 {
			continue
		}
		if err := c.listHeld(ctx, group, p, left); err != nil {
			return nil, err
		}
		left = max(left-len(p.Held), 0)
	}
	return status, nil
}

// heldPerPage is how many runs of acquired records are asked for at a time.
const heldPerPage = 5000

// listHeld lists the acquired records of a partition, page by page, at most limit runs
// unless that is 0.
func (c *cli) listHeld(ctx context.Context, group string, p *broker.SharePartitionStatus, limit int) error {
	from := int64(0)
	for p.Held = p.Held[:0]; ; {
		most := heldPerPage
		if limit > 0 {
			most = min(most, limit-len(p.Held))
		}
		var page broker.ShareGroupStatus
		err := c.askAdmin(ctx, shareGroupPath(group), url.Values{
			"topic": {p.Topic}, "partition": {strconv.Itoa(int(p.Partition))},
			"from": {strconv.FormatInt(from, 10)}, "limit": {strconv.Itoa(most)},
		}, &page)
		if err != nil {
			return err
		}
		p.HeldTo = nil
		if len(page.Partitions) == 0 { // nothing is acquired any more
			return nil
		}
		p.Held = append(p.Held, page.Partitions[0].Held...)
		if p.HeldTo = page.Partitions[0].HeldTo; p.HeldTo == nil || limit > 0 && len(p.Held) >= limit {
			return nil
		}
		from = *p.HeldTo
	}
}

// describeShareGroup describes a share group, nil if the group is none.
func describeShareGroup(ctx context.Context, adm *kadm.Client, group string) *kadm.DescribedShareGroup {
	described, err := adm.DescribeShareGroups(ctx, group)
	if err != nil {
		return nil // a broker that knows no share groups
	}
	d, ok := described[group]
	if !ok || d.Err != nil {
		return nil
	}
	return &d
}
