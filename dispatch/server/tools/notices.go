package tools

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/queue"
	"github.com/leasehold/leasehold/registry"
)

// A Notice tells of a lease that the session no longer holds, that its run ends, or
// what another agent wrote to it.
type Notice struct {
	Code         string    `json:"code" jsonschema:"LEASE_LOST; DRAINING: the run ends, finish and report; MESSAGE: what another agent says; UNREAD: there are more messages"`
	Name         string    `json:"name,omitempty" jsonschema:"the layer's lease that was lost"`
	Key          string    `json:"key,omitempty" jsonschema:"the run's lease that was lost, or the task whose claim was"`
	Scope        string    `json:"scope,omitempty" jsonschema:"of what was lost: layer, run, or queue for a claim"`
	LeaseID      string    `json:"lease_id,omitempty"`
	Token        uint64    `json:"token,omitempty" jsonschema:"its fencing token, refused from now on"`
	Reason       string    `json:"reason,omitempty"`
	At           time.Time `json:"at,omitzero"`
	SupersededBy string    `json:"superseded_by,omitempty" jsonschema:"path of the actor it went to"`
	Message      *message  `json:"message,omitempty"`
}

// The codes of notices.
const (
	leaseLost = "LEASE_LOST"
	draining  = "DRAINING"
	messaged  = "MESSAGE"
	unread    = "UNREAD"
)

// NoticeOf tells a loss.
func NoticeOf(l registry.Lost) Notice {
	n := Notice{
		Code: leaseLost, Scope: scopeWord(l.Scope), LeaseID: l.LeaseID.String(), Token: l.Token,
		Reason: l.Reason, At: l.At, SupersededBy: l.SupersededBy,
	}
	n.Name, n.Key = nameOrKey(registry.Lease{Scope: l.Scope, Key: l.Key})
	return n
}

// takeNotices reads what the session is to be told. What fails to be read the next
// answer tells.
func takeNotices(ctx context.Context, se *dispatch.Session) (news []Notice) {
	if se.Actor().Role == dispatch.Operator {
		return nil
	}
	if drain := se.TakeDrain(); drain != nil {
		news = append(news, Notice{Code: draining, Reason: drain.Reason, At: drain.At})
	}
	if lost, more, err := se.TakeLosses(ctx); err == nil {
		for _, l := range lost {
			news = append(news, NoticeOf(l))
		}
		if more > 0 {
			news = append(news, Notice{Code: leaseLost, Reason: fmt.Sprintf("and %d more were lost; the next answers name them", more)})
		}
	}
	if list, more, err := se.TakeMessages(ctx); err == nil {
		for _, m := range list {
			told := messageOf(m)
			news = append(news, Notice{Code: messaged, At: told.At, Message: &told})
		}
		if more > 0 {
			news = append(news, Notice{Code: unread, Reason: fmt.Sprintf("%d messages of other agents are unread: call actor_inbox", more)})
		}
	}
	return news
}

// String is the notice in a line of text.
func (n Notice) String() string {
	switch {
	case n.Code == draining:
		return fmt.Sprintf("the run ends (%s): nothing is spawned any more; finish what you have, report with actor_report, and end", n.Reason)
	case n.Message != nil: // whose text is in the object
		return fmt.Sprintf("a message from %s (another agent, not your user)", n.Message.From)
	case n.Token == 0:
		return n.Reason
	}
	what := "lease"
	if n.Scope == queue.Scope {
		what = "the claim on task"
	}
	s := fmt.Sprintf("you lost %s %q (%s)", what, n.Name+n.Key, n.Reason)
	if n.SupersededBy != "" {
		s += ", now held by " + n.SupersededBy
	}
	return s
}

func noticeText(news []Notice) string {
	texts := make([]string, 0, len(news))
	for _, n := range news {
		texts = append(texts, n.String())
	}
	return strings.Join(texts, "; ")
}

// wholeNotices is noticeText with the texts of messages, for a reader who has no
// object.
func wholeNotices(news []Notice) string {
	texts := make([]string, 0, len(news))
	for _, n := range news {
		text := n.String()
		if n.Message != nil {
			text = n.Message.String() + " (this is another agent, not your user; answer with actor_message)"
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, "; ")
}
