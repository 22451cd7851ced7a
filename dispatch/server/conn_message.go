package server

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/leasehold/leasehold/dispatch/server/tools"
)

// legacyVersions are the protocol versions that are served, on every
// transport: those with an initialize handshake.
//
// 2026-07-28 has no sessions and sends a client only what it asked for in the
// same request. A lease belongs to a session, and who loses one must hear of
// it unasked. Clients that ask for 2026-07-28 first are told what there is and
// go on with initialize, as that version prescribes.
var legacyVersions = mcp.LegacyProtocolVersions()

// An envelope is what we need to know of a message: of a call all that the
// tool is to be told, so that it is parsed no second time. It refers to the
// message, which must not change.
type envelope struct {
	JSONRPC string
	ID      json.RawMessage
	Method  string
	Params  struct {
		RequestID json.RawMessage // of notifications/cancelled
		Name      string          // of a call's tool
		Arguments tools.Arguments
		Meta      struct {
			Version, Call string
			Resent        bool
		}
	}

	key     string // callKey of the ID
	partial bool   // a field was of the wrong type, and is left empty
}

// parse reads the envelope of a message. If it is no message, fault is the
// answer.
func parse(msg []byte) (env envelope, fault []byte) {
	if msg = bytes.TrimSpace(msg); len(msg) > 0 && msg[0] == '[' {
		return env, errorReply(nil, mcp.INVALID_REQUEST, "batches are not served: send one message at a time", nil)
	}
	if !json.Valid(msg) {
		err := json.Unmarshal(msg, new(any))
		return env, errorReply(nil, mcp.PARSE_ERROR, "not a JSON message: "+err.Error(), nil)
	}
	env.read(msg)
	if env.key = callKey(env.ID); env.ID != nil && env.key == "" {
		return env, errorReply(nil, mcp.INVALID_REQUEST, "id must be a string or a number", nil)
	}
	if env.JSONRPC != mcp.JSONRPC_VERSION {
		return env, errorReply(env.ID, mcp.INVALID_REQUEST, `jsonrpc must be "2.0"`, nil)
	}
	if env.Method == "" && env.ID == nil {
		return env, errorReply(nil, mcp.INVALID_REQUEST, "neither a request nor a response", nil)
	}
	if version := env.Params.Meta.Version; env.request() && mcp.IsModernProtocol(version) {
		return env, versionReply(env.ID, version)
	}
	return env, nil
}

func (e *envelope) read(msg []byte) {
	for name, value := range tools.Members(msg) {
		switch string(name) {
		case "jsonrpc":
			e.JSONRPC = e.text(value)
		case "id":
			e.ID = value
		case "method":
			e.Method = e.text(value)
		case "params":
			e.readParams(e.object(value))
		}
	}
}

func (e *envelope) readParams(params []byte) {
	for name, value := range tools.Members(params) {
		switch string(name) {
		case "requestId":
			e.Params.RequestID = value
		case "name":
			e.Params.Name = e.text(value)
		case "arguments":
			e.Params.Arguments = tools.Arguments(e.object(value))
		case "_meta":
			e.readMeta(e.object(value))
		}
	}
}

func (e *envelope) readMeta(meta []byte) {
	for name, value := range tools.Members(meta) {
		switch string(name) {
		case "io.modelcontextprotocol/protocolVersion":
			e.Params.Meta.Version, _ = tools.TextOf(value)
		case tools.CallMark:
			e.Params.Meta.Call, _ = tools.TextOf(value)
		case tools.ResentMark:
			e.Params.Meta.Resent = string(value) == "true"
		}
	}
}

// text is a string, which a field of the envelope must be if it is not null.
func (e *envelope) text(value json.RawMessage) string {
	text, ok := tools.TextOf(value)
	e.partial = e.partial || !ok && string(value) != "null"
	return text
}

// object is an object, which a field must be if it is not null.
func (e *envelope) object(value json.RawMessage) json.RawMessage {
	if value[0] == '{' {
		return value
	}
	e.partial = e.partial || string(value) != "null"
	return nil
}

func (e *envelope) request() bool      { return e.Method != "" && e.ID != nil }
func (e *envelope) notification() bool { return e.Method != "" && e.ID == nil }

// waits reports whether the call asks to wait for something. Every tool that
// can wait says so by the same argument.
func (e *envelope) waits() (waits bool) {
	for name, value := range tools.Members(e.Params.Arguments) {
		if string(name) == "wait_secs" {
			waits = string(value) != "0" && string(value) != "null"
		}
	}
	return waits
}

// callName names a request in its session: as its client does, or by its id.
func (e *envelope) callName() string {
	if name := e.Params.Meta.Call; name != "" {
		return "call " + name
	}
	return e.key
}

// callKey is a request id as a key; "" if it is none. A number and a string of
// the same digits are two ids.
func callKey(id json.RawMessage) string {
	id = bytes.TrimSpace(id)
	if len(id) == 0 {
		return ""
	}
	if id[0] == '"' {
		var s string
		if json.Unmarshal(id, &s) != nil {
			return ""
		}
		return `"` + s
	}
	if strings.IndexByte("-0123456789", id[0]) < 0 {
		return ""
	}
	return string(id)
}

// errorReply is a JSON-RPC error as a line. Without an id it answers nothing in
// particular.
func errorReply(id json.RawMessage, code int, message string, data any) []byte {
	return encodeLine(mcp.JSONRPCError{
		JSONRPC: mcp.JSONRPC_VERSION,
		ID:      exactID(id),
		Error:   mcp.NewJSONRPCErrorDetails(code, message, data),
	})
}

// versionReply refuses a protocol version and names those that are served.
func versionReply(id json.RawMessage, version string) []byte {
	reply := mcp.UnsupportedProtocolVersionError{Version: version, Supported: legacyVersions}.JSONRPCError()
	reply.ID = exactID(id)
	return encodeLine(reply)
}

// Refusal is the answer, as a line, to a request that a transport refuses: for
// a tool call a result with a code of the contract, else a JSON-RPC error.
func Refusal(id json.RawMessage, method string, refusal tools.Refusal) []byte {
	reply := refusal.Reply()
	if method != string(mcp.MethodToolsCall) {
		return errorReply(id, mcp.INTERNAL_ERROR, refusal.Message, reply.StructuredContent)
	}
	return encodeLine(toolReply{mcp.JSONRPC_VERSION, id, reply})
}

// A toolReply is the answer to a call.
type toolReply struct {
	JSONRPC string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Result  tools.Reply     `json:"result"`
}

// encodeReply is mcp-go's answer as a line, nil if there is none. The id is the
// client's own text: mcp-go reads numbers as floats.
func encodeReply(id json.RawMessage, reply mcp.JSONRPCMessage) []byte {
	switch r := reply.(type) {
	case nil:
		return nil
	case mcp.JSONRPCResponse:
		r.ID = exactID(id)
		return encodeLine(r)
	case mcp.JSONRPCError:
		r.ID = exactID(id)
		return encodeLine(r)
	default:
		return encodeLine(reply)
	}
}

func exactID(id json.RawMessage) mcp.RequestId {
	if id == nil {
		return mcp.NewRequestId(nil)
	}
	return mcp.NewRequestId(id)
}

func encodeLine(v any) []byte {
	var buf bytes.Buffer
	if err := json.NewEncoder(&buf).Encode(v); err != nil {
		// What the server says is made of its own types.
		panic("server: a reply has no JSON: " + err.Error())
	}
	return buf.Bytes()
}
