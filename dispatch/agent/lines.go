package agent

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"strings"
)

const (
	// maxLine is how long a line may be that is read as an event. The answer of
	// a model is far below it; a longer line is passed over.
	maxLine = 4 << 20

	// maxTail is how much of the end is kept.
	maxTail = 4 << 20
)

// lines reads an output line by line, and keeps its end.
type lines struct {
	in   *bufio.Reader
	tail []byte
}

func newLines(r io.Reader) *lines { return &lines{in: bufio.NewReaderSize(r, 64<<10)} }

// objects yields the lines that may be a JSON object. A line is valid until the
// next.
func (l *lines) objects() iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		var line []byte
		long := false
		for {
			part, err := l.in.ReadSlice('\n')
			l.keep(part)
			if !long && len(line)+len(part) <= maxLine {
				line = append(line, part...)
			} else {
				long = true
			}
			if errors.Is(err, bufio.ErrBufferFull) {
				continue
			}
			if text := bytes.TrimSpace(line); !long && len(text) > 0 && text[0] == '{' && !yield(text) {
				return
			}
			if err != nil {
				return // the end, or a file that cannot be read further
			}
			line, long = line[:0], false
		}
	}
}

func (l *lines) keep(part []byte) {
	l.tail = append(l.tail, part...)
	if len(l.tail) > 2*maxTail {
		l.tail = append(l.tail[:0], l.tail[len(l.tail)-maxTail:]...)
	}
}

// drain reads what is left.
func (l *lines) drain() {
	for range l.objects() {
		continue
	}
}

// lastObject is the last JSON object of the end that begins at the beginning of
// a line and has its last line for itself; nil if there is none. It reads what
// is left first.
func (l *lines) lastObject() json.RawMessage {
	l.drain()
	text := l.tail
	// Few objects are tried: an output may be full of lines that are none.
	for range 1000 {
		at := bytes.LastIndex(text, []byte("\n{"))
		if at < 0 && (len(text) == 0 || text[0] != '{') {
			return nil
		}
		rest := l.tail[at+1:]
		dec := json.NewDecoder(bytes.NewReader(rest))
		var object json.RawMessage
		if dec.Decode(&object) == nil {
			after, _, _ := bytes.Cut(rest[dec.InputOffset():], []byte("\n"))
			if len(bytes.TrimSpace(after)) == 0 {
				return object
			}
		}
		if at < 0 {
			return nil
		}
		text = text[:at]
	}
	return nil
}

// end is the end of the output as text: whole lines, if it is longer than what
// is kept of a result.
func (l *lines) end() string {
	text := bytes.TrimSpace(l.tail)
	if len(text) > MaxResult {
		text = text[len(text)-MaxResult:]
		if _, after, ok := bytes.Cut(text, []byte("\n")); ok && len(after) > 0 {
			text = after
		}
	}
	return strings.ToValidUTF8(string(text), "")
}

// understood decodes an event. A field of another type than is documented is
// left out, and the rest taken.
func understood(event []byte, v any) bool {
	var other *json.UnmarshalTypeError
	err := json.Unmarshal(event, v)
	return err == nil || errors.As(err, &other)
}
