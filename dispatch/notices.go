package dispatch

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/dispatch/mail"
	"github.com/leasehold/leasehold/dispatch/rows"
	"github.com/leasehold/leasehold/dispatch/work"
	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/registry"
)

// A session receives notices together with its next answer: lost leases,
// waiters for its leases, leases offered to it, messages, and the end of its
// run. If nobody reads that answer, the notices are told again: see
// [Session.Retell].

// A bulletin knows whether there may be something to tell a session. Usually
// there is nothing, and then it reads no shared state.
type bulletin struct {
	changes *engine.Watch
	turn    chan struct{} // holds one token while a call reads; that call may wait for the disk
	unsure  atomic.Bool   // there may be something, even if changes has not fired; cleared only with turn held
	left    atomic.Bool   // there may be something that only a model is told; as unsure
}

func (b *bulletin) init() {
	b.turn = make(chan struct{}, 1)
	b.unsure.Store(true)
}

// quiet reports whether there is nothing to tell the reader of an answer, or another
// call has just begun to tell it.
func (b *bulletin) quiet(by Audience) bool {
	return !b.unsure.Load() && (by == Program || !b.left.Load()) && len(b.changes.C) == 0
}

// read calls take if there may be something to tell the reader of an answer. take
// returns more as true if something is left for another call to tell, and left as true
// if it is left for a model.
func (b *bulletin) read(ctx context.Context, by Audience, take func() (more, left bool, err error)) error {
	select {
	case b.turn <- struct{}{}:
		defer func() { <-b.turn }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case <-b.changes.C:
		b.unsure.Store(true)
	default:
	}
	if !b.unsure.Load() && (by == Program || !b.left.Load()) {
		return nil
	}
	more, left, err := take()
	if err == nil {
		b.unsure.Store(more)
		b.left.Store(left)
	}
	return err
}

// An Audience reads an answer.
type Audience int

const (
	Model   Audience = iota
	Program          // what is told to one session of the actor only once is left for a model
)

// MaxNotices is the greatest number of notices of leases in one answer.
const MaxNotices = 20

// TakeNotices returns notices of leases that an agent of the session has not
// been told, and marks them as told. more is the number of notices left for
// later answers. A program is told what its own session has lost. What an earlier
// session of the actor has lost, and what the actor is offered, is left for a model
// with the same token, which may have another session.
func (se *Session) TakeNotices(ctx context.Context, agent string, by Audience) (list []registry.Notice, more int, err error) {
	if se.losses.quiet(by) {
		return nil, 0, nil
	}
	return se.takeNotices(ctx, agent, by)
}

func (se *Session) takeNotices(ctx context.Context, agent string, by Audience) (list []registry.Notice, more int, err error) {
	h := se.Holder()
	err = se.losses.read(ctx, by, func() (bool, bool, error) {
		ctx := se.local(ctx)
		var mine, others, left int
		var told time.Time
		tells := func(now time.Time) func(registry.Notice) bool {
			party := se.agents.tells(agent, now)
			left = 0
			return func(n registry.Notice) bool {
				if by == Program && n.Session == uuid.Nil {
					left++
					return false
				}
				return party(n.Party)
			}
		}
		// If there is something to tell, the Update waits until it is durable.
		err := se.state.eng.View(engine.Peek(ctx), func(tx engine.Tx) error {
			mine, others = se.state.core.CountUntold(tx, h, tells(tx.Now()))
			others -= left
			return nil
		})
		if err == nil && mine > 0 {
			err = se.state.eng.Update(ctx, func(tx engine.Tx) error {
				told = tx.Now()
				list, more = se.state.core.TakeUntold(tx, h, MaxNotices, tells(told))
				return nil
			})
		}
		if err != nil {
			return true, false, err
		}
		if len(list) > 0 {
			se.noteTold(telling{list, told})
		}
		return more+others > 0, left > 0, nil
	})
	if err != nil {
		return nil, 0, err
	}
	return list, more, nil
}

// A telling is what one answer has told.
type telling struct {
	notices []registry.Notice
	at      time.Time // on the running clock
}

// maxTellings is how many answers are remembered. More of them within a minute would tell
// of more losses than are kept untold.
const maxTellings = registry.MaxUntold / MaxNotices

// noteTold remembers what is told now, for [Session.Retell].
func (se *Session) noteTold(t telling) {
	se.state.mu.Lock()
	defer se.state.mu.Unlock()
	all := append(slices.DeleteFunc(se.lately, func(last telling) bool { return t.at.Sub(last.at) >= registry.Retold }), t)
	se.lately = all[max(0, len(all)-maxTellings):]
	se.told.Store(true)
}

// noticed is how many messages are added to the answer of another call.
var noticed = mail.Portion{Count: 5, Bytes: 4 << 10}

