package server

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/server/tools"
	"github.com/leasehold/leasehold/dispatch/server/wire"
	"github.com/leasehold/leasehold/registry"
)

// legacyVersions are the protocol versions that every transport supports: those
// with an initialize handshake.
//
// Version 2026-07-28 is refused. It has no sessions, and a server may only answer
// what the same request asked for. A lease, however, belongs to a session, and an
// agent that loses one must be told without asking. A client that tries 2026-07-28
// first is told the supported versions and continues with initialize, as that
// version prescribes.
var legacyVersions = mcp.LegacyProtocolVersions()

// protocol answers a request that is neither a call of a tool that there is, nor one
// about resources.
func (s *service) protocol(ctx context.Context, se *dispatch.Session, env *wire.Message, line []byte) []byte {
	c := clientOf(ctx)
	var result any = mcp.EmptyResult{}
	var err error
	switch env.Method {
	case wire.Initialize:
		var params mcp.InitializeParams
		if err = paramsOf(env, line, &params); err == nil {
			result = s.initialize(viewer(ctx, se, c), c, params)
		}
	case wire.Ping:
		err = paramsOf(env, line, new(struct{}))
	case wire.SetLevel:
		var params mcp.SetLevelParams
		if err = paramsOf(env, line, &params); err == nil {
			err = c.setLevel(params.Level)
		}
	case wire.ListTools:
		var params mcp.PaginatedParams
		if err = paramsOf(env, line, &params); err == nil && params.Cursor != "" {
			err = errors.New("params.cursor is not one that this server gave: leave it out, since all tools are on one page")
		}
		result = mcp.ListToolsResult{Tools: s.shown(viewer(ctx, se, c))}
	case wire.ToolsCall:
		err = paramsOf(env, line, new(callParams))
		switch {
		case err == nil && env.Params.Name == "":
			err = errors.New("params.name of tools/call must be given")
		case err == nil:
			err = fmt.Errorf("%s: tool not found", env.Params.Name)
		case s.tools[env.Params.Name].call != nil && strings.HasPrefix(err.Error(), "params.arguments "):
			return Refusal(env.ID, env.Method, tools.RefusalOf(&registry.ArgumentError{Argument: "arguments", Problem: "must be a JSON object"}))
		}
	default:
		return wire.ErrorReply(env.ID, wire.MethodNotFound, env.Method+": method not found", nil)
	}
	if err != nil {
		return wire.ErrorReply(env.ID, wire.InvalidParams, err.Error(), nil)
	}
	return wire.Reply(env.ID, resultOf(result))
}

// callParams are the params of tools/call.
type callParams struct {
	Name      string                     `json:"name"`
	URI       string                     `json:"uri"` // which no call needs
	Arguments map[string]json.RawMessage `json:"arguments"`
}

// paramsOf decodes the params of a request. Its error names the field of another type
// than MCP's schema says.
func paramsOf(env *wire.Message, line []byte, params any) error {
	var every struct {
		Meta map[string]json.RawMessage `json:"_meta"`
	}
	var err error
	for _, into := range []any{&every, params} {
		err = cmp.Or(err, json.Unmarshal(line, &struct {
			Params any `json:"params"`
		}{into}))
	}
	wrong, ok := errors.AsType[*json.UnmarshalTypeError](err)
	switch {
	case err == nil:
		return nil
	case !ok || wrong.Field == "":
		return fmt.Errorf("params of %s cannot be read: see the schema of MCP", env.Method)
	}
	article := "a"
	if strings.ContainsAny(wrong.Value[:1], "aeiou") {
		article = "an"
	}
	return fmt.Errorf("%s of %s must not be %s %s: see the schema of MCP", wrong.Field, env.Method, article, wrong.Value)
}

func (s *service) initialize(v tools.Viewer, c *client, params mcp.InitializeParams) (result mcp.InitializeResult) {
	c.initialized.Store(true)
	result.ProtocolVersion = mcp.NegotiateLegacyVersion(params.ProtocolVersion)
	result.ServerInfo = mcp.Implementation{Name: "leasehold", Title: "Leasehold", Version: s.version}
	result.Instructions = v.Instructions()
	result.Capabilities = capabilities
	if c.idle > 0 {
		result.Meta = &mcp.Meta{AdditionalFields: map[string]any{idleMark: c.idle.Seconds()}}
		result.Instructions += fmt.Sprintf("\nOver HTTP this session, and what it holds, ends %v after your last request, unless a GET stream is open.", c.idle)
	}
	return result
}

// capabilities are those of every service. The lists of tools and resources do not
// change while a session lasts.
var capabilities = func() (c mcp.ServerCapabilities) {
	err := json.Unmarshal([]byte(`{"logging":{},"resources":{"subscribe":true},"tools":{}}`), &c)
	if err != nil {
		panic(err)
	}
	return c
}()

// idleMark is the field of the answer to initialize that has the idle limit, in
// seconds.
const idleMark = "leasehold/idle_secs"

// viewer says what a client sees: the tools of use to its actor, in the groups that it
// asked for.
func viewer(ctx context.Context, se *dispatch.Session, c *client) tools.Viewer {
	return tools.Viewer{Role: se.Actor().Role, Spawns: se.MaySpawn(ctx), Groups: c.groups}
}

func (s *service) shown(v tools.Viewer) []mcp.Tool {
	list := make([]mcp.Tool, 0, len(s.list))
	for _, t := range s.list {
		if v.Sees(t) {
			list = append(list, t.Definition(v.Role.Leads()))
		}
	}
	return list
}
