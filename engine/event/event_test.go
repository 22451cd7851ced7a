package event_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/clock"
	"github.com/leasehold/leasehold/engine/event"
	"github.com/leasehold/leasehold/engine/pebble"
)

type house struct {
	*testing.T
	fs  *vfs.MemFS
	eng *pebble.Engine
}

func inHouse(t *testing.T, story func(h *house)) {
	synctest.Test(t, func(t *testing.T) {
		h := &house{T: t, fs: vfs.NewCrashableMem()}
		h.open()
		defer func() { h.eng.Close() }()
		story(h)
	})
}

func (h *house) open() {
	h.Helper()
	eng, err := pebble.Open(pebble.Options{Dir: "state", FS: h.fs})
	if err != nil {
		h.Fatal(err)
	}
	h.eng = eng
	h.update(func(tx engine.Tx) {
		if err := event.Recover(tx, 0); err != nil {
			h.Fatal(err)
		}
	})
}

// crash ends the machine.
func (h *house) crash() {
	fs := h.fs.CrashClone(vfs.CrashCloneCfg{})
	h.eng.Close()
	h.fs = fs
	h.open()
}

func (h *house) update(fn func(engine.Tx)) {
	h.Helper()
	if err := h.eng.Update(h.Context(), func(tx engine.Tx) error { fn(tx); return nil }); err != nil {
		h.Fatal(err)
	}
}

func (h *house) record(run uuid.UUID, keys ...string) {
	h.Helper()
	h.update(func(tx engine.Tx) {
		for _, key := range keys {
			event.Record(tx, run, event.Event{Kind: event.LeaseGranted, Key: key})
		}
	})
}

func (h *house) read(run uuid.UUID, since uint64) (list []event.Event, err error) {
	h.Helper()
	failed := h.eng.View(h.Context(), func(tx engine.Tx) error {
		var events func(func(event.Event) bool)
		if events, err = event.Read(tx, run, since); err == nil {
			list = slices.Collect(events)
		}
		return nil
	})
	if failed != nil {
		h.Fatal(failed)
	}
	return list, err
}

// keys returns the keys of all events of a run, and checks that revisions rise.
func (h *house) keys(run uuid.UUID) (keys []string) {
	h.Helper()
	list, err := h.read(run, 0)
	if err != nil {
		h.Fatal(err)
	}
	last := uint64(0)
	for _, e := range list {
		if e.Revision <= last {
			h.Errorf("revision %d comes after %d", e.Revision, last)
		}
		last = e.Revision
		keys = append(keys, e.Key)
	}
	return keys
}

func (h *house) keep(k *event.Keeper, runs ...uuid.UUID) {
	h.Helper()
	k.Exists = func(_ engine.Tx, run uuid.UUID) bool { return slices.Contains(runs, run) }
	if err := k.Keep(h.Context(), h.eng); err != nil {
		h.Fatal(err)
	}
}

func TestAnEventIsReadAsItWasRecorded(t *testing.T) {
	inHouse(t, func(h *house) {
		run := uuid.New()
		given := event.Event{
			Kind: event.WriteRefused, Layer: "S1", Queue: "q", Key: "k", Token: 7, Shared: true,
			Actor: uuid.New(), Path: "S1→W2", Party: "sub", By: "W1", Cause: "stale", Reason: "why", Took: time.Minute,
		}
		h.update(func(tx engine.Tx) {
			given.At = tx.Wall()
			event.Record(tx, run, given)
		})
		given.Revision = 1
		list, err := h.read(run, 0)
		if err != nil || len(list) != 1 || list[0] != given {
			h.Errorf("%+v, %v, not %+v", list, err, given)
		}
		if given.Kind.String() != "write_refused" {
			h.Errorf("its kind is %s", given.Kind)
		}
		h.record(uuid.Nil, "of no run")
		if list, _ := h.read(uuid.Nil, 0); len(list) > 0 {
			h.Errorf("recorded of no run: %+v", list)
		}
	})
}

// A number that a crash may have lost is not issued again.
func TestRevisionsRiseThroughCrashes(t *testing.T) {
	inHouse(t, func(h *house) {
		run := uuid.New()
		var want []string
		for n := range 5 {
			for i := range 300 { // more than a block
				key := fmt.Sprint(n, i)
				want = append(want, key)
				h.record(run, key)
			}
			h.crash()
		}
		if got := h.keys(run); !slices.Equal(got, want) {
			h.Errorf("%d events, not the %d that were recorded", len(got), len(want))
		}
		list, err := h.read(run, 0)
		if err != nil {
			h.Fatal(err)
		}
		if rest, err := h.read(run, list[700].Revision); err != nil || !slices.Equal(rest, list[701:]) {
			h.Errorf("%d events from there on, %v", len(rest), err)
		}
	})
}

