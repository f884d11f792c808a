package main

import (
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// release is set by the linker for a release: -ldflags "-X main.release=v1.2.3".
var release string

// version is the release, or what the build knows of its commit.
func version() string {
	if release != "" {
		return release
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	v := "devel"
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision" && len(s.Value) >= 12:
			v += "-" + s.Value[:12]
		case s.Key == "vcs.modified" && s.Value == "true":
			v += "-changed"
		}
	}
	return v
}

func versionCommand(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Say which version this is",
		Args:  noArguments,
		RunE: func(*cobra.Command, []string) error {
			if c.output == "json" {
				return json.NewEncoder(c.out).Encode(map[string]string{
					"version": version(), "go": runtime.Version(), "os": runtime.GOOS, "arch": runtime.GOARCH,
				})
			}
			_, err := fmt.Fprintf(c.out, "lacuna %s (%s %s/%s)\n", version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
	c.outputFlag(cmd)
	return cmd
}
