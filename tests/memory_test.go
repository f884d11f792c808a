package tests

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/lacunamq/lacuna/tests/wire"
)

// smallMemory are the settings of a broker that has little memory, and memoryLimit is
// what its process may take all the same: what it takes when idle, and five times what
// the settings allow, since half of a heap may be garbage, some of it buffers that wait to
// be used again, and a collector that gets little of a busy machine comes late. What is not
// bounded takes gigabytes here.
var smallMemory = []string{
	"--set", "queued.max.request.bytes=33554432",
	"--set", "fetch.max.memory.bytes=16777216",
	"--set", "max.decoded.batch.bytes=4194304",
}

const memoryLimit = 40<<20 + 5*(32+16+4*2)<<20

// bigBatch is a batch of about n bytes.
func bigBatch(t *testing.T, n int) []byte {
	t.Helper()
	return batchOf(t, make([]byte, n))
}

// TestAnnouncedBytesHoldNobodyUp opens many connections that announce 100 MB each and
// send nothing more, or only the first part of it. Others do not notice, also those whose
// requests need room in the memory for requests.
func TestAnnouncedBytesHoldNobodyUp(t *testing.T) {
	for name, sent := range map[string]int{"nothing": 0, "a header": 20, "its first part": 64 << 10} {
		t.Run("they send "+name, func(t *testing.T) {
			p := startProcess(t, t.TempDir(), smallMemory...)
			quiet := startCalm(t, p.addr, "calm")
			for range 200 {
				announce(t, p.addr, sent)
			}
			c := dial(t, p.addr)
			_, err := c.MakeTopic("big")
			require.NoError(t, err)
			began := time.Now()
			for range 5 {
				resp, err := c.Do(wire.ProduceRequest("big", 0, -1, bigBatch(t, 900<<10)))
				require.NoError(t, err)
				_, err = wire.ProducedAt(resp)
				require.NoError(t, err)
			}
			assert.Less(t, time.Since(began), 5*time.Second, "a client with large requests was held up")
			quiet.undisturbed(t)
			peak := p.stop()
			t.Logf("memory: at most %d MiB", peak>>20)
			assert.LessOrEqual(t, peak, int64(memoryLimit))
		})
	}
}

// announce opens a connection that announces a produce request of 100 MB and sends the
// first bytes of it.
func announce(t *testing.T, addr string, sent int) {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	t.Cleanup(func() { nc.Close() })
	frame := binary.BigEndian.AppendUint32(nil, 100_000_000)
	frame = append(frame, kmsg.NewRequestFormatter().AppendRequest(nil, wire.ProduceRequest("big", 0, 1, nil), 1)[4:]...)
	frame = append(frame, make([]byte, max(0, 4+sent-len(frame)))...)
	_, err = nc.Write(frame[:4+sent])
	require.NoError(t, err)
}

// TestDecodedRequestsStayWithinTheirMemory sends requests that swell when they are
// decoded, many at a time: as large as the broker takes them, and larger.
func TestDecodedRequestsStayWithinTheirMemory(t *testing.T) {
	p := startProcess(t, t.TempDir(), smallMemory...)
	apis, err := dial(t, p.addr).Versions()
	require.NoError(t, err)
	quiet := startCalm(t, p.addr, "calm")
	sizes := []int{48 << 10}
	if long() {
		sizes = append(sizes, 240<<10, 1<<20)
	}
	for _, api := range apis {
		for _, size := range sizes {
			sendAtOnce(t, p.addr, 6, swollen(api.ApiKey, api.MaxVersion, size))
			p.running()
			peak, _ := p.peakMemory()
			require.LessOrEqual(t, peak, int64(memoryLimit), "after %s requests of %d bytes", kmsg.NameForKey(api.ApiKey), size)
		}
	}
	sendAtOnce(t, p.addr, 16, swollenExtension())
	quiet.undisturbed(t)
	peak := p.stop()
	t.Logf("memory: at most %d MiB", peak>>20)
	require.LessOrEqual(t, peak, int64(memoryLimit))
}

// sendAtOnce sends each request on so many connections, all at the same time.
func sendAtOnce(t *testing.T, addr string, times int, reqs []kmsg.Request) {
	t.Helper()
	var senders sync.WaitGroup
	for _, req := range reqs {
		frame := kmsg.NewRequestFormatter().AppendRequest(nil, req, 1)
		for range times {
			senders.Go(func() { assert.NoError(t, sendWhole(addr, frame)) })
		}
	}
	senders.Wait()
}

// sendWhole sends a request, reads the answer away, unless the broker hangs up, and waits
// until it is done with the connection.
func sendWhole(addr string, frame []byte) error {
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	defer nc.Close()
	if err := nc.SetDeadline(time.Now().Add(wire.Patience)); err != nil {
		return err
	}
	nc.Write(frame) // the broker may refuse it before it has read it all
	var size [4]byte
	if _, err := io.ReadFull(nc, size[:]); err == nil {
		io.CopyN(io.Discard, nc, int64(binary.BigEndian.Uint32(size[:])))
	}
	nc.(*net.TCPConn).CloseWrite()
	if _, err = io.Copy(io.Discard, nc); errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	return nil
}
