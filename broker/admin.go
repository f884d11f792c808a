package broker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"sync"
	"time"

	"go.uber.org/zap"
)

// adminServer serves metrics, health, the state of share groups and pprof over HTTP. It is for operators and off by
// default.
type adminServer struct {
	ln     net.Listener
	server *http.Server
	wg     sync.WaitGroup
}

// adminHeaderTimeout bounds how long a client may take to send its request's header.
const adminHeaderTimeout = 10 * time.Second

func startAdmin(b *Broker, addr string) (*adminServer, error) {
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("admin: listen on %s: %w", addr, err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/metrics", b.serveMetrics)
	mux.HandleFunc("/health", b.health)
	mux.HandleFunc("GET /share-groups/{group}", b.adminJSON(b.adminShareGroup))
	mux.HandleFunc("GET /share-groups/{group}/explain", b.adminJSON(b.adminExplain))
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	a := &adminServer{ln: ln, server: &http.Server{Handler: mux, ReadHeaderTimeout: adminHeaderTimeout}}
	a.wg.Go(func() {
		if err := a.server.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
			b.log.Error("the admin server ended", zap.Error(err))
		}
	})
	return a, nil
}

// health answers 200 while every log can be written, and names those that cannot
// otherwise.
func (b *Broker) health(w http.ResponseWriter, _ *http.Request) {
	failed := b.topics.failed()
	if len(failed) == 0 {
		fmt.Fprintln(w, "ok")
		return
	}
	w.WriteHeader(http.StatusServiceUnavailable)
	for _, err := range failed {
		fmt.Fprintln(w, err)
	}
}

func (a *adminServer) stop(ctx context.Context) error {
	err := a.server.Shutdown(ctx)
	if err != nil { // a profile that still runs, say
		err = errors.Join(err, a.server.Close())
	}
	a.wg.Wait()
	return err
}
