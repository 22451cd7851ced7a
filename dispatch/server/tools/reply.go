package tools

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/work"
	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/event"
	"github.com/leasehold/leasehold/kvstore"
	"github.com/leasehold/leasehold/layer"
	"github.com/leasehold/leasehold/queue"
	"github.com/leasehold/leasehold/registry"
)

// Call runs the tool for a session and builds the reply: the answer or the
// refusal, with the notices that the session has not been told.
func (t Tool) Call(ctx context.Context, se *dispatch.Session, given Arguments) Reply {
	if se.Context().Err() != nil {
		return RefusalOf(whyEnded(se, registry.ErrSessionEnded)).Reply()
	}
	ctx = withAs(ctx, given)
	a, err := t.call(ctx, se, given)
	var news []Notice
	if !t.unread && ctx.Value(unreadKey{}) == nil && !errors.Is(err, dispatch.ErrAgentEnded) {
		_, inbox := a.(messageList)
		news = takeNotices(ctx, se, caller(ctx), inbox)
	}
	if err != nil {
		if t.Name != "task_heartbeat" { // a heartbeat writes nothing
			_ = se.NoteRefused(ctx, caller(ctx), t.Name, err) // the refusal is reported even if this fails
		}
		if errors.Is(err, registry.ErrSessionEnded) {
			awaitEnd(ctx, se)
		}
		r := RefusalOf(whyEnded(se, err)).locate(ctx, se, err)
		r.Message = onlySeen(ctx, r.Message)
		if r.Next != "" && ctx.Value(unreadKey{}) != nil {
			r.Data["next"] = r.Next // for a program that has other words for it
		}
		return r.reply(withoutLoss(news, err))
	}
	return newReply(mustJSON(a), a.Text(), t.told, news)
}

// awaitEnd waits until the context of an ended session has its cause. A call may
// find the session's record gone a moment before that.
func awaitEnd(ctx context.Context, se *dispatch.Session) {
	soon := time.NewTimer(time.Second)
	defer soon.Stop()
	select {
	case <-se.Context().Done():
	case <-ctx.Done():
	case <-soon.C:
	}
}

// whyEnded returns the error for a call of an ended session. For a cancelled
// actor it says by whom, why, and which leases were lost.
func whyEnded(se *dispatch.Session, err error) error {
	if ended, ok := errors.AsType[*dispatch.EndedError](context.Cause(se.Context())); ok {
		return ended
	}
	return err
}

// A stamp is an encoded time.Time, in milliseconds. Encoding a Time takes
// longer than the rest of a lease, so it is formatted separately.
type stamp string

// stampOf cuts off what is less than a millisecond. An instant that is kept as a duration before
// the present, such as that of a grant, differs by less than that from one
// answer to the next.
func stampOf(t time.Time) stamp {
	return stamp(t.UTC().Format("2006-01-02T15:04:05.000Z"))
}

// scopeWord returns the contract's name for a scope of the registry.
func scopeWord(scope string) string {
	word, _, _ := strings.Cut(scope, ":")
	return word
}

// A Refusal is an error in the terms of the contract.
type Refusal struct {
	Code    string
	Message string
	Next    string         // the end of the message, if it says what to call next
	Data    map[string]any // further fields that depend on the code
}

// An advice is an error whose text ends with what the caller can do next.
type advice interface {
	error
	Next() string
}

// Reply returns the refusal as a reply.
func (r Refusal) Reply() Reply { return r.reply(nil) }

func (r Refusal) reply(news []Notice) Reply {
	object := map[string]any{"code": r.Code, "message": r.Message}
	maps.Copy(object, r.Data)
	reply := newReply(mustJSON(object), r.Message, toldByRefusals, news)
	reply.IsError = true
	return reply
}

// Unavailable reports whether a reply refuses a call that nobody could serve.
func Unavailable(r Reply) bool {
	var refusal struct{ Code string }
	return r.IsError && json.Unmarshal(r.Object, &refusal) == nil && refusal.Code == "UNAVAILABLE"
}

