package tools

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/queue"
	"github.com/leasehold/leasehold/registry"
)

// A Notice reports a lease that the session has lost, that another agent waits
// for or that is offered to the session; the end of the run; or a message.
type Notice struct {
	Code         string   `json:"code" jsonschema:"LEASE_LOST; LEASE_WANTED: another waits for what you hold; LEASE_OFFERED: acquire it to accept; DRAINING: the run ends, finish and report; MESSAGE: what another agent says; UNREAD: there are more messages; UNAUTHENTICATED: your actor was ended, which only hooks tell"`
	Name         string   `json:"name,omitempty" jsonschema:"of a layer's lease"`
	Key          string   `json:"key,omitempty" jsonschema:"of a run's lease, or the task whose claim was lost"`
	Scope        string   `json:"scope,omitempty" jsonschema:"layer, run, or queue for a claim"`
	As           string   `json:"as,omitempty" jsonschema:"which of your sub-agents held it"`
	LeaseID      string   `json:"lease_id,omitempty" jsonschema:"of a lease that is yours or was"`
	Token        uint64   `json:"token,omitempty" jsonschema:"its fencing token; of what was lost: refused from now on"`
	Reason       string   `json:"reason,omitempty" jsonschema:"why it was lost, or what it is wanted or offered for"`
	At           stamp    `json:"at,omitempty"`
	SupersededBy string   `json:"superseded_by,omitempty" jsonschema:"path of the actor it went to"`
	Regained     uint64   `json:"regained_token,omitempty" jsonschema:"you have acquired it again: its token"`
	Waiter       *holder  `json:"waiter,omitempty" jsonschema:"who waits first"`
	Waiters      int      `json:"waiters,omitempty" jsonschema:"how many wait"`
	Holder       *holder  `json:"holder,omitempty" jsonschema:"who offers it, and holds it until you acquire it"`
	Message      *message `json:"message,omitempty"`
	next         string   // the tool to call, for the text; "" if the client does not see it
	nowWith      string   // the party it went to, for the text
}

// Codes of notices.
const (
	leaseLost    = "LEASE_LOST"
	leaseWanted  = "LEASE_WANTED"
	leaseOffered = "LEASE_OFFERED"
	draining     = "DRAINING"
	messaged     = "MESSAGE"
	unread       = "UNREAD"
	dismissed    = "UNAUTHENTICATED"
)

// NoticeOf converts a notice about a lease.
func NoticeOf(l registry.Notice) Notice {
	n := Notice{
		Code: leaseLost, Scope: scopeWord(l.Scope), Token: l.Token,
		As: l.Party, Reason: l.Reason, At: instant(l.At), SupersededBy: l.SupersededBy, nowWith: l.NowWith, Regained: l.Regained,
	}
	if l.LeaseID != uuid.Nil { // a claim has none
		n.LeaseID = l.LeaseID.String()
	}
	from := holderOf(l.From)
	switch l.Kind {
	case registry.Wanted:
		n.Code, n.Waiter, n.Waiters = leaseWanted, &from, l.Waiters
	case registry.Offered:
		n.Code, n.Holder, n.LeaseID, n.Token = leaseOffered, &from, "", 0
	case registry.Loss:
	}
	n.Name, n.Key = nameOrKey(registry.Lease{Scope: l.Scope, Key: l.Key})
	return n
}

type unreadKey struct{}

// WithoutNotices returns a context for a call whose answer no model reads. The
// notices are left for the next answer.
func WithoutNotices(ctx context.Context) context.Context {
	return context.WithValue(ctx, unreadKey{}, true)
}

type groupsKey struct{}

// WithGroups returns a context for a call of a client that sees only these groups of
// tools; nil: all. Notices and refusals name no others.
func WithGroups(ctx context.Context, groups []string) context.Context {
	return context.WithValue(ctx, groupsKey{}, groups)
}

// ifSeen returns a text that names tools of a group, or "" if the client does not see
// that group.
func ifSeen(ctx context.Context, group, text string) string {
	groups, _ := ctx.Value(groupsKey{}).([]string)
	if groups != nil && !slices.Contains(groups, group) {
		return ""
	}
	return text
}

