// Package call makes sure that every call takes effect once, however often it
// is sent.
//
// A [Call] is one request of one session. Its name is unique within the
// session: the client's mark or the JSON-RPC id. A model may add a request_id.
// What a call did is recorded in one row, its answer, in the same transaction.
// If the call is repeated, the rule finds that row and answers from it. If the
// call is cancelled before its client has received the answer, it is undone
// with the help of that row. A call that waits watches the row, which appears
// when another transaction serves the call.
//
// # Contract
//
//   - A rule that takes or creates something begins with [Call.Answered] and
//     ends with [Call.Record], both in one transaction.
//   - An answer is kept until it cannot be asked for any more: until its client
//     has received it ([Log.Delivered]), its session ends, or [Keep] is over. An
//     answer under a request_id is kept as long as its rule says.
//   - A different request under the name of a delivered or expired call is a new
//     call. A different request under a request_id is refused with [ErrReused],
//     also while the first one is not answered yet: see [Underway].
//   - An answer that two calls have been told of is [Answer.Shared]: cancelling
//     one of them undoes nothing.
//   - A copy of a call that finds the answer of another copy is not [Call.First].
//     That its connection is lost undoes nothing, because the client may have the
//     answer from the other one. A client that cancels the call has none.
//
// # Key schema
//
//	answer/<session>c<name>         kind, fingerprint of the request, what it did; owner session, due when it may be deleted
//	answer/<session>r<request_id>   the same, for a call with a request_id; the row under its name then has the key of this row
//
// A program that calls over HTTP names its call by an Idempotency-Key, which is
// kept like a request_id. If the call has a request_id too, the row under the
// Idempotency-Key has the key of the row under the request_id.
package call

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"hash/fnv"
	"slices"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/record"
)

// How long an answer is kept.
const (
	Keep    = 10 * time.Minute  // unless its client confirms it earlier
	Forever = time.Duration(-1) // until [Call.Expire] is called or its session ends
)

// Prefix is the prefix of the keys of answers.
const Prefix = "answer/"

var (
	// ErrReused is returned for a different request under a request_id that is
	// taken.
	ErrReused = errors.New("request_id (or Idempotency-Key) was used for a different request; use a new one")

	// ErrCutOff is the cause of the end of a call's context if its connection
	// is lost or the daemon stops, so that the client may repeat the call. What
	// the call was granted, and its place in a line, are then kept. If the
	// context ends with any other cause, the call is cancelled and leaves
	// nothing behind.
	ErrCutOff = errors.New("the connection was lost; the call may be sent again")
)

// A Call is one request of one session. The zero Call belongs to no session: it
// is never repeated, and its answer is not recorded.
type Call struct {
	Session uuid.UUID
	Name    string // unique among those calls of the session that can be repeated
	Print   uint64 // fingerprint of the request, because the name may be used for another request later
	Log     *Log   // of its session; nil: answers are kept for Keep

	request  string       // the request_id
	reqPrint uint64       // fingerprint of the parameters of a call with a request_id
	outer    string       // key of the row under the Idempotency-Key, of a call that has a request_id too
	outPrint uint64       // fingerprint of the request with that Idempotency-Key
	all      bool         // it stands for all requests under the request_id, see Known
	memory   bool         // Name is generated, for a call that cannot be repeated
	own      *Answer      // takes the place of a row, see Alone
	first    *atomic.Bool // nil: the call is never sent again
	original bool         // its client had not sent it before
}

type contextKey struct{}

// With returns a context that belongs to the call c.
func With(ctx context.Context, c Call) context.Context {
	return context.WithValue(ctx, contextKey{}, c)
}

// Of returns the call that ctx belongs to, or the zero Call.
func Of(ctx context.Context) Call {
	c, _ := ctx.Value(contextKey{}).(Call)
	return c
}

// Asked returns the call of ctx, or else a call of the session that cannot be
// repeated. waits says whether it may have to wait for its answer.
func Asked(ctx context.Context, session uuid.UUID, waits bool) Call {
	switch c := Of(ctx); {
	case c.Recorded():
		return c
	case waits:
		return unnamed(session)
	default:
		return Alone(session)
	}
}

// Sent returns c as one of the requests with which its client may send the call.
func (c Call) Sent() Call {
	c.first = new(atomic.Bool)
	return c
}

// Replaces returns c as the request that replaces an earlier one of the same call. The
// earlier one then gets no answer, so what the call did for it counts as done for c.
func (c Call) Replaces(earlier Call) Call {
	c.first = earlier.first
	return c
}

// Original returns c as the request with which its client sends the call first.
func (c Call) Original() Call {
	c.original = true
	return c
}

// SentFirst reports whether c is such a request.
func (c Call) SentFirst() bool { return c.original }

// Overtaken reports whether c, which has found an answer, must take nothing even if
// what was granted by the answer is gone: it arrives after another request of the
// call, or has a request_id. Otherwise its client waits for an answer.
func (c Call) Overtaken() bool { return c.original || c.request != "" }

