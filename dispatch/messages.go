package dispatch

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/dispatch/mail"
	"github.com/leasehold/leasehold/dispatch/rows"
	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/call"
	"github.com/leasehold/leasehold/engine/event"
	"github.com/leasehold/leasehold/engine/record"
	"github.com/leasehold/leasehold/kvstore"
	"github.com/leasehold/leasehold/registry"
)

// HolderOf is the prefix of a recipient that is given as the holder of a lease.
const HolderOf = "holder of "

// maxHolders is the greatest number of holders of one lease that a message can
// go to.
const maxHolders = 32

// Kinds of recorded answers of calls about messages.
const (
	sending call.Kind = "message"
	reading call.Kind = "inbox"
)

// A Sent describes a message that has been sent.
type Sent struct {
	ID uuid.UUID
	To []string // paths; several if the lease is shared
	At time.Time

	actors []uuid.UUID
}

func (s *Sent) encode() string {
	w := record.New(64)
	w.ID(s.ID)
	w.Time(s.At)
	for i, path := range s.To {
		w.ID(s.actors[i])
		w.Text(path)
	}
	return w.String()
}

func (s *Sent) decode(value string) bool {
	r := record.Read(value)
	s.ID, s.At = r.ID(), r.Time()
	for !r.Done() {
		id, path := r.ID(), r.Text()
		if path == "" {
			return false
		}
		s.actors, s.To = append(s.actors, id), append(s.To, path)
	}
	return true
}

// A recipient is an actor that a message goes to.
type recipient struct {
	Actor
	about string // the lease that it holds, if it was addressed as the holder
	party string // the sub-agent that holds the lease, or wrote the message that is answered
}

// Send sends a message of an agent of the session to another living actor of the
// run. to is the actor's path, its id, or its name if the session's actor leads it;
// or it is "holder of " and the key of a lease of the run or of the session's layer.
// replyTo is the id of the message that this one answers, or zero; an answer is for
// the sub-agent that wrote that message. Any actor may write to any other of its
// run. Paths are not secret within a run, because refusals name holders by path.
func (se *Session) Send(ctx context.Context, agent, to, text string, replyTo uuid.UUID) (sent Sent, err error) {
	if se.actor.Role.Outside() {
		return Sent{}, forbidden("an operator is in no run and has no inbox for the answer; connect with an actor's token")
	}
	c := call.Of(ctx)
	return sent, rows.Update(ctx, se.state.eng, func(tx engine.Tx) error {
		if !sessionOpen(tx, se.id) {
			return registry.ErrSessionEnded
		}
		value, answered, err := c.Answered(tx, sending)
		if err != nil || answered && sent.decode(value) {
			return err
		}
		list, err := se.recipients(tx, agent, to, replyTo)
		if err != nil {
			return err
		}
		sent = Sent{ID: uuid.New(), At: tx.Wall()}
		by := agent
		if se.agents.isMain(agent) {
			by = "" // another may be the main agent by the time of the answer
		}
		for _, r := range list {
			m := mail.Message{
				ID: sent.ID, Sender: se.actor.ID, From: se.actor.Path, By: by, Text: text, At: sent.At,
				ReplyTo: replyTo, About: r.about, Party: r.party,
			}
			if err := mail.Post(tx, r.ID, m); err != nil {
				return fmt.Errorf("%s: %w", r.Path, err)
			}
			sent.To, sent.actors = append(sent.To, r.Path), append(sent.actors, r.ID)
			note(tx, se.run, se.actor, event.Event{Kind: event.MessageSent, Key: sent.ID.String(), Party: agent, By: r.Path})
		}
		c.Record(tx, sending, sent.encode(), 0)
		return nil
	})
}

// recipients resolves to.
func (se *Session) recipients(tx engine.Tx, agent, to string, replyTo uuid.UUID) ([]recipient, error) {
	if key, ok := strings.CutPrefix(to, HolderOf); ok {
		return se.holders(tx, agent, key)
	}
	a, err := se.correspondent(tx, to)
	if err != nil {
		return nil, err
	}
	if a.ID == se.actor.ID {
		return nil, &registry.ArgumentError{Argument: "to", Problem: "must be another actor than yourself"}
	}
	r := recipient{Actor: a}
	if writer, party := mail.Writer(tx, se.actor.ID, replyTo); writer == a.ID {
		r.party = party
	}
	return []recipient{r}, nil
}

// correspondent finds a living actor of the session's run.
func (se *Session) correspondent(tx engine.Tx, to string) (a Actor, err error) {
	run, _ := getRun(tx, se.actor.Run)
	if id, wrong := uuid.Parse(to); wrong == nil && len(to) == 36 {
		a, _ = getActor(tx, id)
	} else if a, err = actorAt(tx, run, to); err != nil && se.actor.Role.Leads() {
		a, _ = memberNamed(tx, se.actor.Leads, to)
	}
	if a.Run != se.actor.Run || a.Ended() {
		return Actor{}, noActor(to)
	}
	return a, nil
}

// noActor refuses a name that an agent gave for another actor of its run.
func noActor(name string) error {
	return say(ErrNotFound, "no living actor %q in this run; actor_list shows whom you work with, lease_list who holds what", name)
}

