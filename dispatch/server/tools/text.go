package tools

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"sync"

	"github.com/leasehold/leasehold/dispatch/server/wire"
	"github.com/leasehold/leasehold/kvstore"
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
	IsError bool

	line string // the first line of the text; all of it if by is nil
	by   told
}

// ReplyOf returns a reply with a text that is already whole.
func ReplyOf(object json.RawMessage, text string, isError bool) Reply {
	return Reply{Object: object, IsError: isError, line: text}
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

// newReply builds a reply from an object and the line of its text. Notices come before
// what may be long, because clients show their models only the beginning of a long answer.
func newReply(object json.RawMessage, line string, by told, news []Notice) Reply {
	if len(news) > 0 {
		line += "; " + noticeText(news)
		first := append(json.RawMessage(`{"notices":`), mustJSON(news)...)
		if len(object) > len("{}") {
			first = append(first, ',')
		}
		object = append(first, object[1:]...)
	}
	return Reply{Object: object, line: oneLine.Replace(line), by: by}
}

// Text returns the text. It is made only when it is asked for, because the API
// answers with the object alone.
func (r Reply) Text() string { return r.line + string(r.appendRest(nil)) }

// Brief returns the reply with the line alone as its text, for a program that reads the
// object: a list may have megabytes, and the text repeats it.
func (r Reply) Brief() Reply {
	r.line, _, _ = strings.Cut(r.line, "\n") // ReplyOf has the whole text there
	r.by = nil
	return r
}

// appendRest appends the second line of the text to it, if there is one.
func (r Reply) appendRest(text []byte) []byte {
	if r.by == nil {
		return text
	}
	before := "\n{"
	for name, value := range wire.Members(r.Object) {
		if r.by[string(name)] != "" {
			continue
		}
		text = append(append(text, before...), '"')
		text = append(append(text, name...), `":`...) // no name needs escaping
		text = append(text, value...)
		before = ","
	}
	if before == "," {
		text = append(text, '}')
	}
	return text
}

// Line returns the reply to a request as an MCP message.
func (r Reply) Line(id json.RawMessage) []byte {
	var room [1 << 10]byte // for most replies, so that they need no memory
	rest := r.appendRest(room[:0])
	size := len(r.Object) + (len(r.line)+len(rest))*9/8 + 96 // quotes in the text need two bytes
	return wire.ReplyWith(id, size, func(line []byte) []byte {
		line = append(line, `{"content":[{"type":"text","text":`...)
		line = appendJSON(line, r.line)
		line = appendEscaped(line[:len(line)-1], rest)
		line = append(append(line, `"}],"structuredContent":`...), r.Object...)
		if r.IsError {
			line = append(line, `,"isError":true`...)
		}
		return append(line, '}')
	})
}

// appendEscaped appends the second line of a text to a JSON string. It is itself JSON on
// one line, so besides its newline only quotes and backslashes need escaping.
func appendEscaped(to, text []byte) []byte {
	for _, c := range text {
		switch c {
		case '\n':
			to = append(to, `\n`...)
		case '"', '\\':
			to = append(to, '\\', c)
		default:
			to = append(to, c)
		}
	}
	return to
}

// maxPage is how many bytes the elements of a list may have that an agent gets,
// unless one element has more: clients cut off long answers.
const maxPage = kvstore.MaxListBytes

// fits returns how many of the first elements of a list fit into an answer.
func fits[T any](list []T) int {
	size := 0
	for i := range list {
		if size += len(mustJSON(list[i])); i > 0 && size > maxPage {
			return i
		}
	}
	return len(list)
}

// fitting returns a page of at most limit elements, or of fewer if those would
// make too long an answer. page returns the first so many of them; it is called
// again for the fewer, because only it knows where the next page begins.
func fitting[L, T any](limit int, page func(limit int) (L, []T, error)) (L, error) {
	for {
		list, elements, err := page(limit)
		n := fits(elements)
		if err != nil || n == len(elements) {
			return list, err
		}
		limit = n
	}
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
