package simulation

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasehold/leasehold/dispatch/process"
	"github.com/leasehold/leasehold/dispatch/server"
)

// A kind is how a client reaches the daemon.
type kind int

const (
	bySocket  kind = iota
	byHTTP         // connections are kept
	byRequest      // a connection for each request
	byServer       // as commands do with --server: the socket's protocol over HTTP
)

// bridges reports whether a client of this kind has one connection, which it opens again
// when it breaks.
func (k kind) bridges() bool { return k == bySocket || k == byServer }

// A client is a program that acts for one actor, one session after another.
type client struct {
	w     *world
	n     int
	name  string
	kind  kind
	token string // the actor's
	rnd   *rand.Rand
	http  *web
	dial  func(process.Peer) (net.Conn, error) // to the socket

	mu       sync.Mutex
	peer     process.Peer
	socket   *socket
	session  *session // nil until it is open, over HTTP
	last     *session // the one before it
	handle   string
	dialing  chan struct{} // a token: one goroutine connects at a time
	ids      int
	doubt    time.Duration // over HTTP: since when the daemon may take the client for dead; -1: it may not
	broke    time.Duration // over HTTP: when a connection broke last
	disturbs int           // how often it was cut, killed, or made deaf
	open     int           // calls that take a lease
	pending  map[int]pending
	ways     ways         // of its connections
	deaf     bool         // it reads nothing
	died     atomic.Int64 // when it died last
	left     chan struct{}
	leave    func() // closes left, so that the client does not come back by itself

	grants map[uint64]*grant // all that this actor was ever granted, by token
	held   []*lease
	claims []*grant
	sets   int // versions of its own entries that were acknowledged
	maybe  int // and those that may be
	made   int
}

// A pending call is not answered yet.
type pending struct {
	tool string
	sent time.Duration
}

// A lease is one that the client believes it holds.
type lease struct {
	*grant
	id string
}

// newClient makes a client of the daemon that the world has at each time.
func newClient(w *world, n int, k kind) *client {
	c := w.client(n, k, w.actor(clientName(n)), nil)
	if c.http != nil {
		c.http.dial = func() (net.Conn, error) { return c.ways.add(w.daemon().dialHTTP()) }
	}
	c.dial = func(peer process.Peer) (net.Conn, error) { return c.ways.add(w.daemon().dialSocket(peer)) }
	return c
}

func clientName(n int) string { return fmt.Sprint("c", n) }

func (w *world) client(n int, k kind, token string, dialHTTP func() (net.Conn, error)) *client {
	c := &client{
		w: w, n: n, name: clientName(n), kind: k, token: token, rnd: rand.New(rand.NewPCG(w.seed, uint64(n)+1)),
		doubt: -1, pending: make(map[int]pending), grants: make(map[uint64]*grant), dialing: make(chan struct{}, 1),
	}
	c.left = make(chan struct{})
	c.leave = sync.OnceFunc(func() { close(c.left) })
	if k.bridges() {
		c.peer = w.process()
	} else {
		c.http = newWeb(token, k == byRequest, dialHTTP)
	}
	return c
}

// began notes a new session.
func (c *client) began(old *session) *session {
	s := &session{client: c.name, ended: -1}
	if old != nil {
		old.next = s
	}
	c.session, c.held, c.claims, c.doubt = s, nil, nil, -1
	c.w.note("%s has a new session", c.name)
	return s
}