// Keyed reports whether c has a request_id or an Idempotency-Key, so that another request
// under it is refused once the answer is recorded.
func (c Call) Keyed() bool { return c.request != "" }

// First reports whether what the call did was done for this request of it, and not
// for an earlier one.
func (c Call) First() bool { return c.first == nil || c.first.Load() }

// unnamed returns a call that cannot be repeated. It gets a generated name, so
// that it can wait for its answer.
func unnamed(session uuid.UUID) Call {
	id := uuid.New()
	return Call{Session: session, Name: string(id[:]), memory: true}
}

// Alone returns a call that cannot be repeated and that is answered by its own
// transaction, so that it never waits. Only the call itself needs the answer,
// so it is kept in memory and not in a row.
func Alone(session uuid.UUID) Call { return Call{Session: session, own: new(Answer)} }

// Once returns c as a call that cannot be repeated, so its answer need not
// survive the daemon.
func (c Call) Once() Call {
	c.memory = true
	return c
}

// Requested returns c with the model's request_id, or c itself if id is empty.
// print is the fingerprint of the parameters. If c has an Idempotency-Key, it
// keeps that.
func (c Call) Requested(session uuid.UUID, id string, print uint64) Call {
	if id == "" {
		return c
	}
	if c.request != "" {
		c.outer, c.outPrint = c.Key(), c.reqPrint
	}
	c.Session, c.request, c.reqPrint = session, id, print
	return c
}

// Known returns the call with a request_id of which the caller knows nothing
// else, to undo it: all that was sent under the request_id.
func Known(session uuid.UUID, id string) Call {
	return Call{Session: session, request: id, all: true}
}

// Differs reports whether c and other have the same request_id and are
// different requests.
func (c Call) Differs(other Call) bool {
	return c.request != "" && c.Key() == other.Key() && c.reqPrint != other.reqPrint
}

// Same reports whether c and asked, which may be [Known], are requests of one call.
func (c Call) Same(asked Call) bool {
	if asked.all {
		return c.Key() == asked.Key() || c.outer == asked.Key()
	}
	return asked.Name != "" && c.nameKey() == asked.nameKey() && c.Print == asked.Print
}

// PrintOf returns a fingerprint of an ordered list of texts.
func PrintOf(texts ...string) uint64 {
	h := fnv.New64a()
	for _, s := range texts {
		_, _ = h.Write(append(binary.AppendUvarint(nil, uint64(len(s))), s...))
	}
	return h.Sum64()
}

// Recorded reports whether the answer of the call is recorded.
func (c Call) Recorded() bool { return c.Name != "" || c.request != "" || c.own != nil }

// Lasting reports whether the call can be repeated after its connection is
// lost, and then finds its answer.
func (c Call) Lasting() bool { return c.Name != "" && !c.memory || c.request != "" }

// HasAnswer reports whether the call, which has returned, has an answer that can
// be undone, as far as this process knows.
func (c Call) HasAnswer() bool {
	switch {
	case c.own != nil:
		return c.own.Kind != ""
	case c.Log == nil:
		return c.Name != ""
	default:
		return c.Log.recordedAs(c.nameKey())
	}
}

// Key is the key of the answer's row, for an [engine.Watch].
func (c Call) Key() string {
	if c.request != "" {
		return Prefix + string(c.Session[:]) + "r" + c.request
	}
	return c.nameKey()
}

func (c Call) nameKey() string { return Prefix + string(c.Session[:]) + "c" + c.Name }

func (c Call) print() uint64 {
	if c.request != "" {
		return c.reqPrint
	}
	return c.Print
}

// Answered returns what the call did if it was made before. A call with the
// same name is the same call, repeated because its client has no answer. A call
// that only has the same request_id is a different one, so the answer becomes
// shared.
func (c Call) Answered(tx engine.Tx, kind Kind) (value string, ok bool, err error) {
	if value, ok, err = c.answered(tx, kind); !ok && err == nil && c.first != nil {
		c.first.Store(true)
	}
	return value, ok, err
}

func (c Call) answered(tx engine.Tx, kind Kind) (value string, ok bool, err error) {
	if !c.Recorded() || c.request == "" && (c.own != nil || c.Log.isDelivered(c.nameKey())) {
		return "", false, nil
	}
	if c.outer != "" {
		if a, ok := get(tx, c.outer); ok && a.Print != c.outPrint {
			return "", false, ErrReused
		}
	}
	a, ok := get(tx, c.Key())
	switch {
	case !ok:
		return "", false, nil
	case a.Kind == kind && a.Print == c.print():
		c.share(tx, a)
		c.Log.note(c)
		return a.Value, true, nil
	case c.request != "":
		return "", false, ErrReused
	default:
		return "", false, nil // the client uses the name for a new request, so it has received that answer
	}
}

