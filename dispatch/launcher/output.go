package launcher

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"
)

const (
	// maxOutput bounds a file that an agent writes into, and the file of what it
	// wrote before that.
	maxOutput = 32 << 20

	// outputPoll is how often such a file is looked at: nothing stands between it
	// and the agent.
	outputPoll = time.Second

	// Earlier is what the name of a file of earlier output has more.
	Earlier = ".old"
)

// An output is a file that a process writes into by itself. When the file is full,
// its content becomes that of a second file, whose name ends with [Earlier], and it
// begins again. Every write goes to the end of the file, so the process need not know.
// What the process writes in the instant between the copy and the cut is lost.
type output struct {
	*os.File
	max int64
}

func openOutput(name string) (*output, error) {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR|os.O_TRUNC|os.O_APPEND, 0o600)
	return &output{f, maxOutput}, err
}

// rotate begins the file again if it is full. If that fails, the file grows.
func (o *output) rotate() error {
	info, err := o.Stat()
	if err != nil || info.Size() <= o.max {
		return err
	}
	earlier, err := os.OpenFile(o.Name()+Earlier, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	from := max(0, info.Size()-o.max)
	_, err = io.Copy(earlier, io.NewSectionReader(o, from, 2*o.max)) // what comes meanwhile, too
	if err = errors.Join(err, earlier.Close()); err != nil {
		return fmt.Errorf("keep what was in %s: %w", o.Name(), err)
	}
	return o.Truncate(0)
}

// read has fn read what is kept of all that was written.
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

// bound bounds the outputs until stop is called.
func bound(outputs ...*output) (stop func()) {
	tick := time.NewTicker(outputPoll)
	over, done := make(chan struct{}), make(chan struct{})
	go func() { // ends with stop
		defer close(done)
		for {
			select {
			case <-tick.C:
				for _, o := range outputs {
					_ = o.rotate() // else with the next tick
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

// maxLastLine is how much of a last line a cause has, in bytes.
const maxLastLine = 400

// lastLine is the last thing that a process said, for the cause of its failure,
// but for the advice that our own command ends with.
func lastLine(o *output) string {
	text := lastOf(o.File, 4096)
	if earlier, err := os.Open(o.Name() + Earlier); err == nil {
		text = lastOf(earlier, 4096-len(text)) + text
		earlier.Close()
	}
	lines := strings.Split(strings.TrimSpace(text), "\n")
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

// lastOf is the end of a file, at most n bytes of it.
func lastOf(f *os.File, n int) string {
	info, err := f.Stat()
	if err != nil {
		return ""
	}
	text, _ := io.ReadAll(io.NewSectionReader(f, max(0, info.Size()-int64(n)), int64(n)))
	return string(text)
}