// connect returns the session, a new one if the last is over, once there is a
// connection.
func (c *client) connect() (*socket, *session, error) {
	c.dialing <- struct{}{}
	defer func() { <-c.dialing }()
	began, limit := c.w.now(), time.Hour
	if c.w.awaits {
		limit = patience
	}
	var last error
	for wait := 20 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		c.mu.Lock()
		s, link, peer, handle := c.session, c.socket, c.peer, c.handle
		c.mu.Unlock()
		switch {
		case c.w.now()-began > limit:
			c.w.fault("%s found nobody who would serve it in %v: %v", c.name, limit, last)
			return nil, nil, errGone
		case c.w.closed():
			return nil, nil, errGone
		}
		if !c.kind.bridges() {
			if s != nil {
				return nil, s, nil
			}
			handle, err := c.http.initialize()
			if err == nil {
				c.mu.Lock()
				s = c.began(c.last)
				s.handle = handle
				c.mu.Unlock()
				return nil, s, nil
			}
			if !errors.Is(err, errBroken) {
				c.w.fault("%s: initialize: %v", c.name, err)
				return nil, nil, errGone
			}
		} else {
			if link != nil {
				select {
				case <-link.closed:
					if c.kind == byServer {
						c.mu.Lock()
						s.end(c.w.now()) // its grace has begun, if the server knows
						c.mu.Unlock()
					}
				default:
					return link, s, nil
				}
			}
			hello := server.Hello{Handle: handle}
			if handle == "" {
				hello = server.Hello{Token: c.token}
			}
			link, err := openSocket(c.dial, peer, hello)
			if err == nil {
				if handle != "" && !link.welcome.Resumed { // its token opened another session
					c.over(s)
					handle = ""
				}
				if s := c.linked(link, peer, handle); s != nil {
					return link, s, nil
				}
				continue
			}
			if errors.Is(err, errOver) {
				c.over(s)
				continue
			}
			last = err
		}
		c.rest(wait)
	}
}

// linked notes a connection, unless the process that opened it has died.
func (c *client) linked(link *socket, peer process.Peer, handle string) *session {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.peer != peer {
		link.close()
		return nil
	}
	c.socket, c.handle = link, link.welcome.Handle
	if c.session == nil || handle == "" {
		c.began(c.session)
	} else {
		c.session.ended = -1
		c.session.aways = append(c.session.aways, gap{c.session.heard, c.w.now()})
		c.w.note("%s resumes its session", c.name)
	}
	return c.session
}

// doorGrace is how long the session of a client lasts whose server was lost. See
// server.Transport.
const doorGrace = 10 * time.Second

// over notes that the daemon knows a session no more.
func (c *client) over(s *session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.session != s || s == nil {
		return
	}
	if c.doubt >= 0 && (s.ended < 0 || c.doubt < s.ended) {
		s.ended = c.doubt
	}
	if s.ended < 0 && c.w.awaits && c.w.now()-s.heard >= doorGrace {
		s.ended = s.heard // one server was cut off, and the next one stood still
	}
	if s.ended < 0 {
		c.w.fault("the session of %s ended, and nobody had ended it", c.name)
		s.ended = c.w.now()
	}
	c.handle = ""
	if !c.kind.bridges() {
		c.last, c.session = s, nil
	}
}

// An answer is the answer of a tool.
type answer struct {
	IsError           bool
	StructuredContent json.RawMessage
	Code              string `json:"-"`
}

func (a answer) into(v any) { _ = json.Unmarshal(a.StructuredContent, v) }

// A call is an answered call, with the times when it was first sent and when its answer
// was read.
type call struct {
	answer
	session   *session
	sent, got time.Duration
	steady    bool
}

// maxTries limits how often a client sends a call. A daemon is never away for so many
// attempts.
const maxTries = 5000

