package broker

import (
	"bytes"
	"net/http"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/common/expfmt"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap"
)

// metrics are what the admin listener shows. What the broker knows anyway is read when
// it is asked for, never counted beside it.
type metrics struct {
	registry        *prometheus.Registry
	requests        []prometheus.Counter // by API key
	producedBytes   prometheus.Counter
	producedRecords prometheus.Counter
	fetchedBytes    prometheus.Counter
	deadLetters     prometheus.Counter
}

func newMetrics(b *Broker) *metrics {
	m := &metrics{registry: prometheus.NewRegistry()}
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Namespace: "lacuna", Name: name, Help: help})
		m.registry.MustRegister(c)
		return c
	}
	m.producedBytes = counter("produced_bytes_total", "Bytes of record batches appended for producers.")
	m.producedRecords = counter("produced_records_total", "Records appended for producers.")
	m.fetchedBytes = counter("fetched_bytes_total", "Bytes of record batches sent to consumers.")
	m.deadLetters = counter("dead_letters_total", "Dead letters written for share groups.")
	requests := prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "lacuna", Name: "requests_total", Help: "Requests received, by API.",
	}, []string{"api", "key"})
	m.registry.MustRegister(requests)
	m.requests = make([]prometheus.Counter, len(b.apis))
	for key, a := range b.apis {
		if a != nil {
			m.requests[key] = requests.WithLabelValues(kmsg.NameForKey(a.key), strconv.Itoa(key))
		}
	}
	gauge := func(name, help string, read func() float64) {
		m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "lacuna", Name: name, Help: help}, read))
	}
	gauge("connections", "Open connections.", func() float64 { return float64(b.listeners.count()) })
	gauge("fetch_sessions", "Incremental fetch sessions kept.", func() float64 { return float64(b.sessions.count()) })
	gauge("share_sessions", "Share sessions kept.", func() float64 { return float64(b.shareSessions.count()) })
	gauge("ledger_memory_bytes", "Memory of all ledgers of individual commits.", func() float64 { return float64(b.ledgers.MemoryBytes()) })
	gauge("topics", "Topics, internal ones included.", func() float64 { return float64(len(b.topics.all())) })
	decoded := prometheus.NewCounterFunc(prometheus.CounterOpts{
		Namespace: "lacuna", Name: "filter_batches_decoded_total", Help: "Batches that filtered fetches decoded.",
	}, func() float64 { return float64(b.filters.Stats().BatchesDecoded) })
	m.registry.MustRegister(decoded)
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

func (m *metrics) produced(bytes, records int) {
	m.producedBytes.Add(float64(bytes))
	m.producedRecords.Add(float64(records))
}

// serveMetrics answers in the text format, which whoever scrapes reads. (A handler that
// lets them choose another one makes the program .3 MB larger.)
func (b *Broker) serveMetrics(w http.ResponseWriter, _ *http.Request) {
	families, err := b.metrics.registry.Gather()
	var text bytes.Buffer
	for _, family := range families {
		if err == nil {
			_, err = expfmt.MetricFamilyToText(&text, family)
		}
	}
	if err != nil {
		b.log.Error("metrics", zap.Error(err))
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", string(expfmt.NewFormat(expfmt.TypeTextPlain)))
	if _, err := text.WriteTo(w); err != nil {
		b.log.Debug("metrics", zap.Error(err)) // who asked has gone
	}
}
