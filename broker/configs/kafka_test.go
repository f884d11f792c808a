package configs

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// kafkaSetting is a setting as Apache Kafka 4.4.0 describes it.
type kafkaSetting struct {
	Name     string  `json:"name"`
	Type     string  `json:"type"`
	Default  *string `json:"default"`
	ReadOnly bool    `json:"read_only"`
}

// kafka reads what a fresh node of Apache Kafka 4.4.0 answered to DescribeConfigs.
func kafka(t *testing.T, kind string) map[string]kafkaSetting {
	t.Helper()
	data, err := os.ReadFile("testdata/kafka-4.4.json")
	require.NoError(t, err)
	var all map[string][]kafkaSetting
	require.NoError(t, json.Unmarshal(data, &all))
	settings := map[string]kafkaSetting{}
	for _, s := range all[kind] {
		settings[s.Name] = s
	}
	require.NotEmpty(t, settings)
	return settings
}

var typeNames = map[Type]string{Boolean: "BOOLEAN", String: "STRING", Int: "INT", Short: "SHORT", Long: "LONG", Double: "DOUBLE", List: "LIST"}

// deviations are the settings whose default or scope is not Kafka's, and why.
var deviations = map[string]string{
	"broker.id":       "a broker needs no configuration",
	"node.id":         "a broker needs no configuration",
	"process.roles":   "there are no roles",
	"listeners":       "set by a flag",
	"log.dir":         "set by a flag",
	"max.connections": "memory is bounded",

	"queued.max.request.bytes":                   "memory is bounded",
	"log.cleaner.dedupe.buffer.size":             "machines are small, and it takes effect at the start",
	"log.flush.interval.ms":                      "what nobody waits for is fsynced soon",
	"offsets.topic.replication.factor":           "there is one broker",
	"transaction.state.log.min.isr":              "there is one broker",
	"transaction.state.log.replication.factor":   "there is one broker",
	"group.share.max.partition.max.record.locks": "ledgers scale",
	"group.share.partition.max.record.locks":     "ledgers scale",
	"share.partition.max.record.locks":           "ledgers scale",
}

// likeKafka tells whether a default and a scope are Kafka's.
func likeKafka(d *Def, k kafkaSetting) bool {
	fixed := d.Scope == ReadOnly || d.Scope == Derived
	if Brokers.Find(d.Name) == d && k.ReadOnly != fixed {
		return false
	}
	if k.Default == nil {
		return d.Null || d.Default == ""
	}
	return !d.Null && *k.Default == d.Default
}

// requireLikeKafka compares a setting with Kafka's.
func requireLikeKafka(t *testing.T, d *Def, k kafkaSetting) {
	t.Helper()
	typ := typeNames[d.Type]
	if k.Type == "CLASS" {
		typ = "CLASS" // there are no classes to load
	}
	require.Equal(t, k.Type, typ, d.Name)
	require.Equal(t, deviations[d.Name] == "", likeKafka(d, k), "%s: %+v, Kafka's is %+v", d.Name, d, k)
}

func TestTopicSettingsAreKafkas(t *testing.T) {
	settings := kafka(t, "topic")
	for name, k := range settings {
		d := Topics.Find(name)
		require.NotNil(t, d, name)
		requireLikeKafka(t, d, k)
	}
	for _, d := range Topics.All() {
		if _, ok := settings[d.Name]; !ok {
			require.Contains(t, []string{"individual.commit.enable", "internal.segment.bytes"}, d.Name)
		}
	}
}

func TestGroupSettingsAreKafkas(t *testing.T) {
	settings := kafka(t, "group")
	for name, k := range settings {
		if strings.HasPrefix(name, "streams.") {
			require.Nil(t, Groups.Find(name), "there are no Streams groups")
			continue
		}
		d := Groups.Find(name)
		require.NotNil(t, d, name)
		requireLikeKafka(t, d, k)
	}
	own := map[string]bool{}
	for _, d := range groupOwnDefs {
		own[d.Name] = true
	}
	for _, d := range Groups.All() {
		_, ok := settings[d.Name]
		require.NotEqual(t, own[d.Name], ok, d.Name)
	}
}

func TestClientMetricsSettingsAreKafkas(t *testing.T) {
	settings := kafka(t, "metrics")
	require.Len(t, ClientMetrics.All(), len(settings))
	for name, k := range settings {
		requireLikeKafka(t, ClientMetrics.Find(name), k)
	}
}

func TestBrokerSettingsAreKafkas(t *testing.T) {
	settings := kafka(t, "broker")
	own := map[string]bool{}
	for _, d := range brokerOwnDefs {
		own[d.Name] = true
	}
	for _, d := range Brokers.All() {
		k, ok := settings[d.Name]
		require.NotEqual(t, own[d.Name], ok, d.Name)
		if !ok {
			continue
		}
		requireLikeKafka(t, d, k)
	}
}

// Each default that a topic or group takes from the broker is the one that the table
// names, and each value is one that may be set.
func TestTablesAgree(t *testing.T) {
	for _, table := range []*Table{Topics, Groups, Brokers, ClientMetrics} {
		for _, d := range table.All() {
			require.NotEmpty(t, d.Doc, d.Name)
			if !d.Null && d.Name != "share.auto.offset.reset" {
				require.NoError(t, d.Validate(d.Default), d.Name)
			}
			for _, a := range d.From {
				require.NotNil(t, Brokers.Find(a.Name), "%s takes its default from %s", d.Name, a.Name)
			}
		}
	}
	b := mustBroker(t, nil)
	for _, v := range []Values{b.Topic(nil), b.Group(nil)} {
		for _, d := range v.table.All() {
			if d.Null {
				continue
			}
			value, source := v.value(d)
			require.Equal(t, d.Default, value, d.Name)
			require.Equal(t, SourceDefault, source, d.Name)
		}
	}
}