// call makes a call and repeats it, by its name, until it is answered, its
// session is over, or it is cancelled.
func (c *client) call(tool string, args map[string]any, giveUp time.Duration, breaks bool) (call, error) {
	_, s, err := c.connect()
	if err != nil {
		return call{}, err
	}
	c.mu.Lock()
	c.ids++
	r := request{id: c.ids, tool: tool, args: args, giveUp: giveUp, breaks: breaks}
	disturbs := c.disturbs
	made := call{session: s, sent: c.w.now()}
	c.pending[r.id] = pending{tool, made.sent}
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.pending, r.id)
	}()
	tries := 0
	wait, _ := args["wait_secs"].(float64)
	unknown := func() { // it is not known what the call has taken
		key, _ := args["key"].(string)
		if tool == "task_claim" || key != "" {
			note(&c.w.history, &c.w.history.givenUp, givenUp{c.name, key, made.sent, made.got})
		}
	}
	for {
		var line []byte
		asked := c.w.now()
		if c.kind.bridges() {
			var link *socket
			var now *session
			if link, now, err = c.connect(); err == nil && now != s {
				err = errOver
			}
			if err == nil {
				line, err = link.ask(r)
			}
		} else if line, err = c.http.ask(s.handle, r); errors.Is(err, errOver) {
			c.over(s)
		}
		made.got = c.w.now()
		switch {
		case err == nil:
			c.mu.Lock()
			made.steady = !r.again && c.disturbs == disturbs
			c.mu.Unlock()
			late := made.got - asked - time.Duration(wait*float64(time.Second))
			if c.w.awaits && late > c.w.inLine {
				note(&c.w.history, &c.w.history.late, gap{asked, made.got})
			}
			if made.steady && late > c.w.heldUp && !c.w.slept(asked) {
				c.w.fault("%s waited %v for the answer to %s with wait_secs %v", c.name, made.got-asked, tool, wait)
			}
			err := c.heard(&made, s, asked, line, tool == "kv_set" || tool == "task_enqueue")
			if errors.Is(err, errOver) {
				unknown()
			}
			return made, err
		case errors.Is(err, errBroken) && c.w.closed():
			unknown()
			return made, errGone
		case errors.Is(err, errBroken):
			if !c.kind.bridges() {
				c.doubted(asked)
				c.rest(time.Duration(50+c.jitter(400)) * time.Millisecond)
			}
			r.again = true
			if tries++; tries > maxTries {
				c.w.fault("%s sent %s %d times and was never answered", c.name, tool, maxTries)
				return made, errGone
			}
		case errors.Is(err, errCancelled):
			unknown()
			if r.breaks || errors.Is(err, errUntold) {
				c.doubted(asked)
			}
			return made, err
		case errors.Is(err, errOver), errors.Is(err, errGone):
			unknown()
			return made, err
		default:
			c.w.fault("%s: %s: %v", c.name, tool, err)
			return made, err
		}
	}
}

// rest lets the client do nothing for d.
func (c *client) rest(d time.Duration) { c.w.rest(c.n+1, d) }

func (c *client) jitter(n int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rnd.IntN(n)
}

// doubted notes that the daemon may have seen a request of the client break
// off.
func (c *client) doubted(at time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.broke = c.w.now()
	if c.doubt < 0 {
		c.doubt = at
	}
}

// maxAnswer is more than any answer to these clients needs.
const maxAnswer = 512 << 10

// maxNotices is how many one answer has at most.
const maxNotices = 20

// settles is how long after a broken connection an answer says nothing: it may be
// to a request that was sent before.
const settles = 500 * time.Millisecond

