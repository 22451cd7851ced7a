package work

import (
	"encoding/json"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/dispatch/process"
	"github.com/leasehold/leasehold/engine"
)

// Give gives a living actor an order, for which the launcher of its run starts
// a process. An actor that already had a work starts again.
func Give(tx engine.Tx, run string, actor, lead uuid.UUID, o Order) {
	d, _ := RunOf(tx, run)
	Amend(tx, actor, func(w *Work) {
		purse := w.Purse
		if lead != uuid.Nil {
			purse.Base = purse.Total() // a root's budget covers all its lives
		}
		purse.Budget = USD(o.BudgetUSD)
		*w = Work{
			Actor: actor, Lead: lead, Life: d.Life, Status: Pending, Purse: purse, Sum: o.Sum(),
			Agent: o.Agent, Model: o.Model, Directory: o.Directory,
			Placement: o.Placement,
		}
	})
	putOrder(tx, actor, o)
	tx.Delete(resultKey(actor))
	putUnfinished(tx, d.RunID, actor, ToLaunch)
	AmendRun(tx, run, func(d *Dispatched) {
		d.Unfinished++
		d.Orders++
	})
}

// HandOut notes that the launcher l is told to start the process of a work, which
// gets the session.
func HandOut(tx engine.Tx, w Work, session uuid.UUID, l *Launcher) {
	w.Session = session
	w.Placement, w.Instance, w.Remote = Placement{Machine: l.Machine}, l.Instance, l.Remote()
	Put(tx, w)
}

// Started records the process of a work that is not final.
func Started(tx engine.Tx, run uuid.UUID, w Work, p process.Peer) {
	w.Status, w.Process = Running, p
	if w.StartedAt.IsZero() {
		w.StartedAt = tx.Wall()
	}
	Put(tx, w)
	if w.Stop == nil {
		putUnfinished(tx, run, w.Actor, Nothing)
	}
}

// Halt tells a living actor to stop. It returns true if nothing has to stop
// first, because the actor was not launched or its order had not been handed
// out. The caller then ends the actor in the same transaction.
func Halt(tx engine.Tx, run string, actor uuid.UUID, stop Stop) (now bool) {
	w, launched := Get(tx, actor)
	switch {
	case !launched:
		return true
	case w.Status.Final():
		return false
	case !w.HandedOut(): // it never had a session, so it held and lost nothing
		Conclude(tx, run, actor, Exit{Status: stop.Status, Cause: stop.Reason}, nil, nil)
		return true
	case w.Stop == nil:
		w.Stop = &stop
		Put(tx, w)
		d, _ := RunOf(tx, run)
		putUnfinished(tx, d.RunID, actor, ToStop)
		AmendRun(tx, run, func(d *Dispatched) { d.Orders++ })
	}
	return false
}

// Conclude makes a work final. The caller ends its actor in the same
// transaction. held and lost are the actor's leases, at most [MaxLeaseNames] of
// each.
func Conclude(tx engine.Tx, run string, actor uuid.UUID, e Exit, held, lost []LeaseName) {
	Amend(tx, actor, func(w *Work) {
		w.Status, w.ExitCode, w.Signal, w.Cause = e.Status, e.ExitCode, e.Signal, Cut(e.Cause)
		w.EndedAt, w.Kept, w.Held, w.Lost = tx.Wall(), e.Worktree, held, lost
		w.Session = uuid.Nil
		if e.Cost != nil {
			w.Spent += max(0, *e.Cost)
			w.Reported = true
		}
	})
	if e.Output != "" && Result(tx, actor) == nil {
		PutResult(tx, actor, lastOf(e.Output))
	}
	tx.Delete(orderKey(actor))
	d, _ := RunOf(tx, run)
	tx.Delete(unfinishedKey(d.RunID, actor))
	AmendRun(tx, run, func(d *Dispatched) { d.Unfinished-- })
}

// MaxLeaseNames is how many leases are recorded of an actor that has ended.
const MaxLeaseNames = 100

// Cut shortens a cause to the length that is stored.
func Cut(cause string) string {
	if len(cause) <= maxCause {
		return cause
	}
	return strings.ToValidUTF8(cause[:maxCause], "")
}

// lastOf returns the end of an output as a JSON string of at most MaxResult
// bytes.
func lastOf(output string) string {
	for n := MaxResult - 2; ; n -= max(1, n/8) { // escaped characters need more bytes
		text := output[max(0, len(output)-n):]
		for text != "" && !utf8.RuneStart(text[0]) {
			text = text[1:]
		}
		if b, err := json.Marshal(text); err == nil && len(b) <= MaxResult {
			return string(b)
		}
	}
}
