package terminal

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// A screen is the terminal's alternate screen, which leaves the normal one
// unchanged.
type screen struct {
	out  io.Writer
	quit chan os.Signal // SIGQUIT, until Close
}

const (
	screenOpen  = "\x1b[?1049h\x1b[?25l\x1b[?7l" // alternate screen, no cursor, no wrapping
	screenClose = "\x1b[?7h\x1b[?25h\x1b[?1049l"
	lineEnd     = "\x1b[K\n" // clears the rest of the old line
	screenHome  = "\x1b[H"
	screenRest  = "\x1b[J"
)

func OpenScreen(out io.Writer) (*screen, error) {
	if _, err := io.WriteString(out, screenOpen); err != nil {
		return nil, err
	}
	s := &screen{out, make(chan os.Signal, 1)}
	if !signal.Ignored(syscall.SIGQUIT) {
		signal.Notify(s.quit, syscall.SIGQUIT)
	}
	go s.quitOnNormal() // ends with Close
	return s, nil
}

// quitOnNormal lets SIGQUIT (Ctrl-\) end the process on the normal screen, where Go
// prints what the goroutines do. A shell would be hard to use on the other one.
func (s *screen) quitOnNormal() {
	if _, quit := <-s.quit; quit {
		_, _ = io.WriteString(s.out, screenClose) // an error means that the terminal is gone
		endBy(syscall.SIGQUIT)
	}
}

// Close returns to the normal screen and prints last there.
func (s *screen) Close(last string) error {
	signal.Stop(s.quit)
	close(s.quit)
	_, err := io.WriteString(s.out, screenClose+last)
	return err
}

// Suspend is for a SIGTSTP that was caught. It shows the normal screen, stops the process,
// and returns when it continues in the foreground, or ctx ends.
func (s *screen) Suspend(ctx context.Context) error {
	if _, err := io.WriteString(s.out, screenClose); err != nil {
		return err
	}
	stop()
	if f, ok := FileOf(s.out); ok {
		AwaitForeground(ctx, f)
	}
	_, err := io.WriteString(s.out, screenOpen)
	return err
}

// Draw shows a text in place of the last one, as much as fits.
func (s *screen) Draw(text string) error {
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if n := s.height(); n > 1 && len(lines) > n {
		hidden := len(lines) - (n - 1)
		lines = append(lines[:n-1:n-1], fmt.Sprintf("… %s more", Plural(hidden, "line")))
	}
	if width := widthOf(s.out); width > 0 {
		for i, line := range lines {
			lines[i] = Clip(line, width)
		}
	}
	_, err := io.WriteString(s.out, screenHome+strings.Join(lines, lineEnd)+"\x1b[K"+screenRest)
	return err
}

// height returns the number of lines, or 0 if it is unknown.
func (s *screen) height() int {
	f, ok := FileOf(s.out)
	if !ok {
		return 0
	}
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0
	}
	return int(size.Row)
}
