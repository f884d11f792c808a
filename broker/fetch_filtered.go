package broker

import (
	"github.com/lacunamq/lacuna/broker/filter"
	"github.com/lacunamq/lacuna/commitlog"
	"github.com/lacunamq/lacuna/keyfilter"
	"github.com/lacunamq/lacuna/protocol"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// filteredFetchVersion is the first version of Fetch that carries a KeyFilter: those
// below have no tagged fields.
const filteredFetchVersion = 12

// keyFilterOf gives the filter that a fetch carries, nil when it carries none.
func keyFilterOf(req *kmsg.FetchRequest) (*keyfilter.Filter, error) {
	field, ok := extensionField(&req.UnknownTags)
	if !ok || req.Version < filteredFetchVersion {
		return nil, nil
	}
	asked, err := protocol.ParseKeyFilter(field)
	if err != nil {
		return nil, err
	}
	f, err := keyfilter.New(asked)
	if err != nil {
		return nil, refusal(kerr.InvalidRequest, "key filter: %v", err)
	}
	return f, nil
}

// readFiltered appends the records of one partition that match the filter.
func (r *fetchRead) readFiltered(log *commitlog.Log, t *fetchTarget, res *fetchResult, o commitlog.ReadOptions) error {
	got, err := r.b.filters.Fetch(log, *r.buf, res.scannedTo, r.filter, filter.Options{
		UpTo: o.UpTo, MaxBytes: o.MaxBytes, MinOne: o.MinOne,
		MaxScanBytes: r.b.settings().FilterMaxScanBytes,
	})
	if err != nil {
		return err
	}
	*r.buf = got.Data
	res.end, res.scannedTo, res.full = len(got.Data), got.Next, got.ScanBound
	res.counted = got.Matching
	return r.readAborted(log, t, res, got.Next)
}
