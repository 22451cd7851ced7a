package mail

import (
	"context"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/record"
	"github.com/leasehold/leasehold/registry"
)

// Limits of messages.
const (
	MaxText   = 16 << 10 // bytes in a message
	MaxUnread = 100      // messages of one actor
	MaxFrom   = 20       // of those, from one sender
	maxTold   = 100      // told messages that are kept for repeated calls
)

// A Message is a message from one actor to another.
type Message struct {
	ID      uuid.UUID
	Sender  uuid.UUID // the actor
	From    string    // its path
	By      string    // its sub-agent that wrote; "". It is kept in the inbox alone
	Text    string
	At      time.Time // by the wall clock
	ReplyTo uuid.UUID // the message it answers; zero: none
	About   string    // key of the lease whose holder it was sent to; ""
	Party   string    // the recipient's sub-agent that it is for; ""
}

const messageFormat = 1

func (m *Message) encode() string {
	w := record.New(64 + len(m.From) + len(m.Text) + len(m.About) + len(m.Party))
	w.Byte(messageFormat)
	w.ID(m.Sender)
	w.Time(m.At)
	w.ID(m.ReplyTo)
	w.Text(m.From)
	w.Text(m.About)
	w.Text(m.Party)
	w.Rest(m.Text)
	return w.String()
}

func (m *Message) decode(value string) bool {
	r := record.Read(value)
	format := r.Byte()
	m.Sender, m.At, m.ReplyTo = r.ID(), r.Time(), r.ID()
	m.From, m.About, m.Party = r.Text(), r.Text(), r.Text()
	m.Text = r.Rest()
	return format == messageFormat && r.Done()
}

func textKey(actor, id uuid.UUID) string { return textPrefix + string(actor[:]) + string(id[:]) }

// Key is the key of an actor's inbox, for an [engine.Watch].
func Key(actor uuid.UUID) string { return inboxPrefix + string(actor[:]) }

// Post puts a message into the inbox of an actor.
func Post(tx engine.Tx, to uuid.UUID, m Message) error {
	if len(m.Text) > MaxText {
		return &registry.LimitError{Which: "bytes in a message", Max: MaxText, TooLarge: true}
	}
	in := open(tx, to)
	unread, from := 0, 0
	for _, e := range in.list {
		if e.told.IsZero() {
			unread++
			if e.sender == m.Sender {
				from++
			}
		}
	}
	switch {
	case unread >= MaxUnread:
		return &registry.LimitError{Which: "unread messages of one actor", Max: MaxUnread}
	case from >= MaxFrom:
		return &registry.LimitError{Which: "unread messages from one actor to another", Max: MaxFrom}
	}
	in.list = append(in.list, entry{id: m.ID, sender: m.Sender, by: m.By, party: m.Party, size: len(m.Text)})
	tx.Put(engine.Row{Key: textKey(to, m.ID), Value: m.encode()})
	in.put(tx)
	return nil
}

// Writer returns the actor that wrote a message in an inbox, and its sub-agent. It
// returns nothing if the message is not kept any more.
func Writer(tx engine.Tx, to, id uuid.UUID) (actor uuid.UUID, party string) {
	in := open(tx, to)
	if e := in.find(id); e != nil {
		return e.sender, e.by
	}
	return uuid.Nil, ""
}

// Waits reports whether a message is in an inbox and has not been told.
func Waits(tx engine.Tx, to, id uuid.UUID) bool {
	in := open(tx, to)
	e := in.find(id)
	return e != nil && e.told.IsZero()
}

// Retract deletes a message unless it has been told. It reports whether it did.
func Retract(tx engine.Tx, to, id uuid.UUID) bool {
	in := open(tx, to)
	e := in.find(id)
	if e == nil || !e.told.IsZero() {
		return false
	}
	in.drop(tx, func(e entry) bool { return e.id == id })
	in.put(tx)
	return true
}

// A Portion is a limit on the messages that one answer tells.
type Portion struct {
	Count int  // messages
	Bytes int  // of text in all
	Whole bool // the first one is told even if it is longer than Bytes
}

// Take marks the first untold messages as told to a session, as many as fit in
// p, and returns their ids. It considers only messages for parties that tells
// accepts; left is how many of these remain untold. With lasting, the call can
// be repeated; its messages are told to no other call unless it is undone.
func Take(tx engine.Tx, actor, session uuid.UUID, p Portion, tells func(party string) bool, lasting bool) (ids []uuid.UUID, left int) {
	in := open(tx, actor)
	size, full := 0, false
	for i := range in.list {
		e := &in.list[i]
		if !e.told.IsZero() || !tells(e.party) {
			continue
		}
		first := p.Whole && len(ids) == 0
		full = full || len(ids) == p.Count || size+e.size > p.Bytes && !first
		if full {
			left++
			continue
		}
		size += e.size
		e.told, e.session, e.lasting = tx.Now(), session, lasting
		ids = append(ids, e.id)
	}
	if len(ids) > 0 {
		in.put(tx)
	}
	return ids, left
}

// Untold counts the untold messages of an actor: n for parties that tells
// accepts, others for the rest.
func Untold(tx engine.Tx, actor uuid.UUID, tells func(party string) bool) (n, others int) {
	for _, e := range open(tx, actor).list {
		switch {
		case !e.told.IsZero():
		case tells(e.party):
			n++
		default:
			others++
		}
	}
	return n, others
}

// Retake marks messages as told again, for a repeated call.
func Retake(tx engine.Tx, actor, session uuid.UUID, ids []uuid.UUID) {
	in := open(tx, actor)
	in.amend(tx, func(e *entry) bool {
		if !e.told.IsZero() || !slices.Contains(ids, e.id) {
			return false
		}
		e.told, e.session, e.lasting = tx.Now(), session, true
		return true
	})
}

// Untell marks messages as untold, because the call that told them is undone.
func Untell(tx engine.Tx, actor uuid.UUID, ids []uuid.UUID) {
	in := open(tx, actor)
	in.amend(tx, func(e *entry) bool { return slices.Contains(ids, e.id) && e.untell() })
}

// retold is how far back messages are told again. Answers within that time may
// not have been read.
const retold = time.Minute

// Retell marks what a session was told in the last minute as untold, because an
// answer will not be read. What a repeatable call was told stays as it is.
func Retell(tx engine.Tx, actor, session uuid.UUID) {
	in := open(tx, actor)
	in.amend(tx, func(e *entry) bool { return e.session == session && !e.lasting && e.late(tx) && e.untell() })
}

// recoverStep is how many inboxes one transaction of [Recover] reads.
const recoverStep = 128

// Recover prepares the inboxes after a restart. Messages that were told in the
// last minute before it are told again, because their answers may never have
// been sent.
func Recover(ctx context.Context, eng engine.Engine) error {
	ctx = engine.Needed(ctx)
	for after, more := inboxPrefix, true; more; {
		err := eng.Update(ctx, func(tx engine.Tx) error {
			n := 0
			more = false
			for row := range tx.ScanFrom(inboxPrefix, after) {
				if more = n == recoverStep; more {
					break
				}
				n, after = n+1, row.Key+"\x00"
				in := open(tx, actorOf(row))
				in.amend(tx, func(e *entry) bool { return e.late(tx) && e.untell() })
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Drop removes the inbox of an actor that is gone, and returns the number of
// its messages.
func Drop(tx engine.Tx, actor uuid.UUID) int {
	in := open(tx, actor)
	n := len(in.list)
	in.drop(tx, func(entry) bool { return true })
	tx.Delete(Key(actor))
	return n
}
