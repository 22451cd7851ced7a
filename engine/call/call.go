// Package call gives every call one effect, however often it is sent.
//
// A [Call] is one request of one session. Its name is unique there: the mark or
// the JSON-RPC id that its client gave it. The model may add a request_id. What a
// call did is written to one row, its answer, in the transaction that does it. A
// rule that is asked again finds the row and answers from it. A call that is
// cancelled before its client has the answer is undone from it. A call that waits
// watches the row, which appears when another transaction serves it.
//
// # Contract
//
//   - A rule that takes or creates something asks [Call.Answered] first, and
//     ends with [Call.Record], both in its one transaction.
//   - An answer is kept until nobody can ask again: until its client has it
//     ([Log.Delivered]), its session ends, or [Keep] is over. One under a
//     request_id is kept as long as the rule that owns it says.
//   - Another request under the name of a delivered or forgotten call is a new
//     call. Another one under a request_id is refused with [ErrReused].
//   - An answer that two calls were told of is [Answer.Shared]: cancelling one of
//     them undoes nothing.
//
// # Key schema
//
//	answer/<session>c<name>         kind, fingerprint of the request, what it did; owner session, due when it may be forgotten
//	answer/<session>r<request_id>   the same, for a call with a request_id; then the row under its name holds this row's key
package call

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"hash/fnv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/record"
)

// How long an answer is kept.
const (
	Keep    = 10 * time.Minute  // unless its client confirms it before
	Forever = time.Duration(-1) // until [Call.Expire], or the end of its session
)

// Prefix is what the keys of answers start with.
const Prefix = "answer/"

var (
	// ErrReused answers another request under a request_id that is taken.
	ErrReused = errors.New("request_id was used for a different request; use a new one")

	// ErrCutOff is the cause with which a call's context ends when its connection
	// is lost, or the daemon stops, and its client may send the call again. What
	// such a call was given and the place it has in a line are kept for that. A
	// context that ends with any other cause is a cancelled call, which leaves
	// nothing behind.
	ErrCutOff = errors.New("the connection was lost; the call may be sent again")
)

// A Kind says which rules own an answer's value.
type Kind string

// A Call is one request of one session. The zero Call is nobody's: it is never
// sent again, and nothing is recorded of it.
type Call struct {
	Session uuid.UUID
	Name    string // unique in the session among those that can be asked again
	Print   uint64 // fingerprint of what is asked: the same name may ask something else later
	Log     *Log   // of its session; nil: answers are kept for Keep

	request  string  // the request_id
	reqPrint uint64  // fingerprint of what is asked under it
	memory   bool    // Name is our own, for a call that nobody can send again
	own      *Answer // in place of a row under Name, see Alone
}

type contextKey struct{}

// With names the request that ctx belongs to.
func With(ctx context.Context, c Call) context.Context {
	return context.WithValue(ctx, contextKey{}, c)
}

// Of is the call that ctx belongs to; the zero Call if it has no name.
func Of(ctx context.Context) Call {
	c, _ := ctx.Value(contextKey{}).(Call)
	return c
}

// Unnamed is a call of session that nobody can send again. It has a name of its
// own, so it can wait for its answer.
func Unnamed(session uuid.UUID) Call {
	id := uuid.New()
	return Call{Session: session, Name: string(id[:]), memory: true}
}

// Alone is a call of session that nobody can send again and that is answered by its
// own transaction, not by one that it waits for. So nobody but itself asks for its
// answer, which is kept here and not in a row.
func Alone(session uuid.UUID) Call { return Call{Session: session, own: new(Answer)} }

// Once is c for a call that nobody can send again: its answer need not survive
// the daemon.
func (c Call) Once() Call {
	c.memory = true
	return c
}

// Requested is c with the request_id that the model gave it; c itself if id is
// empty. print is of the parameters, as the rule reads them.
func (c Call) Requested(session uuid.UUID, id string, print uint64) Call {
	if id != "" {
		c.Session, c.request, c.reqPrint = session, id, print
	}
	return c
}

// PrintOf is a fingerprint of some texts in order.
func PrintOf(texts ...string) uint64 {
	h := fnv.New64a()
	for _, s := range texts {
		_, _ = h.Write(append(binary.AppendUvarint(nil, uint64(len(s))), s...))
	}
	return h.Sum64()
}

// Recorded reports whether the call's answer is recorded.
func (c Call) Recorded() bool { return c.Name != "" || c.request != "" || c.own != nil }

// Lasting reports whether the call can be sent again after its connection is lost,
// and so still has its answer then.
func (c Call) Lasting() bool { return c.Name != "" && !c.memory || c.request != "" }

// Undoable reports whether the call may have an answer that can be undone.
func (c Call) Undoable() bool {
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

// An Answer is what a call did.
type Answer struct {
	Kind   Kind
	Print  uint64
	Shared bool   // several calls have been told of it
	Value  string // as the owner of the kind encodes it
}

// pointer is the kind of the row under the name of a call with a request_id. Its
// value is the key of the answer.
const pointer Kind = "see"

// Answered gives what the call did when it was made before. A call of the same
// name is the same call, sent again because its client has no answer. One that
// has only its request_id in common is another, so the answer is shared from
// then on.
func (c Call) Answered(tx engine.Tx, kind Kind) (value string, ok bool, err error) {
	if !c.Recorded() || c.request == "" && (c.own != nil || c.Log.isDelivered(c.nameKey())) {
		return "", false, nil
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
		return "", false, nil // its name was given to another request, so the client has that answer
	}
}

// share notes that a second call is told of an answer, unless it is the same one.
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
	tx.Touch(row) // no call outlives the daemon, so none can be cancelled after it
}

