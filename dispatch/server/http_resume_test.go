package server_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/leasehold/leasehold/dispatch/server"
	"github.com/leasehold/leasehold/engine/clock"
)

// id reads the next id of an event on a stream.
func (e *events) id(t *testing.T) string {
	t.Helper()
	for {
		line, err := e.br.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if id, ok := strings.CutPrefix(line, "id: "); ok {
			return strings.TrimSpace(id)
		}
	}
}

// TestACallWhoseStreamBrokeIsAnsweredWhenItIsResumed, with the advice to call again, and it
// holds nothing: whether it waits or its answer was lost, and whether the daemon has seen the
// end of the stream, has not, or was started again.
func TestACallWhoseStreamBrokeIsAnsweredWhenItIsResumed(t *testing.T) {
	for _, waits := range []bool{true, false} {
		for _, broken := range []string{"closed", "open", "restart"} {
			t.Run(fmt.Sprintf("waits=%t,%s", waits, broken), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					fs := vfs.NewMem()
					d := newDaemonOn(t, fs, clock.Clock{}, server.Options{})
					w := newWebOf(t, d)
					other := &web{daemon: d, client: w.client, token: d.token(t, "other")}
					session, others := w.open(t), other.open(t)
					stream := append(session, "Mcp-Protocol-Version", "2025-11-25", "Accept", "text/event-stream")
					ask := func(w *web, header []string, tool, arguments string) string {
						_, body := w.do(t, "POST", `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"`+tool+`","arguments":`+arguments+`}}`, header...)
						return body
					}
					if waits {
						ask(other, others, "run_lease_acquire", `{"key":"k","ttl_secs":600}`)
					}
					call := w.startStream(t, "POST", `{"jsonrpc":"2.0","id":"a\n1","method":"tools/call","params":{"name":"run_lease_acquire","arguments":{"key":"k","wait_secs":50}}}`, stream...)
					id := call.id(t)
					synctest.Wait()
					over := make(chan struct{}) // the call, on the stream that is still open
					switch broken {
					case "closed":
						call.body.Close()
					case "open": // as a proxy leaves it, which reads on
						go func() {
							defer close(over)
							_, _ = io.Copy(io.Discard, call.body)
						}()
					case "restart":
						d.close()
						w.daemon = newDaemonOn(t, fs, clock.Clock{}, server.Options{})
						w.listen(t)
						other.client = w.client
					}
					time.Sleep(time.Second)

					resumed := w.startStream(t, "GET", "", append(stream, "Last-Event-ID", id)...)
					time.AfterFunc(time.Minute, func() { resumed.body.Close() })
					m, ok := resumed.next(t)
					if !ok || string(m.ID) != `"a\n1"` || !strings.Contains(m.text(), "the connection was lost before this call was answered") {
						t.Errorf("resumed: id %s, %q", m.ID, m.text())
					}
					if time.Sleep(time.Second); broken == "open" {
						select {
						case <-over:
						default:
							t.Error("the call goes on")
						}
					}
					if waits {
						other.do(t, "DELETE", "", others...)
						others = other.open(t)
					}
					time.Sleep(10 * time.Second) // a place in line from before the restart is kept, but not for ever
					if got := ask(other, others, "run_lease_acquire", `{"key":"k"}`); !strings.Contains(got, `"lease_id"`) {
						t.Errorf("a call that nobody waits for holds the lease: %s", got)
					}
				})
			})
		}
	}
}

// A client that resumes a stream that it has read to its end keeps what the call took. No two
// events have the same id. Clients of older versions, which cannot read events without data, get
// no ids.
func TestAStreamThatWasReadToItsEndIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWeb(t, server.Options{})
		session := append(w.open(t), "Accept", "text/event-stream")
		const acquire = `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"run_lease_acquire","arguments":{"key":"k"}}}`
		if _, body := w.do(t, "POST", acquire, append(session, "Mcp-Protocol-Version", "2025-06-18")...); strings.Contains(body, "id: ") {
			t.Errorf("a client of an older version reads %s", body)
		}
		session = append(session, "Mcp-Protocol-Version", "2025-11-25")
		call := w.startStream(t, "POST", strings.Replace(acquire, "7", "8", 1), session...)
		first := call.id(t)
		last := call.id(t)
		resp, body := w.do(t, "GET", "", append(session, "Last-Event-ID", last)...)
		if resp.StatusCode != 204 {
			t.Errorf("%s: %s", resp.Status, body)
		}
		next := w.startStream(t, "POST", strings.Replace(acquire, "7", "10", 1), session...)
		if ids := []string{first, last, next.id(t), next.id(t)}; len(slices.Compact(slices.Sorted(slices.Values(ids)))) != len(ids) {
			t.Errorf("ids %q", ids)
		}
		next.body.Close()
		if _, body := w.do(t, "POST", strings.Replace(acquire, "7", "9", 1), session...); !strings.Contains(body, `"reentrant":true`) {
			t.Errorf("the lease is lost: %s", body)
		}
	})
}

// A client that cancels a call need not close its stream, and resumes what has ended without an
// answer, as the SDK for TypeScript does. It gets none for what it has given up.
func TestTheStreamOfACancelledCallIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWeb(t, server.Options{})
		w.addBlocker()
		session := append(w.open(t), "Mcp-Protocol-Version", "2025-11-25")
		call := w.startStream(t, "POST", block, append(session, "Accept", "text/event-stream")...)
		call.id(t)
		w.do(t, "POST", cancelOf(3), session...)
		resp, body := w.do(t, "GET", "", append(session, "Accept", "text/event-stream", "Last-Event-ID", call.id(t))...)
		if resp.StatusCode != 204 {
			t.Errorf("%s: %s", resp.Status, body)
		}
		if m, ok := call.next(t); ok {
			t.Errorf("the stream goes on with %v", m)
		}
	})
}