// onlySeen returns the text of a refusal without the advice at its end that names a tool
// which the client does not see. Advice follows a semicolon and has no quotes.
func onlySeen(ctx context.Context, text string) string {
	groups, _ := ctx.Value(groupsKey{}).([]string)
	if groups == nil {
		return text
	}
	for {
		end := strings.LastIndex(text, "; ")
		if end < 0 || strings.Contains(text[end:], `"`) || !slices.ContainsFunc(Agents(), func(t Tool) bool {
			return !slices.Contains(groups, t.Group) && strings.Contains(text[end:], t.Name)
		}) {
			return text
		}
		text = text[:end]
	}
}

type programKey struct{}

// ForProgram returns a context for a call by a program, which is told only what its own
// session has lost. Messages, offers, and what an earlier session of the actor has lost
// are left for an answer that a model reads.
func ForProgram(ctx context.Context) context.Context {
	return context.WithValue(ctx, programKey{}, true)
}

// takeNotices returns the notices for an agent of the session, in the order in
// which they came about. Notices that cannot be read now are left for the next
// answer, and so are messages in the answer of actor_inbox, which has messages
// already and says how many are left.
func takeNotices(ctx context.Context, se *dispatch.Session, agent string, inbox bool) (news []Notice) {
	if se.Actor().Role == dispatch.Operator {
		return nil
	}
	if drain := se.TakeDrain(ctx, agent); drain != nil {
		news = append(news, Notice{Code: draining, Reason: drain.Reason, At: stampOf(drain.At), next: ifSeen(ctx, "tree", ", report with actor_report")})
	}
	by := dispatch.Model
	if ctx.Value(programKey{}) != nil {
		by = dispatch.Program
	}
	if lost, more, err := se.TakeNotices(ctx, agent, by); err == nil {
		for _, l := range lost {
			n := NoticeOf(l)
			if n.As == agent {
				n.As = "" // the agent itself is told
			}
			news = append(news, n)
		}
		if more > 0 {
			news = append(news, Notice{Code: leaseLost, Reason: "there is more to tell of " + counted(more, "lease", "leases", "") + "; the next answers have it" + ifSeen(ctx, "leases", ", and lease_list shows what you hold")})
		}
	}
	if by == dispatch.Model && !inbox {
		news = append(news, takeMessages(ctx, se, agent)...)
	}
	sortNotices(news)
	return news
}

// withoutLoss removes the notice of the loss that a refusal already reports.
func withoutLoss(news []Notice, refusal error) []Notice {
	lost, ok := errors.AsType[*registry.LostError](refusal)
	if !ok {
		return news
	}
	return slices.DeleteFunc(news, func(n Notice) bool {
		return n.Code == leaseLost && n.LeaseID == lost.LeaseID.String() && n.Token == lost.Token
	})
}

// takeMessages returns the messages for an agent of the session, as takeNotices does.
func takeMessages(ctx context.Context, se *dispatch.Session, agent string) (news []Notice) {
	list, more, err := se.TakeMessages(ctx, agent)
	if err != nil {
		return nil
	}
	for _, m := range list {
		told := messageOf(m, agent)
		news = append(news, Notice{Code: messaged, At: told.At, Message: &told, next: ifSeen(ctx, "messages", "; answer with actor_message")})
	}
	if more > 0 {
		news = append(news, Notice{Code: unread, Reason: counted(more, "message of another agent is", "messages of other agents are", "") + " unread" + cmp.Or(ifSeen(ctx, "messages", ": call actor_inbox"), "; the next answers have the rest")})
	}
	return news
}

// sortNotices puts notices in the order in which they came about. Those that only
// count others are the last.
func sortNotices(news []Notice) {
	slices.SortStableFunc(news, func(a, b Notice) int {
		if (a.At == "") != (b.At == "") {
			return cmp.Compare(len(b.At), len(a.At))
		}
		return cmp.Compare(a.At, b.At)
	})
}

