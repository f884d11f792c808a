package client_test

import (
	"context"
	"fmt"
	"log"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/lacunamq/lacuna/broker"
	"github.com/lacunamq/lacuna/client"
	"github.com/twmb/franz-go/pkg/kgo"
)

// demo starts a broker in this process, in memory, and writes orders to the topic
// "orders". Where the examples say addr, a program says "127.0.0.1:9092".
func demo(keys ...string) (addr string, stop func()) {
	ctx := context.Background()
	b, err := broker.Start(ctx, broker.Config{Listen: []string{"127.0.0.1:0"}, DataDir: "data", FS: vfs.NewMem()})
	if err != nil {
		log.Fatal(err)
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.Addr()), kgo.DefaultProduceTopic("orders"), kgo.AllowAutoTopicCreation())
	if err != nil {
		log.Fatal(err)
	}
	defer cl.Close()
	for i, key := range keys {
		if err := cl.ProduceSync(ctx, kgo.KeyStringRecord(key, fmt.Sprint("order ", i))).FirstErr(); err != nil {
			log.Fatal(err)
		}
	}
	return b.Addr(), func() { b.Stop(ctx) }
}

// A Reader commits records on their own. What it leaves is a gap, which the next Reader of
// the group gets.
func ExampleReader() {
	addr, stop := demo("ann", "bob", "ann", "cho", "bob")
	defer stop()
	ctx := context.Background()

	r, err := client.OpenReader(ctx, client.SeedBrokers(addr), client.Group("billing"), client.Topics("orders"))
	if err != nil {
		log.Fatal(err)
	}
	records, err := r.Poll(ctx)
	if err != nil {
		log.Fatal(err)
	}
	for _, record := range records {
		if string(record.Key) == "bob" {
			continue // cannot be billed today
		}
		if err := r.Commit(ctx, record); err != nil {
			log.Fatal(err)
		}
	}
	if err := r.Close(ctx); err != nil {
		log.Fatal(err)
	}

	r, err = client.OpenReader(ctx, client.SeedBrokers(addr), client.Group("billing"), client.Topics("orders"))
	if err != nil {
		log.Fatal(err)
	}
	defer r.Close(ctx)
	for n := 0; n < 2; {
		records, err := r.Poll(ctx)
		if err != nil {
			log.Fatal(err)
		}
		for _, record := range records {
			fmt.Printf("offset %d: %s of %s\n", record.Offset, record.Value, record.Key)
			n++
		}
	}
	// Output:
	// offset 1: order 1 of bob
	// offset 4: order 4 of bob
}

// Readers of disjoint slots share a partition: the broker sends each its keys only, and
// all records of a key go to one of them, in order.
func ExampleSlots() {
	addr, stop := demo("ann", "bob", "ann", "cho", "bob")
	defer stop()
	ctx := context.Background()

	for _, slots := range []client.SlotRange{{Lo: 0, Hi: 32767}, {Lo: 32768, Hi: 65535}} {
		r, err := client.OpenReader(ctx, client.SeedBrokers(addr), client.Group("billing"), client.Topics("orders"), client.Slots(slots))
		if err != nil {
			log.Fatal(err)
		}
		for !r.Status()[0].Past(5) {
			records, err := r.Poll(ctx)
			if err != nil {
				log.Fatal(err)
			}
			for _, record := range records {
				fmt.Printf("slots %d-%d: %s of %s\n", slots.Lo, slots.Hi, record.Value, record.Key)
			}
			if err := r.Commit(ctx, records...); err != nil {
				log.Fatal(err)
			}
		}
		if err := r.Close(ctx); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// slots 0-32767: order 0 of ann
	// slots 0-32767: order 2 of ann
	// slots 0-32767: order 3 of cho
	// slots 32768-65535: order 1 of bob
	// slots 32768-65535: order 4 of bob
}

// Without a group a Reader starts where it is told, and commits nothing.
func ExampleKeys() {
	addr, stop := demo("ann", "bob", "ann", "cho", "bob")
	defer stop()
	ctx := context.Background()

	r, err := client.OpenReader(ctx, client.SeedBrokers(addr), client.StartAt("orders", 0, 1), client.Keys([]byte("ann")))
	if err != nil {
		log.Fatal(err)
	}
	defer r.Close(ctx)
	records, err := r.Poll(ctx)
	if err != nil {
		log.Fatal(err)
	}
	for _, record := range records {
		fmt.Printf("offset %d: %s\n", record.Offset, record.Value)
	}
	// Output:
	// offset 2: order 2
}

// Enqueue does not wait for the broker. Flush waits for all that was enqueued.
func ExampleReader_Enqueue() {
	addr, stop := demo("ann", "bob", "cho")
	defer stop()
	ctx := context.Background()

	r, err := client.OpenReader(ctx, client.SeedBrokers(addr), client.Group("billing"), client.Topics("orders"))
	if err != nil {
		log.Fatal(err)
	}
	defer r.Close(ctx)
	records, err := r.Poll(ctx)
	if err != nil {
		log.Fatal(err)
	}
	for _, record := range records {
		if err := r.Enqueue(ctx, record); err != nil {
			log.Fatal(err)
		}
	}
	if err := r.Flush(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println(r.Status()[0])
	// Output:
	// orders[0] at 3, stable 3
}

// An Admin shows what a group has left open, and can make it read something again.
func ExampleAdmin() {
	addr, stop := demo("ann", "bob", "ann", "cho", "bob")
	defer stop()
	ctx := context.Background()

	a, err := client.NewAdmin(client.SeedBrokers(addr))
	if err != nil {
		log.Fatal(err)
	}
	defer a.Close()
	if _, err := a.Commit(ctx, "billing", "orders", 0, client.Run{Start: 0, End: 1}, client.Run{Start: 3, End: 5}); err != nil {
		log.Fatal(err)
	}
	ledgers, err := a.Describe(ctx, "billing")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(ledgers[0])
	for gap, err := range a.Gaps(ctx, "billing", "orders", 0, 0) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("open: %d to %d\n", gap.Start, gap.End-1)
	}
	state, err := a.Reopen(ctx, "billing", "orders", 0, client.Run{Start: 0, End: 1})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("stable offset after reopening 0:", state.Stable)
	// Output:
	// orders[0] of group billing: stable 1, max commit 5, 2 open in 1 gaps, log 0 to 5
	// open: 1 to 2
	// stable offset after reopening 0: 0
}
