// Package call gives every call one effect, however often it is sent.
//
// A [Call] is one request of one session, by a name that is unique there: the
// mark or the JSON-RPC id that its client gave it, or a request_id that the
// model chose. What a call did is written to one row, its answer, in the
// transaction that does it. A rule that is asked again finds the row and answers
// from it. A call that is cancelled before its client has the answer is undone
// from it. A call that waits watches the row, which appears when another
// transaction serves it.
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
//   - What two calls were told of is [Shared]: cancelling one of them undoes
//     nothing.
//
// # Key schema
//
//	answer/<session><name>   kind, fingerprint of the request, what it did; owner session, due when it may be forgotten
package call

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/record"
)

// Keep is how long an answer is kept that no client has confirmed.
const Keep = 10 * time.Minute

// Prefix is what the keys of answers start with.
const Prefix = "answer/"

// ErrReused answers another request under a request_id that is taken.
var ErrReused = errors.New("request_id was used for a different request; use a new one")

// A Kind says which rules own an answer's value.
type Kind string

// A Call is one request of one session. The zero Call is nobody's: it is never
// sent again, and nothing is recorded of it.
type Call struct {
	Session uuid.UUID
	Name    string // unique in the session among those that can be asked again
	Print   uint64 // fingerprint of what is asked: the same name may ask something else later
	Log     *Log   // of its session; nil: answers are kept for Keep

	explicit bool // the model chose the name, so another request under it is a mistake
	memory   bool // nobody can send it again: its answer is for who waits in this process
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

// Unnamed is a call of session that has no name, with one that nobody else has:
// so it can wait for its answer.
func Unnamed(session uuid.UUID) Call {
	id := uuid.New()
	return Call{Session: session, Name: "~" + string(id[:]), memory: true}
}

// Requested is c under the request_id that the model gave it. print is of the
// parameters, as the rule reads them.
func (c Call) Requested(session uuid.UUID, id string, print uint64) Call {
	return Call{Session: session, Name: "request " + id, Print: print, explicit: true}
}

// Recorded reports whether the call has a name, so that its answer is recorded.
func (c Call) Recorded() bool { return c.Name != "" }

// Key is the key of the answer's row, for an [engine.Watch].
func (c Call) Key() string { return Prefix + string(c.Session[:]) + c.Name }

// An Answer is what a call did.
type Answer struct {
	Kind   Kind
	Print  uint64
	Shared bool   // several calls have been told of it
	Value  string // as the owner of the kind encodes it
}

// Answered gives what the call did when it was made before. Whoever answers
// with it, and was not the first to be told, says so with [Call.Share].
func (c Call) Answered(tx engine.Tx, kind Kind) (value string, ok bool, err error) {
	if !c.Recorded() {
		return "", false, nil
	}
	row, ok := tx.Get(c.Key())
	if !ok {
		return "", false, nil
	}
	a, ok := Decode(row.Value)
	if ok && a.Kind == kind && a.Print == c.Print {
		return a.Value, true, nil
	}
	if c.explicit {
		return "", false, ErrReused
	}
	return "", false, nil // its id was given to another request, so the client has that answer
}

// Record writes what the call did. A later Record under its name replaces it.
// A keep of zero is [Keep].
func (c Call) Record(tx engine.Tx, kind Kind, value string, keep time.Duration) {
	if !c.Recorded() {
		return
	}
	if keep == 0 {
		keep = Keep
	}
	row := engine.Row{
		Key: c.Key(), Owner: c.Session, Due: tx.Now().Add(keep),
		Value: Answer{Kind: kind, Print: c.Print, Value: value}.encode(),
	}
	if c.memory {
		tx.Touch(row)
		return
	}
	c.Log.sweep(tx) // first: an answer under the same name may be among them
	tx.Put(row)
}

// Share notes that another call was told of the answer, too.
func (c Call) Share(tx engine.Tx) {
	row, ok := tx.Get(c.Key())
	if !ok {
		return
	}
	if a, ok := Decode(row.Value); ok && !a.Shared {
		a.Shared = true
		row.Value = a.encode()
		tx.Touch(row) // no call outlives the daemon, so none can be cancelled after it
	}
}

// Take removes the answer, for whoever undoes the call. It gives none that is
// shared, or of another request under the same name.
func (c Call) Take(tx engine.Tx) (a Answer, ok bool) {
	if !c.Recorded() {
		return Answer{}, false
	}
	row, ok := tx.Get(c.Key())
	if !ok {
		return Answer{}, false
	}
	a, ok = Decode(row.Value)
	if !ok || a.Shared || a.Print != c.Print {
		return Answer{}, false
	}
	tx.Delete(row.Key)
	return a, true
}

// Forget removes the answers of a session that has ended.
func Forget(tx engine.Tx, session uuid.UUID) {
	for row := range tx.Owned(session) {
		if strings.HasPrefix(row.Key, Prefix) {
			tx.Delete(row.Key)
		}
	}
}

// A Log is the calls of a session whose client has its answer. Their rows are
// removed by the next transaction that records one. The zero Log is ready; a
// nil one forgets nothing.
type Log struct {
	mu   sync.Mutex
	keys []string
}

// maxLog is how many delivered answers wait to be removed. What is beyond goes
// when it is due.
const maxLog = 1024

// Delivered notes that the client has the answer of c.
func (l *Log) Delivered(c Call) {
	if l == nil || !c.Recorded() || c.explicit {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.keys) < maxLog {
		l.keys = append(l.keys, c.Key())
	}
}

// sweep removes the answers that are delivered.
func (l *Log) sweep(tx engine.Tx) {
	if l == nil {
		return
	}
	l.mu.Lock()
	keys := l.keys
	l.keys = nil
	l.mu.Unlock()
	for _, key := range keys {
		tx.Delete(key)
	}
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
