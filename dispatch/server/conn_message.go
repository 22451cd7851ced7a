package server

import (
	"encoding/json"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/leasehold/leasehold/dispatch/server/tools"
	"github.com/leasehold/leasehold/dispatch/server/wire"
)

// legacyVersions are the protocol versions that are served, on every
// transport: those with an initialize handshake.
//
// 2026-07-28 has no sessions and sends a client only what it asked for in the
// same request. A lease belongs to a session, and who loses one must hear of
// it unasked. Clients that ask for 2026-07-28 first are told what there is and
// go on with initialize, as that version prescribes.
var legacyVersions = mcp.LegacyProtocolVersions()

// parse reads a message. If it is none that can be served, fault is the answer.
// Large messages are read one at a time.
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

// versionReply refuses a protocol version and names those that are served.
func versionReply(id json.RawMessage, version string) []byte {
	reply := mcp.UnsupportedProtocolVersionError{Version: version, Supported: legacyVersions}.JSONRPCError()
	reply.ID = exactID(id)
	return wire.Line(reply)
}

// Refusal is the answer, as a line, to a request that a transport refuses: for
// a tool call a result with a code of the contract, else a JSON-RPC error.
func Refusal(id json.RawMessage, method string, refusal tools.Refusal) []byte {
	reply := refusal.Reply()
	if method != wire.ToolsCall {
		return wire.ErrorReply(id, wire.InternalError, refusal.Message, reply.Object)
	}
	return reply.Line(id)
}

// encodeReply is mcp-go's answer as a line, nil if there is none. The id is the
// client's own text: mcp-go reads numbers as floats.
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
