package pebble_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/clock"
	"github.com/leasehold/leasehold/engine/pebble"
)

// A machine has clocks that a test moves.
type machine struct {
	mu      sync.Mutex
	boot    string
	running time.Duration
	wall    time.Time
	said    []string
}

func newMachine() *machine {
	return &machine{boot: "first", running: time.Hour, wall: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
}

func (m *machine) clock() clock.Clock {
	return clock.Clock{
		Boot:    m.boot,
		Running: func() time.Duration { m.mu.Lock(); defer m.mu.Unlock(); return m.running },
		Wall:    func() time.Time { m.mu.Lock(); defer m.mu.Unlock(); return m.wall },
		Sleeps:  true,
	}
}

// pass lets time go by, also while the machine sleeps; set sets the wall clock.
func (m *machine) pass(d time.Duration) { m.move(d, d) }
func (m *machine) set(d time.Duration)  { m.move(0, d) }

func (m *machine) move(running, wall time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.running += running
	m.wall = m.wall.Add(wall)
}

func (m *machine) logf(format string, args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.said = append(m.said, fmt.Sprintf(format, args...))
}

func (m *machine) open(t *testing.T, disk vfs.FS) *pebble.Engine {
	t.Helper()
	return mustOpen(t, pebble.Options{Dir: "state", FS: disk, Clock: m.clock(), Logf: m.logf})
}

func clocks(t *testing.T, e *pebble.Engine) (now, wall time.Time) {
	t.Helper()
	mustUpdate(t, e, func(tx engine.Tx) { now, wall = tx.Now(), tx.Wall() })
	return now, wall
}

// TestTheRunningClockGoesOn through sleeps, restarts of the daemon and of the
// machine, and steps of the wall clock.
func TestTheRunningClockGoesOn(t *testing.T) {
	for name, c := range map[string]struct {
		closed func(m *machine) // while the state is closed
		passed time.Duration    // by the running clock
		said   string
	}{
		"the daemon is restarted":            {func(m *machine) { m.pass(time.Minute) }, time.Minute, ""},
		"the wall clock is set forward":      {func(m *machine) { m.pass(time.Minute); m.set(time.Hour) }, time.Minute, "set forward by 1h0m0s"},
		"the wall clock is set back":         {func(m *machine) { m.pass(time.Minute); m.set(-time.Hour) }, time.Minute, "set back by 1h0m0s"},
		"the machine is restarted":           {func(m *machine) { m.boot, m.running = "second", 0; m.set(time.Minute) }, time.Minute, ""},
		"the machine has lost its clock":     {func(m *machine) { m.boot, m.running = "second", 0; m.set(-30 * 24 * time.Hour) }, time.Second, "not believed"},
		"the machine is years in the future": {func(m *machine) { m.boot, m.running = "second", 0; m.set(1e5 * time.Hour) }, time.Second, "not believed"},
	} {
		t.Run(name, func(t *testing.T) {
			m, disk := newMachine(), vfs.NewMem()
			e := m.open(t, disk)
			first, wall := clocks(t, e)
			if !first.Equal(wall) {
				t.Errorf("a new state begins at %v, and it is %v", first, wall)
			}
			m.pass(8 * time.Hour) // asleep, perhaps
			m.set(3 * time.Hour)
			before, wall := clocks(t, e)
			if passed := before.Sub(first); passed != 8*time.Hour {
				t.Errorf("%v have passed", passed)
			}
			if passed := wall.Sub(first); passed != 11*time.Hour {
				t.Errorf("%v have passed on the wall", passed)
			}
			mustClose(t, e)
			m.said = nil
			c.closed(m)
			e = m.open(t, disk)
			after, _ := clocks(t, e)
			if passed := after.Sub(before); passed != c.passed {
				t.Errorf("%v have passed while the state was closed", passed)
			}
			if said := strings.Join(m.said, "\n"); (said == "") != (c.said == "") || !strings.Contains(said, c.said) {
				t.Errorf("said: %q", said)
			}
			mustClose(t, e)
		})
	}
}

// A step of the wall clock that somebody has seen is not taken for time in which
// the machine was off, although the power is cut soon after: an instant after a
// commit, or a moment after the step if nobody commits anything.
func TestAStepBeforeACrashIsNoTimeOff(t *testing.T) {
	put := func(tx engine.Tx) { tx.Put(engine.Row{Key: "k", Due: tx.Now().Add(24 * time.Hour)}) }
	for name, seen := range map[string]func(t *testing.T, e *pebble.Engine){
		"by a commit": func(t *testing.T, e *pebble.Engine) { mustUpdate(t, e, put) },
		"by the one who waits": func(t *testing.T, e *pebble.Engine) {
			if err := e.WaitDue(t.Context()); err != nil {
				t.Error(err)
			}
			time.Sleep(2 * time.Second)
			synctest.Wait()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, disk := newMachine(), vfs.NewCrashableMem()
				e := m.open(t, disk)
				mustUpdate(t, e, put)
				m.pass(100 * time.Millisecond)
				m.set(time.Hour)
				seen(t, e)
				before, _ := clocks(t, e)
				left := disk.CrashClone(vfs.CrashCloneCfg{})
				mustClose(t, e)
				m.boot, m.running = "second", 0
				m.set(time.Minute)
				e = m.open(t, left)
				if after, _ := clocks(t, e); after.Sub(before) != time.Minute {
					t.Errorf("the machine was off for a minute, and %v have passed", after.Sub(before))
				}
				mustClose(t, e)
			})
		})
	}
}

// TestWaitDueNoticesSleepsAndSteps though timers stand still during the first,
// and nothing is due after the second.
func TestWaitDueNoticesSleepsAndSteps(t *testing.T) {
	synctest.Test(t, waitDueNoticesSleepsAndSteps)
}

func waitDueNoticesSleepsAndSteps(t *testing.T) {
	m := newMachine()
	e := m.open(t, vfs.NewMem())
	mustUpdate(t, e, func(tx engine.Tx) { tx.Put(engine.Row{Key: "a", Due: tx.Now().Add(24 * time.Hour)}) })
	for _, wake := range []func(){
		func() { m.set(time.Hour) },
		func() { m.set(-2 * time.Hour) },
		func() { m.pass(25 * time.Hour) },
	} {
		woken := make(chan error, 1)
		go func() { woken <- e.WaitDue(t.Context()) }()
		time.Sleep(time.Minute) // it looks again several times
		select {
		case err := <-woken:
			t.Fatalf("woken early: %v", err)
		default:
		}
		wake()
		if err := <-woken; err != nil {
			t.Fatal(err)
		}
	}
	mustUpdate(t, e, func(tx engine.Tx) {
		for range tx.Due() {
			return
		}
		t.Error("nothing is due")
	})
	mustClose(t, e)
}

// TestTheMachinesClocks: the clocks of this machine run, and name its boot.
func TestTheMachinesClocks(t *testing.T) {
	c := clock.Machine()
	if c.Boot == "" {
		t.Error("the boot has no name")
	}
	first := c.Running()
	for c.Running() == first {
		continue
	}
	if c.Running() < first {
		t.Error("the clock has gone back")
	}
}
