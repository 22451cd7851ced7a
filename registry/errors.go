package registry

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine/call"
)

var (
	// ErrNotHolder refuses a renewal or release by a caller that does not hold
	// the lease and never did.
	ErrNotHolder = errors.New("no lease of yours has this lease_id; lease_list shows what is held")

	// ErrRequestIDReused refuses a request_id that this session used for a
	// different request.
	ErrRequestIDReused = call.ErrReused

	// ErrSessionEnded refuses a session that has ended: it holds nothing and is
	// granted nothing.
	ErrSessionEnded = errors.New("this session has ended; connect again")
)

// A HeldError says who holds the requested key, by a lease without its id.
type HeldError struct {
	Lease
	Asked   string // the key that was asked for, if it may differ from Key; "": Key
	Before  string // name of the party that waits for the lease before the caller; "": the lease itself is in the way
	Waiters int    // how many parties wait for it

	Reserved bool // nobody holds the key; it is kept until Deadline for Holder, the first in line
}

// Error returns the text of a refusal. Its beginning is fixed by the contract
// in the book.
func (e *HeldError) Error() string {
	secs := (e.ExpiresIn + time.Second - 1) / time.Second
	s := fmt.Sprintf("lease %q held by actor %s (%s), expires in %ds", e.Key, e.Holder.Actor, e.Holder.Path, secs)
	if e.Shared {
		s += "; shared"
	}
	if e.Reserved {
		s += "; reserved for it, as it is first in line"
	}
	if e.Holder.Party != "" {
		s += fmt.Sprintf("; for its agent %q", e.Holder.Party)
	}
	if e.KeepAlive {
		s += "; kept alive while its holder is connected"
	}
	if e.Reason != "" {
		s += fmt.Sprintf("; reason: %q", e.Reason) // quoted, so that it cannot pass for what follows
	}
	if e.Asked != "" && e.Asked != e.Key && e.Before == "" {
		s += fmt.Sprintf("; %q overlaps with it", e.Asked)
	}
	if e.Before != "" {
		s += fmt.Sprintf("; %s waits for it, and is before you in line for %q", e.Before, cmp.Or(e.Asked, e.Key))
	}
	return s
}

// A WaitError says that a wait ended without a grant. A party that asks again
// within [ParkTime] keeps its place.
type WaitError struct {
	HeldError
	Position int // 1 is first
	Ticket   uuid.UUID
}

func (e *WaitError) Error() string { return e.HeldError.Error() + e.Next() }

// Next returns the end of the text: what the caller can do.
func (e *WaitError) Next() string {
	return fmt.Sprintf("; you are number %d in line; call again with ticket %s within %d s to keep your place",
		e.Position, e.Ticket, ParkTime/time.Second)
}

// A LostError says how a lease ended that the caller no longer has.
type LostError struct {
	Notice
	Keyed bool // the call's request_id or Idempotency-Key stands for the lost grant, so it gets no other
}

func (e *LostError) Error() string {
	if e.Regained != 0 {
		return fmt.Sprintf("you lost lease %q (%s) and hold it again, with token %d and another lease_id; use that one, which lease_list shows", e.Key, e.Reason, e.Regained)
	}
	s := fmt.Sprintf("lease %q is no longer yours: %s", e.Key, e.Reason)
	if e.NowWith != "" {
		s += ", now held by " + e.NowWith
	}
	s += "; acquire it again"
	if e.Keyed {
		s += ", with a new request_id (or Idempotency-Key),"
	}
	return s + " before you touch what it guards"
}

// A LimitError says which limit a request would exceed. Nothing was changed.
type LimitError struct {
	Which    string
	Max      int64
	TooLarge bool   // what was sent is itself too large, so it is refused whenever it is sent
	Next     string // what the caller can do, if that is not the same for all; "": see nextSteps
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("limit reached: %s, at most %d", e.Which, e.Max) + e.next()
}

// An ArgumentError names the invalid argument and what is allowed.
type ArgumentError struct {
	Argument string
	Problem  string // "must be …"
}

func (e *ArgumentError) Error() string { return e.Argument + " " + e.Problem }
