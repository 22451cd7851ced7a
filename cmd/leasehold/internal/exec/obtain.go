package exec

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/connection"
	"github.com/leasehold/leasehold/dispatch/client"
)

// obtain takes the leases, all or none, and waits in line as long as allowed. A
// repeated call returns the same grant. If the leases are refused for good, the
// error is a [*client.Refusal].
func (h *hold) obtain(ctx context.Context) error {
	if len(h.cfg.wanted) == 0 {
		if err := h.link.connect(ctx); err != nil {
			return err
		}
		return h.confirm(ctx)
	}
	end := time.Now().Add(h.cfg.wait)
	args := map[string]any{"leases": h.cfg.wanted, "ttl_secs": h.cfg.ttl.Seconds(), "request_id": uuid.NewString()}
	if h.cfg.reason != "" {
		args["reason"] = h.cfg.reason
	}
	patience := time.Time{} // until when to wait for a daemon that has gone away
	for failures := 0; ; {
		wait := min(max(time.Until(end), 0), maxCall)
		if h.waits != nil {
			wait = min(wait, firstCall)
		}
		args["wait_secs"] = wait.Seconds()
		before := h.link.client
		err := h.link.connect(ctx) // over a slow link this alone may take HelloTimeout
		if err == nil && h.link.client != before && !h.link.client.Resumed {
			delete(args, "ticket") // it belongs to a session that has ended
		}
		var answer client.Answer
		if err == nil {
			bounded, cancel := context.WithTimeoutCause(ctx, wait+connection.HelloTimeout, errors.New("the daemon does not answer"))
			answer, err = h.link.call(bounded, "lease_acquire_many", args)
			cancel()
		}
		var refusal *client.Refusal
		switch {
		case err == nil:
			granted, err := connection.Decode[struct{ Leases []lease }](answer.Object)
			if err != nil {
				return err
			}
			h.leases = granted.Leases
			return h.confirm(ctx)
		case ctx.Err() != nil:
			return context.Canceled
		case errors.As(err, &refusal) && (!refusal.Passing() || time.Until(end) <= 0):
			advice := adviceOf(refusal)
			if advice.Ticket == "" {
				return h.inFlags(err, refusal, advice.before)
			}
			if time.Until(end) <= 0 {
				return gaveUp(refusal, advice, h.cfg.wait)
			}
			if h.waits != nil {
				h.waits(advice.inLine("are"))
				h.waits = nil
			}
			args["ticket"] = advice.Ticket // keeps the place in line
			failures = 0
		case h.link.hello.Handle == "":
			return err // never connected
		case connection.Final(err):
			// The session has ended, as when this process was stopped (Ctrl-Z) for too
			// long. Nothing is held in it, so another one waits in its place.
			h.link.hello = h.link.first
		case failures > 0 && time.Now().After(patience) && refusal == nil:
			return err
		default:
			if h.waits != nil && refusal != nil && refusal.Code == "LIMIT" {
				h.waits(refusal.Message)
				h.waits = nil
			}
			if failures++; failures == 1 || refusal != nil {
				patience = time.Now().Add(execOutage)
			}
			if connection.Pause(ctx, connection.RetryAfter(failures)) != nil {
				return context.Canceled
			}
		}
	}
}

// An advice is what a refusal tells an agent to do next. The user of exec cannot do it.
type advice struct {
	Next     string
	Ticket   string // "": there is no place in line to keep
	Position int
	before   string // the message without its end, which is Next
}

func adviceOf(r *client.Refusal) (a advice) {
	_ = json.Unmarshal(r.Object, &a) // without advice the message is whole
	a.before = strings.TrimSuffix(r.Message, a.Next)
	return a
}

// inLine returns the message of a wait that has timed out. verb is "are" while the wait
// goes on, and "were" after it.
func (a advice) inLine(verb string) string {
	return fmt.Sprintf("%s; you %s number %d in line", a.before, verb, a.Position)
}

// wrongLease matches a refusal of the name of a lease, the first if there is no number.
var wrongLease = regexp.MustCompile(`(?s)^(?:leases\[(\d+)\]: )?(key|path) (must .*)$`)

// inFlags rewords a refusal that offers a place in line, because exec asks for one with
// a flag, and one that is about a lease by its number. before is the message without
// that offer.
func (h *hold) inFlags(err error, r *client.Refusal, before string) error {
	if wrong := wrongLease.FindStringSubmatch(r.Message); wrong != nil && r.Code == "INVALID_ARGUMENT" {
		i, _ := strconv.Atoi(wrong[1])
		if given := h.cfg.wanted; i < len(given) {
			flag, name := "--lease", given[i].Key
			if given[i].Path != "" {
				flag, name = "--path", given[i].Path
			}
			worded := *r
			worded.Message = fmt.Sprintf("%s %.80q: %s %s", flag, name, wrong[2], wrong[3])
			return &worded
		}
	}
	if before == r.Message {
		return err
	}
	worded := *r
	worded.Message = before
	if h.cfg.wait == 0 {
		worded.Message += "; use --wait SECS to wait in line"
	}
	return &worded
}

// gaveUp returns the refusal of the last wait.
func gaveUp(r *client.Refusal, a advice, waited time.Duration) error {
	worded := *r
	worded.Message = fmt.Sprintf("%s; gave up after %v", a.inLine("were"), waited.Round(time.Second))
	return &worded
}
