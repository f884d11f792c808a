package broker_test

import (
	"io"
	"net/http"
	"testing"

	"github.com/lacunamq/lacuna/broker"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestTheAdminListenerShowsHealthAndMetrics(t *testing.T) {
	b := start(t, func(c *broker.Config) { c.Admin = "127.0.0.1:0" })
	get := func(path string) string {
		resp, err := http.Get("http://" + b.AdminAddr() + path)
		require.NoError(t, err)
		defer resp.Body.Close()
		require.Equal(t, http.StatusOK, resp.StatusCode)
		if path == "/metrics" {
			require.Equal(t, "text/plain; version=0.0.4; charset=utf-8", resp.Header.Get("Content-Type"))
		}
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		return string(body)
	}
	require.Equal(t, "ok\n", get("/health"))

	w := dial(t, b)
	makeTopic(t, w, "measured")
	w.send(w.frame(produceRequest("measured", -1, batch(t, "a", "b")), 9))
	w.receive(&kmsg.ProduceResponse{Version: 9})
	metrics := get("/metrics")
	require.Contains(t, metrics, "lacuna_produced_records_total 2\n")
	require.Contains(t, metrics, `lacuna_requests_total{api="Metadata",key="3"} 1`)
	require.Contains(t, metrics, "lacuna_connections 1\n")
	require.Contains(t, metrics, "\ngo_goroutines ")
	require.Contains(t, get("/debug/pprof/cmdline"), "broker.test")
	http.DefaultClient.CloseIdleConnections()
}

func TestAnAdminListenerThatOthersReachIsRefused(t *testing.T) {
	_, err := broker.Start(t.Context(), broker.Config{Listen: []string{"127.0.0.1:0"}, DataDir: t.TempDir(), Admin: "0.0.0.0:0"})
	require.ErrorContains(t, err, "--insecure")
}
