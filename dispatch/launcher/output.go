package launcher

import (
	"bytes"
	"io"
	"os"
	"slices"
	"strings"
)

func rewound(f *os.File) io.Reader {
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return bytes.NewReader(nil)
	}
	return io.NewSectionReader(f, 0, size)
}

// maxLastLine is how much of a last line a cause has, in bytes.
const maxLastLine = 400

// lastLine is the last thing that a process said, for the cause of its failure,
// but for the advice that our own command ends with.
func lastLine(f *os.File) string {
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return ""
	}
	from := max(0, size-4096)
	text, err := io.ReadAll(io.NewSectionReader(f, from, size-from))
	if err != nil {
		return ""
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	lines = slices.DeleteFunc(lines, func(line string) bool { return strings.HasPrefix(line, "hint: ") })
	if len(lines) == 0 {
		return ""
	}
	last := strings.TrimSpace(lines[len(lines)-1])
	if last == "" {
		return ""
	}
	return ": " + strings.ToValidUTF8(last[:min(len(last), maxLastLine)], "")
}
