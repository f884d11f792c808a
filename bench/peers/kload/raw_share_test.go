package main

import (
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestRawShareJoinsAFreshBroker has a broker that makes its offsets topic only once somebody
// looks for a coordinator, as Apache Kafka does: a member that merely sends heartbeats is
// told NOT_COORDINATOR for ever.
func TestRawShareJoinsAFreshBroker(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "fresh"))
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	var lookups atomic.Int32
	cluster.ControlKey(kmsg.FindCoordinator.Int16(), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		if lookups.Add(1) > 1 {
			return nil, nil, false
		}
		// The first lookup begins to make the topic.
		req := kreq.(*kmsg.FindCoordinatorRequest)
		resp := req.ResponseKind().(*kmsg.FindCoordinatorResponse)
		coordinator := kmsg.NewFindCoordinatorResponseCoordinator()
		coordinator.Key, coordinator.ErrorCode = req.CoordinatorKeys[0], kerr.CoordinatorNotAvailable.Code
		resp.Coordinators = append(resp.Coordinators, coordinator)
		return resp, nil, true
	})
	cluster.ControlKey(kmsg.ShareGroupHeartbeat.Int16(), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		if lookups.Load() > 1 {
			return nil, nil, false
		}
		resp := kreq.ResponseKind().(*kmsg.ShareGroupHeartbeatResponse)
		resp.ErrorCode = kerr.NotCoordinator.Code
		return resp, nil, true
	})

	settings.Addr, settings.Topic = cluster.ListenAddrs()[0], "fresh"
	o := &queueOptions{ack: "share-raw"}
	o.Group = "fresh-group"
	s, err := newRawShare(o)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(true)
	if len(s.parts) != 1 {
		t.Fatalf("partitions %v assigned, want one", s.parts)
	}
}
