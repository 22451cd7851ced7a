package dispatch

import (
	"context"
	"math"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/dispatch/process"
	"github.com/leasehold/leasehold/dispatch/rows"
	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/call"
	"github.com/leasehold/leasehold/registry"
)

// An Access lets a program that is not an actor connect: a monitor, or one of
// the operator's scripts. The state stores only a hash of its token.
type Access struct {
	ID        uuid.UUID
	Name      string // for people
	Role      Role   // Operator, or Reader (read only)
	CreatedAt time.Time
	ExpiresAt time.Time // by the wall clock; zero: never
	TokenHash []byte

	// The token that this one has replaced at the request of its own holder. It
	// is valid until this one is used, or FormerUntil, because the answer may be
	// lost that has this one.
	Former      []byte    `json:",omitempty"` // its hash
	FormerUntil time.Time `json:",omitzero"`
}

// maxAccesses is the greatest number of accesses in a state.
const maxAccesses = 1000

const accessPrefix = "access/"

func accessKey(id uuid.UUID) string { return accessPrefix + string(id[:]) }

func getAccess(tx engine.Tx, id uuid.UUID) (Access, bool) {
	return rows.Get[Access](tx, accessKey(id))
}

func putAccess(tx engine.Tx, a Access) { rows.Put(tx, accessKey(a.ID), a, uuid.Nil) }

// valid reports whether the access has not expired.
func (a Access) valid(tx engine.Tx) bool {
	return a.ExpiresAt.IsZero() || tx.Wall().Before(a.ExpiresAt)
}

// IssueAccess creates an access and its token. The token is returned only here. If
// the call is sent again, the access gets another token, in place of the first,
// unless it was revoked or got one from another call. A ttl of zero means that
// the access does not expire.
func (s *State) IssueAccess(ctx context.Context, name string, role Role, ttl time.Duration) (a Access, token string, err error) {
	if err := CheckName(name); err != nil {
		return Access{}, "", err
	}
	if role != Operator && role != Reader {
		return Access{}, "", &registry.ArgumentError{Argument: "role", Problem: "must be operator or reader; actor add makes an actor and its token"}
	}
	find := func(tx engine.Tx) (Access, error) { return newAccess(tx, name, role, ttl) }
	return s.issueAccessToken(ctx, issuing, find, func(engine.Tx, *Access) {})
}

// issueAccessToken is like issueToken, for an access. It calls replace before the
// access gets its token.
func (s *State) issueAccessToken(ctx context.Context, kind call.Kind, find func(engine.Tx) (Access, error), replace func(engine.Tx, *Access)) (a Access, token string, err error) {
	c := call.Of(ctx)
	err = rows.Update(ctx, s.eng, func(tx engine.Tx) error {
		if a, err = ownerOf(tx, c, kind, accessIssued, find); err != nil {
			return err
		}
		replace(tx, &a)
		token, a.TokenHash = s.opts.Partition.newSecret(accessMark, a.ID)
		putAccess(tx, a)
		c.Record(tx, kind, issued(a.ID, a.TokenHash), 0)
		return nil
	})
	if err != nil {
		return Access{}, "", err
	}
	return a, token, nil
}

// accessIssued is like actorIssued, for an access.
func accessIssued(tx engine.Tx, answer string) (Access, error) {
	if a, ok := getAccess(tx, issuedFor(answer)); ok && a.valid(tx) && isCurrent(answer, a.TokenHash) {
		return a, nil
	}
	return Access{}, errTokenVoid
}

func newAccess(tx engine.Tx, name string, role Role, ttl time.Duration) (Access, error) {
	n := 0
	for row := range tx.Scan(accessPrefix) {
		other, ok := rows.Decode[Access](tx, row)
		switch {
		case !ok:
		case !other.valid(tx):
			tx.Delete(row.Key) // expired, so its name is free again
		case other.Name == name:
			return Access{}, say(ErrExists, "there is a token %q already; rotate or revoke it, or choose another name", name)
		default:
			n++
		}
	}
	if n >= maxAccesses {
		return Access{}, &registry.LimitError{Which: "tokens of operators and readers", Max: maxAccesses}
	}
	a := Access{ID: uuid.New(), Name: name, Role: role, CreatedAt: tx.Wall()}
	if ttl > 0 {
		a.ExpiresAt = tx.Wall().Add(ttl)
	}
	return a, nil
}

// RotateAccess gives an access a new token, by request of the actor by. The old
// token is void at once. But if the access itself asks, the old one stays valid
// until the new one is used, at most for [call.Keep]: if the answer is lost, the
// access sends the call again with the old one. It then gets another token, in
// place of the first, unless it got one from another call.
func (s *State) RotateAccess(ctx context.Context, name string, by uuid.UUID) (a Access, token string, err error) {
	find := func(tx engine.Tx) (Access, error) { return accessNamed(tx, name) }
	return s.issueAccessToken(ctx, rotating, find, func(tx engine.Tx, a *Access) {
		switch {
		case a.ID != by:
			a.Former = nil
		case !a.hasFormer(tx): // otherwise nobody has used the present one
			a.Former = a.TokenHash
		}
		if a.FormerUntil = (time.Time{}); a.Former != nil {
			a.FormerUntil = tx.Wall().Add(call.Keep)
		}
	})
}