// heard reads an answer.
// Only a call that grows may be refused because the disk is full.
func (c *client) heard(made *call, s *session, asked time.Duration, line []byte, grows bool) error {
	if len(line) > maxAnswer {
		c.w.fault("%s got an answer of %d bytes", c.name, len(line))
	}
	var m struct {
		Result *answer
		Error  *struct{ Message string }
	}
	if err := json.Unmarshal(line, &m); err != nil || m.Result == nil {
		c.w.fault("%s got %.300s", c.name, line)
		return errGone
	}
	made.answer = *m.Result
	var common struct {
		Code    string
		Message string
		Notices []struct {
			Code, Reason string
			Token        uint64
		}
	}
	made.into(&common)
	if made.IsError {
		made.Code = common.Code
	}
	if len(common.Notices) > maxNotices {
		c.w.fault("%s got %d notices in one answer", c.name, len(common.Notices))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	// What was asked with the request that broke off, or before it, may have
	// been answered before the daemon saw the break. A server that stands still,
	// or is cut off, sees it later.
	if c.session == s && !c.deaf && asked >= c.broke+settles && !(c.w.awaits && c.w.history.disturbed(asked)) {
		c.doubt = -1
	}
	s.replies++
	s.heard = max(s.heard, asked)
	for _, n := range common.Notices {
		if g := c.grants[n.Token]; g != nil && n.Code == "LEASE_LOST" {
			g.told = true
			c.w.note("%s is told that it lost %s with token %d: %s", c.name, g.key, n.Token, n.Reason)
		}
	}
	if strings.Contains(common.Message, "the disk that the daemon keeps its state on is almost full") {
		made.Code = "FULL"
		if !grows || !c.w.disk.full(asked-time.Second) {
			c.w.fault("%s is told that the disk is full: %s", c.name, made.StructuredContent)
		}
		return nil
	}
	if made.Code == "UNAVAILABLE" || made.Code == "UNAUTHENTICATED" {
		return errOver
	}
	return nil
}

// acquire takes a lease, and tells what it was told.
func (c *client) acquire(key, as string, ttl, wait time.Duration, keep bool, giveUp time.Duration, breaks bool) {
	args := map[string]any{"key": key, "ttl_secs": ttl.Seconds()}
	party := c.name
	if as != "" {
		args["as"] = as
		party += " as " + as
	}
	if wait > 0 {
		args["wait_secs"] = wait.Seconds()
	}
	if keep {
		args["keep_alive"] = true
	}
	c.mu.Lock()
	c.open++
	c.mu.Unlock()
	got, err := c.call("run_lease_acquire", args, giveUp, breaks)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open--
	if err != nil || got.IsError {
		c.w.note("%s acquires %s, waits %v: %v %s", party, key, wait, err, got.Code)
		if got.Code == "WAIT_TIMEOUT" || got.Code == "LEASE_HELD" {
			note(&c.w.history, &c.w.history.places, place{key, party, got.got})
		}
		if err == nil && !slices.Contains([]string{"LEASE_HELD", "WAIT_TIMEOUT", "DEADLOCK", "LIMIT"}, got.Code) {
			c.w.fault("%s: acquire of %s: %s", c.name, key, got.StructuredContent)
		}
		return
	}
	var lent struct {
		LeaseID     string `json:"lease_id"`
		Token       uint64
		Reentrant   bool
		KeepAlive   *bool   `json:"keep_alive"`
		ExpiresInMS float64 `json:"expires_in_ms"`
	}
	got.into(&lent)
	c.w.note("%s has %s with token %d, again %v, kept alive %v", party, key, lent.Token, lent.Reentrant, keep)
	if left := time.Duration(lent.ExpiresInMS) * time.Millisecond; got.steady && !lent.Reentrant && !keep && wait == 0 && (left > ttl || left < ttl-max(time.Second, c.w.heldUp)) {
		c.w.fault("%s asked for %v and is told that %v are left", c.name, ttl, left)
	}
	if lent.KeepAlive != nil {
		keep = *lent.KeepAlive
	}
	g := &grant{
		key: key, token: lent.Token, client: party, session: got.session, ttl: ttl, keep: keep,
		again: lent.Reentrant, sent: got.sent, got: got.got, until: got.sent + ttl, ended: -1,
	}
	c.w.history.grant(g)
	if wait > 0 && !lent.Reentrant {
		note(&c.w.history, &c.w.history.waits, wait_(key, party, g, got.steady))
	}
	if known := c.grants[g.token]; known != nil { // until is the later one
		known.until = max(known.until, g.until)
		known.keep = known.keep || g.keep
		return
	}
	c.grants[g.token] = g
	if c.session == got.session {
		c.held = append(c.held, &lease{g, lent.LeaseID})
	}
}

func wait_(key, name string, g *grant, steady bool) wait {
	return wait{key: key, client: name, token: g.token, sent: g.sent, got: g.got, steady: steady}
}

// take takes one of the leases that the client believes it holds.
func (c *client) take(keep bool) *lease {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.held) == 0 {
		return nil
	}
	n := c.rnd.IntN(len(c.held))
	l := c.held[n]
	if !keep {
		c.held = slices.Delete(c.held, n, n+1)
	}
	return l
}

