package server

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"
	mcpserver "github.com/mark3labs/mcp-go/server"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/server/tools"
	"github.com/leasehold/leasehold/dispatch/server/wire"
	"github.com/leasehold/leasehold/engine/call"
	"github.com/leasehold/leasehold/engine/traceparent"
	"github.com/leasehold/leasehold/registry"
)

// A service is what clients of one kind are served: calls of their tools, and
// by mcp-go all else that the protocol has.
//
// mcp-go could serve the calls too. It parses a message five times on the way
// to a tool, which of a short call was most of what it cost.
type service struct {
	mcp   *mcpserver.MCPServer
	tools map[string]served
	list  []listed // which clients may see

	others map[string]string // the tools of other services, and whom those are for

	called func(tool string, refused bool)
	spread *spread // nil: there is no other partition
}

// A served tool is one, as calls need it.
type served struct {
	call     toolFunc
	readOnly bool // its calls have no effect that must happen once, or be undone
	waits    bool // unless its call says otherwise
}

// A listed tool is one, as lists of tools have it.
type listed struct {
	tools.Tool
	forLeads, forWorkers mcp.Tool
}

type toolFunc func(context.Context, *dispatch.Session, tools.Arguments) tools.Reply

// newService serves tools, of which clients see those of list.
func newService(o Options, list, hidden []tools.Tool) *service {
	s := &service{called: o.Called, tools: make(map[string]served)}
	s.mcp = mcpserver.NewMCPServer("leasehold", o.Version,
		mcpserver.WithTitle("Leasehold"),
		mcpserver.WithInstructions(tools.Instructions),
		mcpserver.WithLogging(),
		mcpserver.WithToolCapabilities(false),
		mcpserver.WithResourceCapabilities(true, false),
		mcpserver.WithToolFilter(s.shown),
	)
	for _, t := range list {
		l := listed{t, t.Definition(true), t.Definition(false)}
		s.list = append(s.list, l)
		s.mcp.AddTool(l.forLeads, refuseArguments)
	}
	for _, t := range slices.Concat(list, hidden) {
		s.tools[t.Name] = served{t.Call, t.Effect.ReadOnly, t.Waits}
	}
	return s
}

// notFor says that the tools of another service, which are for whom, are not for the
// sessions of this one, unless it has them, too.
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

// notYours refuses a call of a tool that is for sessions of another role.
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

type (
	viewerKey struct{} // the session that asks for the list of tools
	groupsKey struct{} // the groups of tools that its connection wants
)

// shown are the tools that a client is shown: what is of use to its actor, of the
// groups it asked for. mcp-go asks for a tool that is called, too, by itself.
func (s *service) shown(ctx context.Context, all []mcp.Tool) []mcp.Tool {
	se, ok := ctx.Value(viewerKey{}).(*dispatch.Session)
	if !ok || len(all) < len(s.list) {
		return all
	}
	v := tools.Viewer{Role: se.Actor().Role, Spawns: se.MaySpawn(ctx)}
	v.Groups, _ = ctx.Value(groupsKey{}).([]string)
	list := make([]mcp.Tool, 0, len(s.list))
	for _, t := range s.list {
		switch {
		case !v.Sees(t.Tool):
		case v.Role.Leads():
			list = append(list, t.forLeads)
		default:
			list = append(list, t.forWorkers)
		}
	}
	return list
}

// waits reports whether a request may take as long as it likes.
func (s *service) waits(m *wire.Message) bool {
	return m.Waits(s.tools[m.Params.Name].waits)
}

// serveCall is answer for a request in its actor's turn. One that waits needs
// none: those that it waits for do. A client with much to read, which out writes
// to, is given no turn; nil: it has nothing else to read.
func (s *service) serveCall(sh *share, r *request, out *lineWriter, se *dispatch.Session, env *wire.Message, msg []byte, f form) []byte {
	// A call that is made elsewhere has its turn there.
	away := s.spread.away(se, env.Params.Name, tools.Arguments(env.Params.Arguments))
	ctx := r.ctx
	for !r.waits && away == nil {
		if out.caughtUp(r.ctx); r.ctx.Err() != nil {
			return f.refuse(env, context.Cause(r.ctx))
		}
		during, t, err := sh.turn(r.ctx, len(msg) >= largeMessage)
		if err != nil {
			return f.refuse(env, err)
		}
		if out.behind() {
			t.end()
			continue
		}
		defer t.end()
		ctx = during
		break
	}
	return s.answer(ctx, se, env, msg, r.name, f, away)
}

