package wire

import (
	"bytes"
	"encoding/json"
	"strconv"
	"sync"
	"time"
)

// Line encodes a message as a line, including the newline.
func Line(v any) []byte {
	var buf bytes.Buffer
	encode(&buf, v)
	return buf.Bytes()
}

func encode(buf *bytes.Buffer, v any) {
	if err := json.NewEncoder(buf).Encode(v); err != nil {
		// Cannot happen: both ends encode only their own types.
		panic("wire: a message has no JSON: " + err.Error())
	}
}

// Reply returns the response to a request as a line. result must be JSON in one
// line, and id the client's own text.
func Reply(id, result json.RawMessage) []byte {
	return ReplyWith(id, len(result), func(line []byte) []byte { return append(line, result...) })
}

// ReplyWith is Reply with a function that appends the result, of about size
// bytes, to the line.
func ReplyWith(id json.RawMessage, size int, result func(line []byte) []byte) []byte {
	const head, between = `{"jsonrpc":"2.0","id":`, `,"result":`
	var line []byte
	if size += len(head) + len(id) + len(between) + 2; size <= shortLine {
		line = lines.Get().(*[shortLine]byte)[:0]
	} else {
		line = make([]byte, 0, size)
	}
	line = append(append(line, head...), id...)
	line = result(append(line, between...))
	return append(line, "}\n"...)
}

// lines has the memory of short responses that were written.
var lines = sync.Pool{New: func() any { return new([shortLine]byte) }}

const shortLine = 2 << 10

// Reuse gives the memory of a response to later ones. The caller has written it.
func Reuse(line []byte) {
	if cap(line) == shortLine {
		lines.Put((*[shortLine]byte)(line[:shortLine]))
	}
}

// ErrorReply returns a JSON-RPC error as a line. If id is nil, it responds to
// no particular request.
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

// Notification returns a JSON-RPC notification as a line.
func Notification(method string, params any) []byte {
	return Line(struct {
		JSONRPC string `json:"jsonrpc"`
		Method  string `json:"method"`
		Params  any    `json:"params,omitempty"`
	}{"2.0", method, params})
}

// Resent returns a request as it is sent again after its client has already
// waited for spent. It gets the ResentMark, and its wait is reduced, because
// otherwise it could exceed the client's time-out. All other bytes stay the
// same, so that the daemon recognises the call. A request to which the mark
// cannot be added is returned unchanged.
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

// Marked returns a call with a name, under which it can be repeated over
// another connection of its session. A call to which the mark cannot be added
// is returned unchanged.
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

// WithArguments returns a call with other arguments, which must be a JSON object. A call
// without any is returned unchanged.
func WithArguments(line, arguments []byte) []byte {
	params, ok := objectIn(line, "params")
	if !ok {
		return line
	}
	return set(line, "params", set(params, "arguments", arguments))
}

// lessWait returns the rest of a wait. It is never reduced to zero, so that the
// answer is that of a waiting call.
func lessWait(wait []byte, spent time.Duration) []byte {
	secs, err := strconv.ParseFloat(string(unquoted(wait)), 64)
	if err != nil || secs <= 0 {
		return wait
	}
	left := min(secs, max(secs-spent.Seconds(), 1))
	return strconv.AppendFloat(nil, left, 'f', -1, 64)
}

// WithID returns a request with another id.
func WithID(line []byte, id string) []byte {
	return set(line, "id", bytes.TrimSpace(Line(id)))
}

// objectIn returns the object under a name, or an empty object if there is
// none. ok is false if the value is not an object, or if object is not one.
func objectIn(object []byte, name string) (value []byte, ok bool) {
	start, end := find(object, name)
	if end == 0 {
		open := skipBetween(object)
		return []byte("{}"), len(open) > 0 && open[0] == '{'
	}
	return object[start:end], object[start] == '{'
}

// find returns the position of the value under a name. If the name occurs
// several times, the last one counts. end is 0 if it does not occur.
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

// set returns a copy of object in which the value under a name is replaced or
// added.
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
