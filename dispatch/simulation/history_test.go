package simulation

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
)

// A history is what clients did and were told. All instants are of the
// world's clock, from before a request was sent to after its answer was read.
type history struct {
	mu     sync.Mutex
	grants map[string][]*grant // by key: a lease's, or "task <id>"
	asked  []asked
	waits  []wait
	places []place
	slept  time.Duration // how long the machine slept in all
	gaps   []gap
	late   []gap // real calls that were answered late, as happens on a busy machine

	givenUp []givenUp
	deaths  []death

	made map[string]*made // tasks, by payload
}

// A grant is a token and what its holder knows of it.
type grant struct {
	key     string
	id      string // of a task
	token   uint64
	client  string
	session *session
	ttl     time.Duration
	keep    bool // kept alive by the server
	attempt int  // of a task
	again   bool // the answer says that the session had it already

	sent, got time.Duration
	until     time.Duration // the holder's own deadline
	ended     time.Duration // when the holder did what may have ended it; -1: it has not
	told      bool          // of its loss
	released  bool          // and was told so
}

// asked is another call about a grant, with its answer.
type asked struct {
	kind      string // renew, release, submit, write
	key       string
	token     uint64
	ok        bool
	sent, got time.Duration
}

// A wait is a call that waited in line, undisturbed, until it was granted.
type wait struct {
	key, client string
	token       uint64
	sent, got   time.Duration
	steady      bool // its connection lasted, and it was sent once
}

// A client keeps its place in line for a while after its wait timed out.
type place struct {
	key, client string
	left        time.Duration
}

// kept is how long a place is kept for a client that asks again. A key that becomes free
// meanwhile is kept a little longer.
const kept = 36 * time.Second

// A gap is a time without a daemon, or with a fault of another kind.
type gap struct{ from, to time.Duration }

// givenUp is a call for a lease of that key, or for tasks, that its client gave up.
type givenUp struct {
	client, key string
	sent, at    time.Duration
}

// A death of a client, and how many tasks it had claimed.
type death struct {
	at     time.Duration
	claims int
}

// haunted counts the claims of clients that died while their server may have been lost.
// Its heir keeps the claims of a process that lives, and all clients of several servers
// are in this one.
func (h *history) haunted(w *world) (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, d := range h.deaths {
		if h.beside(w, d.at, d.at) {
			n += d.claims
		}
	}
	return n
}

// hidden counts the calls about a key that were given up without a server that knows it:
// the server that was told may have been killed at once, or not have been reached.
func (h *history) hidden(w *world, client, key string) (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, g := range h.givenUp {
		if g.key == key && (client == "" || g.client == client) && h.beside(w, g.sent, g.at) {
			n++
		}
	}
	return n
}

// beside reports whether a fault in that time may have kept a server from learning what a
// client did. A server that answers late learns late.
func (h *history) beside(w *world, from, to time.Duration) bool {
	within := w.hides
	if slices.ContainsFunc(h.late, func(g gap) bool { return g.from <= to+unseen && g.to >= from }) {
		within = unseen
	}
	return w.hides > 0 && h.near(from, to, within)
}

// disturbed reports whether there was a fault at about that time.
func (h *history) disturbed(at time.Duration) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.near(at, at, settles)
}

// near reports whether there was a fault so long before or after.
func (h *history) near(from, to, within time.Duration) bool {
	return slices.ContainsFunc(h.gaps, func(g gap) bool { return g.from <= to+within && (g.to == 0 || g.to >= from-within) })
}

// unseen is how long a busy server may take to see that a client has died.
const unseen = 6 * time.Second

// had reports whether a client that began to wait already had a place. After a restart a
// place is kept for the full time again.
func (h *history) had(b wait) bool {
	return slices.ContainsFunc(h.places, func(p place) bool {
		until := p.left + kept + h.slept
		for _, g := range h.gaps {
			if p.left <= g.from && g.from <= until {
				until = max(until, g.to+kept+h.slept)
			}
		}
		return p.key == b.key && p.client == b.client && p.left <= b.sent && b.sent <= until
	})
}

// A session as its client knows it.
type session struct {
	client  string
	handle  string        // over HTTP
	ended   time.Duration // when it may have ended; -1: it has not
	dark    bool          // the power was cut, so its leases may be forgotten
	kept    bool          // its client has died, and all clients are one process, which a server that did not see that takes for alive
	next    *session      // of the same actor
	replies int           // answers read
	heard   time.Duration // when the last request was sent that was answered: what is read may have been held back
	aways   []gap         // it may have had no connection
}