// share marks an answer as told to a second call, unless c is the call that it
// was recorded for.
func (c Call) share(tx engine.Tx, a Answer) {
	if c.request == "" || a.Shared {
		return
	}
	var own Answer
	switch {
	case c.own != nil:
		own = *c.own
	case c.Name != "":
		own, _ = get(tx, c.nameKey())
	}
	if own.Kind == pointer && own.Value == c.Key() {
		return
	}
	row, _ := tx.Get(c.Key())
	a.Shared = true
	row.Value = a.encode()
	tx.Put(row) // the call that it was recorded for may be cancelled after a restart
}

// Record stores what the call did. A later Record under the same name replaces
// it. If keep is zero, the answer is kept for [Keep].
func (c Call) Record(tx engine.Tx, kind Kind, value string, keep time.Duration) {
	c.Log.sweep(tx) // must come first: it may remove an answer under the same name
	a := Answer{Kind: kind, Print: c.print(), Value: value}
	if c.request == "" {
		c.write(tx, a, keep)
		return
	}
	tx.Put(c.row(tx, c.Key(), a, keep))
	if c.outer != "" {
		tx.Put(c.row(tx, c.outer, Answer{Kind: pointer, Print: c.outPrint, Value: c.Key()}, Keep))
	}
	c.write(tx, Answer{Kind: pointer, Print: c.Print, Value: c.Key()}, Keep)
}

// Given notes that c was told an answer that another transaction has recorded
// for it, and so may have to be undone. [Call.Answered] does the same.
func (c Call) Given() { c.Log.note(c) }

// write stores an answer under the call's name.
func (c Call) write(tx engine.Tx, a Answer, keep time.Duration) {
	switch {
	case c.own != nil:
		*c.own = a
	case c.Name == "":
	case c.memory:
		tx.Touch(c.row(tx, c.nameKey(), a, keep))
	default:
		tx.Put(c.row(tx, c.nameKey(), a, keep))
	}
	c.Log.note(c)
}

func (c Call) row(tx engine.Tx, key string, a Answer, keep time.Duration) engine.Row {
	row := engine.Row{Key: key, Owner: c.Session, Value: a.encode()}
	if keep != Forever {
		row.Due = tx.Now().Add(cmp.Or(keep, Keep))
	}
	return row
}

// Expire makes an answer that is kept [Forever] expire after keep.
func (c Call) Expire(tx engine.Tx, keep time.Duration) {
	if row, ok := tx.Get(c.Key()); ok && row.Due.IsZero() {
		row.Due = tx.Now().Add(keep)
		tx.Put(row)
	}
}

// Forget deletes the answer, so that the call can take effect again. What it does
// then is done for this request of it.
func (c Call) Forget(tx engine.Tx) {
	tx.Delete(c.Key())
	if c.first != nil {
		c.first.Store(true)
	}
}

// Take deletes and returns the answer if it is of one of the kinds, for a caller
// that undoes such calls. It returns no answer that is shared, that the client
// has received, or that belongs to another request under the same name. An
// answer of another kind stays: its call is not undone, and must not take effect
// again if it is repeated.
func (c Call) Take(tx engine.Tx, kinds ...Kind) (a Answer, ok bool) {
	key, print := c.Key(), c.print()
	switch {
	case c.own != nil:
		a, *c.own = *c.own, Answer{}
	case !c.Recorded() || c.Log.isDelivered(c.nameKey()):
		return Answer{}, false
	default:
		if a, ok = get(tx, key); !ok || a.Print != print && !c.all {
			return Answer{}, false
		}
	}
	told := a.Shared && !c.all // copies of a call share its answer, and all of them are undone
	if a.Kind == pointer {
		key = a.Value
		a, _ = get(tx, key)
		told = a.Shared
	}
	if told || !slices.Contains(kinds, a.Kind) {
		return Answer{}, false
	}
	tx.Delete(key)
	if c.own == nil {
		tx.Delete(c.Key())
		if c.Name != "" {
			tx.Delete(c.nameKey())
		}
	}
	if c.outer != "" {
		tx.Delete(c.outer)
	}
	return a, true
}

// Restore stores an answer again that was taken, if its call could not be undone.
func (c Call) Restore(tx engine.Tx, a Answer) {
	if c.request != "" {
		c.reqPrint = a.Print
	}
	c.Record(tx, a.Kind, a.Value, 0)
}

// Append adds the call to a record, for a rule that answers it later or for a
// server that makes it. [Read] reads it back, without its Log.
func (c Call) Append(w *record.Writer) {
	w.Flags(c.memory, c.outer != "")
	w.ID(c.Session)
	w.Texts(c.Name, c.request)
	w.Uint(c.Print)
	w.Uint(c.reqPrint)
	if c.outer != "" {
		w.Text(c.outer)
		w.Uint(c.outPrint)
	}
}

// Read reads what Append wrote.
func Read(r *record.Reader) (c Call) {
	var outer bool
	r.Flags(&c.memory, &outer)
	c.Session, c.Name, c.request, c.Print, c.reqPrint = r.ID(), r.Text(), r.Text(), r.Uint(), r.Uint()
	if outer {
		c.outer, c.outPrint = r.Text(), r.Uint()
	}
	return c
}