// hasFormer reports whether the token that was replaced is still valid.
func (a Access) hasFormer(tx engine.Tx) bool {
	return a.Former != nil && tx.Wall().Before(a.FormerUntil)
}

// voidFormer makes the token void that was replaced by the one that is used now.
func (s *State) voidFormer(ctx context.Context, token string) error {
	return rows.Update(ctx, s.eng, func(tx engine.Tx) error {
		if a, replaces, err := accessBy(tx, token); err == nil && replaces {
			a.Former, a.FormerUntil = nil, time.Time{}
			putAccess(tx, a)
		}
		return nil
	})
}

// RevokeAccess deletes an access, which voids its token.
func (s *State) RevokeAccess(ctx context.Context, name string) (a Access, err error) {
	c := call.Of(ctx)
	return a, rows.Update(ctx, s.eng, func(tx engine.Tx) error {
		_, again, err := c.Answered(tx, revoking)
		if again || err != nil {
			a.Name = name
			return err
		}
		if a, err = accessNamed(tx, name); err != nil {
			return err
		}
		tx.Delete(accessKey(a.ID))
		c.Record(tx, revoking, "", 0)
		return nil
	})
}

// Accesses lists all valid accesses, without their token hashes.
func (s *State) Accesses(ctx context.Context) (list []Access, err error) {
	return list, rows.View(ctx, s.eng, func(tx engine.Tx) error {
		list = nil
		for row := range tx.Scan(accessPrefix) {
			if a, ok := rows.Decode[Access](tx, row); ok && a.valid(tx) {
				a.TokenHash, a.Former = nil, nil
				list = append(list, a)
			}
		}
		return nil
	})
}

func accessNamed(tx engine.Tx, name string) (Access, error) {
	for row := range tx.Scan(accessPrefix) {
		if a, ok := rows.Decode[Access](tx, row); ok && a.Name == name && a.valid(tx) {
			return a, nil
		}
	}
	return Access{}, notFound("token %q", name)
}

// accessBy finds the access that a token belongs to. replaces says that the token
// has replaced another, which is not void yet.
func accessBy(tx engine.Tx, token string) (a Access, replaces bool, err error) {
	id, secret, ok := openSecret(accessMark, token)
	if !ok {
		return Access{}, false, ErrUnauthenticated
	}
	a, ok = getAccess(tx, id)
	current := ok && matches(a.TokenHash, secret)
	if !current && !(a.hasFormer(tx) && matches(a.Former, secret)) {
		return Access{}, false, ErrUnauthenticated
	}
	if !a.valid(tx) {
		return Access{}, false, say(ErrUnauthenticated, "unauthenticated: the token %q expired at %s; an operator replaces it with leasehold token rotate", a.Name, a.ExpiresAt.UTC().Format(time.RFC3339))
	}
	return a, current && a.Former != nil, nil
}

// voidPoll is how late it may be seen that the wall clock has voided a token. The clock
// may be set.
const voidPoll = time.Minute

// AwaitVoid waits until the token of an access is void, and returns why: an
// [ErrUnauthenticated]. It returns another error if ctx ends or the engine fails first.
func (s *State) AwaitVoid(ctx context.Context, token string) error {
	id, _, _ := openSecret(accessMark, token)
	watch := s.eng.Watch(accessKey(id))
	defer watch.Stop()
	for {
		left, err := s.CheckAccess(ctx, token)
		if err != nil {
			return err
		}
		select {
		case <-watch.C:
		case <-time.After(min(left, voidPoll)):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// CheckAccess returns for how long the token of an access is valid if nobody replaces or
// revokes it, or an [ErrUnauthenticated] if it is void.
func (s *State) CheckAccess(ctx context.Context, token string) (left time.Duration, err error) {
	left = math.MaxInt64
	err = rows.View(ctx, s.eng, func(tx engine.Tx) error {
		a, _, err := accessBy(tx, token)
		if !a.ExpiresAt.IsZero() {
			left = a.ExpiresAt.Sub(tx.Wall())
		}
		return err
	})
	return left, err
}

// actor returns the access as the actor of its sessions.
func (a Access) actor() Actor {
	return Actor{ID: a.ID, Name: a.Name, Role: a.Role, Path: operatorPath}
}

// connectOutside opens a session for a caller that is not an actor: the user of
// the daemon, or an access. Such a session holds no leases and has no record.
// handle is the transport's name for it; these sessions are never resumed.
func (s *State) connectOutside(a Actor, handle string, peer process.Peer) *Session {
	p := s.newParty(uuid.New(), handle)
	p.become(a, Run{}, peer, nil)
	p.attached = 1
	return &Session{party: p}
}
