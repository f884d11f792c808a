package broker_test

import (
	"os"
	"testing"

	"github.com/lacunamq/lacuna/broker"
	"github.com/stretchr/testify/require"
)

// requireKafkasAnswers has a conversation with a broker, and compares what is written down of it
// with what was written down of the same with Apache Kafka. With LACUNA_RECORD_KAFKA=HOST:PORT it has
// it with the Kafka that is there, and keeps that.
func requireKafkasAnswers(t *testing.T, recorded string, configure func(*broker.Config), converse func(addr string) string) {
	t.Helper()
	if addr := os.Getenv("LACUNA_RECORD_KAFKA"); addr != "" {
		require.NoError(t, os.WriteFile(recorded, []byte(converse(addr)), 0o644))
		return
	}
	want, err := os.ReadFile(recorded)
	require.NoError(t, err)
	require.Equal(t, string(want), converse(start(t, configure).Addr()))
}

// withoutAutoCreation has a broker make no topic on first use.
func withoutAutoCreation(c *broker.Config) {
	c.Settings = map[string]string{"auto.create.topics.enable": "false"}
}
