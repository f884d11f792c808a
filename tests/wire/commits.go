package wire

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/lacunamq/lacuna/protocol"
)

// The versions that requests are sent at: the last ones that name topics by name.
const (
	commitVersion      = 9
	offsetFetchVersion = 9
)

// CommitIndividually commits and reopens single offsets of a partition for a group that
// has no members.
func (c *Conn) CommitIndividually(group, topic string, partition int32, offsets protocol.IndividualOffsets) (protocol.IndividualState, error) {
	p := kmsg.NewOffsetCommitRequestTopicPartition()
	p.Partition, p.Offset = partition, -1
	p.UnknownTags.Set(protocol.ExtensionTag, offsets.AppendTo(nil))
	answer, err := c.commit(group, topic, p)
	if err != nil {
		return protocol.IndividualState{}, err
	}
	field, ok := ExtensionField(&answer.UnknownTags)
	if !ok {
		return protocol.IndividualState{}, errors.New("the answer to an individual commit has no IndividualState")
	}
	return protocol.ParseIndividualState(field)
}

// CommitCumulatively commits everything below an offset, as a stock client does.
func (c *Conn) CommitCumulatively(group, topic string, partition int32, offset int64, metadata string) error {
	p := kmsg.NewOffsetCommitRequestTopicPartition()
	p.Partition, p.Offset, p.LeaderEpoch, p.Metadata = partition, offset, -1, &metadata
	_, err := c.commit(group, topic, p)
	return err
}

func (c *Conn) commit(group, topic string, p kmsg.OffsetCommitRequestTopicPartition) (*kmsg.OffsetCommitResponseTopicPartition, error) {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.SetVersion(commitVersion)
	req.Group, req.Generation = group, -1
	t := kmsg.NewOffsetCommitRequestTopic()
	t.Topic, t.Partitions = topic, append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	resp, err := c.Do(req)
	if err != nil {
		return nil, err
	}
	topics := resp.(*kmsg.OffsetCommitResponse).Topics
	if len(topics) != 1 || len(topics[0].Partitions) != 1 {
		return nil, fmt.Errorf("the answer to a commit of one partition: %+v", topics)
	}
	answer := &topics[0].Partitions[0]
	return answer, kerr.ErrorForCode(answer.ErrorCode)
}

// Ledger is what a group has committed of a partition.
type Ledger struct {
	Stable      int64 // -1: nothing
	LeaderEpoch int32
	Metadata    string
	MaxCommit   int64
	Gaps        []protocol.Run
}

// Committed tells whether an offset is committed.
func (l *Ledger) Committed(offset int64) bool {
	return offset < l.MaxCommit && !slices.ContainsFunc(l.Gaps, func(r protocol.Run) bool { return r.Start <= offset && offset < r.End })
}

// Ledger reads the ledger of a group and partition, with all its gaps.
func (c *Conn) Ledger(group, topic string, partition int32) (Ledger, error) {
	var l Ledger
	for from := int64(0); ; {
		p, page, err := c.gapsPage(group, topic, partition, from)
		if err != nil {
			return l, err
		}
		l.Stable, l.LeaderEpoch, l.MaxCommit = p.Offset, p.LeaderEpoch, page.MaxCommit
		if p.Metadata != nil {
			l.Metadata = strings.Clone(*p.Metadata)
		}
		l.Gaps = append(l.Gaps, page.Gaps...)
		if page.CompleteTo == protocol.GapsComplete {
			return l, nil
		}
		from = page.CompleteTo
	}
}

func (c *Conn) gapsPage(group, topic string, partition int32, from int64) (*kmsg.OffsetFetchResponseGroupTopicPartition, protocol.IndividualGaps, error) {
	var none protocol.IndividualGaps
	req := kmsg.NewPtrOffsetFetchRequest()
	req.SetVersion(offsetFetchVersion)
	g := kmsg.NewOffsetFetchRequestGroup()
	g.Group = group
	g.Topics = []kmsg.OffsetFetchRequestGroupTopic{{Topic: topic, Partitions: []int32{partition}}}
	g.UnknownTags.Set(protocol.ExtensionTag, (&protocol.GapsRequest{From: from}).AppendTo(nil))
	req.Groups = append(req.Groups, g)
	resp, err := c.Do(req)
	if err != nil {
		return nil, none, err
	}
	groups := resp.(*kmsg.OffsetFetchResponse).Groups
	if len(groups) != 1 || groups[0].ErrorCode != 0 || len(groups[0].Topics) != 1 || len(groups[0].Topics[0].Partitions) != 1 {
		return nil, none, fmt.Errorf("the answer to an offset fetch of one partition: %+v", groups)
	}
	p := &groups[0].Topics[0].Partitions[0]
	if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
		return nil, none, err
	}
	field, ok := ExtensionField(&p.UnknownTags)
	if !ok {
		return nil, none, errors.New("the answer to an offset fetch has no IndividualGaps")
	}
	gaps, err := protocol.ParseIndividualGaps(field)
	return p, gaps, err
}

// ExtensionField is the extension's field among tags, if there is one.
func ExtensionField(tags *kmsg.Tags) (field []byte, ok bool) {
	tags.Each(func(tag uint32, content []byte) {
		if tag == protocol.ExtensionTag {
			field, ok = content, true
		}
	})
	return field, ok
}
