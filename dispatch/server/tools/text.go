package tools

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"sync"

	"github.com/leasehold/leasehold/dispatch/server/wire"
)

// A Reply is the answer to a call, as an object and as text. Some clients show
// their model only one of the two, so each is complete.
//
// The text is one line for people, with the next call where there is one. A
// second line has, as a JSON object, those members of the object that the first
// line leaves out. Tags in the answer's type say which they are: the value of a
// field tagged told:"line" is in the line, and a field tagged told:"never" is a
// secret that is only in the object. All other fields are in the JSON, so no
// field can be forgotten.
type Reply struct {
	Object  json.RawMessage
	Text    string
	IsError bool
}

// told says, by name, how the text shows a member that its JSON leaves out.
type told map[string]string

const (
	inLine = "line"
	never  = "never"
)

// toldByRefusals is for the objects of refusals, whose line is the message.
var toldByRefusals = told{"message": inLine}

// toldBy reads the tags of the type of an answer.
func toldBy(t reflect.Type) told {
	by := make(told)
	for _, f := range reflect.VisibleFields(t) {
		if how := f.Tag.Get("told"); how != "" {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			by[name] = how
		}
	}
	return by
}

var oneLine = strings.NewReplacer("\r", " ", "\n", " ")

// newReply builds a reply from an object and the line of its text.
func newReply(object json.RawMessage, line string, by told, news []Notice) Reply {
	if len(news) > 0 {
		line += "; notice: " + noticeText(news)
		object = object[:len(object)-1]
		if len(object) > 1 {
			object = append(object, ',')
		}
		object = append(append(append(object, `"notices":`...), mustJSON(news)...), '}')
	}
	var text strings.Builder
	text.Grow(len(line) + len(object) + 1)
	_, _ = oneLine.WriteString(&text, line) // a Builder accepts everything
	before := "\n{"
	for name, value := range wire.Members(object) {
		if by[string(name)] != "" {
			continue
		}
		text.WriteString(before)
		text.WriteByte('"')
		text.Write(name) // no name needs escaping
		text.WriteString(`":`)
		text.Write(value)
		before = ","
	}
	if before == "," {
		text.WriteByte('}')
	}
	return Reply{Object: object, Text: text.String()}
}

// Line returns the reply to a request as an MCP message.
func (r Reply) Line(id json.RawMessage) []byte {
	size := len(r.Object) + len(r.Text)*9/8 + 96 // quotes in the text need two bytes
	return wire.ReplyWith(id, size, func(line []byte) []byte {
		line = append(line, `{"content":[{"type":"text","text":`...)
		line = appendJSON(line, r.Text)
		line = append(append(line, `}],"structuredContent":`...), r.Object...)
		if r.IsError {
			line = append(line, `,"isError":true`...)
		}
		return append(line, '}')
	})
}

// counted returns the line for a list.
func counted(n int, one, many, next string) string {
	line := fmt.Sprint(n, " ", many)
	if n == 1 {
		line = "1 " + one
	}
	if next != "" {
		line += fmt.Sprintf(", and there are more: call again with after %q", next)
	}
	return line
}

// mustJSON encodes plain data, without escapes for HTML, because models read
// it.
func mustJSON(v any) json.RawMessage { return appendJSON(nil, v) }

func appendJSON(to []byte, v any) []byte {
	e := encoders.Get().(*encoder)
	e.buf.Reset()
	if err := e.Encode(v); err != nil {
		panic("tools: schemas and answers are plain data: " + err.Error())
	}
	to = append(to, e.buf.Bytes()[:e.buf.Len()-1]...)
	if e.buf.Cap() <= 64<<10 {
		encoders.Put(e)
	}
	return to
}

// An encoder keeps its buffer for the next answer.
type encoder struct {
	*json.Encoder
	buf bytes.Buffer
}

var encoders = sync.Pool{New: func() any {
	e := new(encoder)
	e.Encoder = json.NewEncoder(&e.buf)
	e.SetEscapeHTML(false)
	return e
}}
