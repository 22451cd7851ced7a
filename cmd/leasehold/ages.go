package main

import (
	"fmt"
	"time"
)

// millis is a duration as answers tell it.
type millis int64

func (m millis) duration() time.Duration { return time.Duration(m) * time.Millisecond }

// remaining is what is left of a time that was told a while ago, rounded up as
// the daemon does.
func remaining(m millis, since time.Duration) string {
	left := m.duration() - since
	if left <= 0 {
		return "now"
	}
	return brief(left + time.Second - 1)
}

// brief is a duration in the two units that matter.
func brief(d time.Duration) string {
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

// plural is a count of things.
func plural(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
