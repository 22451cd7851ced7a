package server

import (
	"container/list"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/server/fair"
	"github.com/leasehold/leasehold/dispatch/server/wire"
	"github.com/leasehold/leasehold/engine/call"
	"github.com/leasehold/leasehold/registry"
)

var (
	// errCancelled is the cause of a call that its client cancelled.
	errCancelled = errors.New("cancelled by the client")

	// errSentAgain is the cause of a call whose client has sent it again over
	// another connection, where it gets its answer.
	errSentAgain = cutOff("the client has sent this call again")
)

// A cutOff ends calls that their clients may send again. What these calls were
// granted, and their places in line, are kept.
type cutOff string

func (e cutOff) Error() string      { return string(e) }
func (cutOff) Is(target error) bool { return target == call.ErrCutOff }

// A duplicateError refuses a request with the id of one that is not answered yet.
type duplicateError struct{ earlier *request }

func (duplicateError) Error() string { return "a request with this id is not answered yet" }

// requests are a client's requests that are not answered yet, and the calls
// that were answered last. With its share, the zero value is ready for use.
//
// # One effect
//
// A call whose client will never have its answer is undone, whenever that
// becomes known:
//
//   - while it runs: it is cancelled, and undone when it has returned;
//   - when its answer cannot be written: it is undone. But if a call that was sent
//     more than once is answered, the client may have that answer, and what becomes
//     of the other requests says nothing. So the end of a connection undoes only what
//     was done for a request on it;
//   - after its answer was written: a client that cancels a call has not seen its
//     answer, which is still on its way. So calls are remembered for a while after
//     their answer, and [requests.cancel] removes them.
//
// A call counts as delivered when later ones have replaced it among those
// remembered, or when its id is used for another call. Over HTTP its connection
// shows it instead: see [webConn]. But a call that has a mark may be sent again:
// the end of its connection delivers nothing, because the answer may be lost
// behind it, in another server or in a proxy.
type requests struct {
	conn  uint64      // the number of the connection, which grows; 0 over HTTP
	share *fair.Share // of the actor, in which they count too

	mu       sync.Mutex
	running  map[string]*request
	answered map[string]*request // by key
	early    []earlyCancel       // oldest first
	settled  list.List           // the answered ones that are not open, oldest first
	waits    int                 // slots in use, each until its answer is written
	others   int
	bytes    int
	closed   error // why no request is accepted any more
}

const (
	// maxAnswered is how many answered calls can still be cancelled. A slow
	// client may send its cancel after some later calls.
	maxAnswered = 256

	// lateCancel is how long a cancel may take to arrive. A later one is from a
	// client that cancels calls whose answers it has, as some do when their
	// user interrupts them.
	lateCancel = 2 * time.Second

	// lateBreak is how long the end of a connection may take to show.
	lateBreak = time.Second
)

// A request is a request that is being served.
type request struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	key    string
	waits  bool
	bytes  int
	stream string // part of the ids of the events with which it is answered; see [resumable]

	starting chan struct{} // contains an element for it until it has had a turn; nil: does not

	name   call.Call     // of a tool call that changes something; otherwise zero
	copied bool          // its call was sent again after its answer; under requests.mu
	open   bool          // its connection will show whether the answer was read, and it will not be sent again; under requests.mu
	told   bool          // its connection has shown that it was; under requests.mu
	place  *list.Element // in settled
	over   chan struct{} // closed when its id is free; nil: nobody waits for that; under requests.mu

	// Guarded by requests.mu.
	unwanted  bool      // nobody will read the answer
	undo      bool      // and what was done for this request must be undone
	cancelled bool      // or for any request of the call
	late      bool      // but not: a newer connection has the call
	at        time.Time // when its answer was ready to be written
}

// started says that the request has had a turn, or needs none.
func (r *request) started() {
	if r.starting != nil {
		<-r.starting
		r.starting = nil
	}
}

// sentSince reports whether the client has cancelled the call, or sent it again. So
// it was there when the connection of this request was broken.
func (r *request) sentSince() bool {
	cause := context.Cause(r.ctx)
	return cause == errCancelled || cause == errSentAgain
}