// A form is how the answer to a request is written, as its protocol has it.
type form interface {
	reply(env *wire.Message, r tools.Reply) []byte
	refuse(env *wire.Message, err error) []byte
	broken(env *wire.Message, fault string) []byte // a fault of ours
}

// mcpForm writes JSON-RPC.
type mcpForm struct{}

func (mcpForm) reply(env *wire.Message, r tools.Reply) []byte { return r.Line(env.ID) }

func (mcpForm) refuse(env *wire.Message, err error) []byte { return refuseCall(env, err) }

func (mcpForm) broken(env *wire.Message, fault string) []byte {
	return wire.ErrorReply(env.ID, wire.InternalError, fault, nil)
}

// answer serves a request of a session, away from here if that is not nil, and gives the
// answer in its form, or nil if there is to be none.
func (s *service) answer(ctx context.Context, se *dispatch.Session, env *wire.Message, msg []byte, name call.Call, f form, away toolFunc) (line []byte) {
	if strings.HasPrefix(env.Method, wire.ResourcesPrefix) {
		return s.resources(ctx, se, env)
	}
	tool := s.tools[env.Params.Name]
	if whom := s.others[env.Params.Name]; whom != "" && env.Method == wire.ToolsCall && !env.Partial {
		s.called(env.Params.Name, true)
		return f.reply(env, notYours(se, env.Params.Name, whom))
	}
	if tool.call == nil || env.Method != wire.ToolsCall || env.Partial {
		return encodeReply(env.ID, s.mcp.HandleMessage(context.WithValue(ctx, viewerKey{}, se), msg))
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
	serve := tool.call
	if away != nil {
		serve = away
	}
	r := serve(ctx, se, tools.Arguments(env.Params.Arguments))
	s.called(env.Params.Name, r.IsError)
	return f.reply(env, r)
}

// partyOf is which of a session's sub-agents calls, as its client's metadata has
// it; "" if nothing says.
func (s *service) partyOf(ctx context.Context, se *dispatch.Session, meta *wire.Meta) string {
	if meta.Thread != "" { // each agent of Codex has a connection of its own
		party := tools.PartyName(meta.Thread)
		_ = se.HeardAlone(ctx, party) // what cannot be written down is known until the next restart
		return party
	}
	return se.UserOf(meta.ToolUse)
}

// nameOf names a call that changes something: as its client marked it, or by
// its id. It is the zero Call for any other request.
func (s *service) nameOf(se *dispatch.Session, m *wire.Message) call.Call {
	if tool := s.tools[m.Params.Name]; tool.call == nil || tool.readOnly || m.Method != wire.ToolsCall {
		return call.Call{}
	}
	return call.Call{Session: se.ID(), Name: m.CallName(), Print: m.Print(), Log: se.CallLog()}
}

// nameOn is nameOf for a connection to the socket. There a call can only be
// sent again if it is marked: over another connection its id means another
// call. Without a mark its name is good on this connection alone, and a call that
// does not wait needs none.
func (s *service) nameOn(conn uint64, se *dispatch.Session, m *wire.Message, waits bool) call.Call {
	tool := s.tools[m.Params.Name]
	switch {
	case tool.call == nil || tool.readOnly || m.Method != wire.ToolsCall:
		return call.Call{}
	case m.Params.Meta.Call != "":
		return s.nameOf(se, m)
	case !waits:
		return call.Alone(se.ID())
	}
	c := call.Call{Session: se.ID(), Name: strconv.FormatUint(conn, 36) + " " + m.CallName(), Log: se.CallLog()}
	return c.Once()
}

// refuseArguments answers a call that mcp-go finds right and answer did not:
// its arguments are no object.
func refuseArguments(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	r := tools.RefusalOf(&registry.ArgumentError{Argument: "arguments", Problem: "must be a JSON object"}).Reply()
	result := mcp.NewToolResultStructured(r.Object, r.Text)
	result.IsError = true
	return result, nil
}