func (c *client) release(giveUp time.Duration) bool {
	l := c.take(false)
	if l == nil {
		return false
	}
	c.mu.Lock()
	l.ended = c.w.now()
	c.mu.Unlock()
	got, err := c.call("run_lease_release", map[string]any{"lease_id": l.id}, giveUp, false)
	if err != nil || got.session != l.session {
		return true
	}
	var answer struct{ Released bool }
	got.into(&answer)
	c.w.note("%s releases %s with token %d: %v %s", c.name, l.key, l.token, answer.Released, got.Code)
	note(&c.w.history, &c.w.history.asked, asked{"release", l.key, l.token, answer.Released, got.sent, got.got})
	return true
}

func (c *client) renew() {
	l := c.take(true)
	if l == nil {
		return
	}
	got, err := c.call("lease_renew", map[string]any{"lease_id": l.id}, 0, false)
	if err != nil {
		return
	}
	c.w.note("%s renews %s with token %d: %s", c.name, l.key, l.token, got.Code)
	var renewed struct{ Token uint64 }
	if got.into(&renewed); !got.IsError && renewed.Token != l.token { // the new session has adopted it
		c.mu.Lock()
		defer c.mu.Unlock()
		l.ended = got.sent
		g := *l.grant
		g.token, g.session, g.again, g.sent, g.got, g.until, g.ended = renewed.Token, got.session, false, got.sent, got.got, got.sent+l.ttl, -1
		c.w.history.grant(&g)
		c.grants[g.token] = &g
		return
	}
	note(&c.w.history, &c.w.history.asked, asked{"renew", l.key, l.token, !got.IsError, got.sent, got.got})
	c.mu.Lock()
	defer c.mu.Unlock()
	if !got.IsError {
		l.until = max(l.until, got.sent+l.ttl)
		return
	}
	l.told = true // by this answer
	c.held = slices.DeleteFunc(c.held, func(h *lease) bool { return h == l })
}

// list looks at the leases of the run, and finds none that the daemon takes
// for the client's and the client does not know of.
func (c *client) list() {
	c.mu.Lock()
	busy := c.open > 0
	c.mu.Unlock()
	got, err := c.call("lease_list", map[string]any{"scope": "run"}, 0, false)
	if err != nil || got.IsError {
		return
	}
	var listed struct {
		Leases []struct {
			LeaseID string `json:"lease_id"`
			Key     string
			Token   uint64
			Waiters []struct {
				Path, As string
			}
		}
	}
	got.into(&listed)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range listed.Leases { // token 0: nobody has it, and it is kept for the first in line
		if l.LeaseID != "" && l.Token > 0 && c.grants[l.Token] == nil && !busy && c.w.history.hidden(c.w, c.name, l.Key) == 0 {
			c.w.fault("%s holds %s with token %d and was never told", c.name, l.Key, l.Token)
		}
		seen := make(map[string]bool)
		for _, waiter := range l.Waiters {
			if who := waiter.Path + " " + waiter.As; seen[who] && !c.w.lingers(waiter.Path) {
				c.w.fault("%s has two places in the line for %s", waiter.Path, l.Key)
			} else {
				seen[who] = true
			}
		}
	}
}

// set writes an entry of the client's own.
func (c *client) set() {
	c.mu.Lock()
	value := c.sets + c.maybe + 1
	c.mu.Unlock()
	c.wrote(c.call("kv_set", map[string]any{"path": "/peer/self/count", "value": value}, 0, false))
}