// end notes that the session may have ended.
func (s *session) end(at time.Duration) {
	if s != nil && s.ended < 0 {
		s.ended = at
	}
}

// A made task is one that a client enqueued.
type made struct {
	payload   string
	answered  bool
	cancelled bool          // and nothing kept the daemon from knowing that
	due       time.Duration // not before
	ids       map[string]bool
}

const never = time.Duration(math.MaxInt64)

// A register is a lease: who has it, by token.
type register struct {
	token, last uint64
	attempt     int
	final       bool
}

type input struct {
	kind    string // grant, free, renew, release, submit, write
	token   uint64
	attempt int
	again   bool
	ok      bool
}

// leases says which sequences of operations a lease, or a task, may see. That
// it becomes free is an operation of its own: of nobody, or of a call without
// an answer, which may take place at any time from then on.
var leases = porcupine.Model{
	Init: func() any { return register{} },
	Step: func(state, in, _ any) (bool, any) {
		s, op := state.(register), in.(input)
		mine := s.token == op.token
		lapsed := s.token == 0 && s.last == op.token
		switch op.kind {
		case "grant":
			fits := s.token == 0 && op.token > s.last || op.again && (mine || lapsed)
			if s.final || !fits || op.attempt > 0 && op.attempt <= s.attempt {
				return false, s
			}
			return true, register{token: op.token, last: op.token, attempt: op.attempt}
		case "free":
			if mine {
				s.token = 0
			}
			return true, s
		case "renew":
			if op.ok && (mine || lapsed) {
				s.token = op.token
			}
			return op.ok && s.token == op.token || !op.ok && !mine, s
		case "write":
			return op.ok && (mine || lapsed) || !op.ok && !mine, s
		case "release", "submit":
			if !op.ok {
				return !mine || s.final, s
			}
			if !mine && !lapsed && !(s.final && s.last == op.token) {
				return false, s
			}
			s.token, s.final = 0, op.kind == "submit"
			return true, s
		}
		return false, s
	},
	Equal: func(a, b any) bool { return a == b },
	DescribeOperation: func(in, _ any) string {
		return fmt.Sprintf("%+v", in)
	},
}

