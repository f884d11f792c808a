package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/lacunamq/lacuna/bench/peers/load"
)

// result is what a turn of a job has shown. Times are in seconds, CPU in seconds of user and
// system together, memory in MiB.
type result struct {
	Job     string  `json:"job"`
	Parts   int32   `json:"parts"`
	Words   int     `json:"words"`
	Keys    int     `json:"keys"`
	Load    float64 `json:"load1"`
	Run     stage   `json:"run"`
	Restore stage   `json:"restore"`
	Records int64   `json:"records"` // counts that came out
}

// stage is one life of a job.
type stage struct {
	First float64 `json:"first"` // from the start of the process to its first output
	Wall  float64 `json:"wall"`  // to its last
	// FirstCPU, WallCPU and CPU are the CPU until then and until the process has closed.
	FirstCPU  float64 `json:"first_cpu"`
	WallCPU   float64 `json:"wall_cpu"`
	CPU       float64 `json:"cpu"`
	BrokerCPU float64 `json:"broker_cpu"`
	RSS       float64 `json:"rss"` // the most there was
	State     float64 `json:"state"`
}

// turn is one turn of a job on a broker of its own.
func (m *measurement) turn(ctx context.Context, j job, words []string) (r result, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, m.limit, fmt.Errorf("a turn may take %v", m.limit))
	defer cancel()
	if err := os.RemoveAll(m.dir); err != nil {
		return r, err
	}
	if err := os.MkdirAll(m.dir, 0o755); err != nil {
		return r, err
	}
	broker, addr, err := startBroker(ctx, m.broker, filepath.Join(m.dir, "broker"), filepath.Join(m.dir, "broker.log"), m.fsync)
	if err != nil {
		return r, err
	}
	defer func() {
		_, stopped := broker.stop()
		err = errors.Join(err, stopped)
	}()
	in, err := fill(ctx, addr, m.parts, words)
	if err != nil {
		return r, err
	}
	w, err := watch(addr)
	if err != nil {
		return r, err
	}
	defer w.close()
	r = result{Job: j.name, Parts: m.parts, Words: len(words), Keys: len(in.counts), Load: load.Load1()}
	if r.Run, err = m.live(ctx, j, broker, addr, in, w); err != nil {
		return r, fmt.Errorf("run: %w", err)
	}
	if err := os.RemoveAll(m.stateDir()); err != nil {
		return r, err
	}
	if err := in.probe(ctx); err != nil {
		return r, err
	}
	if r.Restore, err = m.live(ctx, j, broker, addr, in, w); err != nil {
		return r, fmt.Errorf("restore: %w", err)
	}
	if r.Records = w.records; j.each && w.odd > 0 {
		return r, fmt.Errorf("%d of %d counts did not count one up", w.odd, w.records)
	}
	return r, nil
}

func (m *measurement) stateDir() string { return filepath.Join(m.dir, "state") }

// live is one life of a job: from its start until it has told of all words and is closed.
func (m *measurement) live(ctx context.Context, j job, broker *process, addr string, in *input, w *watcher) (s stage, err error) {
	before := broker.now().CPU
	command := j.command(m, addr)
	p, err := startProcess(filepath.Join(m.dir, "job.log"), command[0], command[1:]...)
	if err != nil {
		return s, err
	}
	alive, cancel := p.orEnd(ctx)
	err = w.await(alive, in, func() { s.First, s.FirstCPU = time.Since(p.began).Seconds(), p.now().CPU })
	cancel()
	s.Wall = time.Since(p.began).Seconds()
	used := p.now()
	s.WallCPU, s.RSS, s.BrokerCPU = used.CPU, float64(used.HWM)/1024, broker.now().CPU-before
	cpu, stopped := p.stop()
	s.CPU = cpu
	if err := errors.Join(err, stopped); err != nil {
		return s, err
	}
	s.State, err = size(m.stateDir())
	return s, err
}

// size is how large the files below a directory are, in MiB.
func size(dir string) (float64, error) {
	var bytes int64
	err := filepath.Walk(dir, func(_ string, info os.FileInfo, err error) error {
		if err == nil && info.Mode().IsRegular() {
			bytes += info.Size()
		}
		return err
	})
	return float64(bytes) / (1 << 20), err
}
