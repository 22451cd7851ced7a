package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"
)

// legacyVersions are the protocol versions that are served, on every
// transport: those with an initialize handshake.
//
// 2026-07-28 has no sessions and sends a client only what it asked for in the
// same request. A lease belongs to a session, and who loses one must hear of
// it unasked. Clients that ask for 2026-07-28 first are told what there is and
// go on with initialize, as that version prescribes.
var legacyVersions = mcp.LegacyProtocolVersions()

// An envelope is what a transport needs to know of a message.
type envelope struct {
	JSONRPC string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Method  string          `json:"method"`
	Params  struct {
		RequestID json.RawMessage `json:"requestId"` // of notifications/cancelled
		Reason    string          `json:"reason"`
		Arguments struct {
			WaitSecs json.RawMessage `json:"wait_secs"`
		} `json:"arguments"`
		Meta struct {
			Version string `json:"io.modelcontextprotocol/protocolVersion"`
		} `json:"_meta"`
	} `json:"params"`
}

// parse reads the envelope of a message. If it is no message, fault is the
// answer.
func parse(msg []byte) (env envelope, fault []byte) {
	if msg = bytes.TrimSpace(msg); len(msg) > 0 && msg[0] == '[' {
		return env, errorReply(nil, mcp.INVALID_REQUEST, "batches are not served: send one message at a time", nil)
	}
	// A field of the wrong type is left empty here. If it matters, whoever
	// reads it for good refuses it by name.
	var typeError *json.UnmarshalTypeError
	if err := json.Unmarshal(msg, &env); err != nil && !errors.As(err, &typeError) {
		return env, errorReply(nil, mcp.PARSE_ERROR, "not a JSON message: "+err.Error(), nil)
	}
	if env.ID != nil && callKey(env.ID) == "" {
		return env, errorReply(nil, mcp.INVALID_REQUEST, "id must be a string or a number", nil)
	}
	if env.JSONRPC != mcp.JSONRPC_VERSION {
		return env, errorReply(env.ID, mcp.INVALID_REQUEST, `jsonrpc must be "2.0"`, nil)
	}
	if env.Method == "" && env.ID == nil {
		return env, errorReply(nil, mcp.INVALID_REQUEST, "neither a request nor a response", nil)
	}
	if env.request() && mcp.IsModernProtocol(env.Params.Meta.Version) {
		return env, versionReply(env.ID, env.Params.Meta.Version)
	}
	return env, nil
}

func (e *envelope) request() bool      { return e.Method != "" && e.ID != nil }
func (e *envelope) notification() bool { return e.Method != "" && e.ID == nil }

// waits reports whether the call asks to wait for something. Every tool that
// can wait says so by the same argument.
func (e *envelope) waits() bool {
	switch wait := string(e.Params.Arguments.WaitSecs); wait {
	case "", "0", "null":
		return false
	default:
		return true
	}
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
func Refusal(id json.RawMessage, method, code, message string, data map[string]any) []byte {
	content := map[string]any{"code": code, "message": message}
	for k, v := range data {
		content[k] = v
	}
	if mcp.MCPMethod(method) != mcp.MethodToolsCall {
		return errorReply(id, mcp.INTERNAL_ERROR, message, content)
	}
	result := mcp.NewToolResultStructured(content, message)
	result.IsError = true
	return encodeLine(mcp.JSONRPCResponse{JSONRPC: mcp.JSONRPC_VERSION, ID: exactID(id), Result: result})
}

// encodeReply is mcp-go's answer as a line. The id is the client's own text:
// mcp-go reads numbers as floats.
func encodeReply(id json.RawMessage, reply mcp.JSONRPCMessage) []byte {
	switch r := reply.(type) {
	case mcp.JSONRPCResponse:
		if result, ok := toolResult(r.Result); ok {
			return encodeLine(toolReply{mcp.JSONRPC_VERSION, id, result})
		}
		r.ID = exactID(id)
		return encodeLine(r)
	case mcp.JSONRPCError:
		r.ID = exactID(id)
		return encodeLine(r)
	default:
		return encodeLine(reply)
	}
}

// A toolReply is the answer to a call as our tools give it. mcp-go's own types
// would encode the result to bytes, and those again.
type toolReply struct {
	JSONRPC string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Result  toolAnswer      `json:"result"`
}

type toolAnswer struct {
	Content           []mcp.Content `json:"content"`
	StructuredContent any           `json:"structuredContent,omitempty"`
	IsError           bool          `json:"isError,omitempty"`
}

// toolResult is what a tool answered, if there is nothing else in it.
func toolResult(result any) (a toolAnswer, ok bool) {
	r, ok := result.(mcp.CallToolResult)
	if p, pointer := result.(*mcp.CallToolResult); pointer && p != nil {
		r, ok = *p, true
	}
	if !ok || r.Meta != nil || r.ResultType != "" || r.RawStructuredContent != nil || len(r.InputRequests) > 0 || r.RequestState != "" {
		return a, false
	}
	return toolAnswer{r.Content, r.StructuredContent, r.IsError}, true
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
