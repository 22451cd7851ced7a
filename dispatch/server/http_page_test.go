package server_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/server"
	"github.com/leasehold/leasehold/dispatch/server/page"
	"github.com/leasehold/leasehold/engine/clock"
)

// A visitor is a browser, as far as the server can tell.
type visitor struct {
	*web
	t *testing.T
}

func (v visitor) ask(method, path, body string, header ...string) (*http.Response, string) {
	v.t.Helper()
	r, err := http.NewRequestWithContext(v.t.Context(), method, "http://localhost:7711"+path, strings.NewReader(body))
	if err != nil {
		v.t.Fatal(err)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		if header[i] == "Host" {
			r.Host = header[i+1]
			continue
		}
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := v.client.Do(r)
	if err != nil {
		v.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		v.t.Fatal(err)
	}
	return resp, string(text)
}

func (v visitor) want(status int, method, path, body string, header ...string) (*http.Response, string) {
	v.t.Helper()
	resp, text := v.ask(method, path, body, header...)
	if resp.StatusCode != status {
		v.t.Errorf("%s %s %s %q: %d, want %d: %s", method, path, body, header, resp.StatusCode, status, text)
	}
	return resp, text
}

const (
	ours   = "http://localhost:7711"
	others = "http://localhost:3000" // a development server, of whose making nobody knows
)

// code is the body that shows a fresh one.
func (v visitor) code(role dispatch.Role) string {
	v.t.Helper()
	code, err := v.PageCode(v.t.Context(), v.state, role)
	if err != nil {
		v.t.Fatal(err)
	}
	return `{"code":"` + code + `"}`
}

// signIn gives the headers that the page sends from then on.
func (v visitor) signIn(role dispatch.Role) (cookie *http.Cookie, header []string) {
	v.t.Helper()
	resp, text := v.want(201, "POST", "/page/session", v.code(role), "Origin", ours)
	var made struct{ Key, Role string }
	if err := json.Unmarshal([]byte(text), &made); err != nil || made.Role != string(role) || len(resp.Cookies()) != 1 {
		v.t.Fatalf("signed in: %s %v", text, err)
	}
	cookie = resp.Cookies()[0]
	return cookie, []string{"Leasehold-Page", made.Key, "Cookie", cookie.Name + "=" + cookie.Value}
}

// The files need no token and hold none, and nothing that is not theirs can run.
func TestPageIsServedToAnybody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := visitor{newWeb(t, server.Options{}), t}
		resp, text := v.want(200, "GET", "/", "")
		if policy := resp.Header.Get("Content-Security-Policy"); !strings.Contains(policy, "default-src 'none'") || strings.Contains(policy, "unsafe") || !strings.Contains(policy, "frame-ancestors 'none'") {
			t.Errorf("policy: %q", policy)
		}
		if strings.Contains(text, "//") && strings.Contains(text, "src=\"http") || strings.Contains(text, "<script>") || strings.Contains(text, "style=") {
			t.Errorf("it is not from here alone: %s", text)
		}
		for _, file := range []string{"app.js", "page.css", "icon.svg"} {
			resp, text := v.want(200, "GET", "/page/"+file, "")
			if strings.Contains(text, "http://") && file != "icon.svg" && !strings.Contains(text, "http://www.w3.org/2000/svg") {
				t.Errorf("%s names another server", file)
			}
			v.want(304, "GET", "/page/"+file, "", "If-None-Match", resp.Header.Get("ETag"))
		}
		v.want(404, "GET", "/page/other.js", "")
		v.want(404, "GET", "/other", "")
		v.want(403, "GET", "/", "", "Host", "rebound.example.org")
	})
}

func TestPageSignsInOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := visitor{newWeb(t, server.Options{}), t}
		code := v.code(dispatch.Operator)
		v.want(403, "POST", "/page/session", code)
		v.want(403, "POST", "/page/session", code, "Origin", others)
		v.want(403, "POST", "/page/session", code, "Origin", ours, "Sec-Fetch-Site", "same-site")
		v.want(401, "POST", "/page/session", `{"code":"guess"}`, "Origin", ours)
		v.want(401, "POST", "/page/session", `{}`, "Origin", ours)
		v.want(400, "POST", "/page/session", `[`, "Origin", ours)
		v.want(201, "POST", "/page/session", code, "Origin", ours)
		v.want(401, "POST", "/page/session", code, "Origin", ours)
		code = v.code(dispatch.Reader)
		time.Sleep(page.CodeLasts)
		v.client.CloseIdleConnections() // the server closes them, too, at this instant
		v.want(401, "POST", "/page/session", code, "Origin", ours)
		// A token is taken, too, but not an actor's.
		v.want(401, "POST", "/page/session", `{"token":"`+v.token+`"}`, "Origin", ours)
		_, token, err := v.state.IssueAccess(t.Context(), "grafana", dispatch.Reader, 0)
		if err != nil {
			t.Fatal(err)
		}
		v.want(201, "POST", "/page/session", `{"token":"`+token+`"}`, "Origin", ours)
	})
}