// wrote counts a write of the client's own entries, which count their versions
// together.
func (c *client) wrote(got call, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil || got.IsError {
		c.maybe++
		return
	}
	var set struct{ Version int }
	got.into(&set)
	if c.sets++; set.Version < c.sets || set.Version > c.sets+c.maybe {
		c.w.fault("%s wrote %d times, and perhaps %d more, and the version is %d", c.name, c.sets, c.maybe, set.Version)
	}
}

// gated writes an entry that needs a lease which the client has, or had.
func (c *client) gated() {
	c.mu.Lock()
	var had []*grant
	for _, g := range c.grants {
		if g.session == c.session && g.client == c.name && g.id == "" {
			had = append(had, g)
		}
	}
	slices.SortFunc(had, func(a, b *grant) int { return cmp.Compare(b.token, a.token) })
	c.mu.Unlock()
	if len(had) == 0 {
		return
	}
	g := had[c.jitter(min(2, len(had)))]
	got, err := c.call("kv_set", map[string]any{
		"path": "/peer/self/gated", "value": g.token, "require_leases": []any{map[string]any{"scope": "run", "key": g.key, "token": g.token}},
	}, 0, false)
	c.w.note("%s writes with token %d of %s: %v %s", c.name, g.token, g.key, err, got.Code)
	if err == nil && got.IsError && got.Code != "STALE_TOKEN" {
		c.w.fault("%s: a write that needs a lease: %s", c.name, got.StructuredContent)
	}
	c.wrote(got, err)
	if err == nil && got.session == g.session {
		note(&c.w.history, &c.w.history.asked, asked{"write", g.key, g.token, !got.IsError, got.sent, got.got})
	}
}

// large writes a value that no connection can buffer the answer with, or reads it.
func (c *client) large(write bool) {
	const path = "/peer/self/large"
	if !write {
		_, _ = c.call("kv_get", map[string]any{"path": path}, 0, false)
		return
	}
	got, err := c.call("kv_set", map[string]any{"path": path, "value": strings.Repeat("x", 80<<10)}, 0, false)
	c.w.note("%s writes its large value: %v %s", c.name, err, got.Code)
	c.wrote(got, err)
}

// listen opens a stream over HTTP for what the daemon tells unasked, or closes it.
func (c *client) listen(on bool) {
	if c.kind.bridges() {
		return
	}
	_, s, err := c.connect()
	if err != nil {
		return
	}
	if on {
		err := c.http.openStream(s.handle)
		c.w.note("%s opens a stream: %v", c.name, err)
		if errors.Is(err, errBroken) {
			c.doubted(c.w.now())
		}
		return
	}
	c.w.note("%s closes its streams", c.name)
	c.doubted(c.w.now())
	c.http.closeStreams()
}

// endParty says that a sub-agent has ended: its leases and places are free.
func (c *client) endParty(as string) {
	c.mu.Lock()
	now := c.w.now()
	ours := c.name + " as " + as
	for _, g := range c.grants {
		if g.client == ours && g.ended < 0 {
			g.ended = now
		}
	}
	c.held = slices.DeleteFunc(c.held, func(l *lease) bool { return l.client == ours })
	c.mu.Unlock()
	got, err := c.call("hook_party_end", map[string]any{"party": as}, 0, false)
	c.w.note("%s ends: %v %s", ours, err, got.Code)
}

var errRefused = errors.New("refused")

