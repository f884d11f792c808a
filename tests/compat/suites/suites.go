//go:build suites

// Package suites pins the client libraries whose own test suites are run against a
// broker: a module of its own, so that they stay out of Lacuna's dependencies. The
// scripts beside this file build and run them.
package suites

import (
	_ "github.com/IBM/sarama"
	_ "github.com/Shopify/toxiproxy/v2/cmd/server"
	_ "github.com/twmb/franz-go/pkg/kgo"
)
