package launcher

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"
)

const (
	// maxOutput is the size at which an agent's output file is full.
	maxOutput = 32 << 20

	// outputPoll is how often the size of such a file is checked, because the
	// agent writes to it directly.
	outputPoll = time.Second

	// Earlier is the suffix of a file of earlier output.
	Earlier = ".old"
)

// An output is a file to which a process writes directly. When the file is
// full, its content is copied to a second file, whose name ends with [Earlier],
// and the file is truncated. The process need not know, because every write
// goes to the end of the file. What it writes between the copy and the
// truncation is lost.
type output struct {
	*os.File
	max   int64
	again int64 // the size at which rotate tries again after it has failed
}

func openOutput(name string) (*output, error) {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR|os.O_TRUNC|os.O_APPEND, 0o600)
	return &output{File: f, max: maxOutput}, err
}

// rotate starts the file over if it is full. The copy has the whole file, because a
// [Tail] goes on in it where it was in the file, unless the file has grown to twice the
// size. If rotate fails, as on a full disk, the file keeps growing, and nothing is left
// of the copy: it would take the space that others need, and has only what the file
// still has.
func (o *output) rotate() error {
	info, err := o.Stat()
	if err != nil || info.Size() <= max(o.max, o.again) {
		return err
	}
	o.again = info.Size() + o.max/16
	earlier, err := os.OpenFile(o.Name()+Earlier, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	from := max(0, info.Size()-2*o.max)
	_, err = io.Copy(earlier, io.NewSectionReader(o, from, 3*o.max)) // including what is written meanwhile
	if err = errors.Join(err, earlier.Close()); err != nil {
		return errors.Join(fmt.Errorf("keep what was in %s: %w", o.Name(), err), os.Remove(earlier.Name()))
	}
	o.again = 0
	return o.Truncate(0)
}

// read calls fn with a reader of everything that is kept.
func (o *output) read(fn func(io.Reader)) {
	here := io.NewSectionReader(o, 0, 1<<62)
	earlier, err := os.Open(o.Name() + Earlier)
	if err != nil {
		fn(here)
		return
	}
	defer earlier.Close()
	fn(io.MultiReader(earlier, here))
}

// bound limits the size of the outputs until stop is called.
func bound(outputs ...*output) (stop func()) {
	tick := time.NewTicker(outputPoll)
	over, done := make(chan struct{}), make(chan struct{})
	go func() { // ends with stop
		defer close(done)
		for {
			select {
			case <-tick.C:
				for _, o := range outputs {
					_ = o.rotate() // after an error it tries again when there is more
				}
			case <-over:
				for _, o := range outputs {
					_ = o.rotate()
				}
				return
			}
		}
	}()
	return func() {
		tick.Stop()
		close(over)
		<-done
	}
}

// maxLastLine is how many bytes of a last line are used in a cause.
const maxLastLine = 400

// lastLine returns the last line of a process's output as a screen would show it, for
// the cause of its failure, without the data and the advice at the end of our own
// command's errors. If the line of another program is data with a code, or ends JSON of
// several lines, what is before it belongs to it.
func lastLine(o *output) string {
	text := lastOf(o.File, 4096)
	if earlier, err := os.Open(o.Name() + Earlier); err == nil {
		text = lastOf(earlier, 4096-len(text)) + text
		earlier.Close()
	}
	text = strings.ReplaceAll(ansi.Strip(text), "\r", "\n") // colours, and bars that are drawn again
	lines := strings.Split(strings.TrimSpace(text), "\n")
	lines = slices.DeleteFunc(lines, func(line string) bool { return strings.HasPrefix(line, "hint: ") })
	if len(lines) == 0 {
		return ""
	}
	from := len(lines) - 1
	var data struct{ Code string }
	if from > 0 && !strings.HasPrefix(lines[from-1], "{") && json.Unmarshal([]byte(lines[from]), &data) == nil && data.Code != "" {
		from-- // what writes JSON throughout says all in its last line
		if strings.HasPrefix(lines[from], "leasehold: ") {
			lines = lines[:from+1]
		}
	}
	for strings.HasPrefix(lines[len(lines)-1], "}") && from > 0 && strings.ContainsAny(lines[from][:min(1, len(lines[from]))], " \t}]") {
		from-- // JSON on several lines
	}
	last := strings.Join(strings.Fields(strings.Join(lines[from:], " ")), " ")
	if last == "" {
		return ""
	}
	return ": " + strings.ToValidUTF8(last[:min(len(last), maxLastLine)], "")
}

// lastOf returns the end of a file, at most n bytes.
func lastOf(f *os.File, n int) string {
	info, err := f.Stat()
	if err != nil {
		return ""
	}
	text, _ := io.ReadAll(io.NewSectionReader(f, max(0, info.Size()-int64(n)), int64(n)))
	return string(text)
}
