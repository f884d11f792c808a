package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"slices"
	"sync"

	"github.com/lacunamq/lacuna/client"
	"github.com/twmb/franz-go/pkg/kgo"
)

// A Reader commits the orders that were billed together with the bills: who reads committed
// records sees one bill for each, whatever fails.
func ExampleTransactor() {
	addr, stop := demo("ann", "bob", "cho")
	defer stop()
	ctx := context.Background()
	kafka := client.KafkaOpts(kgo.SeedBrokers(addr), kgo.AllowAutoTopicCreation())

	t, err := client.OpenTransactor(ctx, kafka, client.TransactionalID("billing-1"))
	if err != nil {
		log.Fatal(err)
	}
	defer t.Close(ctx)
	r, err := client.OpenReader(ctx, kafka, client.Group("billing"), client.Topics("orders"))
	if err != nil {
		log.Fatal(err)
	}
	defer r.Close(ctx)

	orders, err := r.Poll(ctx)
	if err != nil {
		log.Fatal(err)
	}
	for _, order := range orders {
		err := t.Do(ctx, func(tx *client.Txn) error {
			if err := tx.Produce(&kgo.Record{Topic: "bills", Key: order.Key, Value: []byte("bill")}); err != nil {
				return err
			}
			if string(order.Key) == "bob" {
				return errors.New("bob has no account") // no bill, and the order stays open
			}
			return tx.Ack(r, order)
		})
		fmt.Printf("order of %s: %v\n", order.Key, err)
	}
	fmt.Println(bills(addr, 2))
	// Output:
	// order of ann: <nil>
	// order of bob: bob has no account
	// order of cho: <nil>
	// [ann cho]
}

// A Worker's handler gets a transaction with each record, and the record is accepted in it.
func ExampleTransactor_Handler() {
	addr, stop := demo("ann", "bob", "cho")
	defer stop()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if err := setGroupConfig(ctx, addr, "billing", "share.auto.offset.reset", "earliest"); err != nil {
		log.Fatal(err)
	}

	kafka := client.KafkaOpts(kgo.SeedBrokers(addr), kgo.AllowAutoTopicCreation())
	t, err := client.OpenTransactor(ctx, kafka, client.TransactionalID("billing-1"))
	if err != nil {
		log.Fatal(err)
	}
	bill := func(_ context.Context, tx *client.Txn, r *client.ShareRecord) error {
		if err := tx.Produce(&kgo.Record{Topic: "bills", Key: r.Key, Value: []byte("bill")}); err != nil {
			return err
		}
		if string(r.Key) == "bob" && r.DeliveryCount == 1 {
			return errors.New("bob's bank does not answer") // no bill yet: the order comes again
		}
		return nil
	}
	var done sync.WaitGroup
	done.Add(3)
	w, err := client.OpenWorker(ctx, t.Handler(bill), kafka, client.Group("billing"), client.Topics("orders"),
		client.Hooks(client.WorkerHooks{Acknowledged: func(_ *client.ShareRecord, o client.Outcome) {
			if o == client.Accepted {
				done.Done()
			}
		}}))
	if err != nil {
		log.Fatal(err)
	}
	done.Wait() // a program would wait for a signal
	if err := errors.Join(w.Close(ctx), t.Close(ctx)); err != nil {
		log.Fatal(err)
	}
	fmt.Println(bills(addr, 3))
	// Output:
	// [ann bob cho]
}

// bills reads n committed bills, and says whose they are.
func bills(addr string, n int) (keys []string) {
	ctx := context.Background()
	r, err := client.OpenReader(ctx, client.SeedBrokers(addr), client.Topics("bills"), client.ReadCommitted())
	if err != nil {
		log.Fatal(err)
	}
	defer r.Close(ctx)
	for len(keys) < n {
		records, err := r.Poll(ctx)
		if err != nil {
			log.Fatal(err)
		}
		for _, record := range records {
			keys = append(keys, string(record.Key))
		}
	}
	slices.Sort(keys)
	return keys
}