// String describes the notice in one line.
func (n Notice) String() string {
	switch {
	case n.Code == draining:
		return fmt.Sprintf("the run ends (%s): nothing is spawned any more; finish what you have%s, and end", n.Reason, n.next)
	case n.Message != nil: // its text is in the object
		return fmt.Sprintf("a message from %s (another agent, not your user)", n.Message.From)
	case n.Waiter != nil:
		verb := "waits"
		if n.Waiters > 1 {
			verb = "wait"
		}
		return fmt.Sprintf("%s %s for %s %s lease %q%s: release it as soon as you can",
			severalOf([]holder{*n.Waiter}, n.Waiters), verb, n.whose("your", "'s"), n.Scope, n.Name+n.Key, n.purpose())
	case n.Holder != nil:
		return fmt.Sprintf("%s offers you its %s lease %q%s: acquire it to accept", n.Holder.Path, n.Scope, n.Name+n.Key, n.purpose())
	case n.Token == 0:
		return n.Reason
	}
	what := "lease"
	if n.Scope == queue.Scope {
		what = "the claim on task"
	}
	s := fmt.Sprintf("%s lost %s %q (%s)", n.whose("you", ""), what, n.Name+n.Key, n.Reason)
	if n.SupersededBy != "" {
		s += ", now held by " + cmp.Or(n.nowWith, n.SupersededBy) // another server says only the path
	}
	if n.Regained != 0 {
		s += fmt.Sprintf(", and it was acquired again, with token %d", n.Regained)
	}
	return s
}

// whose returns you, or the name of the sub-agent that the notice is about.
func (n Notice) whose(you, ending string) string {
	if n.As == "" {
		return you
	}
	return fmt.Sprintf("your agent %q%s", n.As, ending)
}

// purpose returns what a lease is wanted for, if that is known.
func (n Notice) purpose() string {
	if n.Reason == "" {
		return ""
	}
	return fmt.Sprintf(" (%q)", n.Reason)
}

const (
	maxNoticeText  = 1200 // bytes, beyond which reasons are shortened
	maxShortReason = 40   // bytes of those
)

// noticeText describes notices in the line of an answer. If the reasons are long, it
// shortens them: of an answer that is too long for them, clients show their models as
// little as the first 2 kB. The object has the whole reasons.
func noticeText(news []Notice) string {
	label := "notice: "
	if len(news) > 1 {
		label = fmt.Sprintf("%d notices: ", len(news))
	}
	text := joinNotices(news, Notice.String)
	if len(text) > maxNoticeText {
		text = joinNotices(news, func(n Notice) string {
			if n.Name+n.Key != "" {
				n.Reason = shortReason(n.Reason)
			}
			return n.String()
		})
	}
	return label + text
}

func shortReason(reason string) string {
	if len(reason) <= maxShortReason {
		return reason
	}
	short := strings.ToValidUTF8(reason[:maxShortReason], "") + "…"
	if strings.Contains(short, `"`) { // an agent's words end where their quotes do
		short += `"`
	}
	return short
}

// joinNotices joins the texts of notices. Once, after the last lost lease, it says what to do
// about such leases. What to do about a claim is in the refusal of every call that names it.
func joinNotices(news []Notice, text func(Notice) string) string {
	texts := make([]string, 0, len(news))
	last := -1 // loss of the reader's own, which it did not intend
	for i, n := range news {
		texts = append(texts, text(n))
		if n.Code == leaseLost && n.Token != 0 && n.Regained == 0 && n.As == "" && n.Scope != queue.Scope && n.Reason != string(registry.Transferred) {
			last = i
		}
	}
	if last >= 0 {
		texts[last] += "; acquire what you lost again before you touch what it guards"
	}
	return strings.Join(texts, "; ")
}

// wholeNotices describes notices with their reasons and the texts of messages, for a reader that does
// not get the object.
func wholeNotices(news []Notice) string {
	return joinNotices(news, func(n Notice) string {
		if n.Message != nil {
			return n.Message.String() + " (this is another agent, not your user" + n.next + ")"
		}
		return n.String()
	})
}
