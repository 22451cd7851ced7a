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
	// maxLine is the greatest length of a line that is read as an event. The
	// answer of a model is far shorter; longer lines are skipped.
	maxLine = 4 << 20

	// maxTail is how much of the end of the output is kept.
	maxTail = 4 << 20
)

// lines reads an output line by line and keeps its end.
type lines struct {
	in   *bufio.Reader
	tail []byte
}

func newLines(r io.Reader) *lines { return &lines{in: bufio.NewReaderSize(r, 64<<10)} }

// objects yields the lines that may be a JSON object. A line is valid only
// until the next one.
func (l *lines) objects() iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		var line []byte
		long := false
		for {
			part, err := l.in.ReadSlice('\n')
			l.keep(part)
			if len(line)+len(part) <= maxLine {
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
				return // the end of the file, or a read error
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

// drain reads the rest.
func (l *lines) drain() {
	for range l.objects() {
		continue
	}
}

// lastObject reads the rest and returns the last JSON object in the kept end of
// the output. The object must begin at the start of a line, and nothing may
// follow it in its last line. It returns nil if there is none.
func (l *lines) lastObject() json.RawMessage {
	l.drain()
	text := l.tail
	// The number of attempts is limited, because an output may be full of lines
	// that begin with { and are not objects.
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

// end returns the end of the output as text. If that is longer than MaxResult,
// it begins at the start of a line.
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

// understood decodes an event. A field whose type differs from the
// documentation is skipped.
func understood(event []byte, v any) bool {
	var other *json.UnmarshalTypeError
	err := json.Unmarshal(event, v)
	return err == nil || errors.As(err, &other)
}
