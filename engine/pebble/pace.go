package pebble

import "time"

// A pace keeps WaitDue from answering for each row of a stream. What falls due
// now and then is told of at once; once the burst is used up, WaitDue answers
// every gap, for all that has fallen due in it: a thousand expiries a second
// are ten transactions then and not a thousand, each with a sync of its own.
// It is guarded by Engine.mu.
type pace struct {
	last  int64 // the last answer
	spent int64 // grows by a gap with each answer, and is never behind the clock then
}

const (
	paceGap   = int64(100 * time.Millisecond)
	paceBurst = 32 * paceGap
)

// next gives the instant after which WaitDue answers when the first row is due
// at due. A row that was due when it last answered has been left behind by one
// who sees to so many and no more: it has waited enough.
func (p *pace) next(due int64) int64 {
	if due < p.last {
		return due
	}
	return max(due, p.spent-paceBurst)
}

// answered notes an answer that tells of a row due at due.
func (p *pace) answered(due, now int64) {
	if due >= p.last {
		p.spent = max(p.spent, now) + paceGap
	}
	p.last = now
}
