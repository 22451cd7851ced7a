package server_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold/dispatch/server"
)

// listenTCP serves the endpoint on a real socket, and returns its URL.
func (d *daemon) listenTCP(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return d.serveTCP(t, ln)
}

func (d *daemon) serveTCP(t *testing.T, ln net.Listener) string {
	t.Helper()
	served := make(chan struct{})
	go func() {
		defer close(served)
		if err := d.ServeEndpoint(d.ctx, ln); err != nil {
			t.Errorf("ServeEndpoint: %v", err)
		}
	}()
	t.Cleanup(func() { d.stop(); <-served })
	return "http://" + ln.Addr().String() + "/mcp"
}

// A client that opens a connection for each request, and closes it when it has
// the answer, is alive: between its requests nothing of it can be seen. Here a
// loss would end its session within a millisecond.
func TestAClientWithAConnectionForEachRequestKeepsItsSession(t *testing.T) {
	d := newDaemon(t, server.Options{Transport: server.Transport{HTTPGrace: time.Millisecond}})
	d.token(t, "root")
	token := d.token(t, "w")
	url := d.listenTCP(t)
	post := func(t *testing.T, session, body string) (status int, header http.Header, answer string) {
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		r, _ := http.NewRequestWithContext(t.Context(), "POST", url, strings.NewReader(body))
		r.Header.Set("Authorization", "Bearer "+token)
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept", "application/json, text/event-stream")
		if session != "" {
			r.Header.Set("Mcp-Session-Id", session)
		}
		resp, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		var buf bytes.Buffer
		if _, err := buf.ReadFrom(resp.Body); err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, resp.Header, buf.String()
	}
	curl := func(t *testing.T, session, body string) (status int, header http.Header, answer string) {
		dir := t.TempDir()
		args := []string{"-s", "-D", filepath.Join(dir, "head"), "-H", "Authorization: Bearer " + token, "-H", "Content-Type: application/json", "--data", body}
		if session != "" {
			args = append(args, "-H", "Mcp-Session-Id: "+session)
		}
		out, err := exec.CommandContext(t.Context(), "curl", append(args, url)...).Output()
		if err != nil {
			t.Fatalf("curl: %v", err)
		}
		head, _ := os.ReadFile(filepath.Join(dir, "head"))
		header = make(http.Header)
		for line := range strings.Lines(string(head)) {
			if name, value, ok := strings.Cut(strings.TrimSpace(line), ": "); ok {
				header.Add(name, value)
			} else if status == 0 {
				fmt.Sscanf(line, "HTTP/1.1 %d", &status)
			}
		}
		return status, header, string(out)
	}
	for name, c := range map[string]struct {
		send   func(t *testing.T, session, body string) (int, http.Header, string)
		rounds int
	}{"go": {post, 100}, "curl": {curl, 15}} {
		t.Run(name, func(t *testing.T) {
			if _, err := exec.LookPath("curl"); name == "curl" && err != nil {
				t.Skip("there is no curl")
			}
			status, header, body := c.send(t, "", initialize)
			session := header.Get("Mcp-Session-Id")
			if status != 200 || session == "" {
				t.Fatalf("initialize: %d %s", status, body)
			}
			if status, _, body = c.send(t, session, `{"jsonrpc":"2.0","method":"notifications/initialized"}`); status != 202 {
				t.Fatalf("initialized: %d %s", status, body)
			}
			acquire := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"run_lease_acquire","arguments":{"key":%q}}}`, name)
			token := uint64(0)
			for round := range c.rounds {
				status, _, body := c.send(t, session, acquire)
				var m struct {
					Result struct {
						StructuredContent struct {
							Token     uint64
							Reentrant bool
							LeaseID   string `json:"lease_id"`
						}
					}
				}
				if _, event, ok := strings.Cut(body, "data: "); ok { // it took a while
					body = event
				}
				if err := json.Unmarshal([]byte(body), &m); err != nil || status != 200 {
					t.Fatalf("round %d: %d %s", round, status, body)
				}
				// The id is the same for every call, as in a script: each
				// is a new call all the same.
				got := m.Result.StructuredContent
				if got.Token <= token || got.Reentrant {
					t.Fatalf("round %d: token %d after %d, reentrant %v", round, got.Token, token, got.Reentrant)
				}
				token = got.Token
				status, _, body = c.send(t, session, fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"run_lease_release","arguments":{"lease_id":%q}}}`, got.LeaseID))
				if status != 200 || !strings.Contains(body, `"released":true`) {
					t.Fatalf("round %d: release: %d %s", round, status, body)
				}
			}
		})
	}
}

