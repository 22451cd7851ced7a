package server

import (
	"encoding/json"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/leasehold/leasehold/dispatch/server/tools"
	"github.com/leasehold/leasehold/dispatch/server/wire"
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

// parse reads a message. If the message cannot be served, fault is the answer to
// it. Large messages are read one at a time.
func (s *shares) parse(line []byte) (m wire.Message, fault []byte) {
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
	reply.ID = exactID(id)
	return wire.Line(reply)
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

// encodeReply returns mcp-go's answer as a line, or nil if there is no answer. It
// puts the client's own text of the id in, because mcp-go reads numbers as floats.
func encodeReply(id json.RawMessage, reply mcp.JSONRPCMessage) []byte {
	switch r := reply.(type) {
	case nil:
		return nil
	case mcp.JSONRPCResponse:
		r.ID = exactID(id)
		return wire.Line(r)
	case mcp.JSONRPCError:
		r.ID = exactID(id)
		return wire.Line(r)
	default:
		return wire.Line(reply)
	}
}

func exactID(id json.RawMessage) mcp.RequestId {
	if id == nil {
		return mcp.NewRequestId(nil)
	}
	return mcp.NewRequestId(id)
}
