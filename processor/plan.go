package processor

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/lacunamq/lacuna/processor/assignor"
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
	if err := writeFile(a.cfg.fs, a.planPath(), assignor.AppendClaim(nil, &c)); err != nil {
		a.report(fmt.Errorf("keep the plan of group %s: %w", a.group, err))
	}
}

// writeFile replaces a file in one step.
func writeFile(fsys vfs.FS, path string, data []byte) error {
	dir := fsys.PathDir(path)
	if err := fsys.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	made := path + ".new"
	f, err := fsys.Create(made, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := fsys.Rename(made, path); err != nil {
		return err
	}
	d, err := fsys.OpenDir(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
