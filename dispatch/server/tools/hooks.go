package tools

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/queue"
	"github.com/leasehold/leasehold/registry"
)

// Hooks returns the tools for the hooks of clients. Agents may call them but do
// not see them.
func Hooks(state *dispatch.State) []Tool {
	h := &hooks{state: state}
	const whose = " Of your own session, or as an operator of those whose client is the process pid."
	list := []Tool{
		tool("hook_write", "Take the files of a write",
			"Take the leases of the files that a client is about to change, all or none. They last while the client is heard from, until its session or its sub-agent ends."+whose,
			Effect{Idempotent: true}, h.write),
		tool("hook_check", "See who holds files",
			"The leases of files, and of directories above them, that others than the caller hold; without keys, of all files.",
			Effect{}, h.check),
		tool("hook_command", "Remember files before a shell command",
			"What files that others have leased look like before a shell command; without files, what was said so before it."+whose,
			Effect{Idempotent: true}, h.command),
		tool("hook_changed", "Say what a shell command has changed",
			"Report files that others have leased and that changed while a shell command ran, to those who hold them, and record it."+whose,
			Effect{}, h.changed),
		tool("hook_present", "Say that a client is there",
			"Extend what hook_write took for a sub-agent, except what others wait for; or release it."+whose,
			Effect{Idempotent: true}, h.present),
		tool("hook_tool_use", "Say who uses a tool",
			"Say which sub-agent makes a use of a tool, before it is made."+whose,
			Effect{Idempotent: true}, h.toolUse),
		tool("hook_party_end", "Say that a sub-agent has ended",
			"Release what a sub-agent held and take it out of every line."+whose,
			Effect{Idempotent: true}, h.partyEnd),
		tool("hook_sessions", "See whether a client has sessions", "How many sessions a client's process has by connections of its own."+whose,
			Effect{ReadOnly: true, Idempotent: true}, h.ownSessions),
		tool("hook_give_back", "Give back what a write took", "Release what hook_write took for a write that does not happen, because it was refused elsewhere."+whose,
			Effect{Idempotent: true}, h.giveBack),
		tool("hook_notices", "Take what a client is to be told",
			"Lost leases, messages and other notices that have not been told yet. They count as told from then on. On request also what the agent holds."+whose,
			Effect{}, h.takeNotices),
	}
	for i := range list {
		list[i].unread = true // by a model; what hook_notices returns is its answer
	}
	return list
}

type hooks struct {
	state *dispatch.State
	looks looks
}

// A clientArg identifies the client whose hook calls.
type clientArg struct {
	PID  int    `json:"pid,omitempty" doc:"the client's process, or its shim's; an operator must give it, or mark" min:"1" max:"4194304"`
	Mark string `json:"mark,omitempty" doc:"in place of pid, of a client on another machine or in another container: what its shim called it in its hello" max:"64"`
}

// marks are those of the client, if it has one.
func (a clientArg) marks() []string {
	if a.Mark == "" {
		return nil
	}
	return []string{a.Mark}
}

// An agentArg identifies an agent of the client.
type agentArg struct {
	clientArg
	Party string `json:"party,omitempty" doc:"the sub-agent, by the id that its client gave it" max:"1024"`
	Main  bool   `json:"main,omitempty" doc:"party is the main agent, not a sub-agent" default:"false"`
}

// sessions returns the sessions that the hook refers to.
func (a clientArg) sessions(h *hooks, se *dispatch.Session) ([]*dispatch.Session, error) {
	if se.Actor().Role != dispatch.Operator {
		return se.OfActor(), nil
	}
	if a.Mark != "" {
		return h.state.SessionsMarked(a.Mark), nil
	}
	if a.PID == 0 {
		return nil, &registry.ArgumentError{Argument: "pid", Problem: "must be given by an operator: the client's process"}
	}
	return h.state.SessionsOf(a.PID), nil
}