// begin takes a slot for a request, of the client and of its actor, until
// [requests.free]. Its context is derived from ctx.
func (t *requests) begin(ctx context.Context, m *wire.Message, waits bool, bytes int, name call.Call) (r *request, err error) {
	if err := t.share.Begin(bytes, waits); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			t.share.Done(bytes, waits)
		}
	}()
	r = &request{key: m.Key, waits: waits, bytes: bytes, name: name}
	t.mu.Lock()
	defer t.mu.Unlock()
	taken := t.slots(r)
	earlier := t.running[r.key]
	switch {
	case t.closed != nil:
		return nil, t.closed
	case earlier != nil && (m.Params.Meta.Call == "" || earlier.name.Name != name.Name):
		return nil, duplicateError{earlier}
	case r.waits && *taken >= maxWaits:
		return nil, &registry.LimitError{Which: "waiting calls of one connection", Max: maxWaits}
	case *taken >= maxCalls:
		return nil, &registry.LimitError{Which: "calls under way on one connection", Max: maxCalls}
	case t.bytes > 0 && t.bytes+bytes > maxCallBytes:
		return nil, &registry.LimitError{Which: "bytes of calls under way on one connection", Max: maxCallBytes}
	}
	*taken++
	t.bytes += bytes
	if earlier != nil { // its client has given up the earlier connection; see [marked.enter]
		earlier.unwanted = true
		earlier.cancel(errSentAgain)
		r.name = name.Replaces(earlier.name)
	}
	if t.running == nil {
		t.running = make(map[string]*request)
	}
	t.running[r.key] = r
	switch last := t.answered[r.key]; {
	case last == nil:
	case m.Params.Meta.Call != "" && last.name.Name == name.Name:
		last.copied = true
	default: // the client uses the id for another call, so it has the answer to the last one
		t.takeLocked(last)
		last.delivered()
	}
	r.ctx, r.cancel = context.WithCancelCause(ctx)
	if len(t.early) == 0 {
		return r, nil
	}
	key, nameKey := call.PrintOf(r.key), call.PrintOf(r.name.Key())
	t.early = slices.DeleteFunc(t.early, func(early earlyCancel) bool {
		late := time.Since(early.at) > lateCancel
		mine := !late && (early.of == key || early.of == nameKey)
		if mine {
			r.cancelLocked(errCancelled)
		}
		return late || mine
	})
	return r, nil
}

func (t *requests) slots(r *request) *int {
	if r.waits {
		return &t.waits
	}
	return &t.others
}

// settle ends a request whose answer is ready, and reports whether the answer
// is wanted. If it is, the id is free, because the client may use it again as
// soon as it reads the answer. If not, the id is free after [requests.forget].
func (t *requests) settle(r *request) (wanted bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r.cancel(nil)
	if r.unwanted {
		return false
	}
	t.freeLocked(r)
	if r.name.HasAnswer() {
		r.at = time.Now()
		if t.answered == nil {
			t.answered = make(map[string]*request)
		}
		if last := t.answered[r.key]; last != nil {
			t.takeLocked(last)
		}
		t.answered[r.key] = r
		if !r.open {
			t.keepLocked(r)
		}
	}
	return true
}

// keepLocked remembers r as the latest answered call. It forgets the oldest if
// there are too many, or if their connections have shown that the answers were
// read and no cancel can arrive any more.
func (t *requests) keepLocked(r *request) {
	r.place = t.settled.PushBack(r)
	for {
		oldest := t.settled.Front().Value.(*request)
		late := oldest.told && time.Since(oldest.at) > lateCancel
		if oldest == r || t.settled.Len() <= maxAnswered && !late {
			return
		}
		t.takeLocked(oldest)
		oldest.delivered()
	}
}

// taken notes that the client has read the answer of a request, as far as its
// connection shows. It may still cancel the call.
func (t *requests) taken(r *request) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if r.open {
		r.open, r.told = false, true
		if t.answered[r.key] == r {
			t.keepLocked(r)
		}
	}
}

// forget frees the id of a request that was not answered.
func (t *requests) forget(r *request) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.running[r.key] == r {
		t.freeLocked(r)
	}
}

// freeLocked makes the id of a running request free.
func (t *requests) freeLocked(r *request) {
	delete(t.running, r.key)
	if r.over != nil {
		close(r.over)
		r.over = nil
	}
}

// awaitBroken waits until a request has ended, and reports whether it was because
// its connection broke. The server may see that later than the same request over
// another one, as of a proxy that tries again.
func (t *requests) awaitBroken(ctx context.Context, r *request) bool {
	ctx, cancel := context.WithTimeout(ctx, lateBreak)
	defer cancel()
	t.mu.Lock()
	for t.running[r.key] == r {
		if r.over == nil {
			r.over = make(chan struct{})
		}
		over := r.over
		t.mu.Unlock()
		select {
		case <-over:
		case <-ctx.Done():
			return false
		}
		t.mu.Lock()
	}
	defer t.mu.Unlock()
	return r.undo
}

// lost removes a call whose answer could not be written, and reports whether
// the caller must undo it, and then forget it. Until then its id is taken: the same
// request over another connection would be told what is just being taken back.
func (t *requests) lost(r *request) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.lostLocked(r)
}

// sentAgain reports whether the client has sent the call of an answered request again
// since then. So it was there after the connection of this request was broken.
func (t *requests) sentAgain(r *request) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	next := t.running[r.key]
	return next != nil && next != r || r.copied && t.answered[r.key] != r
}

func (t *requests) lostLocked(r *request) bool {
	if t.answered[r.key] != r || r.copied || !r.name.First() {
		return false
	}
	t.takeLocked(r)
	r.unwanted, r.undo = true, true
	t.running[r.key] = r
	return true
}

func (t *requests) takeLocked(r *request) {
	delete(t.answered, r.key)
	if r.place != nil {
		t.settled.Remove(r.place)
		r.place = nil
	}
}