// A client whose connection breaks under a call sends it again, reads the answer, and
// thinks. It is not lost, in whatever order the server sees the end of the connection,
// the second request, and the end of the first one.
func TestAClientThatSendsItsCallAgainIsNotLost(t *testing.T) {
	for name, order := range map[string]struct{ endFirst, seen, api bool }{
		"the end is seen first":                                  {true, true, false},
		"both are seen at once":                                  {true, false, false},
		"the second request is seen first":                       {false, true, false},
		"a program of the API, the end is seen first":            {true, true, true},
		"a program of the API, both are seen at once":            {true, false, true},
		"a program of the API, the second request is seen first": {false, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWeb(t, server.Options{})
				holder := w.pipe(t)
				holder.greet(server.Hello{Token: w.daemon.token(t, "holder")})
				holder.call(1, "run_lease_acquire", `{"key":"a"}`)
				holder.receive()

				call := `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"run_lease_acquire","arguments":{"key":"a","wait_secs":0.2},"_meta":{"leasehold/call":"m","leasehold/resent":%t}}}`
				var request func(again bool) *http.Request
				var there func() int
				if order.api {
					p := newProgram(t, w).open()
					request = func(bool) *http.Request {
						return p.request(t.Context(), "POST", "/leases", `{"key":"a","wait_secs":0.2}`, "Idempotency-Key", "m")
					}
					there = func() int { return p.ask("GET", "/session", "").status }
				} else {
					session := w.open(t)
					request = func(again bool) *http.Request { return w.request(t, "POST", fmt.Sprintf(call, again), session...) }
					there = func() int {
						resp, _ := w.do(t, "POST", ping, session...)
						return resp.StatusCode
					}
				}
				var text bytes.Buffer
				if err := request(false).Write(&text); err != nil {
					t.Fatal(err)
				}
				first := w.send(t, text.String())
				synctest.Wait()
				end := func() {
					first.Close()
					if order.seen {
						synctest.Wait()
					}
				}
				if order.endFirst {
					end()
				}
				answer := make(chan string)
				go func() {
					resp, err := w.client.Do(request(true))
					if err != nil {
						answer <- err.Error()
						return
					}
					defer resp.Body.Close()
					body, _ := io.ReadAll(resp.Body)
					answer <- string(body)
				}()
				if !order.endFirst {
					synctest.Wait()
					end()
				}
				if body := <-answer; !strings.Contains(body, "WAIT_TIMEOUT") {
					t.Fatal(body)
				}
				time.Sleep(time.Minute)
				if status := there(); status != http.StatusOK {
					t.Errorf("after a minute: %d", status)
				}
			})
		})
	}
}

// The answer to initialize says when the session of a silent client ends, and
// then is when it ends.
func TestTheIdleLimitIsStated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWeb(t, server.Options{Transport: server.Transport{HTTPIdle: 7 * time.Minute}})
		resp, body := w.do(t, "POST", initialize)
		session := []string{"Mcp-Session-Id", resp.Header.Get("Mcp-Session-Id")}
		if !strings.Contains(body, `"leasehold/idle_secs":420`) || !strings.Contains(body, "ends 7m0s after your last request") {
			t.Errorf("initialize: %s", body)
		}
		time.Sleep(7*time.Minute - time.Second)
		if resp, _ := w.do(t, "POST", ping, session...); resp.StatusCode != 200 {
			t.Errorf("before the limit: %s", resp.Status)
		}
		time.Sleep(7*time.Minute + time.Second)
		if resp, _ := w.do(t, "POST", ping, session...); resp.StatusCode != 404 {
			t.Errorf("after the limit: %s", resp.Status)
		}
	})
}