// Anybody may send a request to sign in, so it is small, and does not take long to
// arrive.
func TestPageSignInIsSmall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := visitor{newWeb(t, server.Options{}), t}
		padded := func(n int) string {
			code := v.code(dispatch.Operator)
			return code + strings.Repeat(" ", n-len(code))
		}
		v.want(201, "POST", "/page/session", padded(4<<10), "Origin", ours)
		resp, text := v.want(413, "POST", "/page/session", padded(4<<10+1), "Origin", ours)
		if !strings.Contains(text, "larger than 4 KiB") || resp.Header.Get("Retry-After") != "" {
			t.Errorf("too large: %s", text)
		}
		v.want(413, "POST", "/page/session", padded(100<<10), "Origin", ours)
		v.want(413, "POST", "/page/session", padded(8<<20), "Origin", ours)

		half := v.send(t, "POST /page/session HTTP/1.1\r\nHost: localhost:7711\r\nOrigin: "+ours+"\r\nContent-Type: application/json\r\nContent-Length: 4000\r\n\r\n{")
		start := time.Now()
		if _, err := io.Copy(io.Discard, half); err != nil {
			t.Errorf("half of a request: %v", err)
		}
		if took := time.Since(start); took != 30*time.Second {
			t.Errorf("half of a request is cut off after %v", took)
		}
		v.want(201, "POST", "/page/session", padded(100), "Origin", ours)
	})
}

// A link that was made before the machine slept is not good for hours after it.
func TestPageCodeExpiresWhileTheMachineSleeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var slept atomic.Int64
		clk := clock.Go()
		awake := clk.Running
		clk.Running = func() time.Duration { return awake() + time.Duration(slept.Load()) }
		v := visitor{newWebOf(t, newDaemonAt(t, clk, server.Options{})), t}
		code := v.code(dispatch.Operator)
		slept.Store(int64(page.CodeLasts))
		v.want(401, "POST", "/page/session", code, "Origin", ours)
		v.want(201, "POST", "/page/session", v.code(dispatch.Operator), "Origin", ours)
	})
}

// What a browser sends by itself, to whatever port, and what a script of another page
// can have it send, opens nothing.
func TestPageNeedsBothHalves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := visitor{newWeb(t, server.Options{}), t}
		cookie, both := v.signIn(dispatch.Operator)
		if !cookie.HttpOnly || cookie.SameSite != http.SameSiteStrictMode || cookie.MaxAge <= 0 {
			t.Errorf("cookie: %v", cookie)
		}
		key, alone := both[:2], both[2:]
		_, other := v.signIn(dispatch.Operator)
		v.want(200, "GET", "/api/v1/runs", "", both...)
		v.want(200, "GET", "/page/session", "", both...)
		for _, halves := range [][]string{
			key, alone, append(key[:2:2], other[2:]...),
			{"Leasehold-Page", "x", alone[0], alone[1]},
			{"Leasehold-Page", "", alone[0], alone[1]},
			append(both[:4:4], "Origin", others), append(both[:4:4], "Sec-Fetch-Site", "same-site"), append(both[:4:4], "Sec-Fetch-Site", "cross-site"),
			{"Authorization", "Bearer " + strings.TrimPrefix(alone[1], cookie.Name+"=")},
			{"Authorization", "Bearer " + key[1]},
		} {
			v.want(401, "GET", "/api/v1/runs", "", halves...)
			v.want(401, "POST", "/api/v1/runs/r/leases/revoke", `{"key":"a","scope":"run","reason":"none"}`, halves...)
		}
		v.want(401, "POST", "/mcp", `{}`, both...) // it is for the page alone
		_, reader := v.signIn(dispatch.Reader)
		v.want(200, "GET", "/api/v1/runs/r/leases", "", reader...)
		v.want(403, "POST", "/api/v1/runs/r/leases/revoke", `{"key":"a","scope":"run","reason":"none"}`, reader...)
		v.want(403, "POST", "/api/v1/runs/r/queues/q/pause", `{"reason":"none"}`, reader...)

		v.want(204, "DELETE", "/page/session", "", both...)
		v.want(401, "GET", "/api/v1/runs", "", both...)
		time.Sleep(page.SignedIn)
		v.want(401, "GET", "/api/v1/runs", "", reader...)
	})
}
