package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasehold/leasehold/client"
)

// A connection to a server elsewhere may end at any moment. If exec has no session yet, it
// connects again; and if its program has ended, it comes back to release the lease, because
// the server waits for it.
func TestExecComesBackToItsServer(t *testing.T) {
	t.Parallel()
	d := startMeasured(t)
	token := newActor(t, "r", "root", "root")
	other, err := client.Open(t.Context(), client.Options{Servers: []string{d.url}, Token: newActor(t, "r", "w", "worker")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = other.Close() })
	r := startRelay(t, strings.TrimPrefix(d.url, "http://"))
	r.breaks.Store(true)
	ended := inDir(t, "ended")
	end, said := startExec(t, r, token, "touch "+ended)
	if r.breaks.Load() {
		t.Error("no connection was broken before exec had a session")
	}
	r.shut(true)
	end()
	for err = os.ErrNotExist; err != nil; _, err = os.Stat(ended) {
		time.Sleep(20 * time.Millisecond)
	}
	r.shut(false)
	if out := <-said; out != "" {
		t.Errorf("exec says %s", out)
	}
	if err := other.Do(t.Context(), "POST", "/leases", map[string]any{"key": "deploy"}, nil); err != nil {
		t.Errorf("after exec: %v", err)
	}
}

// If the server stays away, exec gives up when its leases would have ended.
func TestExecEndsWithoutItsServer(t *testing.T) {
	t.Parallel()
	d := startMeasured(t)
	r := startRelay(t, strings.TrimPrefix(d.url, "http://"))
	end, said := startExec(t, r, newActor(t, "r", "root", "root"), "true", "--ttl", "6")
	r.shut(true)
	end()
	if out := <-said; out != "" && !strings.Contains(out, `lease "deploy" cannot be renewed`) { // on a slow machine it is lost before the program ends
		t.Errorf("exec says %s", out)
	}
}

// A server that cannot grant, renew or release a lease for the present ends nothing: exec
// tries again, if it may wait for the grant.
func TestExecAsksAgainWhatIsRefusedForThePresent(t *testing.T) {
	t.Parallel()
	d := startMeasured(t)
	r := startRelay(t, strings.TrimPrefix(d.url, "http://"))
	refusals := []string{"UNAVAILABLE", "LIMIT", "UNAVAILABLE", "LIMIT"}
	r.refuse("lease_acquire_many", refusals...)
	r.refuse("lease_renew", refusals...)
	end, said := startExec(t, r, newActor(t, "r", "root", "root"), "true", "--wait", "600")
	if n := r.toRefuse(); n != 0 {
		t.Errorf("the program runs, and %d calls are not refused yet", n)
	}
	r.refuse("lease_renew", refusals...)
	for r.toRefuse() > 0 {
		select {
		case out := <-said:
			t.Fatalf("exec has ended: %s", out)
		case <-time.After(20 * time.Millisecond):
		}
	}
	r.refuse("lease_release", refusals...)
	end()
	if out := <-said; out != "" {
		t.Errorf("exec says %s", out)
	}
	if n := r.toRefuse(); n != 0 {
		t.Errorf("exec has ended, and %d releases are not refused yet", n)
	}
}

// If a server stands still, exec renews its leases at another one while they last.
func TestExecLeavesAServerThatStandsStill(t *testing.T) {
	t.Parallel()
	d := startMeasured(t)
	to := strings.TrimPrefix(d.url, "http://")
	first, second := startRelay(t, to), startRelay(t, to)
	end, said := startExec(t, first, newActor(t, "r", "root", "root"), "true", "--ttl", "20", "--server", "http://"+first.ln.Addr().String()+",http://"+second.ln.Addr().String())
	first.mu.Lock() // it carries nothing more
	t.Cleanup(first.mu.Unlock)
	for used := false; !used; {
		select {
		case out := <-said:
			t.Fatalf("exec has ended: %s", out)
		case <-time.After(20 * time.Millisecond):
		}
		second.mu.Lock()
		used = len(second.conns) > 0
		second.mu.Unlock()
	}
	end()
	if out := <-said; out != "" {
		t.Errorf("exec says %s", out)
	}
}

