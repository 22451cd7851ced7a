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
	"github.com/leasehold/leasehold/dispatch/server/tools"
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
		case errors.As(err, &refusal):
			ticket := ticketOf(refusal)
			if ticket == "" {
				return h.inFlags(err, refusal)
			}
			if time.Until(end) <= 0 {
				return gaveUp(refusal, h.cfg.wait)
			}
			if h.waits != nil {
				h.waits(inLine(refusal, "are"))
				h.waits = nil
			}
			args["ticket"] = ticket // keeps the place in line
			failures = 0
		case h.link.hello.Handle == "":
			return err // never connected
		case connection.Final(err):
			// The session has ended, as when this process was stopped (Ctrl-Z) for too
			// long. Nothing is held in it, so another one waits in its place.
			h.link.hello = h.link.first
		case failures > 0 && time.Now().After(patience):
			return err
		default:
			if failures++; failures == 1 {
				patience = time.Now().Add(execOutage)
			}
			if connection.Pause(ctx, connection.RetryAfter(failures)) != nil {
				return context.Canceled
			}
		}
	}
}

func ticketOf(r *client.Refusal) string {
	if r.Code != "WAIT_TIMEOUT" {
		return ""
	}
	var data struct{ Ticket string }
	_ = json.Unmarshal(r.Object, &data) // without a ticket there is no place to keep
	return data.Ticket
}

var position = regexp.MustCompile(`; you are (number \d+ in line); call again with ticket \S+ within \d+ s to keep your place$`)

// inLine rewords the message of a wait that has timed out, because the user of exec
// cannot continue with the ticket. verb is "are" while the wait goes on, and "were"
// after it.
func inLine(r *client.Refusal, verb string) string {
	return position.ReplaceAllString(r.Message, "; you "+verb+" $1")
}

// wrongLease matches a refusal of the name of a lease, the first if there is no number.
var wrongLease = regexp.MustCompile(`(?s)^(?:leases\[(\d+)\]: )?(key|path) (must .*)$`)

// inFlags rewords a refusal that offers a place in line, because exec asks for one with
// a flag, and one that is about a lease by its number.
func (h *hold) inFlags(err error, r *client.Refusal) error {
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
	message, offered := strings.CutSuffix(r.Message, tools.LineOffer)
	if !offered {
		return err
	}
	worded := *r
	worded.Message = message
	if h.cfg.wait == 0 {
		worded.Message += "; use --wait SECS to wait in line"
	}
	return &worded
}

// gaveUp returns the refusal of the last wait.
func gaveUp(r *client.Refusal, waited time.Duration) error {
	worded := *r
	worded.Message = fmt.Sprintf("%s; gave up after %v", inLine(r, "were"), waited.Round(time.Second))
	return &worded
}
