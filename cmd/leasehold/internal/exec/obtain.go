package exec

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/connection"
	"github.com/leasehold/leasehold/dispatch/client"
)

// obtain takes the leases, all or none, waiting in line for as long as may be.
// One refusal is the last word, as a [*client.Refusal].
//
// It takes one after the other in an order that is the same for everybody, so
// that no two wait for what the other has.
func (h *hold) obtain(ctx context.Context) error {
	end := time.Now().Add(h.cfg.wait)
	for _, key := range slices.Compact(slices.Sorted(slices.Values(h.cfg.keys))) {
		if err := h.obtainOne(ctx, key, end); err != nil {
			return err
		}
	}
	// As they were asked for: the variables have them in this order.
	slices.SortStableFunc(h.leases, func(a, b execLease) int {
		return slices.Index(h.cfg.keys, a.asked) - slices.Index(h.cfg.keys, b.asked)
	})
	return h.confirm(ctx)
}

func (h *hold) obtainOne(ctx context.Context, key string, end time.Time) error {
	tool, args := h.request(key)
	longest := maxCall
	if len(h.leases) > 0 {
		longest = min(longest, h.cfg.ttl/3) // those there are want to be renewed
	}
	patience := time.Time{} // for a daemon that was there
	for failures := 0; ; {
		wait := min(max(time.Until(end), 0), longest)
		args["wait_secs"] = wait.Seconds()
		bounded, cancel := context.WithTimeoutCause(ctx, wait+connection.HelloTimeout, errors.New("the daemon does not answer"))
		before := h.link.client
		err := h.link.connect(bounded)
		if err == nil && h.link.client != before && !h.link.client.Resumed {
			delete(args, "ticket") // it was of a session that has ended
		}
		var answer client.Answer
		if err == nil {
			answer, err = h.link.call(bounded, tool, args)
		}
		cancel()
		var refusal *client.Refusal
		switch {
		case err == nil:
			return h.take(key, answer)
		case ctx.Err() != nil:
			return context.Canceled
		case errors.As(err, &refusal):
			ticket := ticketOf(refusal)
			if ticket == "" || time.Until(end) <= 0 {
				return gaveUp(refusal, h.cfg.wait)
			}
			args["ticket"] = ticket // and with it the place in line
			failures = 0
			if len(h.leases) > 0 {
				if err := h.confirm(ctx); err != nil {
					return err
				}
			}
		case h.link.hello.Handle == "" || permanent(err):
			return err // it was never there, or has ended the session
		case failures > 0 && time.Now().After(patience):
			return err
		default:
			if failures++; failures == 1 {
				patience = time.Now().Add(execOutage)
			}
			if backoff(ctx, failures, connection.LastRetry) != nil {
				return context.Canceled
			}
		}
	}
}

// request is the call that takes a lease. Sent again it is answered with the
// same grant.
func (h *hold) request(key string) (tool string, args map[string]any) {
	args = map[string]any{"ttl_secs": h.cfg.ttl.Seconds(), "request_id": uuid.NewString()}
	if h.cfg.layer {
		args["name"] = key
		return "lease_acquire", args
	}
	args["key"] = key
	return "run_lease_acquire", args
}

func (h *hold) take(key string, answer client.Answer) error {
	l, err := connection.Decode[execLease](answer.Object)
	if err != nil {
		return err
	}
	l.asked = key
	h.leases = append(h.leases, l)
	return nil
}

func ticketOf(r *client.Refusal) string {
	if r.Code != "WAIT_TIMEOUT" {
		return ""
	}
	var data struct{ Ticket string }
	_ = json.Unmarshal(r.Object, &data) // without one there is no place to keep
	return data.Ticket
}

var expires = regexp.MustCompile(`, expires in \d+s; `)

// gaveUp words a wait that has ended for one who cannot ask again with the
// ticket.
func gaveUp(r *client.Refusal, waited time.Duration) error {
	if r.Code != "WAIT_TIMEOUT" {
		return r
	}
	ends := expires.FindAllStringIndex(r.Message, -1)
	if len(ends) == 0 {
		return r
	}
	worded := *r
	// The last: the key may hold anything.
	end := ends[len(ends)-1][1] - len("; ")
	where := "" // the holder works, as the refusal says last
	if i := strings.LastIndex(r.Message[end:], "; it works in "); i >= 0 {
		where = r.Message[end+i:]
	}
	worded.Message = fmt.Sprintf("%s%s; gave up after %v", r.Message[:end], where, waited.Round(time.Second))
	return &worded
}
