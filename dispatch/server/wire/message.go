// Package wire has the messages of MCP on the daemon's socket, for both of its
// ends: the fields of a message, the changes to a request that is sent again,
// and the JSON values that every client can read.
//
// A [Message] is read without decoding the parts that the reader does not need;
// its fields refer to the line it was read from. So a tool call is parsed only
// once, and a message of many megabytes that is only passed on is scanned once.
package wire

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"

	"github.com/leasehold/leasehold/engine/traceparent"
)

// MaxMessage is the size of the largest message a client may send, in bytes.
const MaxMessage = 4 << 20

// Codes of JSON-RPC errors.
const (
	ParseError     = -32700
	InvalidRequest = -32600
	MethodNotFound = -32601
	InvalidParams  = -32602
	InternalError  = -32603
	NotFound       = -32002 // the resource does not exist, or the caller may not read it
)

// Methods that are treated specially.
const (
	Initialize  = "initialize"
	Initialized = "notifications/initialized"
	Cancelled   = "notifications/cancelled"
	Ping        = "ping"
	SetLevel    = "logging/setLevel"
	ListTools   = "tools/list"
	ToolsCall   = "tools/call"

	ListResources   = "resources/list"
	ListTemplates   = "resources/templates/list"
	ReadResource    = "resources/read"
	Subscribe       = "resources/subscribe"
	Unsubscribe     = "resources/unsubscribe"
	ResourceUpdated = "notifications/resources/updated"

	// Goodbye is sent by a client that ends its connection and its session, on
	// transports where the end of the connection alone does not end the
	// session.
	Goodbye = "notifications/leasehold/goodbye"
)

// Fields of a request's _meta that the daemon reads.
const (
	// ResentMark says that the daemon may already have received the request.
	ResentMark = "leasehold/resent"

	// UnreadMark says that no model reads the answer, so it must not contain notices, and
	// its text need not repeat the object.
	UnreadMark = "leasehold/unread"

	// CallMark names a call, so that it can be repeated over another connection
	// of its session, where the ids of requests start again.
	CallMark = "leasehold/call"

	// NamedMark is the name of a call that a server makes for a client in
	// another partition. Only a server may send it.
	NamedMark = "leasehold/named"

	versionMark = "io.modelcontextprotocol/protocolVersion"
	clientMark  = "io.modelcontextprotocol/clientInfo"
	threadMark  = "threadId"             // Codex: the agent that makes the call
	toolUseMark = "claudecode/toolUseId" // Claude Code: the id of the tool call
)

// A Message is one JSON-RPC message. Its fields refer to the line that was
// parsed, which must not change.
type Message struct {
	JSONRPC string
	ID      json.RawMessage // nil: none
	Key     string          // the id as a key, see Key
	Method  string
	Failed  bool // it is an error response
	Partial bool // a field had the wrong type, and was left empty

	Params struct {
		Raw       json.RawMessage
		RequestID json.RawMessage // of notifications/cancelled
		Name      string          // of the called tool
		URI       string          // of a resource
		Arguments json.RawMessage // an object or nil
		Meta      Meta
	}

	nameless bool // it has a method that is none
}

// A Meta is the _meta of a request.
type Meta struct {
	Version string // of the protocol
	Call    string // name of the call: CallMark
	Named   string // NamedMark
	Resent  bool   // ResentMark
	Unread  bool   // UnreadMark
	Program bool   // of the HTTP API: what a model must read is left for another answer
	Trace   string // of the caller, see package traceparent
	Thread  string // Codex: the agent that makes the call
	ToolUse string // Claude Code: the id of the tool call

	client json.RawMessage
}

// Call returns the request of a tool call that did not come as a line. arguments
// must be a JSON object, and trace a text of package traceparent.
func Call(id, tool string, arguments json.RawMessage, trace string) (m Message) {
	m.JSONRPC, m.ID, m.Key, m.Method = "2.0", json.RawMessage(`"`+id+`"`), `"`+id, ToolsCall
	m.Params.Name, m.Params.Arguments, m.Params.Meta.Trace = tool, arguments, trace
	return m
}

