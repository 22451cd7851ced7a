package server

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

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
		r.Error.Message = withoutGo(r.Error.Message)
		return wire.Line(r)
	default:
		return wire.Line(reply)
	}
}

var (
	ofAnotherType = regexp.MustCompile(`^unparsable (\S+) request: json: cannot unmarshal (\w+) into Go struct field [^ ]*?\b(params\b[^ ]*) of type `)
	unparsable    = regexp.MustCompile(`^unparsable (\S+) request: .*\bGo\b`)
)

// withoutGo says what mcp-go's message of an error says, without the names of its types,
// which mean nothing to a client.
func withoutGo(message string) string {
	if found := ofAnotherType.FindStringSubmatch(message); found != nil {
		article := "a"
		if strings.ContainsAny(found[2][:1], "aeiou") {
			article = "an"
		}
		return fmt.Sprintf("%s of %s must not be %s %s: see the schema of MCP", found[3], found[1], article, found[2])
	}
	if found := unparsable.FindStringSubmatch(message); found != nil {
		return fmt.Sprintf("params of %s cannot be read: see the schema of MCP", found[1])
	}
	if strings.HasPrefix(message, "illegal base64 data") { // only cursors are base64
		return "params.cursor is not one that this server gave: leave it out to begin with the first page"
	}
	return message
}

func exactID(id json.RawMessage) mcp.RequestId {
	if id == nil {
		return mcp.NewRequestId(nil)
	}
	return mcp.NewRequestId(id)
}