func (c *client) enqueue(giveUp time.Duration, breaks bool) {
	c.mu.Lock()
	c.made++
	payload := fmt.Sprintf("%s-%d", c.name, c.made)
	args := map[string]any{"queue": "q", "payload": payload, "max_attempts": 100}
	delay := time.Duration(0)
	if c.rnd.IntN(4) == 0 {
		delay = time.Duration(1+c.rnd.IntN(20)) * c.w.second
		args["delay_secs"] = delay.Seconds()
	}
	c.mu.Unlock()
	m := c.w.history.make(payload)
	c.w.history.mu.Lock()
	m.due = c.w.now() + delay
	c.w.history.mu.Unlock()
	began := c.w.now()
	got, err := c.call("task_enqueue", args, giveUp, breaks)
	c.w.note("%s enqueues %s: %v %s", c.name, payload, err, got.Code)
	var task struct {
		TaskID string `json:"task_id"`
	}
	if err == nil && !got.IsError {
		got.into(&task)
		c.w.history.is(payload, task.TaskID)
	}
	c.w.history.mu.Lock()
	defer c.w.history.mu.Unlock()
	m.answered = err == nil && !got.IsError
	m.cancelled = errors.Is(err, errCancelled) && !c.w.history.beside(c.w, began, c.w.now())
}

func (c *client) claim(wait time.Duration, count int, giveUp time.Duration, breaks bool) (int, error) {
	ttl := time.Duration(5+c.jitter(600)) * time.Second
	args := map[string]any{"queues": []string{"q"}, "ttl_secs": ttl.Seconds(), "count": count}
	if wait > 0 {
		args["wait_secs"] = wait.Seconds()
	}
	got, err := c.call("task_claim", args, giveUp, breaks)
	if err != nil || got.IsError {
		c.w.note("%s claims, waits %v: %v %s", c.name, wait, err, got.Code)
		return 0, errors.Join(err, errRefused)
	}
	var claimed struct {
		Tasks []struct {
			TaskID  string `json:"task_id"`
			Payload string
			Token   uint64
			Attempt int
		}
	}
	got.into(&claimed)
	for _, task := range claimed.Tasks {
		m := c.w.history.is(task.Payload, task.TaskID)
		if got.got < m.due {
			c.w.fault("task %s was claimed at %v and is due at %v", task.Payload, got.got, m.due)
		}
		c.w.note("%s claims %s with token %d", c.name, task.Payload, task.Token)
		g := &grant{
			key: "task " + task.Payload, token: task.Token, client: c.name, session: got.session, ttl: ttl, attempt: task.Attempt,
			sent: got.sent, got: got.got, until: got.sent + ttl, ended: -1,
		}
		c.w.history.grant(g)
		c.mu.Lock()
		c.grants[g.token] = g
		g.id = task.TaskID
		if c.session == got.session {
			c.claims = append(c.claims, g)
		}
		c.mu.Unlock()
	}
	return len(claimed.Tasks), nil
}

// finish does something with a task that the client has.
func (c *client) finish(tool string) bool {
	c.mu.Lock()
	if len(c.claims) == 0 {
		c.mu.Unlock()
		return false
	}
	n := c.rnd.IntN(len(c.claims))
	g := c.claims[n]
	args := map[string]any{"task_id": g.id, "token": g.token}
	kind := "release"
	switch tool {
	case "task_submit":
		kind = "submit"
		args["status"], args["result"] = "completed", g.token
	case "task_nack":
		args["reason"], args["delay_secs"] = "simulated", float64(c.rnd.IntN(3))*c.w.second.Seconds()
	case "task_heartbeat":
		kind = "renew"
	}
	if kind != "renew" {
		c.claims = slices.Delete(c.claims, n, n+1)
		g.ended = c.w.now()
	}
	c.mu.Unlock()
	got, err := c.call(tool, args, 0, false)
	if err != nil {
		return true
	}
	c.w.note("%s calls %s of %s with token %d: %s", c.name, tool, g.key, g.token, got.Code)
	note(&c.w.history, &c.w.history.asked, asked{kind, g.key, g.token, !got.IsError, got.sent, got.got})
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case kind != "renew":
	case got.IsError:
		g.told = true
		c.claims = slices.DeleteFunc(c.claims, func(o *grant) bool { return o == g })
	default:
		g.until = max(g.until, got.sent+g.ttl)
	}
	return true
}
