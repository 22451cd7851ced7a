package server

import (
	"testing"
	"testing/synctest"
	"time"
)

// judged is a presence and when it said that its client is gone.
type judged struct {
	*presence
	start time.Time
	over  chan time.Duration
	cause error
}

func judge() *judged {
	j := &judged{start: time.Now(), over: make(chan time.Duration, 1)}
	j.presence = &presence{idle: 15 * time.Minute}
	j.presence.over = func(cause error) {
		j.cause = cause
		j.over <- time.Since(j.start)
	}
	return j
}

func (j *judged) lost(call string, grace time.Duration) {
	j.lose(call, grace)
	j.done()
}

func (j *judged) expect(t *testing.T, want time.Duration) {
	t.Helper()
	if got := <-j.over; got != want {
		t.Errorf("over after %v, want %v (%v)", got, want, j.cause)
	}
}

func TestPresence(t *testing.T) {
	const sec = time.Second
	for name, story := range map[string]struct {
		live func(*judged)
		over time.Duration
	}{
		"a lost stream ends the session after the grace": {func(j *judged) {
			j.begin()
			time.Sleep(sec)
			j.lost("", 4*sec)
		}, 5 * sec},
		"a stream that comes back keeps it": {func(j *judged) {
			j.begin()
			j.lost("", 4*sec)
			time.Sleep(sec)
			j.begin()
			time.Sleep(time.Hour)
			j.lost("", 4*sec)
		}, time.Hour + 5*sec},
		"a call that broke off ends it after the grace": {func(j *judged) {
			j.begin()
			time.Sleep(sec)
			j.lost("1", 4*sec)
		}, 5 * sec},
		"a call that was cancelled, or sent again, does not": {func(j *judged) {
			j.begin()
			j.lost("1", 4*sec)
			j.begin()
			j.forgive("1")
			j.answered()
		}, 15 * time.Minute},
		"a client without a stream may think": {func(j *judged) {
			j.begin()
			j.answered()
			time.Sleep(14 * time.Minute)
			j.begin()
			j.answered()
		}, 29 * time.Minute},
		"a stream is enough for ever": {func(j *judged) {
			j.begin()
			j.begin()
			j.answered()
			time.Sleep(24 * time.Hour)
			j.lost("", 4*sec)
		}, 24*time.Hour + 4*sec},
		"whoever goes on without a stream may think": {func(j *judged) {
			j.begin()
			j.lost("", 4*sec)
			time.Sleep(sec)
			j.begin()
			j.answered()
		}, sec + 15*time.Minute},
		"what a killed client had sent is no sign of life": {func(j *judged) {
			j.begin()
			j.begin()
			j.lost("", 4*sec)
			time.Sleep(time.Millisecond)
			j.begin()
			j.answered()
			j.answered()
		}, 4*sec + time.Millisecond},
		"a call that outlasts a lost stream is": {func(j *judged) {
			j.begin()
			j.begin()
			j.lost("", 4*sec)
			time.Sleep(30 * sec)
			j.answered()
		}, 15*time.Minute + 30*sec},
		"whoever sends a call again at once may think": {func(j *judged) {
			j.begin()
			j.lost("1", 4*sec)
			time.Sleep(50 * time.Millisecond)
			j.begin()
			j.answered()
		}, 15*time.Minute + 50*time.Millisecond},
		"whoever is killed with the call that it sent again is lost": {func(j *judged) {
			j.begin()
			j.lost("1", 4*sec)
			time.Sleep(50 * time.Millisecond)
			j.begin()
			j.begin()
			j.lost("1", 4*sec)
			j.answered()
		}, 4*sec + 50*time.Millisecond},
		"what is answered soon after a death is no sign of life": {func(j *judged) {
			j.begin()
			j.begin()
			j.lost("1", 4*sec)
			time.Sleep(400 * time.Millisecond)
			j.answered()
		}, 4*sec + 400*time.Millisecond},
		"what is answered later is": {func(j *judged) {
			j.begin()
			j.begin()
			j.lost("1", 4*sec)
			time.Sleep(600 * time.Millisecond)
			j.answered()
		}, 15*time.Minute + 600*time.Millisecond},
		"what arrives soon after a death is no sign of life": {func(j *judged) {
			j.begin()
			j.lost("1", 4*sec)
			time.Sleep(15 * time.Millisecond)
			j.begin()
			j.answered()
		}, 4*sec + 15*time.Millisecond},
		"an answer that turns out to be unread ends it": {func(j *judged) {
			j.begin()
			j.answered()
			time.Sleep(sec)
			j.lose("1", 4*sec)
		}, 5 * sec},
		"whoever cancels a call is not forgiven a lost stream": {func(j *judged) {
			j.begin()
			j.lost("", 4*sec)
			j.begin()
			j.forgive("1")
			j.forgive("")
			j.answered()
		}, 4 * sec},
		"whoever came through a server that was lost has longer": {func(j *judged) {
			j.begin()
			j.lost("1", 10*sec)
		}, 10 * sec},
		"of two streams one is enough": {func(j *judged) {
			j.begin()
			j.begin()
			j.lost("", 4*sec)
			time.Sleep(time.Hour)
			j.lost("", 4*sec)
		}, time.Hour + 4*sec},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				j := judge()
				story.live(j)
				j.expect(t, story.over)
				if j.begin() {
					t.Error("a request is let in after the end")
				}
			})
		})
	}
}

func TestPresenceStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := judge()
		j.begin()
		j.answered()
		j.stop()
		j.lose("1", time.Second) // this may become known late
		time.Sleep(time.Hour)
		select {
		case <-j.over:
			t.Error("over after stop")
		default:
		}
	})
}
