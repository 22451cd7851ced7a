package server

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/server/fair"
	"github.com/leasehold/leasehold/dispatch/server/tools"
	"github.com/leasehold/leasehold/dispatch/server/wire"
	"github.com/leasehold/leasehold/engine/call"
	"github.com/leasehold/leasehold/engine/traceparent"
)

// A service serves clients of one kind: it runs the calls of their tools, and
// answers everything else in the protocol.
//
// It has the types of MCP from mcp-go, and not its server. That parses a message five
// times on the way to a tool, which was most of the cost of a short call. And its package
// compiles five JSON schemas when a process starts, 12 ms of 23 in every hook.
type service struct {
	version string
	tools   map[string]served
	list    []tools.Tool // that clients may see

	others map[string]string // the tools of other services → whom they are for

	called func(tool string, refused bool)
	spread *spread // nil: there is no other partition
}

// A served tool has what calls of a tool need.
type served struct {
	call     toolFunc
	readOnly bool // its calls have no effect that must happen once or be undone
	waits    bool // unless the call says otherwise
}

type toolFunc func(context.Context, *dispatch.Session, tools.Arguments) tools.Reply

// newService returns a service of tools; clients see those of list, and not
// those of hidden.
func newService(o Options, list, hidden []tools.Tool) *service {
	s := &service{version: o.Version, list: list, called: o.Called, tools: make(map[string]served)}
	for _, t := range slices.Concat(list, hidden) {
		s.tools[t.Name] = served{t.Call, t.Effect.ReadOnly, t.Waits}
	}
	return s
}

// notFor records that another service's tools are for whom, and not for the
// sessions of this service, except those that it has too.
func (s *service) notFor(whom string, other *service) {
	if s.others == nil {
		s.others = make(map[string]string)
	}
	for name := range other.tools {
		if _, has := s.tools[name]; !has && s.others[name] == "" {
			s.others[name] = whom
		}
	}
}

// notYours refuses a call of a tool for sessions of another role.
func notYours(se *dispatch.Session, tool, whom string) tools.Reply {
	a := se.Actor()
	who, next := fmt.Sprintf("the %s %s", a.Role, a.Path), "ask your operator to do it"
	switch {
	case whom == "agents":
		who, next = "an "+string(dispatch.Operator), "use an actor's token (leasehold actor token PATH)"
	case a.Role == dispatch.Reader:
		next = "use an operator's token (leasehold token issue NAME --role operator)"
	}
	if a.Role == dispatch.Reader {
		who = fmt.Sprintf("the %s %q", a.Role, a.Name)
	}
	return tools.RefusalOf(&dispatch.ForbiddenError{What: fmt.Sprintf("%s is for %s, and you are %s; %s", tool, whom, who, next)}).Reply()
}

// waits reports whether a request may take a long time.
func (s *service) waits(m *wire.Message) bool {
	return m.Waits(s.tools[m.Params.Name].waits)
}

// serveCall is answer for a request in its actor's turn. A client with many
// unread answers in out gets no turn. out may be nil.
func (s *service) serveCall(sh *fair.Share, r *request, out *lineWriter, se *dispatch.Session, env *wire.Message, msg []byte, f form) []byte {
	if r.ctx.Err() != nil {
		return f.refuse(env, context.Cause(r.ctx))
	}
	// A call that is made in another partition has its turn there.
	away := s.spread.away(r.ctx, se, env.Params.Name, tools.Arguments(env.Params.Arguments))
	ctx := r.ctx
	for away == nil {
		if out.caughtUp(r.ctx); r.ctx.Err() != nil {
			return f.refuse(env, context.Cause(r.ctx))
		}
		during, t, err := sh.Turn(r.ctx, len(msg) >= largeMessage)
		if err != nil {
			return f.refuse(env, err)
		}
		if out.behind() {
			t.GiveBack()
			continue
		}
		r.started()
		defer t.GiveBack()
		ctx = during
		break
	}
	return s.answer(ctx, se, env, msg, r.name, f, away)
}

// A form is how answers are written in a protocol.
type form interface {
	reply(env *wire.Message, r tools.Reply) []byte
	refuse(env *wire.Message, err error) []byte
	broken(env *wire.Message, fault string) []byte // a fault of the daemon
}

// mcpForm writes JSON-RPC.
type mcpForm struct{}

