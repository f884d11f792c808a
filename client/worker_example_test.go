package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"slices"
	"sync"

	"github.com/lacunamq/lacuna/client"
)

// A Worker calls a function for every record. A record whose function fails comes again;
// one that can never succeed is rejected.
func ExampleWorker() {
	addr, stop := demo("ann", "bob", "cho")
	defer stop()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()

	// A share group begins with what is written from its first member on, unless it is told
	// otherwise, as by kafka-configs --entity-type groups.
	if err := setGroupConfig(ctx, addr, "billing", "share.auto.offset.reset", "earliest"); err != nil {
		log.Fatal(err)
	}

	var mu sync.Mutex
	var lines []string
	bill := func(_ context.Context, r *client.ShareRecord) error {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case string(r.Key) == "bob" && r.DeliveryCount == 1:
			return errors.New("bob's bank does not answer")
		case string(r.Key) == "cho":
			return client.Reject(errors.New("cho owes nothing"))
		}
		lines = append(lines, fmt.Sprintf("billed %s, delivery %d", r.Key, r.DeliveryCount))
		return nil
	}
	finished := 0
	w, err := client.OpenWorker(ctx, bill, client.SeedBrokers(addr), client.Group("billing"), client.Topics("orders"), client.Concurrency(4),
		client.Hooks(client.WorkerHooks{Acknowledged: func(r *client.ShareRecord, o client.Outcome) {
			mu.Lock()
			defer mu.Unlock()
			if o == client.Rejected {
				lines = append(lines, fmt.Sprintf("rejected %s", r.Key))
			}
			if o == client.Accepted || o == client.Rejected {
				finished++
			}
			if finished == 3 {
				cancel() // a program would wait for a signal
			}
		}}))
	if err != nil {
		log.Fatal(err)
	}
	if err := w.Run(ctx); err != nil {
		log.Fatal(err)
	}
	slices.Sort(lines)
	for _, line := range lines {
		fmt.Println(line)
	}
	// Output:
	// billed ann, delivery 1
	// billed bob, delivery 2
	// rejected cho
}