// A Fault says why a line is not a message that can be served.
type Fault struct {
	ID      json.RawMessage // of the message, if it has one
	Code    int
	Message string
}

// Reply returns the response to the line, as a line.
func (f *Fault) Reply() []byte { return ErrorReply(f.ID, f.Code, f.Message, nil) }

// Parse reads a message.
func Parse(line []byte) (m Message, fault *Fault) {
	if line = bytes.TrimSpace(line); len(line) > 0 && line[0] == '[' {
		return m, &Fault{nil, InvalidRequest, "batches are not served: send one message at a time"}
	}
	if !json.Valid(line) {
		err := json.Unmarshal(line, new(any))
		return m, &Fault{nil, ParseError, "not a JSON message: " + err.Error()}
	}
	m.read(line)
	if m.Key = Key(m.ID); m.ID != nil && m.Key == "" {
		return m, &Fault{nil, InvalidRequest, "id must be a string or a number"}
	}
	if m.JSONRPC != version {
		return m, &Fault{m.ID, InvalidRequest, `jsonrpc must be "2.0"`}
	}
	if m.nameless { // otherwise it would count as a response, and get none
		return m, &Fault{m.ID, InvalidRequest, "method must be a string, and not empty"}
	}
	if m.Method == "" && m.ID == nil {
		return m, &Fault{nil, InvalidRequest, "neither a request nor a response"}
	}
	return m, nil
}

// Trim removes what is around a message: white space, and the byte order mark that some
// programs write before text.
func Trim(text []byte) []byte {
	return bytes.TrimSpace(bytes.TrimPrefix(bytes.TrimSpace(text), []byte("\ufeff")))
}

// LeadingID returns the id of a message whose end is missing. It is nil if the id is not
// whole, or comes after a member that is not.
func LeadingID(line []byte) json.RawMessage {
	d := json.NewDecoder(bytes.NewReader(line))
	if begin, err := d.Token(); err != nil || begin != json.Delim('{') {
		return nil
	}
	for d.More() {
		name, err := d.Token()
		var value json.RawMessage
		if err != nil || d.Decode(&value) != nil {
			return nil
		}
		if name == "id" {
			if Key(value) == "" {
				return nil
			}
			return value
		}
	}
	return nil
}

func (m *Message) read(line []byte) {
	for name, value := range Members(line) {
		switch string(name) {
		case "jsonrpc":
			m.JSONRPC = m.word(value, version)
		case "id":
			m.ID = value
		case "method":
			m.Method = m.word(value, ToolsCall)
			m.nameless = m.Method == "" && string(value) != "null"
		case "error":
			m.Failed = true
		case "params":
			m.readParams(m.object(value))
		}
	}
}

func (m *Message) readParams(params []byte) {
	m.Params.Raw = params
	for name, value := range Members(params) {
		switch string(name) {
		case "requestId":
			m.Params.RequestID = value
		case "name":
			m.Params.Name = m.text(value)
		case "uri":
			m.Params.URI = m.text(value)
		case "arguments":
			m.Params.Arguments = m.object(value)
		case "_meta":
			m.Params.Meta.read(m.object(value))
		}
	}
}

func (m *Meta) read(meta []byte) {
	var parent, state string // of the trace
	for name, value := range Members(meta) {
		switch string(name) {
		case versionMark:
			m.Version, _ = TextOf(value)
		case CallMark:
			m.Call, _ = TextOf(value)
		case NamedMark:
			m.Named, _ = TextOf(value)
		case ResentMark:
			m.Resent = string(value) == "true"
		case UnreadMark:
			m.Unread = string(value) == "true"
		case traceparent.Header:
			parent, _ = TextOf(value)
		case traceparent.StateHeader:
			state, _ = TextOf(value)
		case threadMark:
			m.Thread, _ = TextOf(value)
		case toolUseMark:
			m.ToolUse, _ = TextOf(value)
		case clientMark:
			m.client = value
		}
	}
	m.Trace = traceparent.Join(parent, state)
}