func (mcpForm) reply(env *wire.Message, r tools.Reply) []byte { return r.Line(env.ID) }

func (mcpForm) refuse(env *wire.Message, err error) []byte { return refuseCall(env, err) }

func (mcpForm) broken(env *wire.Message, fault string) []byte {
	return wire.ErrorReply(env.ID, wire.InternalError, fault, nil)
}

// answer serves a request of a session and returns the answer in its form, or
// nil if there must be none. If away is not nil, it makes the call in another
// partition.
func (s *service) answer(ctx context.Context, se *dispatch.Session, env *wire.Message, msg []byte, name call.Call, f form, away toolFunc) (line []byte) {
	switch env.Method {
	case wire.ListResources, wire.ListTemplates, wire.ReadResource, wire.Subscribe, wire.Unsubscribe:
		return s.resources(ctx, se, env)
	}
	tool := s.tools[env.Params.Name]
	if whom := s.others[env.Params.Name]; whom != "" && env.Method == wire.ToolsCall && !env.Partial {
		s.called(env.Params.Name, true)
		return f.reply(env, notYours(se, env.Params.Name, whom))
	}
	if tool.call == nil || env.Method != wire.ToolsCall || env.Partial {
		return s.protocol(ctx, se, env, msg)
	}
	defer func() {
		if fault := recover(); fault != nil {
			line = f.broken(env, fmt.Sprintf("panic recovered in %s tool handler: %v", env.Params.Name, fault))
		}
	}()
	if name.Recorded() {
		ctx = call.With(ctx, name)
	}
	ctx = traceparent.With(ctx, env.Params.Meta.Trace)
	ctx = tools.WithParty(ctx, s.partyOf(ctx, se, &env.Params.Meta))
	ctx = tools.WithGroups(ctx, clientOf(ctx).groups)
	if env.Params.Meta.Unread {
		ctx = tools.WithoutNotices(ctx)
	}
	if env.Params.Meta.Program {
		ctx = tools.ForProgram(ctx)
	}
	serve := tool.call
	if away != nil {
		serve = away
	}
	r := serve(ctx, se, tools.Arguments(env.Params.Arguments))
	s.called(env.Params.Name, r.IsError)
	if env.Params.Meta.Unread && !r.IsError {
		r = r.Brief()
	}
	return f.reply(env, r)
}

// partyOf returns which of a session's sub-agents made a call, according to its
// client's metadata, or "".
func (s *service) partyOf(ctx context.Context, se *dispatch.Session, meta *wire.Meta) string {
	if meta.Thread != "" { // each agent of Codex has its own connection
		party := tools.PartyName(meta.Thread)
		_ = se.HeardAlone(ctx, party) // if it cannot be stored, it is known until the next restart
		return party
	}
	return se.UserOf(meta.ToolUse)
}

// nameOf returns the name of a call that changes something: its client's mark,
// or its id. For any other request it returns the zero Call.
func (s *service) nameOf(se *dispatch.Session, m *wire.Message) call.Call {
	if tool := s.tools[m.Params.Name]; tool.call == nil || tool.readOnly || m.Method != wire.ToolsCall {
		return call.Call{}
	}
	c := call.Call{Session: se.ID(), Name: m.CallName(), Print: m.Print(), Log: se.CallLog()}.Sent()
	if m.Params.Meta.Call != "" && !m.Params.Meta.Resent {
		return c.Original()
	}
	return c
}

// nameOn is nameOf for a connection to the socket. There a call can be sent
// again only if it is marked, because over another connection its id means
// another call. Without a mark its name is valid on this connection only, and a
// call that does not wait needs none.
func (s *service) nameOn(conn uint64, se *dispatch.Session, m *wire.Message, waits bool) call.Call {
	tool := s.tools[m.Params.Name]
	switch {
	case tool.call == nil || tool.readOnly || m.Method != wire.ToolsCall:
		return call.Call{}
	case se.Vouched() && m.Params.Meta.Named != "":
		return namedBy(m.Params.Meta.Named, se)
	case m.Params.Meta.Call != "":
		return s.nameOf(se, m)
	case !waits:
		return call.Alone(se.ID())
	}
	c := call.Call{Session: se.ID(), Name: strconv.FormatUint(conn, 36) + " " + m.CallName(), Log: se.CallLog()}
	return c.Once()
}
