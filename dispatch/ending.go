package dispatch

import (
	"context"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/dispatch/rows"
	"github.com/leasehold/leasehold/dispatch/work"
	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/call"
	"github.com/leasehold/leasehold/engine/event"
	"github.com/leasehold/leasehold/engine/record"
	"github.com/leasehold/leasehold/queue"
)

// Endings happen in steps, so that nobody waits long, however large the
// sub-tree is. First the actor or session is marked as ended; from then on it
// can be given nothing. The remaining work is in rows, which are handled in the
// order of their keys. All actors below an ended actor are ended before any
// ended session gives back what it held, so that no lease passes from one to
// another. Then the rows of what is gone for good are removed. After a restart
// the remaining rows are handled.
const (
	endingPrefix   = "ending/"
	endingTree     = endingPrefix + "1" // <actor id>: the actors below it have yet to be ended; <actor id>o: there are more offers to it
	endingSession  = endingPrefix + "2" // <session id>: it has yet to give back what it held
	endingRemoval  = endingPrefix + "3" // <run, layer or actor id>: its rows have yet to be removed
	removalsUnder  = "removing"         // watched: there may be rows to remove
	closedPrefix   = "closed/"          // <session id>: it ended with its actor
	formerPrefix   = "former/"          // <layer id><actor id>: ended, and another actor has its name
	retirePrefix   = "retire/"          // <kind><wall clock><id>: when its retention began
	retireRunKind  = "r"
	retireDeadKind = "a"
)

// endStep is how many actors are ended, or rows given back or removed, in one
// transaction.
const endStep = 128

// An end says why an actor ends.
type end struct {
	Cause string
	By    string    // path of the actor that ended it; "": nobody else
	Stop  work.Stop // the stop order for actors that have a process
}

// EndActor ends the actor at path and, if it leads, its whole sub-tree. Their
// tokens become void, their sessions end, and their leases go to the next
// waiters. Ending the root ends the run. A launched actor that has a process is
// told to stop, and ends when its process ends. A call that is sent again finishes
// what the first one has begun.
func (s *State) EndActor(ctx context.Context, run, path, cause string) error {
	var ended string // the id of the run, if its root was ended
	c := call.Of(ctx)
	err := s.ending(ctx, func(e *ender) error {
		value, again, err := c.Answered(e.tx, endingActor)
		if again || err != nil {
			ended = value
			return err
		}
		r, ok := getRun(e.tx, run)
		if !ok || !r.EndedAt.IsZero() {
			return notFound("run %q", run)
		}
		a, err := actorAt(e.tx, r, path)
		if err != nil {
			return err
		}
		if a.Role == Root {
			ended = string(r.ID[:])
		}
		e.stop(a, end{Cause: cause, By: operatorPath, Stop: work.Stop{Reason: cause, Status: work.Cancelled}})
		c.Record(e.tx, endingActor, ended, 0)
		return nil
	})
	if err != nil || ended == "" {
		return err
	}
	return rows.Update(engine.Needed(context.WithoutCancel(ctx)), s.eng, func(tx engine.Tx) error {
		if d, ok := work.RunOf(tx, run); ok && string(d.RunID[:]) == ended && d.Unfinished == 0 {
			s.endRun(tx, run)
		}
		return nil
	})
}

// A treeEnding is the remaining work below an actor that has ended.
type treeEnding struct {
	end
	Actor uuid.UUID
	Layer uuid.UUID // zero: only offers to the actor have yet to be withdrawn
	After string    // the last name that was handled
}

// A cut is a session that has ended, and the cause.
type cut struct {
	session uuid.UUID
	cause   error
}

// An ender ends actors in one transaction.
type ender struct {
	s    *State
	tx   engine.Tx
	cuts []cut
	left int // how much more this transaction may do
}

// spent reports whether the transaction has reached its limit.
func (e *ender) spent() bool { return e.left <= 0 || e.tx.Spent() }

