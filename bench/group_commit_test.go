package bench

import (
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lacunamq/lacuna/broker"
	"github.com/lacunamq/lacuna/protocol"
)

// groupCommitBatches is what each round of BenchmarkGroupCommit writes.
const groupCommitBatches = 4096

// BenchmarkGroupCommit tells what fsync before every answer costs 64 producers on 8
// partitions. Its unit is a round, in which the same 64 MiB are written in four ways, one
// after the other, so that whatever else the machine does strikes them alike: to a broker
// with fsync, to one without, to a file with one fsync at its end (dd conv=fsync), and to
// a file with an fsync after every batch. Rates are of the median round. The budget is
// half of the rate without fsync, or 80 % of dd's, the lower: on/budget is at least 1.
func BenchmarkGroupCommit(b *testing.B) {
	batch := text(b, protocol.CodecNone, 1).stored[0]
	on := newProducers(b, embedded(b, nil), 64, 8, batch)
	off := newProducers(b, embedded(b, func(c *broker.Config) { c.NoFsync = true }), 64, 8, batch)
	dir := b.TempDir()
	ways := []func(){
		func() { on.produce(b, groupCommitBatches) },
		func() { off.produce(b, groupCommitBatches) },
		func() { writeFile(b, dir, batch, false) },
		func() { writeFile(b, dir, batch, true) },
	}
	took := make([][]time.Duration, len(ways))
	b.SetBytes(int64(len(ways) * groupCommitBatches * len(batch)))
	b.ReportAllocs()
	for b.Loop() {
		for i, way := range ways {
			syscall.Sync() // nobody pays for what another has left unsynced
			start := time.Now()
			way()
			took[i] = append(took[i], time.Since(start))
		}
	}
	rates := make([]float64, len(ways))
	for i, name := range []string{"on-MB/s", "off-MB/s", "dd-MB/s", "dsync-MB/s"} {
		slices.Sort(took[i])
		rates[i] = float64(groupCommitBatches*len(batch)) / 1e6 / took[i][len(took[i])/2].Seconds()
		b.ReportMetric(rates[i], name)
	}
	b.ReportMetric(rates[0]/rates[1], "on/off")
	b.ReportMetric(rates[0]/rates[2], "on/dd")
	b.ReportMetric(rates[0]/rates[3], "on/dsync")
	b.ReportMetric(rates[0]/min(.5*rates[1], .8*rates[2]), "on/budget")
}

// writeFile writes a round's bytes to a new file and syncs it, after every batch or once.
func writeFile(tb testing.TB, dir string, batch []byte, always bool) {
	f, err := os.Create(filepath.Join(dir, "file"))
	require.NoError(tb, err)
	defer f.Close()
	for range groupCommitBatches {
		_, err := f.Write(batch)
		require.NoError(tb, err)
		if always {
			require.NoError(tb, f.Sync())
		}
	}
	require.NoError(tb, f.Sync())
}
