package terminal

import (
	"fmt"
	"time"
)

// Millis is a duration as answers tell it.
type Millis int64

func (m Millis) Duration() time.Duration { return time.Duration(m) * time.Millisecond }

// Remaining is what is left of a time that was told a while ago, rounded up as
// the daemon does.
func Remaining(m Millis, since time.Duration) string {
	left := m.Duration() - since
	if left <= 0 {
		return "now"
	}
	return Brief(left + time.Second - 1)
}

// Brief is a duration in the two units that matter.
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

// Plural is a count of things.
func Plural(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
