package server_test

import (
	"fmt"
	"io"
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

// A client that resumes a stream that it has read to its end keeps what the call took. Clients
// of older versions, which cannot read events without data, get no ids.
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
		call.id(t)
		resp, body := w.do(t, "GET", "", append(session, "Last-Event-ID", call.id(t))...)
		if resp.StatusCode != 204 {
			t.Errorf("%s: %s", resp.Status, body)
		}
		if _, body := w.do(t, "POST", strings.Replace(acquire, "7", "9", 1), session...); !strings.Contains(body, `"reentrant":true`) {
			t.Errorf("the lease is lost: %s", body)
		}
	})
}
