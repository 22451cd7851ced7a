package server_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold/dispatch/server"
	"github.com/leasehold/leasehold/dispatch/server/wire"
)

// toolCall returns the line of a call.
func toolCall(id int, tool, arguments string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%q,"arguments":%s}}`, id, tool, arguments)
}

func cancelOf(id int) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`, id)
}

// A call may wait for longer than its message may take to arrive, and for longer than a
// session may be idle. When it is answered the session ends after the idle limit, whatever
// else was asked and refused meanwhile.
func TestHTTPCallThatWaitsLongKeepsItsSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWeb(t, server.Options{Transport: server.Transport{HTTPIdle: 20 * time.Second}})
		session := w.open(t)
		wait := toolCall(3, "kv_wait", `{"path":"/shared/a","wait_secs":45}`)
		e := w.startStream(t, "POST", wait, session...)
		if _, body := w.do(t, "POST", wait, session...); !strings.Contains(body, "not answered yet") {
			t.Errorf("a duplicate id: %s", body)
		}
		w.do(t, "POST", ping, session...)
		if m, ok := e.next(t); !ok || !strings.HasPrefix(m.text(), "no entry") {
			t.Errorf("the call is answered %v, %+v", ok, m)
		}
		if resp, _ := w.do(t, "POST", ping, session...); resp.StatusCode != 200 {
			t.Errorf("after the call: %s", resp.Status)
		}
		time.Sleep(21 * time.Second)
		if resp, _ := w.do(t, "POST", ping, session...); resp.StatusCode != 404 {
			t.Errorf("after the idle limit: %s", resp.Status)
		}
	})
}

// A client may cancel a call whose answer is on its way. The call is undone, what the answer
// told is told again, and the id is free.
func TestHTTPCancelAfterTheAnswerUndoesTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWeb(t, server.Options{})
		other := &web{daemon: w.daemon, client: w.client, token: w.daemon.token(t, "other")}
		session, others := w.open(t), other.open(t)
		ask := func(line string) string {
			_, body := w.do(t, "POST", line, session...)
			return body
		}
		if got := ask(toolCall(1, "run_lease_acquire", `{"key":"a"}`)); !strings.Contains(got, "lease_id") {
			t.Fatal(got)
		}
		ask(toolCall(2, "run_lease_acquire", `{"key":"c"}`)) // later calls may be answered before the cancel comes
		ask(cancelOf(1))
		if _, got := other.do(t, "POST", toolCall(1, "run_lease_acquire", `{"key":"a"}`), others...); !strings.Contains(got, "lease_id") {
			t.Errorf("what was cancelled is still held: %s", got)
		}
		if got := ask(toolCall(1, "run_lease_acquire", `{"key":"b","ttl_secs":1}`)); !strings.Contains(got, "lease_id") {
			t.Errorf("another call with the id is answered %s", got)
		}
		time.Sleep(2 * time.Second)
		for id := range 2 {
			if got := ask(toolCall(10+id, "lease_list", `{}`)); !strings.Contains(got, "LEASE_LOST") {
				t.Errorf("answer %d does not tell the loss: %s", id, got)
			}
			ask(cancelOf(10 + id))
		}
	})
}

// A call that its client cancels gets no content if the client takes no stream.
func TestHTTPCancelledCallHasNoContent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWeb(t, server.Options{})
		b := w.addBlocker()
		session := w.open(t)
		var cancels sync.WaitGroup
		cancels.Go(func() {
			<-b.began
			w.do(t, "POST", cancelOf(3), session...)
		})
		if resp, body := w.do(t, "POST", block, append(session, "Accept", "application/json")...); resp.StatusCode != 204 || body != "" {
			t.Errorf("%s: %s", resp.Status, body)
		}
		<-b.ended
		cancels.Wait()
		if _, body := w.do(t, "POST", strings.Replace(echo, `"id":2`, `"id":3`, 1), session...); !strings.Contains(body, "echo") {
			t.Errorf("another call with the id is answered %q", body)
		}
	})
}

// A client cancels all that it has under way, and each cancel overtakes its call. None of the
// calls takes effect, however many there are: the latest cancel counts.
func TestHTTPCancelsMayOvertakeAllCallsOfAClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWeb(t, server.Options{})
		session := w.open(t)
		for i := range 513 {
			w.do(t, "POST", cancelOf(100+i), session...)
		}
		for _, i := range []int{1, 512} { // the first is one too many
			if resp, body := w.do(t, "POST", acquireLine(100+i, fmt.Sprint("key", i)), session...); strings.Contains(body, "lease_id") {
				t.Errorf("call %d is answered %s %s", i, resp.Status, body)
			}
		}
		newProgram(t, w).another("other").open().want(201, "POST", "/leases", `{"key":"key512"}`)
	})
}

// A client that drops a call's connection and cancels the call is not lost.
func TestHTTPClientThatCancelsWhatItDroppedIsNotLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWeb(t, server.Options{Transport: server.Transport{HTTPGrace: time.Second}})
		b := w.addBlocker()
		session := w.open(t)
		e := w.startStream(t, "POST", block, session...)
		<-b.began
		e.body.Close()
		<-b.ended
		w.do(t, "POST", cancelOf(3), session...)
		time.Sleep(2 * time.Second)
		if resp, _ := w.do(t, "POST", ping, session...); resp.StatusCode != 200 {
			t.Errorf("%s", resp.Status)
		}
	})
}

