package shim

import (
	"bufio"
	"errors"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/dispatch/project"
	"github.com/leasehold/leasehold/dispatch/server/wire"
)

// maxClient is how many bytes of a client's name are used in the name of its
// worker. The rest is for the directory.
const maxClient = 40

// clientName derives the name of a worker from the name that its client gives
// itself and the directory that the client works in.
func clientName(m wire.Message, dir string) string {
	name := project.Word(m.ClientName())
	_, err := uuid.Parse(name)
	if err == nil || slices.Contains(reserved, name) {
		name = strings.TrimSuffix("client-"+name, "-")
	}
	if dir != "" {
		name = strings.TrimRight(name[:min(len(name), maxClient)], "-.") + "-" + project.Word(filepath.Base(dir))
	}
	return strings.TrimRight(name[:min(len(name), 64)], "-.")
}

// reserved are names with another meaning.
var reserved = []string{"", "parent", "root", "self"}

// readLines sends the lines of r, without newlines, until reading fails or stop
// is closed; then it closes lines. A line is cut at limit bytes.
func readLines(r io.Reader, limit int, lines chan<- []byte, stop <-chan struct{}) {
	defer close(lines)
	br := bufio.NewReaderSize(r, 64<<10)
	for {
		var line []byte
		for {
			part, err := br.ReadSlice('\n')
			line = append(line, part[:min(len(part), limit-len(line))]...)
			if err == nil {
				break
			}
			if !errors.Is(err, bufio.ErrBufferFull) {
				return
			}
		}
		if line = wire.Trim(line); len(line) == 0 {
			continue
		}
		select {
		case lines <- line:
		case <-stop:
			return
		}
	}
}