// Record writes what the call did. A later Record under its name replaces it.
// A keep of zero is [Keep].
func (c Call) Record(tx engine.Tx, kind Kind, value string, keep time.Duration) {
	if !c.Recorded() {
		return
	}
	c.Log.sweep(tx) // first: an answer under the same name may be among them
	a := Answer{Kind: kind, Print: c.print(), Value: value}
	if c.request == "" {
		c.write(tx, a, keep)
		return
	}
	tx.Put(c.row(tx, c.Key(), a, keep))
	c.write(tx, Answer{Kind: pointer, Print: c.Print, Value: c.Key()}, Keep)
}

// write keeps an answer under the call's name.
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

// Expire forgets an answer that was to be kept [Forever], after keep.
func (c Call) Expire(tx engine.Tx, keep time.Duration) {
	if row, ok := tx.Get(c.Key()); ok && row.Due.IsZero() {
		row.Due = tx.Now().Add(keep)
		tx.Put(row)
	}
}

// Forget removes the answer: the call may be made anew.
func (c Call) Forget(tx engine.Tx) { tx.Delete(c.Key()) }

// Take removes the answer, for whoever undoes the call, and gives it. It gives
// none that is shared, that the client has, or that is of another request under
// the same name.
func (c Call) Take(tx engine.Tx) (a Answer, ok bool) {
	key, print := c.Key(), c.print()
	switch {
	case c.own != nil:
		a, *c.own = *c.own, Answer{}
		if a.Kind == "" {
			return Answer{}, false
		}
	case !c.Recorded() || c.Log.isDelivered(c.nameKey()):
		return Answer{}, false
	default:
		if a, ok = get(tx, key); !ok || a.Print != print {
			return Answer{}, false
		}
	}
	if a.Kind == pointer {
		tx.Delete(key)
		key = a.Value
		if a, ok = get(tx, key); !ok {
			return Answer{}, false
		}
	}
	if a.Shared {
		return Answer{}, false
	}
	tx.Delete(key)
	if c.request != "" && c.Name != "" {
		tx.Delete(c.nameKey())
	}
	return a, true
}

func get(tx engine.Tx, key string) (Answer, bool) {
	row, ok := tx.Get(key)
	if !ok {
		return Answer{}, false
	}
	return Decode(row.Value) // one that cannot be read answers nobody
}

// Tend forgets an answer that is due. It reports false for a row of another
// package.
func Tend(tx engine.Tx, row engine.Row) bool {
	if !strings.HasPrefix(row.Key, Prefix) {
		return false
	}
	tx.Delete(row.Key)
	return true
}

// Append adds the call to a record, for a rule that answers it later. [Read]
// reads it; it has no Log then.
func (c Call) Append(w *record.Writer) {
	w.Flags(c.memory)
	w.ID(c.Session)
	w.Text(c.Name)
	w.Text(c.request)
	w.Uint(c.Print)
	w.Uint(c.reqPrint)
}

// Read reads what Append wrote.
func Read(r *record.Reader) (c Call) {
	r.Flags(&c.memory)
	c.Session, c.Name, c.request, c.Print, c.reqPrint = r.ID(), r.Text(), r.Text(), r.Uint(), r.Uint()
	return c
}

// A Log knows which answers of a session are recorded and which its client has.
// The next transaction that records an answer of the session removes the rows of
// those. The zero Log is ready; a nil one forgets nothing.
type Log struct {
	mu        sync.Mutex
	recorded  map[string]struct{} // keys of answers that are not known to be delivered
	delivered map[string]struct{} // keys of rows to remove
	full      bool                // recorded lacks some
}

// maxLog bounds each map of a Log. An answer beyond it goes when it is due.
const maxLog = 4096

// note remembers that c has an answer.
func (l *Log) note(c Call) {
	if l == nil || c.Name == "" {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.recorded == nil {
		l.recorded, l.delivered = make(map[string]struct{}), make(map[string]struct{})
	}
	if len(l.recorded) >= maxLog {
		l.full = true
		return
	}
	l.recorded[c.nameKey()] = struct{}{}
}

// recordedAs reports whether there may be an answer under a name.
func (l *Log) recordedAs(key string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, ok := l.recorded[key]
	return ok || l.full
}

// Delivered notes that the client has the answer of c.
func (l *Log) Delivered(c Call) {
	if l == nil || c.Name == "" {
		return
	}
	key := c.nameKey()
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.recorded[key]; !ok {
		return
	}
	delete(l.recorded, key)
	if len(l.delivered) < maxLog {
		l.delivered[key] = struct{}{}
	}
}

func (l *Log) isDelivered(key string) bool {
	if l == nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	_, ok := l.delivered[key]
	return ok
}

// sweep removes the answers that are delivered. What is left of them by a
// transaction that fails goes when it is due.
func (l *Log) sweep(tx engine.Tx) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for key := range l.delivered {
		tx.Delete(key)
	}
	clear(l.delivered)
}

const format = 1

func (a Answer) encode() string {
	w := record.New(24 + len(a.Kind) + len(a.Value))
	w.Byte(format)
	w.Flags(a.Shared)
	w.Text(string(a.Kind))
	w.Uint(a.Print)
	w.Rest(a.Value)
	return w.String()
}

// Decode reads the value of an answer's row.
func Decode(value string) (a Answer, ok bool) {
	r := record.Read(value)
	version := r.Byte()
	r.Flags(&a.Shared)
	a.Kind, a.Print, a.Value = Kind(r.Text()), r.Uint(), r.Rest()
	return a, version == format && r.Done()
}
