package processor

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"

	"github.com/lacunamq/lacuna/processor/assignor"
	"github.com/lacunamq/lacuna/statestore"
)

// planFile keeps the plan of the group, so that one that was stopped whole begins again with
// the same buckets.
const planFile = "plan"

// knownPlan is the plan to speak of when joining: the one assigned last, or else the one on
// disk.
func (a *App) knownPlan() assignor.Claim {
	a.mu.Lock()
	plan, generation := a.mu.plan, a.mu.generation
	a.mu.Unlock()
	if generation >= 0 {
		return assignor.Claim{Generation: generation, Group: &plan.Group, Holders: plan.Holders, Idle: plan.Idle}
	}
	c, err := a.readPlan()
	c.Group = cmp.Or(c.Group, a.measured)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		a.report(fmt.Errorf("read the plan of group %s: %w", a.group, err))
	}
	return c
}

func (a *App) planPath() string { return filepath.Join(a.root(), planFile) }

func (a *App) readPlan() (assignor.Claim, error) {
	nothing := assignor.Claim{Generation: -1}
	if !a.durable() {
		return nothing, nil
	}
	f, err := a.cfg.fs.Open(a.planPath())
	if err != nil {
		return nothing, err
	}
	data, err := io.ReadAll(f)
	if err = errors.Join(err, f.Close()); err != nil {
		return nothing, err
	}
	c, err := assignor.DecodeClaim(data)
	if err != nil {
		return nothing, err
	}
	return c, nil
}

// keepPlan writes the plan. A crash leaves the old one or the new one.
func (a *App) keepPlan() {
	if !a.durable() {
		return
	}
	c := a.knownPlan()
	err := a.cfg.fs.MkdirAll(a.root(), 0o755)
	if err == nil {
		err = statestore.ReplaceFile(a.cfg.fs, a.planPath(), assignor.AppendClaim(nil, &c))
	}
	if err != nil {
		a.report(fmt.Errorf("keep the plan of group %s: %w", a.group, err))
	}
}
