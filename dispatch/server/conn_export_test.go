package server

import (
	"context"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/leasehold/leasehold/dispatch"
)

// AddTestTool gives agents a tool that only tests know. It may block.
func (s *Server) AddTestTool(name string, fn func(context.Context, *dispatch.Session) string) {
	s.agents.AddTool(mcp.NewTool(name), func(ctx context.Context, _ mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return mcp.NewToolResultText(fn(ctx, sessionFrom(ctx))), nil
	})
}

// MaxWaits is the bound of waiting calls.
const MaxWaits = maxWaits
