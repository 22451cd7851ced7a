package server

import (
	"context"
	"fmt"

	"github.com/mark3labs/mcp-go/mcp"
	mcpserver "github.com/mark3labs/mcp-go/server"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/server/tools"
	"github.com/leasehold/leasehold/dispatch/server/wire"
	"github.com/leasehold/leasehold/registry"
)

// A service is what clients of one kind are served: calls of their tools, and
// by mcp-go all else that the protocol has.
//
// mcp-go could serve the calls too. It parses a message five times on the way
// to a tool, which of a short call was most of what it cost.
type service struct {
	mcp   *mcpserver.MCPServer
	tools map[string]toolFunc
}

type toolFunc func(context.Context, *dispatch.Session, tools.Arguments) tools.Reply

func newService(version string, list []tools.Tool) *service {
	s := &service{
		mcp: mcpserver.NewMCPServer("leasehold", version,
			mcpserver.WithTitle("Leasehold"),
			mcpserver.WithInstructions(instructions),
			mcpserver.WithLogging(),
			mcpserver.WithToolCapabilities(false),
		),
		tools: make(map[string]toolFunc),
	}
	for _, t := range list {
		s.mcp.AddTool(t.Definition(), refuseArguments)
		s.tools[t.Name] = t.Call
	}
	return s
}

// answer serves a request of a session, and gives the answer as a line, or nil
// if there is to be none.
func (s *service) answer(ctx context.Context, se *dispatch.Session, env *wire.Message, msg []byte) (line []byte) {
	call := s.tools[env.Params.Name]
	if call == nil || env.Method != wire.ToolsCall || env.Partial {
		return encodeReply(env.ID, s.mcp.HandleMessage(ctx, msg))
	}
	defer func() {
		if fault := recover(); fault != nil {
			line = wire.ErrorReply(env.ID, wire.InternalError, fmt.Sprintf("panic recovered in %s tool handler: %v", env.Params.Name, fault), nil)
		}
	}()
	return wire.Line(toolReply{mcp.JSONRPC_VERSION, env.ID, call(ctx, se, tools.Arguments(env.Params.Arguments))})
}

// refuseArguments answers a call that mcp-go finds right and answer did not:
// its arguments are no object.
func refuseArguments(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	r := tools.RefusalOf(&registry.ArgumentError{Argument: "arguments", Problem: "must be a JSON object"}).Reply()
	result := mcp.NewToolResultStructured(r.StructuredContent, r.Content[0].Text)
	result.IsError = true
	return result, nil
}