// A backup issues only numbers that were not issued after it was made, neither
// in the state of which it is a copy nor in an earlier use of the same backup.
func TestABackupIssuesNoNumberAgain(t *testing.T) {
	inHouse(t, func(h *house) {
		const busy = 1_000_000 // numbers a second
		issue := func(eng engine.Engine) (n uint64) {
			if err := eng.Update(h.Context(), func(tx engine.Tx) error { n = event.Next(tx); return nil }); err != nil {
				h.Fatal(err)
			}
			return n
		}
		first, off := issue(h.eng), time.Duration(0)
		use := func(begun time.Time) (n uint64) {
			c := clock.Go()
			c.Wall = func() time.Time { return time.Now().Add(off) }
			eng, err := pebble.Open(pebble.Options{Dir: "state", FS: vfs.NewMem(), Clock: c})
			if err != nil {
				h.Fatal(err)
			}
			defer eng.Close()
			if err := eng.Update(h.Context(), func(tx engine.Tx) error {
				event.Raise(tx, first)
				tx.Put(engine.CopyRow(begun))
				return nil
			}); err != nil {
				h.Fatal(err)
			}
			for range 2 { // the second finds no backup any more
				if err := eng.Update(h.Context(), func(tx engine.Tx) error { _, err := event.Restore(tx); return err }); err != nil {
					h.Fatal(err)
				}
			}
			if n = issue(eng); issue(eng) != n+1 {
				h.Error("what was restored twice skips numbers again")
			}
			return n
		}
		begun := time.Now()
		last := issue(h.eng)
		for _, later := range []time.Duration{time.Hour, time.Millisecond, time.Hour} {
			last += busy * uint64(later) / uint64(time.Second)
			time.Sleep(later)
			now := use(begun)
			if now <= last {
				h.Errorf("a use of the backup begins with %d, and %d was issued", now, last)
			}
			last = now
		}
		if n := use(time.Now().Add(time.Hour)); n <= first+18*3600*busy {
			h.Errorf("with a wall clock that was set back, it begins with %d", n)
		}
		if n := use(time.Unix(0, 0)); n >= 1<<50 {
			h.Errorf("with a backup that seems to be of 1970, it begins with %d", n)
		}
		off = time.Until(time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC))
		older, newer := time.Now().Add(off-24*time.Hour), time.Now().Add(off)
		for range 2 {
			last = use(older)
			last += busy
			time.Sleep(time.Second)
			now := use(newer)
			if now <= last {
				h.Errorf("a use of a newer backup begins with %d, and %d was issued in that of an older one", now, last)
			}
			last = now + busy
			time.Sleep(time.Second)
		}
		if n := use(newer.Add(time.Hour)); n <= last {
			h.Errorf("when the clock was set back, it begins with %d, behind %d", n, last)
		}
		h.update(func(tx engine.Tx) {
			before := event.NumbersOf(tx)
			if begun, err := event.Restore(tx); err != nil || !begun.IsZero() || event.NumbersOf(tx) != before {
				h.Errorf("what is no backup is restored: %v", err)
			}
		})
	})
}

func TestARunKeepsItsLastEvents(t *testing.T) {
	inHouse(t, func(h *house) {
		run, other, gone := uuid.New(), uuid.New(), uuid.New()
		k := &event.Keeper{Retention: event.Retention{Age: time.Hour, Count: 1000}}
		var all []string
		for i := range 1700 {
			all = append(all, fmt.Sprint(i))
		}
		h.record(run, all[:900]...)
		h.record(other, "a", "b")
		h.record(gone, all...)
		h.keep(k, run, other)
		if got := h.keys(gone); len(got) > 0 {
			h.Errorf("a run that is removed has %d", len(got))
		}
		if got := h.keys(run); len(got) != 900 {
			h.Errorf("%d, before there were too many", len(got))
		}
		h.record(run, all[900:]...)
		h.keep(k, run, other)
		if got := h.keys(run); !slices.Equal(got, all[700:]) {
			h.Errorf("%d are kept, from %s", len(got), got[0])
		}
		h.crash()
		h.keep(&event.Keeper{Retention: k.Retention}, run, other)
		if got := h.keys(run); !slices.Equal(got, all[700:]) {
			h.Errorf("%d are kept after a restart", len(got))
		}

		list, _ := h.read(run, 0)
		var compacted *event.CompactedError
		if _, err := h.read(run, list[0].Revision-2); !errors.As(err, &compacted) || compacted.Through != list[0].Revision-1 {
			h.Errorf("%v, where one is missing", err)
		}
		if rest, err := h.read(run, list[0].Revision-1); err != nil || len(rest) != 1000 {
			h.Errorf("%d, %v, where none is missing", len(rest), err)
		}

		time.Sleep(time.Hour)
		h.record(other, "c")
		h.keep(k, run, other)
		if got := h.keys(run); len(got) > 0 {
			h.Errorf("%d after an hour", len(got))
		}
		if got := h.keys(other); !slices.Equal(got, []string{"c"}) {
			h.Errorf("%q after an hour", got)
		}
		h.keep(k)
		h.update(func(tx engine.Tx) {
			for _, prefix := range []string{"~event/", "compacted/"} {
				for row := range tx.Scan(prefix) {
					h.Errorf("row %q is left", row.Key)
				}
			}
		})
	})
}