type fileWriteArgs struct {
	agentArg
	Writes    []fileWrite `json:"writes" doc:"what is written to, one for each run" min:"1" max:"64"`
	Hold      seconds     `json:"hold_secs" doc:"how long the client may be quiet before it loses them" min:"1" max:"86400"`
	Overrule  bool        `json:"overrule,omitempty" doc:"record leases of others that are in the way, and refuse nothing" default:"false"`
	Reason    string      `json:"reason,omitempty" doc:"shown to refused agents" max:"256"`
	Name      string      `json:"name" doc:"to join a run under, for a client without a session" min:"1" max:"64"`
	Directory string      `json:"directory,omitempty" doc:"where the client works" max:"1024"`
}

type fileWrite struct {
	Run  string   `json:"run" jsonschema:"of the project that is written to"`
	Home bool     `json:"home,omitempty" jsonschema:"that is the project the client works in: its session counts, whatever run it is of"`
	Keys []string `json:"keys" jsonschema:"of the leases of the files"`
}

type guarded struct {
	Actor     string        `json:"actor" jsonschema:"path of the actor that holds them"`
	Leases    []guardedFile `json:"leases"`
	Overruled []string      `json:"overruled" jsonschema:"who holds the others"`
}

type guardedFile struct {
	Key         string `json:"key"`
	Token       uint64 `json:"token"`
	ExpiresInMS int64  `json:"expires_in_ms"`
	Reentrant   bool   `json:"reentrant" jsonschema:"it was held before"`
}

func (g guarded) Text() string { return fmt.Sprintf("%s holds %d files", g.Actor, len(g.Leases)) }

func (h *hooks) write(ctx context.Context, se *dispatch.Session, a fileWriteArgs) (g guarded, err error) {
	var took []taken
	g = guarded{Leases: []guardedFile{}, Overruled: []string{}}
	for _, w := range a.Writes {
		var by *dispatch.Session
		by, err = h.state.SessionFor(ctx, se, dispatch.Writer{
			PID: a.PID, Run: w.Run, Home: w.Home, Name: a.Name, Party: partyOf(a.Party), Origin: dispatch.Origin{Directory: a.Directory, Mark: a.Mark},
		})
		var t taken
		if err == nil {
			t, err = h.take(ctx, by, w.Keys, a, &g)
		}
		took = append(took, t)
		if err != nil {
			for _, t := range took {
				if t.by == nil {
					continue
				}
				if giveBack := t.by.GiveBack(ctx, t.grants); giveBack != nil {
					return guarded{}, giveBack
				}
			}
			return guarded{}, err
		}
	}
	return g, nil
}

// A taken is what a write has obtained in one run.
type taken struct {
	by     *dispatch.Session
	grants []registry.Grant
}

func (h *hooks) take(ctx context.Context, by *dispatch.Session, keys []string, a fileWriteArgs, g *guarded) (t taken, err error) {
	t.by, g.Actor = by, by.Actor().Path
	if err := by.Heard(ctx, partyOf(a.Party), a.Main); err != nil {
		return t, err
	}
	sets := [][]string{keys}
	if a.Overrule { // each file separately
		sets = slices.Collect(slices.Chunk(keys, 1))
	}
	for _, set := range sets {
		grants, err := by.Guard(ctx, partyOf(a.Party), set, a.Hold.duration(), a.Reason)
		if held, ok := errors.AsType[*registry.HeldError](err); ok && a.Overrule {
			g.Overruled = append(g.Overruled, held.Error())
			if err := by.NoteOverruled(ctx, partyOf(a.Party), a.Reason, held); err != nil {
				return t, err
			}
			continue
		}
		if err != nil {
			return t, err
		}
		t.grants = append(t.grants, grants...)
	}
	for _, grant := range t.grants {
		g.Leases = append(g.Leases, guardedFile{grant.Key, grant.Token, grant.ExpiresIn.Milliseconds(), grant.Reentrant})
	}
	return t, nil
}

func partyOf(name string) string {
	if name == "" {
		return ""
	}
	return PartyName(name)
}

type fileCheckArgs struct {
	Run  string   `json:"run" doc:"of the project" min:"1" max:"64"`
	Keys []string `json:"keys,omitempty" doc:"of the leases of the files; all that are leased, if left out" max:"10000"`
	PIDs []string `json:"pids,omitempty" doc:"the processes that the caller comes from, the nearest first" max:"64"`

	Marks []string `json:"marks,omitempty" doc:"in place of pids, of a caller on another machine" max:"64"`

	Overrule bool `json:"overrule,omitempty" doc:"record that the files are committed all the same" default:"false"`
}

