package mail

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/call"
	"github.com/leasehold/leasehold/engine/record"
)

// An inbox is the messages of an actor, oldest first.
type inbox struct {
	actor uuid.UUID
	list  []entry
}

// An entry is a message without its text.
type entry struct {
	id, sender uuid.UUID
	by         string    // the sub-agent of the sender; ""
	party      string    // the sub-agent of the recipient that it is for; ""
	size       int       // of its text
	told       time.Time // instant of the running clock; zero: not told
	session    uuid.UUID // the session that was told
	lasting    bool      // told by a call that can be repeated
}

// untell marks a message as not told. It returns false if it was not told
// anyway.
func (e *entry) untell() bool {
	was := !e.told.IsZero()
	e.told, e.session, e.lasting = time.Time{}, uuid.Nil, false
	return was
}

// late reports whether the message was told within the last minute.
func (e *entry) late(tx engine.Tx) bool { return !e.told.IsZero() && tx.Now().Sub(e.told) < retold }

// actorOf returns the actor of an inbox row.
func actorOf(row engine.Row) (id uuid.UUID) {
	copy(id[:], row.Key[len(inboxPrefix):])
	return id
}

const inboxFormat = 2

// open reads an inbox. It ignores damage: [CheckRecords] refuses a damaged
// inbox when the state is opened.
func open(tx engine.Tx, actor uuid.UUID) inbox {
	in := inbox{actor: actor}
	if row, ok := tx.Get(Key(actor)); ok {
		in.decode(row.Value)
	}
	return in
}

// put writes the inbox without the messages that were told long enough ago.
func (in *inbox) put(tx engine.Tx) {
	excess := -maxTold
	for _, e := range in.list {
		if !e.told.IsZero() {
			excess++
		}
	}
	in.drop(tx, func(e entry) bool {
		old := !e.told.IsZero() && (excess > 0 || tx.Now().Sub(e.told) >= call.Keep)
		if old {
			excess--
		}
		return old
	})
	if len(in.list) == 0 {
		tx.Delete(Key(in.actor))
		return
	}
	tx.Put(engine.Row{Key: Key(in.actor), Value: in.encode()})
}

// drop removes the messages for which gone returns true.
func (in *inbox) drop(tx engine.Tx, gone func(entry) bool) {
	in.list = slices.DeleteFunc(in.list, func(e entry) bool {
		if !gone(e) {
			return false
		}
		tx.Delete(textKey(in.actor, e.id))
		return true
	})
}

// amend changes entries, and writes the inbox if that changed any.
func (in *inbox) amend(tx engine.Tx, change func(*entry) bool) {
	changed := false
	for i := range in.list {
		changed = change(&in.list[i]) || changed
	}
	if changed {
		in.put(tx)
	}
}

func (in *inbox) find(id uuid.UUID) *entry {
	if i := slices.IndexFunc(in.list, func(e entry) bool { return e.id == id }); i >= 0 {
		return &in.list[i]
	}
	return nil
}

func (in *inbox) encode() string {
	w := record.New(2 + 64*len(in.list))
	w.Byte(inboxFormat)
	w.Uint(uint64(len(in.list)))
	for _, e := range in.list {
		w.Flags(!e.told.IsZero(), e.lasting, e.party != "", e.by != "")
		w.ID(e.id)
		w.ID(e.sender)
		w.Uint(uint64(e.size))
		if !e.told.IsZero() {
			w.Time(e.told)
			w.ID(e.session)
		}
		if e.party != "" {
			w.Text(e.party)
		}
		if e.by != "" {
			w.Text(e.by)
		}
	}
	return w.String()
}

func (in *inbox) decode(value string) bool {
	r := record.Read(value)
	format := r.Byte()
	for n := min(r.Uint(), uint64(len(value))); n > 0; n-- {
		var e entry
		var told, toParty, byParty bool
		r.Flags(&told, &e.lasting, &toParty, &byParty)
		e.id, e.sender, e.size = r.ID(), r.ID(), int(r.Uint())
		if told {
			e.told, e.session = r.Time(), r.ID()
		}
		if toParty {
			e.party = r.Text()
		}
		if byParty {
			e.by = r.Text()
		}
		in.list = append(in.list, e)
	}
	return format == inboxFormat && r.Done()
}

// Read returns messages that were taken, by their ids. If a record is damaged,
// the text of its message says so. A message that has since been removed is
// left out.
func Read(ctx context.Context, eng engine.Engine, actor uuid.UUID, ids []uuid.UUID) (list []Message, err error) {
	for _, id := range ids {
		m := Message{ID: id}
		found, ok, err := eng.Get(engine.Peek(ctx), textKey(actor, id))
		switch {
		case err == nil && !ok:
			continue
		case err != nil && !errors.Is(err, engine.ErrCorrupt):
			return nil, err
		case err != nil || !m.decode(found.Value):
			m = Message{ID: id, From: "unknown", Text: "(this message cannot be read: its record is damaged)"}
		}
		list = append(list, m)
	}
	return list, nil
}

// CheckRecords returns an error if an inbox cannot be read.
func CheckRecords(tx engine.Tx) error {
	for row := range tx.Scan(inboxPrefix) {
		if in := (inbox{}); len(row.Key) != len(inboxPrefix)+16 || !in.decode(row.Value) {
			return fmt.Errorf("%w: %q: is no inbox", engine.ErrCorrupt, row.Key)
		}
	}
	return nil
}

// Check verifies that each inbox belongs to an existing actor, is within its
// limits and has the texts of its messages.
func Check(tx engine.Tx, there func(actor uuid.UUID) bool, fault func(format string, args ...any)) {
	known := make(map[string]bool)
	for row := range tx.Scan(inboxPrefix) {
		in := inbox{actor: actorOf(row)}
		in.decode(row.Value)
		if !there(in.actor) {
			fault("inbox of %s is of no actor", in.actor)
		}
		unread := 0
		for _, e := range in.list {
			known[textKey(in.actor, e.id)] = true
			if e.told.IsZero() {
				unread++
			}
		}
		if unread > MaxUnread+maxTold || len(in.list)-unread > maxTold {
			fault("inbox of %s has %d messages, %d not told", in.actor, len(in.list), unread)
		}
	}
	for row := range tx.Scan(textPrefix) {
		if !known[row.Key] {
			fault("message %q is in no inbox", row.Key)
		}
		delete(known, row.Key)
	}
	for key := range known {
		if _, there, err := tx.Try(key); err == nil && !there {
			fault("message %q has no text", key)
		}
	}
}
