package tests

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/stretchr/testify/require"
)

// eosProcess is a process of workers.
type eosProcess struct {
	r     *eosRun
	job   eosJob
	cmd   *exec.Cmd
	stdin io.Closer
	errs  string        // file of its stderr
	ready chan struct{} // closed when its workers are open
	read  chan struct{} // closed when all that it said has been heard
	done  bool          // it was waited for
}

// hire starts a process of workers on a seat. With another name than those that had the seat
// before, what they left open is aborted only after a time-out.
func (r *eosRun) hire(seat int, name string) *eosProcess {
	r.processes++
	p := &eosProcess{r: r, ready: make(chan struct{}), read: make(chan struct{})}
	p.job = eosJob{Addr: r.proxy.addr(), Mode: r.mode, Name: name, Process: r.processes, Seat: seat, Seed: r.seed}
	job, err := json.Marshal(p.job)
	require.NoError(r.t, err)
	self, err := os.Executable()
	require.NoError(r.t, err)
	p.cmd = exec.Command(self)
	p.cmd.Env = append(os.Environ(), eosJobVariable+"="+string(job), "GOTRACEBACK=all")
	errs, err := os.CreateTemp(r.t.TempDir(), "workers-*.log")
	require.NoError(r.t, err)
	defer errs.Close()
	p.errs, p.cmd.Stderr = errs.Name(), errs
	p.stdin, err = p.cmd.StdinPipe()
	require.NoError(r.t, err)
	out, err := p.cmd.StdoutPipe()
	require.NoError(r.t, err)
	require.NoError(r.t, p.cmd.Start())
	r.t.Cleanup(p.kill)
	go func() {
		defer close(p.read)
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			if strings.HasPrefix(lines.Text(), "ready") {
				close(p.ready)
			}
			r.account.hear(lines.Text())
		}
	}()
	return p
}

// kill ends the process as kill -9 does. What it said before has been heard then.
func (p *eosProcess) kill() {
	if p.done {
		return
	}
	p.done = true
	p.cmd.Process.Kill()
	<-p.read
	err := p.cmd.Wait()
	if s, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || s.Signal() != syscall.SIGKILL {
		p.r.account.fault("workers %d ended by themselves: %v: %s", p.job.Process, err, p.said())
	}
	p.checkSilence()
}

// checkSilence has the run fail if there is anything on stderr, such as a data race.
func (p *eosProcess) checkSilence() {
	if said := p.said(); said != "" {
		p.r.account.fault("workers %d: %s", p.job.Process, said)
	}
}

// dismiss lets the process finish what it is at and close its workers, once they are open.
func (p *eosProcess) dismiss() {
	p.r.t.Helper()
	p.done = true
	impatient := time.AfterFunc(eosPatience, func() { p.cmd.Process.Kill() })
	defer impatient.Stop()
	select {
	case <-p.ready:
	case <-p.read: // it has failed, and tells below
	}
	require.NoError(p.r.t, p.stdin.Close())
	<-p.read
	require.NoError(p.r.t, p.cmd.Wait(), "workers %d: %s", p.job.Process, p.said())
	p.checkSilence()
}

func (p *eosProcess) said() string {
	said, err := os.ReadFile(p.errs)
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(said[:min(len(said), 6000)]))
}

func (p *eosProcess) signal(s syscall.Signal) {
	require.NoError(p.r.t, p.cmd.Process.Signal(s))
}

// newName is a name that no Transactor has had.
func (r *eosRun) newName() string {
	r.names++
	return fmt.Sprintf("workers-%d", r.names)
}
