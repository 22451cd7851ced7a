package server_test

import (
	"context"
	"fmt"
	"io"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/leasehold/leasehold/dispatch/server"
	"github.com/leasehold/leasehold/engine/clock"
)

// A call with a name that is sent again over another connection of its session
// is carried out once, whatever the ids of the requests are; the same id for
// another call is another call.
func TestANamedCallThatIsSentAgainIsCarriedOutOnce(t *testing.T) {
	d := newDaemon(t, server.Options{})
	token := d.token(t, "root")
	first := d.pipe(t)
	first.greet(server.Hello{Token: token})
	second := d.pipe(t)
	second.greet(server.Hello{Token: token, Handle: first.welcome.Handle})

	set := func(p *peer, id int, name string, again bool) string {
		p.send(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"kv_set","arguments":{"path":"/shared/n","value":%q},`+
			`"_meta":{"leasehold/call":%q,"leasehold/resent":%t}}}`, id, name, name, again)
		return p.receive().text()
	}
	for _, step := range []struct {
		by    *peer
		id    int
		name  string
		again bool
		want  string
	}{
		{first, 3, "a", false, "version 1"},
		{second, 4, "a", true, "version 1"},
		{second, 3, "b", true, "version 2"}, // the daemon went before it had it
		{first, 4, "b", true, "version 2"},
		{first, 3, "c", false, "version 3"},
	} {
		if got := set(step.by, step.id, step.name, step.again); got != step.want {
			t.Errorf("%s (again: %v): %s, want %s", step.name, step.again, got, step.want)
		}
	}
}

// A server stands still with a waiting call, whose client sends it again over another
// server. When the first goes on, it passes its copy on, to a connection that the client
// has given up. The client reads the answer on the newer one.
func TestTheAnswerGoesToTheNewerConnection(t *testing.T) {
	d := newDaemon(t, server.Options{})
	token := d.token(t, "root")
	holder := d.pipe(t)
	holder.greet(server.Hello{Token: d.token(t, "holder")})
	holder.call(1, "run_lease_acquire", `{"key":"a"}`)
	lease := leaseID(holder.receive())

	older := d.pipe(t)
	older.greet(server.Hello{Token: token})
	newer := d.pipe(t)
	newer.greet(server.Hello{Handle: older.welcome.Handle})
	wait := func(p *peer, again bool) {
		p.send(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"run_lease_acquire","arguments":{"key":"a","wait_secs":50},`+
			`"_meta":{"leasehold/call":"m","leasehold/resent":%t}}}`, again)
		p.call(3, "kv_get", `{"path":"/shared/none"}`)
		p.receive() // so the daemon has both
	}
	wait(newer, true)
	wait(older, false)
	older.nc.Close()
	holder.call(2, "run_lease_release", lease)
	holder.receive()
	if m := newer.receive(); string(m.ID) != "2" || m.Error != nil {
		t.Errorf("the newer connection receives %+v", m)
	}
}

// Rules that record no answer cannot tell a late copy of a call from a new one: here the
// sub-agent's name was used again since. Another call with the same mark is no copy.
func TestALateCopyOfACallWithoutARecordChangesNothing(t *testing.T) {
	end := func(id int, party string, again bool) string {
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"hook_party_end","arguments":{"party":%q},`+
			`"_meta":{"leasehold/call":"m","leasehold/resent":%t}}}`, id, party, again)
	}
	const acquire, list = `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"run_lease_acquire","arguments":{"key":"a","as":"s"}}}`,
		`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"lease_list","arguments":{}}}`
	steps := func(t *testing.T, ask func(line string) string, late func(line string)) {
		ask(end(1, "s", true))
		ask(acquire)
		late(end(1, "s", false))
		if held := ask(list); !strings.Contains(held, `"key":"a"`) {
			t.Errorf("after a late copy: %s", held)
		}
		late(end(4, "t", false))
		ask(end(5, "s", true))
		if held := ask(list); strings.Contains(held, `"key":"a"`) {
			t.Errorf("after the end: %s", held)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		w := newWeb(t, server.Options{})
		session := w.open(t)
		ask := func(line string) string { _, body := w.do(t, "POST", line, session...); return body }
		steps(t, ask, func(line string) { ask(line) })
	})
	synctest.Test(t, func(t *testing.T) {
		d := newDaemon(t, server.Options{})
		d.token(t, "root")
		p, older := d.pipe(t), d.pipe(t)
		p.greet(server.Hello{Token: d.token(t, "w")})
		older.greet(server.Hello{Handle: p.welcome.Handle})
		ask := func(line string) string {
			p.send("%s", line)
			text, err := p.br.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			return text
		}
		steps(t, ask, func(line string) { older.send("%s", line); synctest.Wait() })
	})
}

// The answer to a call may be lost behind the connection that it was written to: in
// another server, or in a proxy. So a call with a mark that is sent again is carried
// out once, whatever that connection has shown, also long after its answer.
func TestAMarkedCallOverHTTPIsCarriedOutOnceThoughItsAnswerSeemsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWeb(t, server.Options{})
		session := w.open(t)
		set := func(id int, mark string, again bool) string {
			_, body := w.do(t, "POST", fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"kv_set","arguments":{"path":"/shared/n","value":%q},`+
				`"_meta":{"leasehold/call":%q,"leasehold/resent":%t}}}`, id, mark, mark, again), session...)
			_, version, _ := strings.Cut(body, `"version":`)
			return strings.TrimRight(version, "},\n")
		}
		for _, step := range []struct {
			after time.Duration
			id    int
			mark  string
			again bool
			want  string
		}{
			{0, 2, "a", false, "1"},
			{0, 2, "a", true, "1"},
			{0, 3, "b", false, "2"},
			{0, 4, "c", false, "3"},
			{3 * time.Second, 5, "d", false, "4"},
			{0, 6, "e", false, "5"},
			{0, 3, "b", true, "2"},
			{0, 7, "c", true, "3"},
			{0, 7, "f", false, "6"}, // the same id for another call
		} {
			time.Sleep(step.after)
			if got := set(step.id, step.mark, step.again); got != step.want {
				t.Errorf("%s (again: %v): version %s, want %s", step.mark, step.again, got, step.want)
			}
		}
	})
}