// ending runs fn, which ends actors, and gives back what they held, in the same
// transaction or in as many as that takes. A full disk does not refuse it.
func (s *State) ending(ctx context.Context, fn func(e *ender) error) error {
	return s.endingIfRoom(engine.Needed(ctx), fn)
}

// endingIfRoom is ending for an fn that also makes the state larger: a full disk
// refuses it, unless ctx says that it is needed, but never what follows from it.
func (s *State) endingIfRoom(ctx context.Context, fn func(e *ender) error) error {
	more := false
	step := func(ctx context.Context, fn func(*ender) error) error {
		e := &ender{s: s, left: endStep}
		err := rows.Update(ctx, s.eng, func(tx engine.Tx) error {
			e.tx = tx
			if err := fn(e); err != nil {
				return err
			}
			more = e.some()
			return nil
		})
		if err == nil {
			s.cutOff(e.cuts...)
		}
		return err
	}
	if err := step(ctx, fn); err != nil {
		return err
	}
	for more { // not cancelled: the caller may be gone, and this must finish
		if err := step(engine.Needed(context.Background()), func(*ender) error { return nil }); err != nil {
			return err
		}
	}
	return nil
}

// stop ends an actor and all those below it. An actor that has a process is
// only told to stop, and ends when its process ends.
func (e *ender) stop(a Actor, why end) {
	if !a.Ended() && work.Halt(e.tx, a.Run, a.ID, why.Stop) {
		e.actor(a, why)
	}
	e.below(a, why)
}

// below records that the actors below a have to be ended.
func (e *ender) below(a Actor, why end) {
	if a.Role.Leads() {
		rows.Put(e.tx, endingTree+string(a.ID[:]), treeEnding{end: why, Actor: a.ID, Layer: a.Leads}, uuid.Nil)
	}
}

// actor ends one actor: its token is void, and its sessions can be given
// nothing more. The end of a root ends its run, unless the actors of the run
// are launched; then the launcher says when the run ends.
func (e *ender) actor(a Actor, why end) {
	tx := e.tx
	e.left--
	ended := a
	ended.EndedAt, ended.EndCause, ended.EndedBy = tx.Wall(), why.Cause, why.By
	ended.Held = e.s.heldBy(tx, a.ID, why.Cause, LayerScope, RunScope, queue.Scope) // claims are the last, as there may be many
	for se := range sessionsOf(tx, a.ID) {
		tx.Delete(sessionKey(se.ID))
		rows.Put(tx, endingSession+string(se.ID[:]), se, se.Actor)
		rows.Put(tx, closedPrefix+string(se.ID[:]), se, se.Actor)
		e.cuts = append(e.cuts, cut{se.ID, ended.endedError()})
		e.s.noteDismissed(tx, ended, se)
		noteSession(tx, a, se.ID, event.SessionEnded, "its actor ended")
	}
	run, _ := getRun(tx, a.Run)
	run.Actors--
	putRun(tx, run)
	note(tx, run, a, event.Event{Kind: event.ActorEnded, By: why.By, Cause: why.Cause})
	if a.Role != Root {
		uncount(tx, a.Layer)
	} else if _, launched := work.RunOf(tx, a.Run); !launched {
		e.s.endRun(tx, a.Run)
	}
	putActor(tx, ended)
	e.withdrawOffers(ended.ID)
	tx.Put(engine.Row{Key: retireKey(retireDeadKind, ended.EndedAt, ended.ID)})
}

// some handles actors and sessions that have ended, up to the limit of a
// transaction. It returns true if more is left. What has a record that cannot be
// read does not end, and keeps nothing else from it.
func (e *ender) some() (more bool) {
	for row, t := range rows.Readable[treeEnding](e.tx, endingTree) {
		if e.spent() {
			return true
		}
		e.layer(t, row.Key)
	}
	for range rows.Readable[treeEnding](e.tx, endingTree) {
		return true // added behind the position of the scan
	}
	for _, se := range rows.Readable[sessionRecord](e.tx, endingSession) {
		if e.spent() {
			return true
		}
		e.giveBack(se)
	}
	for range rows.Readable[sessionRecord](e.tx, endingSession) {
		return true
	}
	return false
}

