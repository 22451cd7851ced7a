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
	"github.com/leasehold/leasehold/registry/filekey"
)

// A shell command may write to any file, and nobody knows in advance to which.
// After the command, the hook of the client reports which files have changed
// that others have leased. A file that its holder has written to in that time
// does not count.

// writes numbers the writes that holders make to files they have leased, and
// remembers the last write to each. It is in memory only; if an entry is lost,
// the result is one unnecessary report.
type writes struct {
	mu   sync.Mutex
	n    uint64
	last map[heldKey]uint64
}

type heldKey struct {
	session uuid.UUID
	key     string
}

// maxWrites is the greatest number of files that are remembered.
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

// since reports whether a session has written to the file of a key, or below the
// directory of a key, after write number n.
func (w *writes) since(session uuid.UUID, key string, n uint64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, all, _ := filekey.Split(key); !all {
		return w.last[heldKey{session, key}] > n
	}
	for held, last := range w.last {
		if last > n && held.session == session && filekey.Covers(key, held.key) {
			return true
		}
	}
	return false
}

// Writes returns the number of the last write that the guard allowed.
func (s *State) Writes() uint64 {
	w := &s.guard.writes
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.n
}

// NoteChanged records that a leased file changed while a shell command of the
// session ran, and sends text to its holder. It returns false, and does
// neither, if the holder itself has written to the file after write number
// since (see [State.Writes]).
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
			return nil // its inbox is full, so it has not read the earlier ones either
		}
		return err
	})
}
