package dispatch

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/registry"
)

// A guard records which leases were taken for writes that a client's hook
// announced. The holder did not ask for these leases itself, so it does not
// renew them either; they are extended whenever the holder is heard from. The
// guard is in memory only. After a restart such a lease lasts until its ttl is
// over, unless its holder writes to the file again.
type guard struct {
	some   atomic.Bool // there may be leases in held
	writes writes

	mu   sync.Mutex
	held map[writer]map[string]uuid.UUID // by key, the ids of leases
}

// A writer is a session, or one of the sub-agents that share it.
type writer struct {
	session uuid.UUID
	party   string
}

// Guard takes the leases of all files that one write will change, or none, each
// for hold from now. It also extends the other leases that the guard has taken
// for the party, because the party is evidently alive. A lease that the party
// holds in another session of the same client stays in that session.
func (se *Session) Guard(ctx context.Context, party string, keys []string, hold time.Duration, reason string) (grants []registry.Grant, err error) {
	g := &se.state.guard
	req := registry.Request{Holder: registry.Holder{Party: party}, TTL: hold, Reason: reason}
	for rest := slices.Compact(slices.Sorted(slices.Values(keys))); len(rest) > 0; {
		now := rest[:min(len(rest), registry.MaxWantsNow)]
		got, err := se.AcquireAll(ctx, runWants(now), req)
		if held, ok := errors.AsType[*registry.HeldError](err); ok && held.Holder.Party == party && !held.Reserved {
			if other := se.state.sameClient(se.party, held.Holder.Session); other != nil {
				now = []string{cmp.Or(held.Asked, held.Key)}
				got, err = (&Session{party: other}).AcquireAll(ctx, runWants(now), req)
			}
		}
		if err != nil {
			if giveBack := se.GiveBack(ctx, grants); giveBack != nil {
				return nil, giveBack
			}
			return nil, err
		}
		grants = append(grants, got...)
		rest = slices.DeleteFunc(rest, func(key string) bool { return slices.Contains(now, key) })
	}
	for _, grant := range grants {
		if !grant.Reentrant {
			g.note(se.state, grant.Lease)
		}
		g.writes.note(grant.Holder.Session, grant.Key)
	}
	return grants, se.Present(ctx, party)
}

// Holds returns up to limit leases and claims of a party that it has asked for itself,
// and not those that the guard has taken for it.
func (se *Session) Holds(ctx context.Context, party string, limit int) (list []registry.Lease, err error) {
	guarded := se.state.guard.of(writer{se.id, party})
	err = se.state.eng.View(ctx, func(tx engine.Tx) error {
		list = nil
		for _, l := range se.state.core.Holds(tx, se.id, maxHeld) {
			if id, ok := guarded[l.Key]; l.Holder.Party == party && (!ok || id != l.ID) && len(list) < limit {
				list = append(list, l.Told(tx))
			}
		}
		return nil
	})
	return list, err
}

// maxHeld is how many leases of a session Holds looks at.
const maxHeld = 200

func runWants(keys []string) []Want {
	wants := make([]Want, len(keys))
	for i, key := range keys {
		wants[i] = Want{Scope: RunScope, Key: key}
	}
	return wants
}

// GiveBack releases the new leases of a write that will not happen.
func (se *Session) GiveBack(ctx context.Context, grants []registry.Grant) error {
	for _, g := range grants {
		if g.Reentrant {
			continue
		}
		if err := se.state.core.GiveBack(ctx, g.Holder, g.ID); err != nil {
			return err
		}
	}
	return nil
}

// Present extends the leases that the guard has taken for a party, because the
// party was heard from. Leases that others wait for are not extended.
func (se *Session) Present(ctx context.Context, party string) error {
	g := &se.state.guard
	ids := g.of(writer{se.id, party})
	if len(ids) == 0 {
		return nil
	}
	held, err := se.state.core.Prolong(ctx, se.As(party), slices.Collect(maps.Values(ids)))
	if err == nil {
		g.keep(writer{se.id, party}, ids, held)
	}
	return err
}

// LetGo releases the leases that the guard has taken for a party, or for all
// parties of the session.
func (se *Session) LetGo(ctx context.Context, party string, all bool) error {
	g := &se.state.guard
	g.mu.Lock()
	ids := make(map[string][]uuid.UUID)
	for w, held := range g.held {
		if w.session == se.id && (all || w.party == party) {
			ids[w.party] = slices.Collect(maps.Values(held))
			delete(g.held, w)
		}
	}
	g.mu.Unlock()
	for party, its := range ids {
		if err := se.giveBackAll(ctx, party, its); err != nil {
			return err
		}
	}
	return nil
}

