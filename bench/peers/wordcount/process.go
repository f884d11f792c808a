package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/lacunamq/lacuna/bench/peers/load"
)

// process is a program that runs for the measurement.
type process struct {
	cmd   *exec.Cmd
	log   *os.File
	began time.Time
	ended chan error // of capacity 1: how it has ended
	done  chan struct{}
}

// startProcess starts a program whose output is appended to the file log.
func startProcess(log string, name string, args ...string) (*process, error) {
	f, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	p := &process{cmd: exec.Command(name, args...), log: f, began: time.Now(), ended: make(chan error, 1), done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = f, f
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", name, err), f.Close())
	}
	go func() {
		p.ended <- p.cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// now is what the process has used so far.
func (p *process) now() load.Proc { return load.ReadProc(p.cmd.Process.Pid) }

// stop ends the process in good order, after 90 s by force, and says how much CPU it has
// used in its life, in seconds.
func (p *process) stop() (cpu float64, err error) {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended by itself
	timer := time.AfterFunc(90*time.Second, func() { _ = p.cmd.Process.Kill() })
	<-p.done
	late := !timer.Stop()
	err = <-p.ended
	// A JVM that was told to end says so with its code.
	if state := p.cmd.ProcessState; state.ExitCode() == 128+int(syscall.SIGTERM) {
		err = nil
	}
	if late {
		err = errors.New("it did not end within 90 s")
	}
	if err != nil {
		err = fmt.Errorf("%s, log %s: %w", p.cmd.Path, p.log.Name(), err)
	}
	usage := p.cmd.ProcessState
	return (usage.UserTime() + usage.SystemTime()).Seconds(), errors.Join(err, p.log.Close())
}

// orEnd is a context that ends with the process.
func (p *process) orEnd(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		select {
		case <-p.done:
			cancel(fmt.Errorf("%s has ended, log %s", p.cmd.Path, p.log.Name()))
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(nil) }
}

// startBroker starts Lacuna on a free port and waits until it listens.
func startBroker(ctx context.Context, binary, dir, log string, fsync string) (p *process, addr string, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, "", err
	}
	addr = l.Addr().String()
	if err := l.Close(); err != nil {
		return nil, "", err
	}
	p, err = startProcess(log, binary, "serve", "--listen", addr, "--data-dir", dir, "--fsync="+fsync,
		"--set", "group.initial.rebalance.delay.ms=0") // or each start waits 3 s for others to join
	if err != nil {
		return nil, "", err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, 30*time.Second, errors.New("the broker does not listen"))
	defer cancel()
	ctx, over := p.orEnd(ctx)
	defer over()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			return p, addr, conn.Close()
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			_, err := p.stop()
			return nil, "", errors.Join(context.Cause(ctx), err)
		}
	}
}
