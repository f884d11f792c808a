package broker

import (
	"github.com/lacunamq/lacuna/commitlog"
	"github.com/lacunamq/lacuna/keyfilter"
	"github.com/lacunamq/lacuna/protocol"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// keyFilterOf gives the filter that a fetch carries, nil when it carries none.
func (b *Broker) keyFilterOf(req *kmsg.FetchRequest) (*keyfilter.Filter, error) {
	field, ok := extensionField(&req.UnknownTags)
	if !ok {
		return nil, nil
	}
	parsed, err := protocol.ParseKeyFilter(field)
	if err != nil {
		return nil, err
	}
	return keyfilter.New(parsed)
}

func (r *fetchRead) readFiltered(log *commitlog.Log, t *fetchTarget, res *fetchResult, o commitlog.ReadOptions) error {
	return nil
}
