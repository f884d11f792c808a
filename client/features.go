package client

import (
	"context"
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// requireFeatures fails with a *FeatureError unless the broker lists every named feature
// in version 1. A client asks before it sends a field of a feature, since a broker that
// does not know the field would skip it.
func requireFeatures(ctx context.Context, cl *kgo.Client, names ...string) error {
	if len(names) == 0 {
		return nil
	}
	req := kmsg.NewPtrApiVersionsRequest()
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return fmt.Errorf("ask broker %s for its features: %w", seeds(cl), err)
	}
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return fmt.Errorf("ask broker %s for its features: %w", seeds(cl), err)
	}
	for _, name := range names {
		if !offers(resp, name) {
			return &FeatureError{Feature: name, Broker: seeds(cl)}
		}
	}
	return nil
}

func offers(resp *kmsg.ApiVersionsResponse, feature string) bool {
	for i := range resp.SupportedFeatures {
		f := &resp.SupportedFeatures[i]
		if f.Name == feature {
			return f.MinVersion <= 1 && f.MaxVersion >= 1
		}
	}
	return false
}

// seeds is what a person calls the cluster: the addresses that the client was given.
func seeds(cl *kgo.Client) string {
	addrs, _ := cl.OptValue(kgo.SeedBrokers).([]string)
	return strings.Join(addrs, ",")
}