// free releases the slots of a settled request after its answer was written, so
// that a client that does not read cannot send more and more requests.
func (t *requests) free(r *request) {
	t.mu.Lock()
	*t.slots(r)--
	t.bytes -= r.bytes
	t.mu.Unlock()
	t.share.Done(r.bytes, r.waits)
}

// cancel ends a request that its client has cancelled, and that then gets no
// answer. If it was answered just before, the client has not seen the answer,
// and the caller must undo the call. known is false if the request was answered
// long ago, or has not arrived yet.
func (t *requests) cancel(key string, cause error) (undo *request, known bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if r := t.running[key]; r != nil {
		r.cancelLocked(cause)
		return nil, true
	}
	r := t.answered[key]
	if r == nil || time.Since(r.at) > lateCancel {
		return nil, r != nil
	}
	t.takeLocked(r)
	return r, true
}

// cancelLocked ends a call that its client has cancelled.
func (r *request) cancelLocked(cause error) {
	r.unwanted, r.cancelled = true, true
	r.cancel(cause)
}

// cancelNamed is cancel for calls that their client has named by keys of its own. The
// caller must undo what was answered under the keys, whenever that was: nobody cancels
// a call by its name whose answer it has. known is as in cancel.
func (t *requests) cancelNamed(cause error, keys ...string) (known bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	named := func(r *request) bool { return slices.Contains(keys, r.name.Key()) }
	for _, r := range t.running {
		if named(r) {
			r.cancelLocked(cause)
			known = true
		}
	}
	for _, r := range t.answered {
		if named(r) {
			t.takeLocked(r)
			known = true
		}
	}
	return known
}

// An earlyCancel is a cancel of a request that has not arrived yet.
type earlyCancel struct {
	of uint64 // fingerprint of the key of the request, or of its name
	at time.Time
}

// maxEarly is how many requests can be cancelled before they arrive: a client may
// cancel all that it has under way.
const maxEarly = maxWaits + maxCalls

// cancelEarly cancels a request that may still arrive: over HTTP each message
// has its own connection, and a cancel may overtake its request. If there are too many,
// the oldest is forgotten: its request has had the most time to arrive.
func (t *requests) cancelEarly(key string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.early = append(t.early, earlyCancel{call.PrintOf(key), time.Now()})
	t.early = slices.Delete(t.early, 0, max(0, len(t.early)-maxEarly))
}

// giveUp ends a request whose client is gone. If its answer is ready, the caller
// must undo the call, as with lost. Otherwise the call is cancelled, and undone when it returns.
// Both are checked at once, because the answer may become ready at any time.
func (t *requests) giveUp(r *request, cause error) (undo bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.running[r.key] == r {
		r.unwanted, r.undo = true, true
		r.cancel(cause)
	}
	return t.lostLocked(r)
}

// cutOff ends a call without an answer. What it has done stays for the client, who
// may send it again.
func (t *requests) cutOff(r *request, cause cutOff) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r.unwanted = true
	r.cancel(cause)
}

// toUndo reports whether an unwanted call must leave nothing behind.
func (t *requests) toUndo(r *request) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !r.late && (r.cancelled || r.undo && r.name.First())
}

// answers reports whether r is running and somebody will read its answer.
func (t *requests) answers(r *request) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.running[r.key] == r && !r.unwanted
}

// yield ends a call that a newer connection has already. It gets no answer, and
// what the call has done stays.
func (t *requests) yield(r *request) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r.unwanted, r.late = true, true
	r.cancel(errSentAgain)
}

// cancelAll cancels every request and accepts no more. The answers say why,
// unless the client is gone.
func (t *requests) cancelAll(cause error, gone bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = cause
	for _, r := range t.running {
		r.unwanted, r.undo = r.unwanted || gone, r.undo || gone
		r.cancel(cause)
	}
}

// drain accepts no more requests, and ends the calls that wait without an
// answer; a client that comes back sends them again. The other calls continue.
func (t *requests) drain(cause error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = cause
	for _, r := range t.running {
		if r.waits {
			r.unwanted = true
			r.cancel(cause)
		}
	}
}

func (r *request) delivered() { r.name.Log.Delivered(r.name) }

// undo undoes a call whose client will never have its answer. The client may be
// gone and the call's context over.
func (s *Server) undo(se *dispatch.Session, r *request) {
	s.retell(se)
	ctx := context.WithoutCancel(r.ctx)
	switch {
	case !r.name.Recorded():
	case context.Cause(r.ctx) == errCancelled:
		s.undone(se, se.Withdraw(ctx, r.name))
	default:
		s.undone(se, se.Undo(ctx, r.name))
	}
}

func (s *Server) undone(se *dispatch.Session, err error) {
	if err != nil {
		s.opts.Log.Warn().Err(err).Stringer("session", se.ID()).Msg("a cancelled call could not be undone")
	}
}

// retell is called for an answer that nobody will read, so that the losses in
// it are told again.
func (s *Server) retell(se *dispatch.Session) {
	if err := se.Retell(context.Background()); err != nil {
		s.opts.Log.Warn().Err(err).Stringer("session", se.ID()).Msg("losses that were told in an answer that is lost cannot be told again")
	}
}