// Only the stream of a tool call has ids, unless its client marks the call, and so can send it
// again, or the call's own id is too long for a header.
func TestWhichStreamsHaveIDs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWeb(t, server.Options{})
		stream := append(w.open(t), "Mcp-Protocol-Version", "2025-11-25", "Accept", "text/event-stream")
		call := func(id, meta string) string {
			return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":"lease_list"%s}}`, id, meta)
		}
		long := strings.Repeat("x", 254)
		for name, c := range map[string]struct {
			body string
			ids  bool
		}{
			"a call":                    {call("1", ""), true},
			"a call with a long id":     {call(`"`+long+`"`, ""), true},
			"a call with a longer id":   {call(`"`+long+`x"`, ""), false},
			"a call that has a mark":    {call("2", `,"_meta":{"leasehold/call":"m"}`), false},
			"a request of another kind": {`{"jsonrpc":"2.0","id":3,"method":"tools/list"}`, false},
		} {
			resp, body := w.do(t, "POST", c.body, stream...)
			if resp.StatusCode != 200 || strings.Contains(body, "id: ") != c.ids {
				t.Errorf("%s: %s: %.300s", name, resp.Status, body)
			}
		}
	})
}

// A GET that names an event of no call opens a stream. The id may be another server's.
func TestAnIDOfNoCallOpensAStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWeb(t, server.Options{})
		session := append(w.open(t), "Accept", "text/event-stream")
		for _, id := range []string{"42", "1-Nw", "call-", "call-?-Nw", "call-1-Ijci?", "call-1-e30", "call-1-N3g"} {
			stream := w.startStream(t, "GET", "", append(session, "Last-Event-ID", id)...)
			if line, err := stream.br.ReadString('\n'); err != nil || line != ":\n" {
				t.Errorf("%s: %q %v", id, line, err)
			}
			stream.body.Close()
			synctest.Wait()
		}
	})
}

// TestAClientThatResumesAStreamIsThere: its session lasts until the idle limit. If it leaves before it was answered, it is lost.
func TestAClientThatResumesAStreamIsThere(t *testing.T) {
	const idle, grace = 7 * time.Minute, 4 * time.Second
	for name, c := range map[string]struct {
		after  int // which event it read last
		leaves bool
		lasts  time.Duration
	}{
		"the answer was lost":       {0, false, idle},
		"the answer was read":       {1, false, idle},
		"it leaves before it reads": {0, true, grace},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWeb(t, server.Options{Transport: server.Transport{HTTPIdle: idle, HTTPGrace: grace}})
				var se *dispatchSession
				w.AddTestTool("whoami", func(_ context.Context, by *dispatchSession) string { se = by; return "" })
				session := w.open(t)
				stream := append(session, "Mcp-Protocol-Version", "2025-11-25", "Accept", "text/event-stream")
				call := w.startStream(t, "POST", strings.Replace(echo, "echo", "whoami", 1), stream...)
				ids := []string{call.id(t), call.id(t)}
				_, _ = io.Copy(io.Discard, call.body)

				resume := w.request(t, "GET", "", append(stream, "Last-Event-ID", ids[c.after])...)
				if c.leaves {
					var text bytes.Buffer
					if err := resume.Write(&text); err != nil {
						t.Fatal(err)
					}
					nc := w.send(t, text.String())
					synctest.Wait()
					nc.Close()
					synctest.Wait()
				} else {
					ctx, stop := context.WithTimeout(t.Context(), time.Minute)
					defer stop()
					resp, err := w.client.Do(resume.WithContext(ctx))
					if err == nil {
						_, err = io.Copy(io.Discard, resp.Body)
					}
					if err != nil {
						t.Fatalf("the stream does not end: %v", err)
					}
				}
				start := time.Now()
				sessionEnds(t, se)
				if lasted := time.Since(start); lasted != c.lasts {
					t.Errorf("the session lasted %v, want %v", lasted, c.lasts)
				}
			})
		})
	}
}

// What an answer told of is told again if its client resumes the stream before it.
func TestALossInAnAnswerThatIsResumedIsToldAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDaemon(t, server.Options{})
		w := newWebOf(t, d)
		session := append(w.open(t), "Mcp-Protocol-Version", "2025-11-25")
		ask := func(id int, tool, arguments string) string {
			_, body := w.do(t, "POST", fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%q,"arguments":%s}}`, id, tool, arguments), session...)
			return objectOf(t, body)
		}
		ask(1, "run_lease_acquire", `{"key":"a","ttl_secs":60}`)
		time.Sleep(2 * time.Minute)
		stream := append(session, "Accept", "text/event-stream")
		call := w.startStream(t, "POST", `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"lease_list"}}`, stream...)
		id := call.id(t)
		m, _ := call.next(t) // a proxy reads it, and its client does not
		if told := lossesIn(t, string(m.Result.StructuredContent)); told != 1 {
			t.Fatalf("it was told of %d losses", told)
		}
		w.do(t, "GET", "", append(stream, "Last-Event-ID", id)...)
		if told := lossesIn(t, ask(3, "lease_list", `{}`)); told != 1 {
			t.Errorf("afterwards it was told of %d losses", told)
		}
	})
}