type inTheWay struct {
	Held []heldFile `json:"held"`
}

type heldFile struct {
	Key  string `json:"key"`
	Text string `json:"text" jsonschema:"who holds it, and until when"`
}

func (l inTheWay) Text() string { return fmt.Sprintf("%d leases of others", len(l.Held)) }

func (h *hooks) check(ctx context.Context, se *dispatch.Session, a fileCheckArgs) (inTheWay, error) {
	var pids []int
	for _, text := range a.PIDs {
		pid, _ := strconv.Atoi(text) // 0 has no sessions
		pids = append(pids, pid)
	}
	conflicts, err := h.state.Conflicts(ctx, se, pids, a.Marks, a.Run, a.Keys)
	list := inTheWay{Held: []heldFile{}}
	if err == nil && a.Overrule {
		err = h.state.NoteCommitted(ctx, se, pids, a.Marks, a.Run, conflicts)
	}
	for _, held := range conflicts {
		list.Held = append(list.Held, heldFile{held.Key, RefusalOf(held).locate(ctx, se, held).Message})
	}
	return list, err
}

type presentArgs struct {
	agentArg
	LetGo string `json:"let_go,omitempty" doc:"give back what hook_write took: for this sub-agent, or for all" enum:"own|all"`
	Rests string `json:"rests,omitempty" doc:"own: the turn of this main agent is over. others: the user has begun this conversation, so the turns of the client's other main agents are over" enum:"own|others"`
}

// A hooked is the result of a hook.
type hooked struct {
	Sessions int `json:"sessions" jsonschema:"how many sessions this is about"`
}

func (n hooked) Text() string { return "noted for " + counted(n.Sessions, "session", "sessions", "") }

// each calls do for each session that a hook refers to.
func (h *hooks) each(ctx context.Context, se *dispatch.Session, a agentArg, do func(*dispatch.Session) error) (hooked, error) {
	list, err := a.sessions(h, se)
	for i := 0; err == nil && i < len(list); i++ {
		if err = list[i].Heard(ctx, partyOf(a.Party), a.Main); err == nil {
			err = do(list[i])
		}
	}
	return hooked{len(list)}, err
}

func (h *hooks) present(ctx context.Context, se *dispatch.Session, a presentArgs) (hooked, error) {
	var begun []*dispatch.Session
	done, err := h.each(ctx, se, a.agentArg, func(of *dispatch.Session) error {
		if a.LetGo != "" {
			return of.LetGo(ctx, partyOf(a.Party), a.LetGo == "all")
		}
		switch a.Rests {
		case "own":
			of.Rest(partyOf(a.Party))
			return nil
		case "others":
			begun = append(begun, of)
			return nil
		}
		return of.Present(ctx, partyOf(a.Party))
	})
	if err == nil && len(begun) > 0 {
		err = h.state.Begin(ctx, begun, partyOf(a.Party))
	}
	return done, err
}

// ownSessions is how many sessions a client has.
type ownSessions struct {
	Own int `json:"own" jsonschema:"sessions with a connection"`
}

func (n ownSessions) Text() string { return counted(n.Own, "session", "sessions", "") }

func (h *hooks) ownSessions(_ context.Context, se *dispatch.Session, a clientArg) (ownSessions, error) {
	list, err := a.sessions(h, se)
	list = slices.DeleteFunc(list, func(of *dispatch.Session) bool { return of.Guest() })
	return ownSessions{len(list)}, err
}

type giveBackArgs struct {
	agentArg
	Keys []string `json:"keys" doc:"of the leases" max:"10000"`
}

func (h *hooks) giveBack(ctx context.Context, se *dispatch.Session, a giveBackArgs) (hooked, error) {
	return h.each(ctx, se, a.agentArg, func(of *dispatch.Session) error {
		return of.LetGoOf(ctx, partyOf(a.Party), a.Keys)
	})
}

