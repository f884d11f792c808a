package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
)

// tableCommand prints the medians of files of results.
func tableCommand(_ context.Context, files []string) error {
	var all []result
	for _, file := range files {
		f, err := os.Open(file)
		if err != nil {
			return err
		}
		for d := json.NewDecoder(f); err == nil; {
			var r result
			if err = d.Decode(&r); err == nil {
				all = append(all, r)
			}
		}
		if f.Close(); !errors.Is(err, io.EOF) {
			return fmt.Errorf("read %s: %w", file, err)
		}
	}
	if len(all) == 0 {
		return errors.New("no results")
	}
	printTable(os.Stdout, all)
	return nil
}

// columns are the figures of the table.
var columns = []struct {
	title string
	of    func(r result) float64
}{
	{"words/s", func(r result) float64 { return float64(r.Words) / r.Run.Wall }},
	{"words/s after the first count", func(r result) float64 { return float64(r.Words) / (r.Run.Wall - r.Run.First) }},
	{"words a CPU s of the job", func(r result) float64 { return float64(r.Words) / r.Run.CPU }},
	{"the same after the first count", func(r result) float64 { return float64(r.Words) / (r.Run.CPU - r.Run.FirstCPU) }},
	{"broker CPU s", func(r result) float64 { return r.Run.BrokerCPU }},
	{"first count s", func(r result) float64 { return r.Run.First }},
	{"RSS MiB", func(r result) float64 { return r.Run.RSS }},
	{"state MiB", func(r result) float64 { return r.Run.State }},
	{"restored after s", func(r result) float64 { return r.Restore.Wall }},
	{"restore CPU s", func(r result) float64 { return r.Restore.CPU }},
	{"restore broker CPU s", func(r result) float64 { return r.Restore.BrokerCPU }},
	{"restore RSS MiB", func(r result) float64 { return r.Restore.RSS }},
}

// printTable prints the medians of each job, and under what load they were taken.
func printTable(w io.Writer, all []result) {
	var names []string
	byJob := make(map[string][]result)
	for _, r := range all {
		if byJob[r.Job] == nil {
			names = append(names, r.Job)
		}
		byJob[r.Job] = append(byJob[r.Job], r)
	}
	fmt.Fprint(w, "| |")
	for _, name := range names {
		fmt.Fprintf(w, " %s |", name)
	}
	fmt.Fprint(w, "\n| --- |")
	for range names {
		fmt.Fprint(w, " --- |")
	}
	fmt.Fprintln(w)
	for _, c := range columns {
		fmt.Fprintf(w, "| %s |", c.title)
		for _, name := range names {
			fmt.Fprintf(w, " %s |", figure(median(byJob[name], c.of)))
		}
		fmt.Fprintln(w)
	}
	byLoad := func(x, y result) int { return cmp.Compare(x.Load, y.Load) }
	fmt.Fprintf(w, "%d words, %d different, %d partitions, %d results; load %.1f to %.1f\n", all[0].Words, all[0].Keys, all[0].Parts, len(all),
		slices.MinFunc(all, byLoad).Load, slices.MaxFunc(all, byLoad).Load)
}

func median(results []result, of func(result) float64) float64 {
	var values []float64
	for _, r := range results {
		values = append(values, of(r))
	}
	slices.Sort(values)
	if n := len(values); n%2 == 0 {
		return (values[n/2-1] + values[n/2]) / 2
	}
	return values[len(values)/2]
}

func figure(v float64) string {
	switch {
	case v >= 1000:
		return fmt.Sprintf("%d,%03d", int(v)/1000, int(v)%1000)
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.3g", v)
}
