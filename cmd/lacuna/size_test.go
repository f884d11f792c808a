package main

import (
	"os"
	"os/exec"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestBinarySize holds what `make build` makes to 25 MB. What it is made of is told in
// docs/decisions.md.
func TestBinarySize(t *testing.T) {
	if os.Getenv("LACUNA_LONG") == "" || runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		t.Skip("builds the binary; LACUNA_LONG=1 on Linux, amd64")
	}
	out, err := exec.CommandContext(t.Context(), "make", "-C", "../..", "build").CombinedOutput()
	require.NoError(t, err, string(out))
	info, err := os.Stat("../../bin/lacuna")
	require.NoError(t, err)
	require.LessOrEqual(t, info.Size(), int64(25_000_000))
}
