package engine

import (
	"testing"
	"testing/synctest"
	"time"
)

// woken returns how many of watches have been woken since the last time.
func woken(watches []*Watch) (n int) {
	for _, w := range watches {
		select {
		case <-w.C:
			n++
		default:
		}
	}
	return n
}

func many(h *Hub, key string, n int) (watches []*Watch) {
	for range n {
		watches = append(watches, h.Watch(key))
	}
	return watches
}

// A change wakes a few watches at once and all of them soon, and does not hold up
// those of other keys.
func TestManyWatchesAreWokenInSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h Hub
		all := many(&h, "a", 10*stepSize)
		h.Notify("a")
		if n := woken(all); n != stepSize {
			t.Errorf("%d watches were woken at once", n)
		}
		other := many(&h, "b", stepSize)
		h.Notify("b")
		if n := woken(other); n != stepSize {
			t.Errorf("%d watches of another key were woken", n)
		}
		for range 9 {
			time.Sleep(stepPause)
			synctest.Wait()
			if n := woken(all); n != stepSize {
				t.Errorf("%d watches were woken in a step", n)
			}
		}
		time.Sleep(time.Minute)
		if n := woken(all); n != 0 {
			t.Errorf("%d watches were woken again without a change", n)
		}
	})
}

// However many changes there are between the steps, each watch is woken after the
// last one.
func TestAChangeBetweenStepsWakesAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h Hub
		all := many(&h, "a", 4*stepSize)
		h.Notify("a")
		time.Sleep(2 * stepPause)
		synctest.Wait()
		woken(all)
		h.Notify("a")
		h.Notify("a")
		late := many(&h, "a", 1)
		time.Sleep(time.Minute)
		if n := woken(all); n != len(all) {
			t.Errorf("%d of %d watches were woken after the last change", n, len(all))
		}
		woken(late)
		h.Notify("a")
		time.Sleep(time.Minute)
		if n := woken(append(all, late...)); n != len(all)+1 {
			t.Errorf("%d of %d watches were woken by a later change", n, len(all)+1)
		}
	})
}

// Watches that end between the steps take nobody's turn.
func TestWatchesEndBetweenSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h Hub
		all := many(&h, "a", 4*stepSize)
		h.Notify("a")
		for _, w := range all[stepSize/2 : 3*stepSize/2] {
			w.Stop()
			w.Stop()
		}
		rest := all[3*stepSize/2:]
		time.Sleep(time.Minute)
		if n := woken(rest); n != len(rest) {
			t.Errorf("%d of %d watches were woken", n, len(rest))
		}
		h.Notify("a")
		for _, w := range all {
			w.Stop()
		}
		again := many(&h, "a", 1)
		h.Notify("a")
		if n := woken(again); n != 1 {
			t.Error("a watch that started after all others had ended was not woken")
		}
		synctest.Wait()
	})
}

// An engine that ends wakes everybody at once.
func TestTheEndWakesAllAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h Hub
		all := many(&h, "a", 4*stepSize)
		h.NotifyAll()
		if n := woken(all); n != len(all) {
			t.Errorf("%d of %d watches were woken", n, len(all))
		}
	})
}
