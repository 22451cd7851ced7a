package terminal

import (
	"fmt"
	"strings"
	"time"
)

// A Millis is a duration in milliseconds, as in answers.
type Millis int64

func (m Millis) Duration() time.Duration { return time.Duration(m) * time.Millisecond }

// Remaining returns what is left of m after since has passed, rounded up like
// the daemon's texts.
func Remaining(m Millis, since time.Duration) string {
	left := m.Duration() - since
	if left <= 0 {
		return "now"
	}
	return Brief(left + time.Second - 1)
}

// Brief formats a duration with its two greatest units.
func Brief(d time.Duration) string {
	s := int64(d / time.Second)
	switch {
	case s < 60:
		return fmt.Sprintf("%ds", max(s, 0))
	case s < 60*60:
		return fmt.Sprintf("%dm%02ds", s/60, s%60)
	case s < 24*60*60:
		return fmt.Sprintf("%dh%02dm", s/3600, s/60%60)
	default:
		return fmt.Sprintf("%dd%02dh", s/86400, s/3600%24)
	}
}

// Plural formats a count of things.
func Plural(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// Some joins the first few names for a sentence.
func Some(names []string) string {
	const few = 5
	if len(names) <= few {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:few], ", "), len(names)-few)
}