// LetGoOf gives back what the guard has taken of some keys for a party.
func (se *Session) LetGoOf(ctx context.Context, party string, keys []string) error {
	g := &se.state.guard
	w := writer{se.id, party}
	var ids []uuid.UUID
	g.mu.Lock()
	for _, key := range keys {
		if id, ok := g.held[w][key]; ok {
			ids = append(ids, id)
			delete(g.held[w], key)
		}
	}
	g.mu.Unlock()
	return se.giveBackAll(ctx, party, ids)
}

func (se *Session) giveBackAll(ctx context.Context, party string, ids []uuid.UUID) error {
	for _, id := range ids {
		if err := se.state.core.GiveBack(ctx, se.As(party), id); err != nil {
			return err
		}
	}
	return nil
}

// note remembers a lease until its session ends.
func (g *guard) note(s *State, l registry.Lease) {
	w := writer{l.Holder.Session, l.Holder.Party}
	s.mu.Lock()
	p := s.parties[w.session]
	s.mu.Unlock()
	if p == nil {
		return // the session has just ended
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.held == nil {
		g.held = make(map[writer]map[string]uuid.UUID)
	}
	if g.held[w] == nil {
		g.held[w] = make(map[string]uuid.UUID)
		context.AfterFunc(p.ctx, func() {
			g.mu.Lock()
			defer g.mu.Unlock()
			delete(g.held, w)
		})
	}
	g.held[w][l.Key] = l.ID
	g.some.Store(true)
}

// of returns the leases of a writer, by key.
func (g *guard) of(w writer) map[string]uuid.UUID {
	g.mu.Lock()
	defer g.mu.Unlock()
	return maps.Clone(g.held[w])
}

// keep removes from the leases in had those that are no longer in held.
func (g *guard) keep(w writer, had map[string]uuid.UUID, held []uuid.UUID) {
	still := make(map[uuid.UUID]bool, len(held))
	for _, id := range held {
		still[id] = true
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for key, id := range had {
		if g.held[w][key] == id && !still[id] {
			delete(g.held[w], key)
		}
	}
}

// takeOver moves guard leases of the same party from another session of the
// same client to se, which is about to acquire key itself. A client has several
// sessions if each of its sub-agents starts its own server, or if it wrote a
// file before its server was running.
//
// Guard leases of a conversation at rest are released if another conversation of
// the same client is about to acquire key. Whoever waits for the file gets it
// first.
func (g *guard) takeOver(ctx context.Context, se *Session, party, key string) error {
	if !g.some.Load() { // nearly always
		return nil
	}
	type found struct {
		from writer
		key  string
		id   uuid.UUID
	}
	var list []found
	g.mu.Lock()
	for w, held := range g.held {
		if w.party == party && w.session == se.id {
			continue
		}
		if id, ok := held[key]; ok {
			list = append(list, found{w, key, id})
		}
		below, all := strings.CutSuffix(key, "**")
		if !all {
			continue
		}
		for k, id := range held {
			if k != key && strings.HasPrefix(k, below) {
				list = append(list, found{w, k, id})
			}
		}
	}
	g.mu.Unlock()
	for _, f := range list {
		other := se.party
		if f.from.session != se.id {
			other = se.state.sameClient(se.party, f.from.session)
		}
		if other == nil {
			continue
		}
		if f.from.party != party {
			if se.agents.isMain(party) && other.agents.rests(f.from.party) {
				if err := (&Session{party: other}).LetGoOf(ctx, f.from.party, []string{f.key}); err != nil {
					return err
				}
			}
			continue
		}
		passed, err := se.state.core.Pass(ctx, f.id, (&Session{party: other}).As(party), se.As(party))
		if err != nil {
			return err
		}
		g.mu.Lock()
		delete(g.held[f.from], f.key)
		g.mu.Unlock()
		if passed {
			g.note(se.state, registry.Lease{Key: f.key, ID: f.id, Holder: se.As(party)})
		}
	}
	return nil
}

// sameClient returns the party of another session if p and that session belong
// to the same client: either one process started the processes of both, or both
// belong to the same launched actor.
func (s *State) sameClient(p *party, session uuid.UUID) *party {
	s.mu.Lock()
	other := s.parties[session]
	if other == nil || other == p || other.ending {
		s.mu.Unlock()
		return nil
	}
	one, two := p.peer, other.peer
	marked := p.mark != "" && p.mark == other.mark
	launched := p.actor.ID == other.actor.ID && (s.launchers.KeptOpen(p.id) || s.launchers.KeptOpen(other.id))
	s.mu.Unlock()
	switch {
	case launched, marked:
		return other
	case one.PID == 0 || two.PID == 0:
		return nil
	}
	if pid := s.clientOf(p, one.PID); pid > 0 && pid == s.clientOf(other, two.PID) {
		return other
	}
	return nil
}

// clientOf returns the pid of a session's client, or 0 if it is not known. This is what
// started the process that connected, or the process itself if the session is a guest.
func (s *State) clientOf(p *party, pid int) int {
	if p.guest {
		return pid
	}
	return s.starterOf(pid)
}
