package wire

import (
	"bytes"
	"encoding/json"
	"strconv"
	"time"
)

// Line encodes a message as a line, its end included.
func Line(v any) []byte {
	var buf bytes.Buffer
	encode(&buf, v)
	return buf.Bytes()
}

func encode(buf *bytes.Buffer, v any) {
	if err := json.NewEncoder(buf).Encode(v); err != nil {
		// Both ends build what they send from types of their own.
		panic("wire: a message has no JSON: " + err.Error())
	}
}

// Reply is the answer to a request as a line, with a result that is JSON in one
// line. The id is the client's own text.
func Reply(id, result json.RawMessage) []byte {
	return ReplyWith(id, len(result), func(line []byte) []byte { return append(line, result...) })
}

// ReplyWith is Reply with a result that is appended to the line, of about size bytes.
func ReplyWith(id json.RawMessage, size int, result func(line []byte) []byte) []byte {
	const head, between = `{"jsonrpc":"2.0","id":`, `,"result":`
	line := make([]byte, 0, len(head)+len(id)+len(between)+size+2)
	line = append(append(line, head...), id...)
	line = result(append(line, between...))
	return append(line, "}\n"...)
}

// ErrorReply is a JSON-RPC error as a line. Without an id it answers no request
// in particular.
func ErrorReply(id json.RawMessage, code int, message string, data any) []byte {
	type details struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
		Data    any    `json:"data,omitempty"`
	}
	return Line(struct {
		JSONRPC string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id"` // nil is written as null
		Error   details         `json:"error"`
	}{"2.0", id, details{code, message, data}})
}

// Notification is a JSON-RPC notification as a line.
func Notification(method string, params any) []byte {
	return Line(struct {
		JSONRPC string `json:"jsonrpc"`
		Method  string `json:"method"`
		Params  any    `json:"params,omitempty"`
	}{"2.0", method, params})
}

// Resent is a request that is sent again, after its client has waited for
// spent: it has the ResentMark, and waits only for what is left of its wait, or
// it would outlast the client's patience. The rest keeps its bytes, so that the
// daemon knows the call again. A request without room for the mark goes out as
// it is.
func Resent(line []byte, spent time.Duration) []byte {
	params, ok := objectIn(line, "params")
	if !ok {
		return line
	}
	meta, ok := objectIn(params, "_meta")
	if !ok {
		return line
	}
	if arguments, ok := objectIn(params, "arguments"); ok {
		if start, end := find(arguments, waitArgument); end > 0 {
			wait := lessWait(arguments[start:end], spent)
			params = set(params, "arguments", set(arguments, waitArgument, wait))
		}
	}
	meta = set(meta, ResentMark, []byte("true"))
	return set(line, "params", set(params, "_meta", meta))
}

// Marked is a call with a name, under which it can be sent again over another
// connection of its session. A call without room for the mark is left as it is.
func Marked(line []byte, name string) []byte {
	params, ok := objectIn(line, "params")
	if !ok {
		return line
	}
	meta, ok := objectIn(params, "_meta")
	if !ok {
		return line
	}
	meta = set(meta, CallMark, bytes.TrimSpace(Line(name)))
	return set(line, "params", set(params, "_meta", meta))
}

// lessWait is what is left of a wait. It stays a wait to the end: its answer
// then says what the answer of a wait says.
func lessWait(wait []byte, spent time.Duration) []byte {
	secs, err := strconv.ParseFloat(string(wait), 64)
	if err != nil || secs <= 0 {
		return wait
	}
	left := min(secs, max(secs-spent.Seconds(), 1))
	return strconv.AppendFloat(nil, left, 'f', -1, 64)
}

// WithID gives a request another id.
func WithID(line []byte, id string) []byte {
	return set(line, "id", bytes.TrimSpace(Line(id)))
}

// objectIn is the object under a name; an empty one if there is none. It is not
// ok if something else is there, or object is none.
func objectIn(object []byte, name string) (value []byte, ok bool) {
	start, end := find(object, name)
	if end == 0 {
		open := skipBetween(object)
		return []byte("{}"), len(open) > 0 && open[0] == '{'
	}
	return object[start:end], object[start] == '{'
}

// find is where the value under a name is, of several the last, which counts;
// end is 0 if there is none.
func find(object []byte, name string) (start, end int) {
	rest := skipBetween(object)
	if len(rest) == 0 || rest[0] != '{' {
		return 0, 0
	}
	for rest = skipBetween(rest[1:]); rest[0] != '}'; rest = skipBetween(rest) {
		n, after := cutValue(rest)
		value, following := cutValue(skipBetween(after))
		if rest = following; string(unquote(n)) == name {
			end = len(object) - len(rest)
			start = end - len(value)
		}
	}
	return start, end
}

// set replaces or adds the value under a name, in a copy.
func set(object []byte, name string, value []byte) []byte {
	if start, end := find(object, name); end > 0 {
		out := make([]byte, 0, len(object)-(end-start)+len(value))
		return append(append(append(out, object[:start]...), value...), object[end:]...)
	}
	open := bytes.IndexByte(object, '{') + 1
	out := append([]byte(nil), object[:open]...)
	out = append(append(out, bytes.TrimSpace(Line(name))...), ':')
	out = append(out, value...)
	if rest := skipBetween(object[open:]); rest[0] != '}' {
		out = append(out, ',')
	}
	return append(out, object[open:]...)
}