// TakeMessages returns messages for an agent of the session that the session's
// actor has not been told, and marks them as told. more is the number of
// messages left, or 0 if it has not grown since the agent was last told. The
// rest can be read with [Session.Inbox].
func (se *Session) TakeMessages(ctx context.Context, agent string) (list []mail.Message, more int, err error) {
	if se.mail.quiet(Model) {
		return nil, 0, nil
	}
	return se.takeMessages(ctx, agent)
}

func (se *Session) takeMessages(ctx context.Context, agent string) (list []mail.Message, more int, err error) {
	var ids []uuid.UUID
	left, others := 0, 0
	err = se.mail.read(ctx, Model, func() (bool, bool, error) {
		err := se.state.eng.View(engine.Peek(ctx), func(tx engine.Tx) error { // as above
			left, others = mail.Untold(tx, se.actor.ID, se.agents.tells(agent, tx.Now()))
			return nil
		})
		if err == nil && left > 0 {
			err = rows.Update(engine.Needed(ctx), se.state.eng, func(tx engine.Tx) error {
				if !sessionOpen(tx, se.id) {
					return registry.ErrSessionEnded
				}
				ids, left = mail.Take(tx, se.actor.ID, se.id, noticed, se.agents.tells(agent, tx.Now()), false)
				return nil
			})
		}
		if err == nil {
			more = se.noteUnread(agent, left)
		}
		if len(ids) > 0 {
			se.told.Store(true)
		}
		return left+others > 0, false, err
	})
	if err != nil || len(ids) == 0 {
		return nil, more, err
	}
	list, err = mail.Read(context.WithoutCancel(ctx), se.state.eng, se.actor.ID, ids)
	return list, more, err
}

// noteUnread remembers how many messages an agent knows to be left. It returns
// the number if it has grown, and otherwise 0.
func (se *Session) noteUnread(agent string, left int) (more int) {
	agent = se.agents.known(agent)
	se.state.mu.Lock()
	defer se.state.mu.Unlock()
	if left > se.unread[agent] {
		more = left
	}
	switch {
	case left == 0:
		delete(se.unread, agent)
	case se.unread == nil:
		se.unread = map[string]int{agent: left}
	default:
		se.unread[agent] = left
	}
	return more
}

// local returns the context for an update that only this session is told of.
func (se *Session) local(ctx context.Context) context.Context {
	if se.Holder().Local {
		return engine.Local(ctx)
	}
	return ctx
}

// Retell is called when an answer of the session will not be read. Notices and
// messages that the answer may have carried will be told again.
func (se *Session) Retell(ctx context.Context) error {
	se.state.mu.Lock()
	others, lately := se.toldFor, se.lately
	for _, t := range se.toldOf {
		delete(t.of.told, t.party)
	}
	se.toldFor, se.toldOf, se.lately, se.unread = nil, nil, nil, nil
	se.state.mu.Unlock()
	for _, p := range others {
		if err := (&Session{party: p}).Retell(ctx); err != nil {
			return err
		}
	}
	if !se.told.Swap(false) {
		return nil
	}
	h := se.Holder()
	se.mail.unsure.Store(true)
	return se.state.eng.Update(se.local(ctx), func(tx engine.Tx) error {
		se.agents.retellDrain(tx.Now())
		for _, t := range lately {
			if tx.Now().Sub(t.at) < registry.Retold {
				se.state.core.Retell(tx, h, t.notices)
			}
		}
		mail.Retell(tx, se.actor.ID, se.id)
		return nil
	})
}

// WatchNotices returns a function that calls tell with each notice of a lease
// that is raised from now on, until ctx or the session ends. It must be called.
// It does not mark the notices as told, because a client may ignore
// notifications; the next answer tells them too.
func (se *Session) WatchNotices() (follow func(ctx context.Context, tell func(registry.Notice))) {
	watch := se.state.eng.Watch(registry.NewsKey(se.actor.ID))
	return func(ctx context.Context, tell func(registry.Notice)) {
		defer watch.Stop()
		ctx, stop := se.Within(ctx)
		defer stop()
		var known map[string]string
		for {
			select {
			case <-watch.C:
			case <-ctx.Done():
				return
			}
			var list []registry.Notice
			err := se.state.eng.Snapshot(ctx, func(tx engine.Tx) error {
				list, known = se.state.core.NewUntold(tx, se.Holder(), known)
				return nil
			})
			if err != nil {
				return // the engine or the session has ended
			}
			for _, n := range list {
				tell(n)
			}
			select { // many leases may end at once
			case <-time.After(noticePause):
			case <-ctx.Done():
			}
		}
	}
}

// noticePause is the shortest time between two looks for new notices.
const noticePause = 100 * time.Millisecond

// TakeDrain returns the pending end of the session's run if an agent of the
// session has not been told of it. Usually there is none.
func (se *Session) TakeDrain(ctx context.Context, agent string) *work.Drain {
	drain := se.drain.Load()
	if drain == nil {
		return nil
	}
	now, err := se.now(ctx)
	if err != nil || !se.agents.noteDrain(agent, now) {
		return nil
	}
	se.told.Store(true)
	return drain
}