const version = "2.0" // of JSON-RPC

// word is text for a field that is mostly one word, which is not copied then.
func (m *Message) word(value json.RawMessage, mostly string) string {
	if n := len(value); n == len(mostly)+2 && string(value[1:n-1]) == mostly && value[0] == '"' {
		return mostly
	}
	return m.text(value)
}

// text decodes a field that must be a string or null.
func (m *Message) text(value json.RawMessage) string {
	text, ok := TextOf(value)
	m.Partial = m.Partial || !ok && string(value) != "null"
	return text
}

// object returns a field that must be an object or null.
func (m *Message) object(value json.RawMessage) json.RawMessage {
	if value[0] == '{' {
		return value
	}
	m.Partial = m.Partial || string(value) != "null"
	return nil
}

// Request reports whether the message needs a response.
func (m *Message) Request() bool { return m.Method != "" && m.ID != nil }

// Waits reports whether the call asks to wait. Every tool that can wait has the
// same argument for it; byDefault applies to a call without that argument.
func (m *Message) Waits(byDefault bool) (waits bool) {
	waits = byDefault
	for name, value := range Members(m.Params.Arguments) {
		if string(name) == waitArgument {
			waits = byDefault
			if secs := string(unquoted(value)); secs != "null" {
				waits = secs != "0"
			}
		}
	}
	return waits
}

const waitArgument = "wait_secs"

// unquoted returns a number that may be in a string, as some clients send it.
func unquoted(number []byte) []byte { return bytes.Trim(number, `"`) }

// ClientName is the name that the client gives itself, in initialize or with a
// request.
func (m *Message) ClientName() string {
	info := m.Params.Meta.client
	for name, value := range Members(m.Params.Raw) {
		if string(name) == "clientInfo" {
			info = value
		}
	}
	for name, value := range Members(info) {
		if string(name) == "name" {
			text, _ := TextOf(value)
			return text
		}
	}
	return ""
}

// maxCallName is the greatest length of a call's name in a row's key.
const maxCallName = 64

// CallName returns the name of the call within its session: the client's mark,
// or else its id.
func (m *Message) CallName() string {
	name := m.Key
	if marked := m.Params.Meta.Call; marked != "" {
		name = "call " + marked
	}
	if len(name) <= maxCallName {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return "hash " + hex.EncodeToString(sum[:16])
}

// Print returns a fingerprint of a call: the tool and its arguments, in any
// order. The wait time is left out, because a repeated call has less of it
// left.
func (m *Message) Print() uint64 {
	print := sum(fnvOffset, m.Params.Name)
	for name, value := range Members(m.Params.Arguments) {
		if string(name) != waitArgument {
			print += sum((sum(fnvOffset, name)^':')*fnvPrime, value)
		}
	}
	return print
}

const (
	fnvOffset = 14695981039346656037
	fnvPrime  = 1099511628211
)

// sum is FNV-1a. It is written out because this path is hot and should not
// allocate a hash.Hash.
func sum[T ~string | ~[]byte](h uint64, text T) uint64 {
	for i := range len(text) {
		h = (h ^ uint64(text[i])) * fnvPrime
	}
	return h
}

// Key returns a request id as a key, or "" if it is not a valid id. A number
// and a string with the same digits are different ids.
func Key(id json.RawMessage) string {
	id = bytes.TrimSpace(id)
	if len(id) == 0 {
		return ""
	}
	if id[0] == '"' {
		text, _ := TextOf(id)
		return `"` + text
	}
	if strings.IndexByte("-0123456789", id[0]) < 0 {
		return ""
	}
	return string(id)
}
