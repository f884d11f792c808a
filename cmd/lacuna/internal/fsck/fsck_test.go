package fsck

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/lacunamq/lacuna/broker"
	"github.com/lacunamq/lacuna/broker/journal"
	"github.com/lacunamq/lacuna/client"
	"github.com/lacunamq/lacuna/commitlog"
	"github.com/lacunamq/lacuna/individualcommit"
	"github.com/lacunamq/lacuna/protocol"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// ledgerGroup is the group with a ledger. Its name is in no other segment than that of the
// ledger and that of its stable offset, which says "t" behind it.
const ledgerGroup = "ledger of h"

// dataDir makes a data directory: 100 records of topic t, of which group g has committed
// 60, and ledgerGroup 0 to 4, 10 to 19 and 30, and a clean stop. With crash it is as if the
// machine had lost its power instead.
func dataDir(t *testing.T, crash bool) *vfs.MemFS {
	t.Helper()
	files := vfs.NewCrashableMem()
	b, err := broker.Start(t.Context(), broker.Config{
		Listen: []string{"127.0.0.1:0"}, DataDir: "/data", FS: files,
		Settings: map[string]string{"offsets.topic.num.partitions": "2"},
	})
	require.NoError(t, err)
	stop := func() { require.NoError(t, b.Stop(context.Background())) }
	defer stop()
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.Addr()), kgo.AllowAutoTopicCreation(), kgo.DefaultProduceTopic("t"))
	require.NoError(t, err)
	defer cl.Close()
	for i := range 100 {
		require.NoError(t, cl.ProduceSync(t.Context(), kgo.StringRecord(fmt.Sprint("record ", i))).FirstErr())
	}
	var committed kadm.Offsets
	committed.AddOffset("t", 0, 60, -1)
	require.NoError(t, kadm.NewClient(cl).CommitAllOffsets(t.Context(), "g", committed))
	a, err := client.NewAdmin(client.SeedBrokers(b.Addr()))
	require.NoError(t, err)
	defer a.Close()
	_, err = a.Commit(t.Context(), ledgerGroup, "t", 0, client.Run{Start: 0, End: 5}, client.Run{Start: 10, End: 20}, client.Run{Start: 30, End: 31})
	require.NoError(t, err)
	if crash {
		return files.CrashClone(vfs.CrashCloneCfg{})
	}
	stop()
	return files
}

// tree is the content of every file, by name.
func tree(t *testing.T, files vfs.FS, dir string, into map[string]string) map[string]string {
	t.Helper()
	list, err := files.List(dir)
	require.NoError(t, err)
	for _, name := range list {
		path := files.PathJoin(dir, name)
		info, err := files.Stat(path)
		require.NoError(t, err)
		if info.IsDir() {
			tree(t, files, path, into)
			continue
		}
		f, err := files.Open(path)
		require.NoError(t, err)
		content, err := io.ReadAll(f)
		require.NoError(t, err)
		require.NoError(t, f.Close())
		into[path] = string(content)
	}
	return into
}

func checked(t *testing.T, files vfs.FS) Report {
	t.Helper()
	before := tree(t, files, "/data", map[string]string{})
	r, err := Check(t.Context(), files, "/data", nil)
	require.NoError(t, err)
	require.Equal(t, before, tree(t, files, "/data", map[string]string{}), "a check changes nothing")
	return r
}

func TestCheckOfACleanDirectoryFindsNothing(t *testing.T) {
	r := checked(t, dataDir(t, false))
	require.Empty(t, r.Findings)
	require.Equal(t, Note, r.Worst())
	require.True(t, r.CleanStop)
	require.Equal(t, 4, r.Topics, "three of them the broker's own")
	require.EqualValues(t, 2, r.Offsets, "the ledger's stable offset is one")
	require.EqualValues(t, 1, r.Ledgers)
	require.EqualValues(t, 2, r.Gaps)
	require.Greater(t, r.Records, int64(100))
}

func TestCheckAfterACrash(t *testing.T) {
	r := checked(t, dataDir(t, true))
	require.False(t, r.CleanStop)
	require.NotEqual(t, Error, r.Worst(), "%v", r.Findings)
	require.Contains(t, r.Findings, Finding{Note, "/data", "the last broker here did not stop cleanly"})
	require.EqualValues(t, 1, r.Ledgers)
	require.EqualValues(t, 2, r.Gaps, "answered, and so durable")
}

// segment finds the one file of the data that holds text.
func segment(t *testing.T, files vfs.FS, text string) string {
	t.Helper()
	for name, content := range tree(t, files, "/data/topics", map[string]string{}) {
		if strings.HasSuffix(name, ".log") && strings.Contains(content, text) && !strings.Contains(content, text+"\x00\x01t") {
			return name
		}
	}
	t.Fatalf("no segment holds %q", text)
	return ""
}