// RefusalOf converts an error to a refusal. It is the only place where errors
// become codes.
func RefusalOf(err error) Refusal {
	r := Refusal{Message: err.Error(), Data: map[string]any{}}
	if advice, ok := errors.AsType[advice](err); ok {
		r.Next = advice.Next()
	}
	var (
		wait      *registry.WaitError
		held      *registry.HeldError
		deadlock  *registry.DeadlockError
		lost      *registry.LostError
		limit     *registry.LimitError
		argument  *registry.ArgumentError
		version   *kvstore.VersionError
		noAccess  *layer.ForbiddenError
		peer      *layer.UnknownPeerError
		forbidden *dispatch.ForbiddenError
		stale     *queue.StaleError
		outdated  *registry.StaleError
		compacted *event.CompactedError
		budget    *work.BudgetError
		ending    *dispatch.DrainingError
	)
	switch {
	case errors.As(err, &budget):
		r.Code = "LIMIT"
		r.Data["which"], r.Data["max"] = "budget_usd", budget.Available.USD()
	case errors.As(err, &ending):
		r.Code = "DRAINING"
	case errors.As(err, &wait):
		r.Code, r.Data = "WAIT_TIMEOUT", heldData(&wait.HeldError)
		r.Data["position"], r.Data["ticket"] = wait.Position, wait.Ticket
	case errors.As(err, &held):
		r.Code, r.Data = "LEASE_HELD", heldData(held)
	case errors.As(err, &deadlock):
		r.Code, r.Data = "DEADLOCK", map[string]any{"cycle": cycleOf(deadlock.Cycle)}
	case errors.As(err, &lost):
		r.Code = "LEASE_LOST"
		r.Data["reason"], r.Data["at"] = lost.Reason, stampOf(lost.At)
		if lost.SupersededBy != "" {
			r.Data["superseded_by"] = lost.SupersededBy
		}
		if lost.Regained != 0 {
			r.Data["regained_token"] = lost.Regained
		}
	case errors.Is(err, registry.ErrNotHolder):
		r.Code = "NOT_HOLDER"
	case errors.As(err, &stale):
		r.Code = "STALE_TOKEN"
		r.Data["state"] = stale.Task.State.String()
	case errors.As(err, &outdated):
		r.Code = "STALE_TOKEN"
		r.Data["scope"], r.Data["key"], r.Data["token"] = scopeWord(outdated.Scope), outdated.Key, outdated.Token
		if outdated.Held {
			l := outdated.Lease
			r.Data["holder"], r.Data["held_token"] = holderOf(l.Holder), l.Token
			r.Data["expires_in_ms"], r.Data["keep_alive"] = l.ExpiresIn.Milliseconds(), l.KeepAlive
			if l.Key != outdated.Key {
				r.Data["held_key"] = l.Key
			}
		}
	case errors.As(err, &compacted):
		r.Code = "COMPACTED"
		r.Data["since"], r.Data["compacted"] = compacted.Since, compacted.Through
	case errors.Is(err, registry.ErrRequestIDReused), errors.Is(err, queue.ErrKeyReused):
		r.Code = "REQUEST_ID_REUSED"
	case errors.As(err, &limit):
		r.Code = "LIMIT"
		r.Data["which"], r.Data["max"] = limit.Which, limit.Max
		if limit.TooLarge {
			r.Data["too_large"] = true
		}
	case errors.As(err, &argument):
		r.Code = "INVALID_ARGUMENT"
		r.Data["argument"] = argument.Argument
	case errors.As(err, &version):
		r.Code = "VERSION_MISMATCH"
		r.Data["version"] = version.Version
	case errors.As(err, &noAccess), errors.As(err, &forbidden):
		r.Code = "FORBIDDEN"
	case errors.As(err, &peer), errors.Is(err, dispatch.ErrNotFound), errors.Is(err, queue.ErrNotFound), errors.Is(err, queue.ErrNoQueue):
		r.Code = "NOT_FOUND"
	case errors.Is(err, dispatch.ErrExists):
		r.Code = "INVALID_ARGUMENT"
		r.Data["argument"] = "name"
	case errors.Is(err, dispatch.ErrUnauthenticated), errors.Is(err, registry.ErrSessionEnded):
		r.Code = "UNAUTHENTICATED"
	case errors.Is(err, engine.ErrFailed), errors.Is(err, engine.ErrClosed):
		r.Code = "UNAVAILABLE"
		// With a database it opens the state again by itself, and with a disk it ends.
		r.Message = "the daemon cannot write its state: try again in a few seconds; if that fails too, an operator must remove the cause, and start the daemon if it has ended (" + err.Error() + "); a call that writes may have taken effect, so look before you repeat it"
	case errors.Is(err, engine.ErrFull):
		r.Code = "UNAVAILABLE"
		r.Data["disk_full"] = true
		r.Message = "the disk that the daemon keeps its state on is almost full, so nothing larger can be stored; free some space on it, or raise its quota, then try again. Releasing, renewing and reading still work"
	default:
		r.Code = "UNAVAILABLE"
	}
	return r
}

