package dispatch

import (
	"context"
	"errors"
	"sync"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/dispatch/mail"
	"github.com/leasehold/leasehold/dispatch/rows"
	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/event"
	"github.com/leasehold/leasehold/registry"
)

// A shell command writes to what it wants, and nobody knows before what that is.
// After it, the hook of its client says which files have changed meanwhile that
// others have leased. What a holder has written to itself meanwhile is its own
// change.

// writes number the writes of holders to what they hold, and know the last of each.
// It is in memory: without it a report is made that nobody needs.
type writes struct {
	mu   sync.Mutex
	n    uint64
	last map[heldKey]uint64
}

type heldKey struct {
	session uuid.UUID
	key     string
}

// maxWrites bounds how many are remembered.
const maxWrites = 1 << 14

func (w *writes) note(session uuid.UUID, key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.last == nil || len(w.last) >= maxWrites {
		w.last = make(map[heldKey]uint64)
	}
	w.n++
	w.last[heldKey{session, key}] = w.n
}

func (w *writes) since(session uuid.UUID, key string, n uint64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last[heldKey{session, key}] > n
}

// Writes is the number of the last write that the guard allowed.
func (s *State) Writes() uint64 {
	w := &s.guard.writes
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.n
}

// NoteChanged records that what held is about has changed while a shell command of
// the session ran, and tells its holder. It reports whether that is to be told: not if
// the holder itself has written to it since, as [State.Writes] counts.
func (se *Session) NoteChanged(ctx context.Context, party string, since uint64, held *registry.HeldError, text string) (told bool, err error) {
	if se.state.guard.writes.since(held.Holder.Session, held.Key, since) {
		return false, nil
	}
	return true, rows.Update(context.WithoutCancel(ctx), se.state.eng, func(tx engine.Tx) error {
		note(tx, se.run, se.actor, event.Event{Kind: event.FileChanged, Key: held.Key, Party: party, By: held.Holder.Path})
		err := mail.Post(tx, held.Holder.Actor, mail.Message{
			ID: uuid.New(), Sender: se.actor.ID, From: se.actor.Path, Text: text, At: tx.Wall(), About: held.Key, Party: held.Holder.Party,
		})
		if _, full := errors.AsType[*registry.LimitError](err); full {
			return nil // it has not read what it was told before, either
		}
		return err
	})
}
