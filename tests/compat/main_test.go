package compat

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// cacheDir is where setup.sh put the clients; jars and suites are kept there too.
var cacheDir string

func TestMain(m *testing.M) {
	if os.Getenv("LACUNA_COMPAT") == "" {
		fmt.Println("compat: skipped; `make compat` installs the clients and runs them")
		os.Exit(0)
	}
	cacheDir = os.Getenv("LACUNA_CACHE")
	if cacheDir == "" {
		base, err := os.UserCacheDir()
		if err != nil {
			fmt.Fprintln(os.Stderr, "compat: no cache directory:", err)
			os.Exit(1)
		}
		cacheDir = filepath.Join(base, "lacuna")
	}
	code := m.Run()
	if err := shared.stop(); err != nil {
		fmt.Fprintln(os.Stderr, "compat:", err)
		code = 1
	}
	os.Exit(code)
}
