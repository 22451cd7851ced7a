package server

import (
	"encoding/json"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/leasehold/leasehold/dispatch/server/tools"
	"github.com/leasehold/leasehold/dispatch/server/wire"
)

// parse reads a message. If the message cannot be served, fault is the answer to
// it. Large messages are read one at a time.
func (s *Server) parse(line []byte) (m wire.Message, fault []byte) {
	if len(line) >= largeMessage {
		s.parsing.Lock()
		defer s.parsing.Unlock()
	}
	m, wrong := wire.Parse(line)
	if wrong != nil {
		return m, wrong.Reply()
	}
	if version := m.Params.Meta.Version; m.Request() && mcp.IsModernProtocol(version) {
		return m, versionReply(m.ID, version)
	}
	return m, nil
}

// versionReply refuses a protocol version and names the supported ones.
func versionReply(id json.RawMessage, version string) []byte {
	reply := mcp.UnsupportedProtocolVersionError{Version: version, Supported: legacyVersions}.JSONRPCError()
	return wire.ErrorReply(id, reply.Error.Code, reply.Error.Message, reply.Error.Data)
}

// Refusal returns the answer, as a line, to a request that a transport refuses. A
// tool call gets a result with an error code, any other request a JSON-RPC error.
func Refusal(id json.RawMessage, method string, refusal tools.Refusal) []byte {
	reply := refusal.Reply()
	if method != wire.ToolsCall {
		return wire.ErrorReply(id, wire.InternalError, refusal.Message, reply.Object)
	}
	return reply.Line(id)
}