// withdrawOffers withdraws the offers to an actor that has ended. Those beyond a step
// are left to a treeEnding without a layer.
func (e *ender) withdrawOffers(actor uuid.UUID) {
	if !e.s.core.WithdrawOffers(e.tx, actor, endStep) {
		e.left = 0
		rows.Put(e.tx, endingTree+string(actor[:])+"o", treeEnding{Actor: actor}, uuid.Nil)
	}
}

// layer ends members of a layer, up to the limit of a transaction.
func (e *ender) layer(t treeEnding, key string) {
	if t.Layer == uuid.Nil {
		e.tx.Delete(key)
		e.withdrawOffers(t.Actor)
		return
	}
	for row := range e.tx.ScanFrom(memberKeys(t.Layer), memberKey(t.Layer, t.After)+"\x00") {
		if e.spent() {
			rows.Put(e.tx, key, t, uuid.Nil)
			return
		}
		t.After = strings.TrimPrefix(row.Key, memberKeys(t.Layer))
		e.left--
		if m, ok := memberOf(e.tx, row); ok {
			e.stop(m, t.end)
		}
	}
	e.tx.Delete(key)
}

// giveBack gives back what an ended session held, up to the limit of a
// transaction. It returns true once all has been given back.
func (e *ender) giveBack(se sessionRecord) (done bool) {
	key := endingSession + string(se.ID[:])
	e.left -= endStep / 4 // a rough cost: it may hold nothing, or much
	if !e.s.core.EndSession(e.tx, se.ID, endStep) {
		e.left = 0
		rows.Put(e.tx, key, se, se.Actor)
		return false
	}
	e.tx.Delete(key)
	if a, ok := getActor(e.tx, se.Actor); ok && !a.Ended() {
		leaves := a.Transient && !hasSession(e.tx, a.ID)
		e.s.noteLeft(e.tx, a, se, leaves)
		if leaves {
			e.leave(a)
		}
	}
	return true
}

// leave ends an actor that joined without being spawned and has disconnected.
// Its rows are removed.
func (e *ender) leave(a Actor) {
	run, _ := getRun(e.tx, a.Run)
	run.Actors--
	putRun(e.tx, run)
	uncount(e.tx, a.Layer)
	a.EndedAt, a.EndCause, a.Leaving = e.tx.Wall(), "it left", true
	note(e.tx, run, a, event.Event{Kind: event.ActorEnded, Cause: a.EndCause})
	putActor(e.tx, a)
	e.withdrawOffers(a.ID)
	e.s.removeActor(e.tx, a)
}

// hasSession reports whether an actor has a session that has not ended.
func hasSession(tx engine.Tx, actor uuid.UUID) bool {
	for range sessionsOf(tx, actor) {
		return true
	}
	return false
}

func (s *State) endRun(tx engine.Tx, name string) {
	run, _ := getRun(tx, name)
	if run.EndedAt.IsZero() {
		run.EndedAt = tx.Wall()
		tx.Put(engine.Row{Key: retireKey(retireRunKind, run.EndedAt, run.ID), Value: run.Name})
	}
	putRun(tx, run)
}

func uncount(tx engine.Tx, layer uuid.UUID) {
	l, _ := getLayer(tx, layer)
	l.Members--
	putLayer(tx, l)
}

func retireKey(kind string, since time.Time, id uuid.UUID) string {
	return retirePrefix + kind + record.Fixed(uint64(since.UnixNano())) + string(id[:])
}

// scopeOf returns the scope of a lease as agents know it. ok is false for a
// claim.
func scopeOf(scope string) (Scope, bool) {
	kind, _, _ := strings.Cut(scope, ":")
	return Scope(kind), Scope(kind) == RunScope || Scope(kind) == LayerScope
}