// holders returns the holders of a lease of the run or, if nobody holds that,
// of the session's layer. For a key that begins with /leases/ the layer comes
// first.
func (se *Session) holders(tx engine.Tx, agent, key string) (list []recipient, err error) {
	name := strings.TrimPrefix(key, "/"+kvstore.Leases+"/")
	layer := se.state.core.Registry(layerScope(se.actor.homeLayer()))
	list = se.holdersIn(tx, se.state.leasesOf(se.run), key)
	if in := se.holdersIn(tx, layer, name); len(list) == 0 || len(in) > 0 && name != key {
		list, key = in, name
	}
	if len(list) == 0 {
		if l, ok := se.state.leasesOf(se.run).Overlapping(tx, key); ok {
			problem := fmt.Sprintf("must name a lease that is held: nobody holds %q, but %s holds %q, which overlaps with it; write to %q", key, l.Holder.Path, l.Key, HolderOf+l.Key)
			return nil, &registry.ArgumentError{Argument: "to", Problem: problem}
		}
	}
	switch {
	case len(list) == 0:
		return nil, say(ErrNotFound, "nobody holds the lease %q; if you need it, acquire it", key)
	case len(list) == 1 && list[0].ID == se.actor.ID:
		holder := fmt.Sprintf("you hold %q yourself", key)
		if list[0].party != agent {
			holder = fmt.Sprintf("another agent of your own actor holds %q; lease_list shows which", key)
		}
		return nil, &registry.ArgumentError{Argument: "to", Problem: "must be another actor: " + holder}
	case len(list) > maxHolders:
		return nil, &registry.LimitError{Which: "holders of one lease that a message goes to", Max: maxHolders}
	}
	return list, nil
}

// holdersIn returns the living actors that hold a key, each once. The session's
// own actor is returned only if it is the only one.
func (se *Session) holdersIn(tx engine.Tx, leases *registry.Registry, key string) (list []recipient) {
	seen := make(map[uuid.UUID]bool)
	var own []recipient
	for l := range leases.Leases(tx, key, "") {
		if l.Key != key || len(list) > maxHolders {
			break
		}
		if seen[l.Holder.Actor] {
			continue
		}
		seen[l.Holder.Actor] = true
		a, ok := getActor(tx, l.Holder.Actor)
		if !ok || a.Ended() {
			continue
		}
		if r := (recipient{a, key, l.Holder.Party}); a.ID == se.actor.ID {
			own = append(own, r)
		} else {
			list = append(list, r)
		}
	}
	if len(list) == 0 {
		return own
	}
	return list
}

// unsend recalls a message, unless somebody has been told it. It reports whether it did.
func (se *Session) unsend(tx engine.Tx, value string) (undone bool) {
	var sent Sent
	if !sent.decode(value) {
		return true
	}
	for _, actor := range sent.actors {
		if !mail.Waits(tx, actor, sent.ID) {
			return false
		}
	}
	for i, actor := range sent.actors {
		if mail.Retract(tx, actor, sent.ID) {
			note(tx, se.run, se.actor, event.Event{Kind: event.MessageRecalled, Key: sent.ID.String(), By: sent.To[i]})
		}
	}
	return true
}

// asked is how much one call of Inbox returns.
var asked = mail.Portion{Count: 20, Bytes: 64 << 10, Whole: true}

// Inbox returns the oldest messages for an agent of the session that the
// session's actor has not been told, and marks them as told. more is the number
// of messages left. If there are none, Inbox waits for one, and returns none
// when wait is over. A repeated call returns the messages of the first call.
func (se *Session) Inbox(ctx context.Context, agent string, wait time.Duration) (list []mail.Message, more int, err error) {
	if err := registry.CheckWait(wait); err != nil {
		return nil, 0, err
	}
	if se.actor.Role.Outside() {
		return nil, 0, forbidden("an operator is in no run and has no inbox; connect with an actor's token")
	}
	ctx, stop := se.WithinWait(ctx, agent, wait)
	defer stop()
	watch := se.state.eng.Watch(mail.Key(se.actor.ID))
	defer watch.Stop()
	var ids []uuid.UUID
	err = engine.Await(ctx, watch, wait, func(last bool) error {
		return rows.Update(engine.Needed(ctx), se.state.eng, func(tx engine.Tx) (err error) {
			if ids, more, err = se.takeAsked(tx, agent, call.Of(ctx)); err == nil && len(ids) == 0 && !last {
				err = engine.ErrWait
			}
			return err
		})
	})
	if err != nil {
		return nil, 0, err
	}
	_ = se.noteUnread(agent, more) // the answer says how many
	if len(ids) == 0 {
		return nil, 0, nil
	}
	se.told.Store(true)
	list, err = mail.Read(context.WithoutCancel(ctx), se.state.eng, se.actor.ID, ids)
	return list, more, err
}

// takeAsked implements Inbox within a transaction.
func (se *Session) takeAsked(tx engine.Tx, agent string, c call.Call) (ids []uuid.UUID, more int, err error) {
	if !sessionOpen(tx, se.id) {
		return nil, 0, registry.ErrSessionEnded
	}
	value, answered, err := c.Answered(tx, reading)
	if err != nil {
		return nil, 0, err
	}
	tells := se.agents.tells(agent, tx.Now())
	if answered {
		ids = readIDs(value)
		mail.Retake(tx, se.actor.ID, se.id, ids)
		more, _ = mail.Untold(tx, se.actor.ID, tells)
		return ids, more, nil
	}
	if ids, more = mail.Take(tx, se.actor.ID, se.id, asked, tells, c.Lasting()); len(ids) > 0 {
		c.Record(tx, reading, encodeIDs(ids), 0)
	}
	return ids, more, nil
}

func encodeIDs(ids []uuid.UUID) string {
	w := record.New(16 * len(ids))
	for _, id := range ids {
		w.ID(id)
	}
	return w.String()
}

func readIDs(value string) (ids []uuid.UUID) {
	for r := record.Read(value); len(ids) < len(value)/16; {
		ids = append(ids, r.ID())
	}
	return ids
}
