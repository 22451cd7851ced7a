package logs

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"

	"github.com/charmbracelet/x/ansi"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/terminal"
	"github.com/leasehold/leasehold/dispatch/launcher"
)

// A stream copies one output stream of an actor from all of its files. If the
// output is not a terminal, it copies every byte unchanged.
type stream struct {
	out   io.Writer
	tail  int // earlier lines to show; allLines: all
	clean bool

	files  []*launcher.Tail
	primed bool   // the earlier lines have been shown
	part   []byte // on a terminal: an incomplete line
	err    error  // of out
}

func newStream(out io.Writer, tail int) *stream {
	return &stream{out: out, tail: tail, clean: terminal.Is(out)}
}

// read shows what is new in the files.
func (s *stream) read(names []string) error {
	var before [][]byte // the last earlier lines, if only some are shown
	give := s.write
	if !s.primed && s.tail != allLines {
		give = func(some []byte) { before = lastOf(before, some, s.tail) }
	}
	for i, name := range names {
		read := (*launcher.Tail).Next
		if i == len(s.files) {
			f, err := os.Open(name)
			if errors.Is(err, fs.ErrNotExist) {
				break // it is about to be created
			}
			if err != nil {
				return err
			}
			s.files = append(s.files, &launcher.Tail{File: f})
			read = (*launcher.Tail).All
		}
		if err := read(s.files[i], give); err != nil {
			return err
		}
	}
	s.primed = true
	for _, line := range before {
		s.write(line)
	}
	return s.err
}

// lastOf appends bytes to lines and keeps the last n lines. Each line includes
// its newline, which may be missing only in the last one.
func lastOf(lines [][]byte, some []byte, n int) [][]byte {
	for line := range bytes.Lines(some) {
		if last := len(lines) - 1; last >= 0 && !bytes.HasSuffix(lines[last], []byte("\n")) {
			lines[last] = append(lines[last], line...)
			continue
		}
		if len(lines) > n {
			lines = append(lines[:0], lines[len(lines)-n:]...)
		}
		lines = append(lines, bytes.Clone(line))
	}
	return lines[max(0, len(lines)-n):]
}

// maxPart is how many bytes of an incomplete line are held back.
const maxPart = 64 << 10

func (s *stream) write(some []byte) {
	if s.err != nil {
		return
	}
	if !s.clean {
		_, s.err = s.out.Write(some)
		return
	}
	s.part = append(s.part, some...)
	for s.err == nil {
		i := bytes.IndexByte(s.part, '\n')
		if i < 0 {
			break
		}
		_, s.err = io.WriteString(s.out, Clean(string(s.part[:i]))+"\n")
		s.part = s.part[i+1:]
	}
	if len(s.part) > maxPart {
		_ = s.end()
	}
}

// Clean makes a line of an agent safe for a terminal.
func Clean(line string) string {
	return terminal.Printable(ansi.Strip(expandTabs(line)))
}

func expandTabs(line string) string {
	return string(bytes.ReplaceAll(bytes.TrimRight([]byte(line), "\r"), []byte("\t"), []byte("    ")))
}

// end shows the last line if it has no newline.
func (s *stream) end() error {
	if len(s.part) > 0 && s.err == nil {
		_, s.err = io.WriteString(s.out, Clean(string(s.part)))
	}
	s.part = nil
	return s.err
}

func (s *stream) close() {
	for _, f := range s.files {
		f.File.Close()
	}
}