// cycleOf describes a cycle of waiters, beginning with the caller.
func cycleOf(cycle []registry.Link) (list []map[string]any) {
	for _, l := range cycle {
		link := map[string]any{"waiter": holderOf(l.Waiter)}
		if l.Scope == "" {
			link["actor"] = l.Actor
		} else {
			link["scope"], link["key"], link["held"], link["in_line"] = scopeWord(l.Scope), l.Key, l.Held, l.InLine
		}
		list = append(list, link)
	}
	return list
}

func heldData(h *registry.HeldError) map[string]any {
	data := map[string]any{
		"key": h.Key, "scope": scopeWord(h.Scope), "holder": holderOf(h.Holder),
		"expires_in_ms": h.ExpiresIn.Milliseconds(), "keep_alive": h.KeepAlive, "waiters": h.Waiters, "mode": "exclusive",
	}
	if h.Shared {
		data["mode"] = "shared"
	}
	if h.Reason != "" {
		data["reason"] = h.Reason
	}
	if h.Asked != "" && h.Asked != h.Key {
		data["asked"] = h.Asked
	}
	return data
}

type holder struct {
	ActorID string `json:"actor_id" jsonschema:"as the refusals name it"`
	Path    string `json:"path" jsonschema:"names below the root joined by →"`
	As      string `json:"as,omitempty" jsonschema:"which of its sub-agents"`
	origin
}

func holderOf(h registry.Holder) holder {
	return holder{ActorID: h.Actor.String(), Path: h.Path, As: h.Party}
}

// who names the holder for readers.
func (h holder) who() string { return event.Who(h.Path, h.As) }

// An origin is where an actor works.
type origin struct {
	Directory string `json:"directory,omitempty" jsonschema:"where it works"`
	Branch    string `json:"branch,omitempty" jsonschema:"that is checked out there now"`
	PID       int    `json:"pid,omitempty" jsonschema:"of its process"`
	Access    string `json:"access,omitempty" jsonschema:"name of the operator's token with which it came from another machine"`
}

// originOf adds the branch that is checked out now. The session's record has
// only the directory, because the branch may change.
func originOf(o dispatch.Origin, b branches) origin {
	return origin{o.Directory, b.of(o.Directory), o.PID, o.Access}
}

// String describes the origin for a refusal, or returns "".
func (o origin) String() string {
	switch {
	case o.Directory != "":
	case o.Access != "":
		return fmt.Sprintf("it came with the token %q", o.Access)
	default:
		return ""
	}
	dir := o.Directory
	if strings.ContainsAny(dir, " ;\"") { // quoted, so that it cannot pass for what follows
		dir = strconv.Quote(dir)
	}
	s := "it works in " + dir
	if o.Branch != "" {
		s += " on branch " + o.Branch
	}
	return fmt.Sprintf("%s, pid %d", s, o.PID)
}

// locate adds where the holder works, if the refusal is due to a holder. What the
// caller can do stays at the end.
func (r Refusal) locate(ctx context.Context, se *dispatch.Session, err error) Refusal {
	held, ok := errors.AsType[*registry.HeldError](err)
	if wait, waited := errors.AsType[*registry.WaitError](err); waited {
		held, ok = &wait.HeldError, true
	}
	if !ok {
		return r
	}
	where, err := se.OriginOf(ctx, held.Holder)
	if err != nil {
		return r
	}
	h := holderOf(held.Holder)
	h.origin = originOf(where, branches{})
	if text := h.origin.String(); text != "" {
		r.Data["holder"] = h
		r.Message = strings.TrimSuffix(r.Message, r.Next) + "; " + text + r.Next
	}
	return r
}