func TestCheckFindsADamagedRecord(t *testing.T) {
	files := dataDir(t, false)
	name := segment(t, files, "record 42")
	content := []byte(tree(t, files, "/data/topics", map[string]string{})[name])
	content[bytes.Index(content, []byte("record 42"))] ^= 1
	write(t, files, name, string(content))
	r := checked(t, files)
	require.Equal(t, Error, r.Worst())
	require.Equal(t, "t[0]", r.Findings[0].Where)
	require.Contains(t, fmt.Sprint(r.Findings), "batch at offset 42")
}

// A ledger that is ahead of its data would skip the records that are written there next.
func TestCheckFindsALedgerAheadOfItsData(t *testing.T) {
	files := dataDir(t, false)
	name := segment(t, files, "record 42")
	require.NoError(t, files.RemoveAll(files.PathDir(name)))
	r := checked(t, files)
	require.Equal(t, Error, r.Worst())
	require.Contains(t, r.Findings, Finding{Error, "group ledger of h, t[0]", "offsets up to 30 are committed, and the partition has no log"})
}

// Counts of offsets at the end of the log would be those of the records that are written
// there next.
func TestCheckFindsDeliveryCountsThatAreWrong(t *testing.T) {
	const cannotBeRead = "delivery counts cannot be read: block 0: unknown version of delivery counts: 7"
	for name, of := range map[string]struct {
		counts []byte
		want   []Finding
	}{
		"right":         {[]byte{0, 1, 90, 10, 2, 0}, []Finding{}},
		"ahead":         {[]byte{0, 1, 90, 11, 2, 0}, []Finding{{Error, "group ledger of h, t[0]", "records of block 0 have delivery counts, and the log ends at 100; the next start forgets them"}}},
		"of later ones": {[]byte{7, 1, 1, 1, 1, 0}, []Finding{{Error, "group ledger of h, t[0]", cannotBeRead}}},
	} {
		t.Run(name, func(t *testing.T) {
			files := dataDir(t, false)
			appendCounts(t, files, of.counts)
			require.Equal(t, of.want, checked(t, files).Findings)
		})
	}
}

// appendCounts gives the ledger delivery counts.
func appendCounts(t *testing.T, files vfs.FS, counts []byte) {
	log, err := commitlog.Open(commitlog.Options{
		FS: files, Dir: files.PathDir(segment(t, files, ledgerGroup)), Name: individualcommit.TopicName, Config: commitlog.DefaultConfig(),
	})
	require.NoError(t, err)
	read, err := log.Read(nil, 0, commitlog.ReadOptions{MinOne: true, UpTo: log.Bounds().End})
	require.NoError(t, err)
	h, err := protocol.ParseBatchHeader(read.Data)
	require.NoError(t, err)
	records := protocol.IterateRecords(&h, read.Data[protocol.BatchHeaderLen:h.Size()])
	require.True(t, records.Next())
	key, err := individualcommit.ParseKey(records.Record().Key)
	require.NoError(t, err)
	key.Kind = individualcommit.KindCounts
	_, err = journal.Open(log, individualcommit.TopicName).Append([]journal.Record{{
		Key: key.AppendTo(nil), Value: append([]byte{0, 0, 0, 0, 0, 0}, counts...),
	}})
	require.NoError(t, err)
	require.NoError(t, log.Close())
}

func TestCheckFindsADamagedLedger(t *testing.T) {
	files := dataDir(t, false)
	name := segment(t, files, "ledger of h")
	content := []byte(tree(t, files, "/data/topics", map[string]string{})[name])
	content[len(content)-1] ^= 1
	write(t, files, name, string(content))
	r := checked(t, files)
	require.Equal(t, Error, r.Worst())
	require.Contains(t, r.Findings[0].Where, "__individual_commit_offsets")
	require.Zero(t, r.Ledgers)
}

func TestCheckRefusesWhatItCannotCheck(t *testing.T) {
	files := dataDir(t, false)
	_, err := Check(t.Context(), files, "/nowhere", nil)
	require.ErrorContains(t, err, "/nowhere is no data directory")
	lock, err := files.Lock("/data/lock")
	require.NoError(t, err)
	_, err = Check(t.Context(), files, "/data", nil)
	require.ErrorContains(t, err, "a broker uses it")
	require.NoError(t, lock.Close())
	write(t, files, "/data/meta.json", `{"format":999}`)
	_, err = Check(t.Context(), files, "/data", nil)
	require.ErrorContains(t, err, "use a newer lacuna")
}
