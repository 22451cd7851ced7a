package registry

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine/call"
)

// A Request asks for a lease.
type Request struct {
	Key       string // 1 to MaxKey bytes, printable, compared exactly; for paths see package filekey
	Holder    Holder
	TTL       time.Duration // MinTTL to MaxTTL; zero: DefaultTTL
	Wait      time.Duration // at most MaxWait; zero: answer at once
	Ticket    uuid.UUID     // of an earlier wait; zero: none. The party's place is found without it too
	RequestID string        // makes the request idempotent; "": it is not
	KeepAlive bool
	Shared    bool   // others may share the key
	Reason    string // shown to those who are refused; at most MaxReason bytes
}

// A Want is one key of a request.
type Want struct {
	Scope  string
	Key    string
	Shared bool
}

// MaxWants is the largest number of keys in a request. MaxWantsNow is that of a
// request that does not wait, and so takes no place in line.
const (
	MaxWants    = 16
	MaxWantsNow = 256
)

// A Grant answers a request.
type Grant struct {
	Lease
	Reentrant bool     // the party already held it
	Similar   []string // at most MaxSimilar held keys that differ from this one only in spelling
}

// Want returns a key of this scope, for [Core.AcquireAll].
func (r *Registry) Want(key string, shared bool) Want { return Want{r.scope, key, shared} }

func (w Want) compare(other Want) int {
	return cmp.Or(strings.Compare(w.Scope, other.Scope), strings.Compare(w.Key, other.Key))
}

// sortWants returns wants in the order of their keys; places are found by that
// order.
func sortWants(wants []Want, limit int) ([]Want, error) {
	sorted := slices.SortedFunc(slices.Values(wants), Want.compare)
	twice := len(slices.CompactFunc(slices.Clone(sorted), func(a, b Want) bool { return a.compare(b) == 0 })) < len(sorted)
	switch {
	case len(wants) == 0 || len(wants) > limit:
		return nil, &ArgumentError{"leases", fmt.Sprintf("must be from 1 to %d", limit)}
	case twice:
		return nil, &ArgumentError{"leases", "must not name the same lease twice"}
	}
	return sorted, nil
}

// named returns the call under which the answer to the request is recorded.
func (req *Request) named(ctx context.Context, wants []Want) call.Call {
	asked := call.Asked(ctx, req.Holder.Session, req.Wait > 0)
	if req.RequestID == "" {
		return asked
	}
	var params []string
	for _, w := range wants {
		params = append(params, w.Scope, w.Key)
	}
	params = append(params, req.Holder.Party, req.TTL.String(), strconv.FormatBool(req.KeepAlive))
	for _, w := range wants {
		params = append(params, strconv.FormatBool(w.Shared))
	}
	return asked.Requested(req.Holder.Session, req.RequestID, call.PrintOf(append(params, req.Reason)...))
}

func (req *Request) check(wants []Want) error {
	for _, w := range wants {
		if err := checkKey(w.Key); err != nil {
			return err
		}
	}
	reason := checkText("reason", req.Reason, 0, MaxReason)
	if err := cmp.Or(CheckParty(req.Holder.Party), CheckTTL(req.TTL), reason, CheckWait(req.Wait)); err != nil {
		return err
	}
	switch {
	case len(req.RequestID) > MaxRequestID:
		return &ArgumentError{"request_id", fmt.Sprintf("must be at most %d bytes", MaxRequestID)}
	case req.Ticket != uuid.Nil && req.Ticket != ticketOf(req.Holder, wants):
		return &ArgumentError{"ticket", "must be of an earlier wait of yours for the same lease; leave it out to ask anew"}
	}
	return nil
}

func checkKey(key string) error { return cmp.Or(checkName("key", key, 1, MaxKey), checkPath(key)) }

// CheckParty reports what is wrong with a party's name.
func CheckParty(party string) error { return checkName("as", party, 0, MaxParty) }

func checkName(argument, s string, least, most int) error {
	if err := checkText(argument, s, least, most); err != nil {
		return err
	}
	if problem := Unseen(s); problem != "" {
		return &ArgumentError{argument, problem}
	}
	return nil
}

// Unseen returns what is wrong with a name in which there is something that people cannot
// see, because they could take it for another name. It returns "" if there is nothing.
// The variation selectors of emoji are in the names of files, and change how they look. The
// joiner of emoji is refused: without a font for the whole, it joins nothing that is seen.
func Unseen(name string) (problem string) {
	for _, c := range name {
		emoji := c == '\ufe0e' || c == '\ufe0f'
		ignorable := c > unicode.MaxLatin1 && !emoji && unicode.In(c, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
		if !unicode.IsPrint(c) || ignorable || c == '\u2800' { // braille without a dot
			return fmt.Sprintf("must be printable, and holds %U", c)
		}
	}
	return ""
}

func checkText(argument, s string, least, most int) error {
	switch {
	case len(s) < least, least > 0 && len(s) > most:
		return &ArgumentError{argument, fmt.Sprintf("must be from %d to %d bytes", least, most)}
	case len(s) > most:
		return &ArgumentError{argument, fmt.Sprintf("must be at most %d bytes", most)}
	case !utf8.ValidString(s):
		return &ArgumentError{argument, "must be valid UTF-8"}
	}
	for _, c := range s {
		if !unicode.IsPrint(c) {
			return &ArgumentError{argument, fmt.Sprintf("must be printable, and holds %U", c)}
		}
	}
	return nil
}
