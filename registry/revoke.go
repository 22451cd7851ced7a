package registry

import (
	"cmp"
	"context"
	"fmt"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/call"
	"github.com/leasehold/leasehold/engine/event"
	"github.com/leasehold/leasehold/engine/record"
)

// A Revocation takes a key away from its holders.
type Revocation struct {
	Key    string
	Holder string // path of the holder that loses it; "": everyone who shares it
	By     string // path of the actor that revokes
	Reason string // told to those who lose it; 1 to MaxReason bytes

	// May returns an error if the key must not be taken from a holder. If it is
	// nil, it may be taken from all.
	May func(tx Tx, h Holder) error
}

// A Revoked is the result of a Revocation.
type Revoked struct {
	Holders []Holder // the first of those that lost the key
	Count   int      // how many lost it; 0: nobody held it
	Spared  int      // how many share it and must not lose it
	Token   uint64   // greater than any of theirs; no lease has it
	Next    []Holder // the first of those that hold the key now
	Overlap Lease    // if nobody held the key: a lease on a key that overlaps with it, if there is one
}

// revoked begins the Cause by which a revoked lease ends. Who revoked it, and why,
// follows.
const revoked = "revoked by "

// revoking is the kind of the answer of a Revoke.
const revoking call.Kind = "revoke"

// revokeBatch is how many leases one transaction revokes.
const revokeBatch = 256

// Revoke ends the leases on a key, including lapsed ones, which their holders
// then cannot renew. Each holder is told who revoked the lease and why. The
// next in line gets the key in the transaction that frees it. If no holder may
// lose the key, Revoke returns May's error and nothing changes.
//
// One transaction revokes a few hundred leases; if more share the key, Revoke
// uses several. A call that is sent again continues with the leases that
// existed when it was first sent.
func (r *Registry) Revoke(ctx context.Context, v Revocation) (done Revoked, err error) {
	if err := cmp.Or(checkKey(v.Key), checkText("reason", v.Reason, 1, MaxReason)); err != nil {
		return Revoked{}, err
	}
	asked := call.Of(ctx)
	for more := true; more && err == nil; {
		err = r.core.update(engine.Needed(ctx), Holder{}, func(tx Tx) (refusal error) {
			answer, answered, err := asked.Answered(tx, revoking)
			if err != nil {
				return err
			}
			if answered {
				done = readRevoked(answer)
			}
			if more, refusal = r.core.revoke(tx, r.scope, &v, &done); refusal != nil {
				return refusal
			}
			if done.Count > 0 {
				asked.Record(tx, revoking, done.encode(), 0)
			}
			return nil
		})
	}
	return done, err
}

// revoke is the rule: it revokes one batch of the leases on the key, and
// reports whether there are more.
func (c *Core) revoke(tx Tx, scope string, v *Revocation, done *Revoked) (more bool, err error) {
	var taken []Lease
	var refusal error
	done.Spared = 0
	for row := range holders(tx, scope, v.Key) {
		var l Lease
		if !l.read(row) {
			return false, corrupt(row.Key)
		}
		if done.Token > 0 && l.Token > done.Token || v.Holder != "" && l.Holder.Path != v.Holder {
			continue
		}
		if v.May != nil {
			if err := v.May(tx, l.Holder); err != nil {
				refusal = err
				done.Spared++
				continue
			}
		}
		if more = len(taken) == revokeBatch; more {
			break
		}
		taken = append(taken, l)
	}
	if done.Token == 0 && len(taken) > 0 {
		done.Token = event.Next(tx)
	}
	for _, l := range taken {
		if done.Count++; len(done.Holders) < MaxListed {
			done.Holders = append(done.Holders, l.Holder)
		}
		cause := Cause(fmt.Sprintf("%s%s: %q", revoked, v.By, v.Reason))
		if l.lapsed {
			putLost(tx, &l, cause) // its holder was told that it could still renew the lease
		}
		if now, ok := leaseByID(tx, l.ID); ok { // ending the previous lease may have changed this one
			c.free(tx, now, cause)
		}
	}
	done.Next = nil
	for row := range holders(tx, scope, v.Key) {
		if l := (Lease{}); l.read(row) && l.held() && len(done.Next) < MaxListed {
			done.Next = append(done.Next, l.Holder)
		}
	}
	if done.Count == 0 {
		if len(done.Next) == 0 {
			done.Overlap, _ = overlapping(tx, scope, v.Key)
		}
		return false, refusal
	}
	return more, nil
}

// encode returns the answer for a call that is sent again. It leaves out Next,
// which is read afresh.
func (d *Revoked) encode() string {
	w := record.New(64)
	w.Uint(d.Token)
	w.Uint(uint64(d.Count))
	for _, h := range d.Holders {
		w.ID(h.Actor)
		w.Texts(h.Path, h.Party)
	}
	return w.String()
}

func readRevoked(value string) (d Revoked) {
	r := record.Read(value)
	d.Token, d.Count = r.Uint(), int(r.Uint())
	for !r.Done() && len(d.Holders) < min(d.Count, MaxListed) {
		h := Holder{Actor: r.ID(), Path: r.Text(), Party: r.Text()}
		if h.Actor == uuid.Nil {
			break
		}
		d.Holders = append(d.Holders, h)
	}
	return d
}