type partyArgs struct {
	Party string `json:"party" doc:"the sub-agent, by the id that its client gave it" min:"1" max:"1024"`
	clientArg
}

type toolUseArgs struct {
	Party string `json:"party" doc:"the sub-agent, by the id that its client gave it" min:"1" max:"1024"`
	clientArg
	ToolUse string `json:"tool_use_id" doc:"as the client names it in the call's _meta" min:"1" max:"128"`
}

func (h *hooks) toolUse(ctx context.Context, se *dispatch.Session, a toolUseArgs) (hooked, error) {
	return h.each(ctx, se, agentArg{a.clientArg, a.Party, false}, func(of *dispatch.Session) error {
		return of.UsesTool(ctx, a.ToolUse, PartyName(a.Party))
	})
}

func (h *hooks) partyEnd(ctx context.Context, se *dispatch.Session, a partyArgs) (hooked, error) {
	return h.each(ctx, se, agentArg{clientArg: a.clientArg}, func(of *dispatch.Session) error {
		return of.EndParty(ctx, PartyName(a.Party))
	})
}

type noticeList struct {
	Notices []Notice `json:"notices"`
	Line    string   `json:"text" told:"line" jsonschema:"the same for the model, in a line; empty if there is nothing"`
}

func (l noticeList) Text() string { return cmp.Or(l.Line, "nothing new") }

type noticeArgs struct {
	agentArg
	Holds bool `json:"holds,omitempty" doc:"the model may have forgotten what it holds: say that, too" default:"false"`
}

// takeNotices is for the answer of a hook, which the client shows to the model
// of that agent before its next step. A session that has ended is skipped.
func (h *hooks) takeNotices(ctx context.Context, se *dispatch.Session, a noticeArgs) (noticeList, error) {
	list := noticeList{Notices: []Notice{}}
	var held []registry.Lease
	seen := ctx
	_, err := h.each(ctx, se, a.agentArg, func(of *dispatch.Session) (err error) {
		of, err = se.OnBehalf(of.ID())
		if err != nil {
			return nil
		}
		seen = WithGroups(ctx, of.Groups())
		list.Notices = append(list.Notices, takeNotices(seen, of, partyOf(a.Party), false)...)
		if a.Holds {
			var its []registry.Lease
			its, err = of.Holds(ctx, partyOf(a.Party), maxToldHeld+1)
			held = append(held, its...)
		}
		return err
	})
	if err == nil && se.Actor().Role == dispatch.Operator {
		var ends []*dispatch.EndedError
		ends, err = se.TakeDismissals(ctx, a.PID, a.Mark, partyOf(a.Party))
		for _, ended := range ends {
			list.Notices = append(list.Notices, Notice{Code: dismissed, Reason: ended.Error(), At: stampOf(ended.At)})
		}
	}
	sortNotices(list.Notices)
	var lines []string
	if len(list.Notices) > 0 {
		lines = append(lines, wholeNotices(list.Notices))
	}
	if len(held) > 0 {
		lines = append(lines, heldText(seen, held))
	}
	if len(lines) > 0 {
		list.Line = "Leasehold: " + strings.Join(lines, "; ")
	}
	return list, err
}

// maxToldHeld is how many leases a model is told that it holds.
const maxToldHeld = 20

// heldText says what a model holds that may have forgotten it.
func heldText(ctx context.Context, held []registry.Lease) string {
	var texts []string
	for _, l := range held[:min(len(held), maxToldHeld)] {
		told := leaseOf(l)
		if l.Scope == queue.Scope {
			texts = append(texts, fmt.Sprintf("the claim on task %q (%s, token %d)", l.Key, told.expires(), l.Token))
			continue
		}
		texts = append(texts, fmt.Sprintf("%s (%s, lease_id %s)", told.named(l.Key), told.expires(), l.ID))
	}
	if len(held) > maxToldHeld {
		texts = append(texts, "and more"+ifSeen(ctx, "leases", ", which lease_list shows"))
	}
	return "from before, you still hold " + strings.Join(texts, ", ") + ". Release what you no longer need"
}
