package client

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
)

// Position is a place in a partition that need not be known as a number yet.
type Position struct {
	kind positionKind
	at   int64 // an offset, or milliseconds since 1970
}

type positionKind int8

const (
	positionEarliest positionKind = iota
	positionLatest
	positionOffset
	positionTimestamp
	positionNone
)

// Earliest is the log start. It is the zero Position.
func Earliest() Position { return Position{kind: positionEarliest} }

// Latest is the log end: what is written from now on.
func Latest() Position { return Position{kind: positionLatest} }

// At is a given offset. Outside of the log it means the nearer of its ends.
func At(offset int64) Position { return Position{kind: positionOffset, at: offset} }

// Since is the first record whose timestamp is t or later; the log end if there is none.
func Since(t time.Time) Position { return Position{kind: positionTimestamp, at: t.UnixMilli()} }

// NoReset is no place at all: a Reader without a position reports [ErrNoPosition].
func NoReset() Position { return Position{kind: positionNone} }

// Offset is the offset that the position was made of by [At].
func (p Position) Offset() (offset int64, ok bool) { return p.at, p.kind == positionOffset }

// Time is the time that the position was made of by [Since].
func (p Position) Time() (t time.Time, ok bool) {
	return time.UnixMilli(p.at), p.kind == positionTimestamp
}

// String says the position in words.
func (p Position) String() string {
	switch p.kind {
	case positionEarliest:
		return "earliest"
	case positionLatest:
		return "latest"
	case positionOffset:
		return fmt.Sprintf("offset %d", p.at)
	case positionTimestamp:
		return "since " + time.UnixMilli(p.at).UTC().Format(time.RFC3339Nano)
	}
	return "none"
}

// bounds are the ends of a partition's log.
type bounds struct {
	start, end int64 // end: the high watermark
}

// clamp is offset, or the nearer end of the log.
func (b bounds) clamp(offset int64) int64 { return min(max(offset, b.start), b.end) }

// loadBounds asks for both ends of the logs of partitions.
func loadBounds(ctx context.Context, adm *kadm.Client, tps []TopicPartition) (map[TopicPartition]bounds, error) {
	topics := topicsOf(tps)
	starts, err := adm.ListStartOffsets(ctx, topics...)
	if err != nil {
		return nil, fmt.Errorf("list the start offsets of topics %q: %w", topics, err)
	}
	ends, err := adm.ListEndOffsets(ctx, topics...)
	if err != nil {
		return nil, fmt.Errorf("list the end offsets of topics %q: %w", topics, err)
	}
	out := make(map[TopicPartition]bounds, len(tps))
	for _, tp := range tps {
		start, err := listed(starts, tp)
		if err != nil {
			return nil, err
		}
		end, err := listed(ends, tp)
		if err != nil {
			return nil, err
		}
		out[tp] = bounds{start: start, end: max(start, end)}
	}
	return out, nil
}

// resolve turns a position into an offset for each partition. Its result lacks those
// for which there is none: positionNone.
func (p Position) resolve(ctx context.Context, adm *kadm.Client, tps []TopicPartition) (map[TopicPartition]int64, error) {
	out := make(map[TopicPartition]int64, len(tps))
	if p.kind == positionNone || len(tps) == 0 {
		return out, nil
	}
	ends, err := loadBounds(ctx, adm, tps)
	if err != nil {
		return nil, err
	}
	var since kadm.ListedOffsets
	if p.kind == positionTimestamp {
		if since, err = adm.ListOffsetsAfterMilli(ctx, p.at, topicsOf(tps)...); err != nil {
			return nil, fmt.Errorf("list the offsets %v: %w", p, err)
		}
	}
	for _, tp := range tps {
		b := ends[tp]
		switch p.kind {
		case positionEarliest:
			out[tp] = b.start
		case positionLatest:
			out[tp] = b.end
		case positionOffset:
			out[tp] = b.clamp(p.at)
		case positionTimestamp:
			offset, err := listed(since, tp)
			if err != nil {
				return nil, err
			}
			if offset < 0 { // no record is that young
				offset = b.end
			}
			out[tp] = b.clamp(offset)
		}
	}
	return out, nil
}

func listed(offsets kadm.ListedOffsets, tp TopicPartition) (int64, error) {
	o, ok := offsets.Lookup(tp.Topic, tp.Partition)
	if !ok {
		return 0, &PartitionError{Topic: tp.Topic, Partition: tp.Partition, Doing: "list offsets", Err: fmt.Errorf("no such partition")}
	}
	if o.Err != nil {
		return 0, &PartitionError{Topic: tp.Topic, Partition: tp.Partition, Doing: "list offsets", Err: o.Err}
	}
	return o.Offset, nil
}

// topicsOf names each topic of tps once.
func topicsOf(tps []TopicPartition) []string {
	seen := make(map[string]bool)
	var topics []string
	for _, tp := range tps {
		if !seen[tp.Topic] {
			seen[tp.Topic] = true
			topics = append(topics, tp.Topic)
		}
	}
	return topics
}
