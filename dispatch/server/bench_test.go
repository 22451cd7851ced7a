package server_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/server"
	"github.com/leasehold/leasehold/engine/pebble"
)

// BenchmarkLeaseCall compares lease calls with calls of a tool that does
// nothing, over real unix sockets to a state on disk. Each iteration is one
// round of all three; a pair is an acquire and a release, two durable calls:
//
//	go test -run - -bench LeaseCall -benchtime 7x ./dispatch/server
func BenchmarkLeaseCall(b *testing.B) {
	for _, clients := range []int{1, 8, 64} {
		b.Run(fmt.Sprintf("clients=%d", clients), func(b *testing.B) {
			conns := benchClients(b, clients)
			defer runtime.KeepAlive(make([]byte, 32<<20)) // as the daemon does
			var empty, renew, pair []float64
			for b.Loop() {
				empty = append(empty, callRate(conns, benchCalls["empty"]))
				renew = append(renew, callRate(conns, benchCalls["renew"]))
				pair = append(pair, callRate(conns, benchCalls["acquire+release"]))
			}
			b.ReportMetric(middle(empty), "empty/s")
			b.ReportMetric(middle(renew), "renew/s")
			b.ReportMetric(middle(pair), "acquire+release/s")
			b.ReportMetric(middle(renew)/middle(empty), "renew-ratio")
			b.ReportMetric(middle(pair)/middle(empty), "acquire+release-ratio")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// BenchmarkOneCall is one operation alone, for a profile and for what it asks of
// the memory. An iteration is one call of each client.
func BenchmarkOneCall(b *testing.B) {
	for _, clients := range []int{1, 8, 64} {
		for _, name := range []string{"empty", "renew", "acquire+release"} {
			b.Run(fmt.Sprintf("%s/clients=%d", name, clients), func(b *testing.B) {
				conns := benchClients(b, clients)
				op := benchCalls[name]
				b.ReportAllocs()
				b.ResetTimer()
				before := processorTime()
				var wg sync.WaitGroup
				for n, c := range conns {
					wg.Go(func() {
						for i := n; i < b.N; {
							i += clients * op(c)
						}
					})
				}
				wg.Wait()
				b.ReportMetric(float64(processorTime()-before)/float64(b.N), "cpu-ns/op")
			})
		}
	}
}

// processorTime returns how much time of processors the process has used.
func processorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// benchCalls are what the benchmarks call; each says how many calls it made.
var benchCalls = map[string]func(c *benchClient) int{
	"empty": func(c *benchClient) int {
		c.call("echo", `{}`)
		return 1
	},
	"renew": func(c *benchClient) int {
		c.call("lease_renew", `{"lease_id":"`+c.lease+`"}`)
		return 1
	},
	"acquire+release": func(c *benchClient) int {
		c.keys++
		id := c.acquire(fmt.Sprintf("file-%s-%d", c.lease, c.keys))
		c.call("run_lease_release", `{"lease_id":"`+id+`"}`)
		return 2
	},
}

func benchClients(b *testing.B, n int) []*benchClient {
	eng, err := pebble.Open(pebble.Options{Dir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	state, err := dispatch.Open(b.Context(), eng, dispatch.Options{})
	if err != nil {
		b.Fatal(err)
	}
	s := server.New(state, server.Options{})
	s.AddTestTool("echo", func(context.Context, *dispatch.Session) string { return "" })
	path := socketPath(b)
	ln, err := server.ListenSocket(path)
	if err != nil {
		b.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { s.ServeSocket(ctx, ln) })
	var conns []*benchClient
	b.Cleanup(func() {
		for _, c := range conns {
			c.nc.Close()
		}
		stop()
		wg.Wait()
		eng.Close()
	})
	for i := range n {
		nc, err := net.Dial("unix", path)
		if err != nil {
			b.Fatal(err)
		}
		br, _, err := server.Greet(nc, server.Hello{Run: "r", Name: fmt.Sprint("W", i)})
		if err != nil {
			b.Fatal(err)
		}
		c := &benchClient{b: b, nc: nc, br: br}
		c.request("initialize", `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"bench","version":"0"}}`)
		fmt.Fprintln(nc, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
		c.lease = c.acquire(fmt.Sprint("held-", i))
		conns = append(conns, c)
	}
	return conns
}

// A benchClient costs as little as a client can, so that the server is what is
// measured.
type benchClient struct {
	b     *testing.B
	nc    net.Conn
	br    *bufio.Reader
	lease string
	id    int
	keys  int
	line  []byte // of the request, to use again
}

func (c *benchClient) request(method, params string) []byte {
	c.id++
	c.line = strconv.AppendInt(append(c.line[:0], `{"jsonrpc":"2.0","id":`...), int64(c.id), 10)
	c.line = append(append(c.line, `,"method":"`...), method...)
	c.line = append(append(c.line, `","params":`...), params...)
	c.nc.Write(append(c.line, "}\n"...)) // a failure is met when reading
	line, err := c.br.ReadSlice('\n')
	if err != nil {
		c.b.Error(err)
	}
	return line
}

func (c *benchClient) call(tool, arguments string) []byte {
	line := c.request("tools/call", `{"name":"`+tool+`","arguments":`+arguments+`}`)
	if bytes.Contains(line, []byte(`"isError":true`)) || bytes.Contains(line, []byte(`"error":`)) {
		c.b.Errorf("%s: %s", tool, line)
	}
	return line
}

func (c *benchClient) acquire(key string) (id string) {
	line := c.call("run_lease_acquire", `{"key":"`+key+`"}`)
	_, rest, _ := bytes.Cut(line, []byte(`"lease_id":"`))
	text, _, ok := bytes.Cut(rest, []byte(`"`))
	if !ok {
		c.b.Errorf("no lease_id in %s", line)
	}
	return string(text)
}

// callRate gives how many calls a second the clients get done together, each
// one at a time.
func callRate(conns []*benchClient, op func(c *benchClient) (calls int)) float64 {
	var wg sync.WaitGroup
	counts := make([]int, len(conns))
	start := time.Now()
	for n, c := range conns {
		wg.Go(func() {
			for time.Since(start) < 400*time.Millisecond {
				counts[n] += op(c)
			}
		})
	}
	wg.Wait()
	total := 0
	for _, n := range counts {
		total += n
	}
	return float64(total) / time.Since(start).Seconds()
}

func middle(xs []float64) float64 {
	xs = slices.Sorted(slices.Values(xs))
	return xs[len(xs)/2]
}