// startExec runs a program under a lease of the server behind the relay, and returns when
// it has begun. Once end is called, the program runs last and ends. said then has what exec
// prints.
func startExec(t *testing.T, r *relay, token, last string, flags ...string) (end func(), said chan string) {
	t.Helper()
	held, ends := inDir(t, "held"), inDir(t, "end")
	args := append([]string{"exec", "--server", "http://" + r.ln.Addr().String(), "--lease", "deploy"}, flags...)
	cmd := testProgram(t, append(args, "--", "sh", "-c", "touch "+held+"; until [ -e "+ends+" ]; do sleep 0.05; done; "+last)...)
	cmd.Env = append(cmd.Env, "LEASEHOLD_TOKEN="+token)
	said = make(chan string, 1)
	go func() {
		out, err := cmd.CombinedOutput()
		if err != nil {
			out = append(out, err.Error()...)
		}
		said <- string(out)
	}()
	for {
		select {
		case out := <-said:
			t.Fatalf("exec has ended: %s", out)
		case <-time.After(20 * time.Millisecond):
		}
		if _, err := os.Stat(held); err == nil {
			break
		}
	}
	return func() {
		t.Helper()
		if err := os.WriteFile(ends, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}, said
}

// A relay stands between commands and a server.
type relay struct {
	ln     net.Listener
	breaks atomic.Bool // the next connection breaks after the first answer

	mu       sync.Mutex
	isOff    bool
	conns    []net.Conn
	refusals map[string][]string // by tool, the codes for its next calls
}

func startRelay(t *testing.T, to string) *relay {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{ln: ln, refusals: make(map[string][]string)}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			near, err := ln.Accept()
			if err != nil {
				return
			}
			running.Go(func() { r.carry(near, to) })
		}
	})
	t.Cleanup(func() {
		_ = ln.Close()
		r.shut(true)
		running.Wait()
	})
	return r
}

func (r *relay) carry(near net.Conn, to string) {
	defer near.Close()
	far, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer far.Close()
	r.mu.Lock()
	off := r.isOff
	r.conns = append(r.conns, near, far)
	r.mu.Unlock()
	if off {
		return
	}
	var up sync.WaitGroup
	up.Go(func() {
		for lines := bufio.NewReader(near); ; {
			line, err := lines.ReadSlice('\n')
			if refusal := r.refusal(line); refusal != nil {
				_, _ = near.Write(refusal)
			} else {
				_, _ = far.Write(line)
			}
			if err != nil && err != bufio.ErrBufferFull {
				break
			}
		}
		_ = far.Close()
	})
	defer up.Wait()
	defer near.Close()
	if r.breaks.CompareAndSwap(true, false) {
		answer := make([]byte, 4<<10)
		n, _ := far.Read(answer)
		_, _ = near.Write(answer[:n])
		return
	}
	_, _ = io.Copy(near, far)
}

// refuse answers the next calls of a tool itself, with these codes.
func (r *relay) refuse(tool string, codes ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refusals[tool] = codes
}

// toRefuse returns how many calls are still to be refused.
func (r *relay) toRefuse() (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, codes := range r.refusals {
		n += len(codes)
	}
	return n
}

func (r *relay) refusal(line []byte) []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	var call struct {
		ID     json.RawMessage
		Params struct{ Name string }
	}
	if json.Unmarshal(line, &call) != nil || len(r.refusals[call.Params.Name]) == 0 {
		return nil
	}
	code := r.refusals[call.Params.Name][0]
	r.refusals[call.Params.Name] = r.refusals[call.Params.Name][1:]
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"result":{"isError":true,"content":[{"type":"text","text":"not now"}],"structuredContent":{"code":%q,"message":"not now"}}}`+"\n", call.ID, code)
}

// shut breaks all connections and lets none through, or lets them through again.
func (r *relay) shut(off bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.isOff = off
	if off {
		for _, nc := range r.conns {
			_ = nc.Close()
		}
		r.conns = nil
	}
}
