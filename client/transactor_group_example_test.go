package client_test

import (
	"context"
	"fmt"
	"log"
	"sync"

	"github.com/lacunamq/lacuna/client"
	"github.com/twmb/franz-go/pkg/kgo"
)

// A member of a consumer group bills what it is handed in one transaction: one record, or as
// here all that came together, which costs no more than one. If that fails, or the group has
// given the range to another member meanwhile, there is no bill, and the orders come again.
func ExampleTransactor_groupReader() {
	addr, stop := demo("ann", "bob", "cho")
	defer stop()
	ctx := context.Background()
	kafka := client.KafkaOpts(kgo.SeedBrokers(addr), kgo.AllowAutoTopicCreation())

	// Each process names a Transactor of its own. The members of a group share no ids.
	t, err := client.OpenTransactor(ctx, kafka, client.TransactionalID("billing-1"))
	if err != nil {
		log.Fatal(err)
	}
	defer t.Close(ctx)
	var billed sync.WaitGroup
	billed.Add(3)
	bill := func(ctx context.Context, r *client.Reader, orders []*kgo.Record) {
		err := t.Do(ctx, func(tx *client.Txn) error {
			for _, order := range orders {
				if err := tx.Produce(&kgo.Record{Topic: "bills", Key: order.Key, Value: []byte("bill")}); err != nil {
					return err
				}
			}
			return tx.Ack(r, orders...)
		})
		if err != nil {
			log.Print(err)
			return
		}
		billed.Add(-len(orders))
	}
	member, err := client.OpenGroupReader(ctx, kgo.RangeBalancer(), bill, kafka, client.Group("billing"), client.Topics("orders"))
	if err != nil {
		log.Fatal(err)
	}
	defer member.Close(ctx)
	billed.Wait() // a program would wait for a signal
	fmt.Println(bills(addr, 3))
	// Output:
	// [ann bob cho]
}
