package client_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/lacunamq/lacuna/client"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Two members of a consumer group share the one partition of a topic. The group gives each
// of them half of the key slots, and so all records of a key to one of them.
func ExampleOpenGroupReader() {
	addr, stop := demo("ann", "bob", "ann", "cho", "bob")
	defer stop()
	ctx := context.Background()

	billed := make(chan string, 5)
	bill := func(ctx context.Context, r *client.Reader, records []*kgo.Record) {
		if err := r.Commit(ctx, records...); err != nil {
			log.Print(err) // another member gets what is not committed
			return
		}
		for _, record := range records {
			billed <- string(record.Key)
		}
	}
	open := func() (member *client.GroupReader, half chan client.AssignedSlots) {
		half = make(chan client.AssignedSlots, 1)
		member, err := client.OpenGroupReader(ctx, kgo.RangeBalancer(), bill,
			client.SeedBrokers(addr), client.Group("billing"), client.Topics("orders"),
			client.MemberOpts(kgo.HeartbeatInterval(100*time.Millisecond)), // to see the other soon
			client.GroupHooks(client.GroupReaderHooks{Assigned: func(_ int32, ranges []client.AssignedSlots) {
				if ranges[0].Slots != (client.SlotRange{Lo: 0, Hi: 65535}) { // no longer alone
					half <- ranges[0]
				}
			}}))
		if err != nil {
			log.Fatal(err)
		}
		return member, half
	}
	first, firstHalf := open()
	orders := make(map[string]int)
	for range 5 {
		orders[<-billed]++
	}
	second, secondHalf := open()
	fmt.Println(<-firstHalf)
	fmt.Println(<-secondHalf)
	fmt.Println(orders)
	for _, member := range []*client.GroupReader{first, second} {
		if err := member.Close(ctx); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// orders[0] slots 0-32767
	// orders[0] slots 32768-65535
	// map[ann:2 bob:2 cho:1]
}

// A kgo consumer shares its group with two GroupReaders. It reads one of the two partitions,
// and they share the other. Since it may lead the group, it has the wrapped balancer as well.
func ExampleSplitBalancer() {
	addr, stop := demo()
	defer stop()
	ctx := context.Background()

	admin, err := kgo.NewClient(kgo.SeedBrokers(addr))
	if err != nil {
		log.Fatal(err)
	}
	defer admin.Close()
	if _, err := kadm.NewClient(admin).CreateTopic(ctx, 2, 1, nil, "parcels"); err != nil {
		log.Fatal(err)
	}
	consumer, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.ConsumerGroup("shipping"), kgo.ConsumeTopics("parcels"),
		kgo.Balancers(client.SplitBalancer(kgo.CooperativeStickyBalancer())), kgo.HeartbeatInterval(100*time.Millisecond))
	if err != nil {
		log.Fatal(err)
	}
	defer consumer.Close()

	ship := func(ctx context.Context, r *client.Reader, records []*kgo.Record) {
		if err := r.Commit(ctx, records...); err != nil {
			log.Print(err)
		}
	}
	halves := make(chan client.AssignedSlots, 8)
	hooks := client.GroupReaderHooks{Assigned: func(_ int32, ranges []client.AssignedSlots) {
		for _, r := range ranges {
			if r.Slots != (client.SlotRange{Lo: 0, Hi: 65535}) {
				halves <- r
			}
		}
	}}
	for range 2 {
		member, err := client.OpenGroupReader(ctx, kgo.CooperativeStickyBalancer(), ship,
			client.SeedBrokers(addr), client.Group("shipping"), client.Topics("parcels"), client.GroupHooks(hooks),
			client.MemberOpts(kgo.HeartbeatInterval(100*time.Millisecond)))
		if err != nil {
			log.Fatal(err)
		}
		defer member.Close(ctx)
	}
	assigned := make(map[string]bool)
	for len(assigned) < 2 {
		assigned[fmt.Sprint(<-halves)] = true
	}
	fmt.Println(assigned)
	// Output:
	// map[parcels[0] slots 0-32767:true parcels[0] slots 32768-65535:true]
}