// check holds the whole history against the model.
func (h *history) check(w *world) {
	h.mu.Lock()
	defer h.mu.Unlock()
	about := make(map[string][]asked)
	for _, a := range h.asked {
		about[a.key] = append(about[a.key], a)
	}
	for key, grants := range h.grants {
		var ops []porcupine.Operation
		add := func(in input, from, to time.Duration) {
			ops = append(ops, porcupine.Operation{ClientId: len(ops), Input: in, Call: int64(from), Return: int64(to)})
		}
		slices.SortStableFunc(grants, func(a, b *grant) int { return cmp.Compare(a.token, b.token) })
		for i, g := range grants {
			attempt := g.attempt
			if g.session.dark { // a power cut may undo a claim, and its count with it
				attempt = 0
			}
			add(input{kind: "grant", token: g.token, attempt: attempt, again: g.again}, g.sent, g.got)
			if i > 0 && grants[i-1].token == g.token {
				continue
			}
			free, by := g.free(grants, w.sleeps), never
			for _, next := range grants[i:] {
				if next.token > g.token {
					by = next.got
					if by < free {
						w.fault("two holders of %s: %s has token %d until %v at least, and %s was granted it with token %d by %v",
							key, g.client, g.token, free, next.client, next.token, by)
						free = by
					}
					break
				}
			}
			if free < never {
				add(input{kind: "free", token: g.token}, free, by)
			}
		}
		for _, a := range about[key] {
			add(input{kind: a.kind, token: a.token, ok: a.ok}, a.sent, a.got)
		}
		if len(ops) == 0 {
			continue
		}
		switch got, _ := porcupine.CheckOperationsVerbose(leases, ops, 0); got {
		case porcupine.Illegal:
			slices.SortStableFunc(ops, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
			var text strings.Builder
			for _, op := range ops {
				text.WriteString(fmt.Sprintf("\n  %v to %v: %+v", time.Duration(op.Call), time.Duration(op.Return), op.Input))
			}
			w.fault("no order explains what happened to %s:%s", key, text.String())
		}
	}
	h.slept = w.asleep
	h.inLine(w)
	h.lossesTold(w)
	h.once(w)
}

// free is the first instant at which the lease may have become free, by what
// all sessions that had this token know.
func (g *grant) free(all []*grant, sleeps []time.Duration) time.Duration {
	first := never
	latest := time.Duration(-1)
	for _, o := range all {
		if o.token != g.token {
			continue
		}
		if o.ended >= 0 {
			first = min(first, o.ended)
		}
		if o.session.ended >= 0 {
			first = min(first, o.session.ended)
		}
		if !o.keep {
			latest = max(latest, o.until)
		}
	}
	if latest >= 0 && !g.keep {
		first = min(first, latest)
	}
	if g.keep { // nobody extends it while the machine sleeps, or its session is away
		for _, at := range sleeps {
			if at >= g.sent {
				first = min(first, at)
			}
		}
		for _, away := range g.session.aways {
			if at := away.from + g.ttl/2; at >= g.sent && at < away.to {
				first = min(first, at)
			}
		}
	}
	return first
}

// inLine: who waited before another, and was not disturbed, was granted before.
func (h *history) inLine(w *world) {
	for _, a := range h.waits {
		if !a.steady {
			continue
		}
		for _, b := range h.waits {
			if slices.ContainsFunc(h.late, func(g gap) bool { return g.from <= b.sent && g.to >= a.sent }) {
				continue // it is not known which of them the server heard first
			}
			if a.key == b.key && a.client != b.client && b.sent > a.sent+w.inLine && b.sent < a.got && b.token < a.token && !h.had(b) {
				w.fault("%s overtook %s in the line for %s: it asked at %v and has token %d; the other asked at %v and has token %d",
					b.client, a.client, a.key, b.sent, b.token, a.sent, a.token)
			}
		}
	}
}

// lossesTold: whoever lost a lease to another was told, if anybody asked in
// its name long enough after that.
func (h *history) lossesTold(w *world) {
	for _, g := range h.untold() {
		w.fault("%s lost %s with token %d and was never told", g.client, g.key, g.token)
	}
}

// untold returns the grants that were lost to others, and whose clients have not been told,
// although their sessions last, or others of the same actors came after them. If a session
// has ended, its server may wait for its client for a while; the next session is told after
// that. Whoever lost a claim is told when it uses it.
func (h *history) untold() (list []*grant) {
	for _, grants := range h.grants {
		for _, g := range grants {
			if g.id != "" {
				break
			}
			if g.told || g.released || g.ended >= 0 || g.session.dark {
				continue
			}
			known := slices.ContainsFunc(grants, func(o *grant) bool {
				return o.token == g.token && (o.told || o.released || o.ended >= 0)
			})
			lost := slices.ContainsFunc(grants, func(o *grant) bool { return o.token > g.token })
			s := g.session
			if s.ended >= 0 {
				if s.kept && h.near(s.ended, s.ended, unseen) {
					continue
				}
				s = s.next
			}
			if lost && !known && s != nil && s.ended < 0 && s.replies > 1 {
				list = append(list, g)
			}
		}
	}
	return list
}

// once: what was made once is there once.
func (h *history) once(w *world) {
	for payload, m := range h.made {
		if len(m.ids) > 1 {
			w.fault("task %s was enqueued once and exists %d times", payload, len(m.ids))
		}
	}
}

func (h *history) grant(g *grant) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.grants == nil {
		h.grants = make(map[string][]*grant)
	}
	h.grants[g.key] = append(h.grants[g.key], g)
}

// note adds to a list of the history.
func note[T any](h *history, list *[]T, v T) {
	h.mu.Lock()
	defer h.mu.Unlock()
	*list = append(*list, v)
}

func (h *history) make(payload string) *made {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.made == nil {
		h.made = make(map[string]*made)
	}
	m := h.made[payload]
	if m == nil {
		m = &made{payload: payload, ids: make(map[string]bool)}
		h.made[payload] = m
	}
	return m
}

// is notes that a task of that payload has that id.
func (h *history) is(payload, id string) *made {
	m := h.make(payload)
	h.mu.Lock()
	defer h.mu.Unlock()
	m.ids[id] = true
	return m
}
