package client

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// recordsBetween makes a record for every offset of [from, next).
func recordsBetween(from, next int64) (records []*kgo.Record) {
	for o := from; o < next; o++ {
		records = append(records, &kgo.Record{Topic: "t", Offset: o})
	}
	return records
}

func run(start, end int64) Run { return Run{Start: start, End: end} }