// What is refused before its body is read needs none, and says so.
func TestHTTPRefusesABodyUnread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWeb(t, server.Options{})
		for name, c := range map[string]struct {
			change func(*http.Request)
			status int
			text   string
		}{
			"too large": {func(r *http.Request) { r.ContentLength = wire.MaxMessage + 1 }, 413, "a message is larger than 4 MiB"},
			"compressed": {func(r *http.Request) {
				r.ContentLength = 1 << 20
				r.Header.Set("Content-Encoding", "gzip")
			}, 415, "must not be compressed"},
		} {
			r := w.request(t, "POST", "")
			r.Body = io.NopCloser(unwanted{t})
			c.change(r)
			askFirst(r)
			resp, err := w.client.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			body, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			if resp.StatusCode != c.status || !resp.Close || !strings.Contains(string(body), c.text) {
				t.Errorf("%s: %s, close %v: %s", name, resp.Status, resp.Close, body)
			}
			if c.status == 415 && resp.Header.Get("Accept-Encoding") != "identity" {
				t.Errorf("%s: %v", name, resp.Header)
			}
		}
	})
}

// A refusal does not wait for the rest of a body that is refused.
func TestHTTPRefusesACompressedBodyBeforeItHasCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWeb(t, server.Options{})
		nc := w.connect(t)
		fmt.Fprintf(nc, "POST /mcp HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Encoding: gzip\r\nContent-Length: 9\r\n\r\n", w.token)
		_ = nc.SetReadDeadline(time.Now().Add(time.Second))
		resp, err := http.ReadResponse(bufio.NewReader(nc), nil)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != 415 || !resp.Close {
			t.Errorf("%s, close %v", resp.Status, resp.Close)
		}
	})
}

// unwanted is a body that must not be read.
type unwanted struct{ t *testing.T }

func (u unwanted) Read([]byte) (int, error) {
	u.t.Error("the body was asked for")
	return 0, io.EOF
}

// A client may leave before it has read what a call of it took, or even before the call takes
// it. The lease is given back, also if the client has sent the call before and has released
// what that took. But it may have the answer to an earlier request that took this lease.
func TestHTTPCallThatItsClientLeavesIsUndone(t *testing.T) {
	for name, c := range map[string]struct{ before, released, unread, held bool }{
		"sent once":                             {false, false, false, false},
		"sent again after a release":            {true, true, false, false},
		"sent again for the same lease":         {true, false, false, true},
		"sent once, unread":                     {false, false, true, false},
		"sent again after a release, unread":    {true, true, true, false},
		"sent again for the same lease, unread": {true, false, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWeb(t, server.Options{Transport: server.Transport{HTTPGrace: time.Hour}})
				other := &web{daemon: w.daemon, client: w.client, token: w.daemon.token(t, "other")}
				session, others := w.open(t), other.open(t)
				lasts := w.addTaker(t)
				take := func(again bool) string {
					return fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"take","_meta":{"leasehold/call":"m","leasehold/resent":%t}}}`, again)
				}
				if c.before {
					_, body := w.do(t, "POST", take(false), session...)
					if c.released {
						id := regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`).FindString(body)
						if _, body := w.do(t, "POST", toolCall(2, "run_lease_release", fmt.Sprintf(`{"lease_id":%q}`, id)), session...); !strings.Contains(body, `"released":true`) {
							t.Fatal(body)
						}
					}
				}
				if *lasts = !c.unread; *lasts {
					w.startStream(t, "POST", take(c.before), session...).body.Close()
				} else {
					(&program{web: w, t: t}).unread(w.request(t, "POST", take(c.before), session...))
				}
				synctest.Wait()
				if _, body := other.do(t, "POST", toolCall(1, "run_lease_acquire", `{"key":"a"}`), others...); strings.Contains(body, "lease_id") == c.held {
					t.Errorf("held: want %t; another actor is told %s", c.held, body)
				}
			})
		})
	}
}

// A session over HTTP lasts for any number of calls: each gives back its room when it has been
// answered, as JSON or on a stream.
func TestCallsOverHTTPGiveBackTheirRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWeb(t, server.Options{})
		session := w.open(t)
		const calls = 300 // more than may be under way at once
		for id := range calls {
			for accept, wait := range map[string]int{"application/json": id % 2, "text/event-stream": 1 - id%2} {
				call := toolCall(id, "run_lease_acquire", fmt.Sprintf(`{"key":"k","wait_secs":%d}`, wait))
				if _, body := w.do(t, "POST", call, append(session, "Accept", accept)...); !strings.Contains(body, `"lease_id"`) {
					t.Fatalf("call %d: %s", id, body)
				}
			}
		}
		synctest.Wait()
		if n := server.QueuedBytes(w.Server); n != 0 {
			t.Errorf("%d bytes of answers count as unread", n)
		}
	})
}

// A session whose client has not read its name is known to nobody, so it does not last until the
// idle limit.
func TestASessionThatNobodyKnowsTakesNoRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWeb(t, server.Options{Transport: server.Transport{HTTPSessions: 1}})
		p := &program{web: w, t: t}
		api, err := http.NewRequestWithContext(t.Context(), "POST", "http://localhost/api/v1/sessions", nil)
		if err != nil {
			t.Fatal(err)
		}
		api.Header.Set("Authorization", "Bearer "+w.token)
		for _, r := range []*http.Request{w.request(t, "POST", initialize), api} {
			p.unread(r)
			synctest.Wait()
			if resp, _ := w.do(t, "POST", initialize); resp.StatusCode != 503 {
				t.Errorf("%s opened no session: %s", r.URL.Path, resp.Status)
			}
			time.Sleep(10 * time.Second)
			session := w.open(t)
			w.do(t, "DELETE", "", session...)
		}
	})
}