// A countedOut is a context that ends when it has been asked a number of times.
type countedOut struct {
	context.Context
	end context.CancelFunc

	mu   sync.Mutex
	left int
}

func countOut(ctx context.Context, n int) *countedOut {
	ctx, end := context.WithCancel(ctx)
	return &countedOut{Context: ctx, end: end, left: n}
}

func (c *countedOut) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.left--; c.left == 0 {
		c.end()
	}
	return c.Context.Err()
}

// over reports whether the context ended because it was asked.
func (c *countedOut) over() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.left <= 0
}

// A client may leave at each instant of the request with which it resumes its session,
// and come back. What it has taken before is still its own.
func TestARequestThatBreaksOffEndsNoSessionThatItResumes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := vfs.NewMem()
		d := newDaemonOn(t, fs, clock.Clock{}, server.Options{})
		w := newWebOf(t, d)
		session := w.open(t)
		id := 1
		take := func() string {
			id++
			_, body := w.do(t, "POST", fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"run_lease_acquire","arguments":{"key":"x","ttl_secs":3600}}}`, id), session...)
			return body
		}
		if body := take(); !strings.Contains(body, "acquired") {
			t.Fatal(body)
		}
		for n := 1; ; n++ {
			d.close()
			d = newDaemonOn(t, fs, clock.Clock{}, server.Options{})
			w.daemon = d
			r := w.request(t, "POST", ping, session...)
			ctx := countOut(t.Context(), n)
			r = r.WithContext(ctx)
			d.ServeHTTP(httptest.NewRecorder(), r)
			over := ctx.over()
			ctx.end()
			w.listen(t)
			if body := take(); !strings.Contains(body, "already yours") {
				t.Fatalf("a request that ended at its question %d: %s", n, body)
			}
			if !over {
				t.Logf("a request asks %d times whether it goes on", n-1)
				return
			}
		}
	})
}

// A client that is refused, because its actor has too many connections, may come back
// for its session when there is room.
func TestAClientThatIsRefusedKeepsTheSessionThatItResumes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := vfs.NewMem()
		opts := server.Options{Transport: server.Transport{ActorConns: 1}}
		d := newDaemonOn(t, fs, clock.Clock{}, opts)
		d.token(t, "root")
		token := d.token(t, "w")
		first := d.pipe(t)
		first.greet(server.Hello{Token: token})
		first.call(1, "run_lease_acquire", `{"key":"x","ttl_secs":3600}`)
		first.receive()
		d.close()

		d = newDaemonOn(t, fs, clock.Clock{}, opts)
		other := d.pipe(t)
		other.greet(server.Hello{Token: token})
		again := func() (*peer, error) {
			p := d.pipe(t)
			var err error
			p.br, p.welcome, err = server.Greet(p.nc, server.Hello{Handle: first.welcome.Handle})
			return p, err
		}
		if _, err := again(); err == nil || !strings.Contains(err.Error(), "connections of one actor") {
			t.Fatalf("a second connection: %v", err)
		}
		time.Sleep(time.Second)
		other.nc.Close()
		synctest.Wait()
		back, err := again()
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		back.call(2, "run_lease_acquire", `{"key":"x"}`)
		if text := back.receive().text(); !strings.Contains(text, "already yours") {
			t.Errorf("it is back: %s", text)
		}
	})
}

// A proxy whose connection broke sends a request again, and the server sees the new
// one first. The request is carried out once the earlier one is undone. As long as
// that has its connection, an id cannot be used again.
func TestARequestOfABrokenConnectionCanBeSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWeb(t, server.Options{})
		session := w.open(t)
		holder := w.pipe(t)
		holder.greet(server.Hello{Token: w.daemon.token(t, "holder")})
		holder.call(1, "run_lease_acquire", `{"key":"a"}`)
		lease := leaseID(holder.receive())

		send := func(ctx context.Context) <-chan string {
			answer := make(chan string, 1)
			go func() {
				r := w.request(t, "POST", `{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"run_lease_acquire","arguments":{"key":"a","wait_secs":50}}}`, session...)
				resp, err := w.client.Do(r.WithContext(ctx))
				if err != nil {
					answer <- err.Error()
					return
				}
				defer resp.Body.Close()
				b, _ := io.ReadAll(resp.Body)
				answer <- string(b)
			}()
			synctest.Wait()
			return answer
		}
		ctx, breakOff := context.WithCancel(t.Context())
		first := send(ctx)
		if got := <-send(t.Context()); !strings.Contains(got, "not answered yet") {
			t.Errorf("the id of a request that is being answered was used again: %s", got)
		}
		again := send(t.Context())
		breakOff()
		<-first
		synctest.Wait()
		holder.call(2, "run_lease_release", lease)
		holder.receive()
		if got := <-again; !strings.Contains(got, `"lease_id"`) {
			t.Errorf("the request that was sent again: %s", got)
		}
	})
}
