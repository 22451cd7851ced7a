package dispatch_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/process"
	"github.com/leasehold/leasehold/dispatch/work"
)

// A site is a machine that serves run r, seen from its launcher, which is connected as a
// client elsewhere is.
type site struct {
	*troupe
	name string
	op   *dispatch.Session
}

// join makes the launcher of a machine join, by a connection of its own.
func (tr *troupe) join(name, instance string, labels ...string) (*site, error) {
	tr.t.Helper()
	op, err := tr.Connect(tr.t.Context(), dispatch.Credentials{Operator: true}, process.Peer{Transport: "remote"})
	if err != nil {
		tr.t.Fatal(err)
	}
	_, err = tr.JoinRun(tr.t.Context(), op, dispatch.Join{Run: "r", Machine: name, Labels: labels, Instance: instance + ", chosen at random"})
	return &site{tr, name, op}, err
}

// begin starts what is to be started there, and gives the paths.
func (s *site) begin() (paths []string) {
	s.t.Helper()
	o, err := s.NextOrders(s.t.Context(), s.op, "r", 0)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, l := range o.Launch {
		s.pids++
		if err := s.LaunchStarted(s.t.Context(), s.op, "r", l.Actor.ID, s.pids, "/there"); err != nil {
			s.t.Fatal(err)
		}
		se, err := s.Connect(s.t.Context(), dispatch.Credentials{Handle: l.Handle, Token: l.Token}, process.Peer{Transport: "remote"})
		if err != nil {
			s.t.Fatalf("an agent elsewhere connects: %v", err)
		}
		s.ids[l.Actor.Path], s.cast[l.Actor.Path] = l.Actor.ID, se
		paths = append(paths, l.Actor.Path)
	}
	slices.Sort(paths) // those of one instant come in any order
	return paths
}

// wait lets time pass, in which the launcher waits for orders.
func (s *site) wait(d time.Duration) {
	s.t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); {
		if _, err := s.NextOrders(s.t.Context(), s.op, "r", min(25*time.Second, time.Until(end))); err != nil {
			s.t.Fatal(err)
		}
	}
}

func placed(name, machine, label string) dispatch.Spawn {
	return dispatch.Spawn{Role: dispatch.Worker, Name: name, Prompt: "work", Placement: work.Placement{Machine: machine, Label: label}}
}

func mustJoin(t *testing.T, s *site, err error) *site {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestAgentsAreStartedWhereTheyArePlaced(t *testing.T) {
	inHouse(t, dispatch.Options{}, func(t *testing.T, h *house) {
		tr := h.dispatch(work.Settings{Worker: work.Worker{Placement: work.Placement{Label: "gpu"}}})
		tr.start()
		h.unchanged("a spawn for a machine that is not there", func() {
			_, err := tr.cast["root"].Spawn(t.Context(), placed("W", "a", ""))
			if !errors.Is(err, dispatch.ErrNoLauncher) || !strings.Contains(err.Error(), `no launcher serves run "r" on machine "a"; there is no launcher`) {
				t.Errorf("error %v", err)
			}
		})
		one, err := tr.join("a", "one")
		a := mustJoin(t, one, err)
		two, err := tr.join("b", "two", "gpu")
		b := mustJoin(t, two, err)
		if _, err := tr.join("a", "three"); !errors.Is(err, dispatch.ErrExists) {
			t.Errorf("another launcher takes the name: %v", err)
		}
		tr.spawn("root", placed("A", "a", ""))
		tr.spawn("root", placed("B", "", "")) // as the manifest says
		tr.spawn("root", placed("C", "", "gpu"))
		tr.spawn("root", placed("any", work.AnyMachine, "")) // root, A, and B with C are unfinished
		if got := a.begin(); strings.Join(got, " ") != "A" && strings.Join(got, " ") != "A any" {
			t.Errorf("a starts %v", got)
		}
		if got := strings.Join(b.begin(), " "); got != "B C" {
			t.Errorf("b starts %v", got)
		}
		for _, err := range []error{
			tr.LaunchStarted(t.Context(), a.op, "r", tr.ids["B"], 5, ""),
			func() error { _, err := tr.FinishRun(t.Context(), a.op, "r"); return err }(),
		} {
			if !isForbidden(err) {
				t.Errorf("a does what is another's: %v", err)
			}
		}
		// A token of an agent elsewhere is good there, and over HTTP it is not.
		runs, _ := h.Runs(t.Context(), "r")
		for _, actor := range runs[0].Actors {
			if actor.Path == "B" && (actor.Work.Machine != "b" || actor.Work.Logs != "/there") {
				t.Errorf("B is known at %q, with logs in %q", actor.Work.Machine, actor.Work.Logs)
			}
		}
		// A stop gets to the machine that has the process.
		if _, err := tr.cast["root"].Cancel(t.Context(), "B", "enough"); err != nil {
			t.Fatal(err)
		}
		if o := tr.orders(); len(o.Stop) != 0 {
			t.Errorf("the dispatcher is told to stop %v", o.Stop)
		}
		if o, err := tr.NextOrders(t.Context(), b.op, "r", 0); err != nil || len(o.Stop) != 1 || o.Stop[0].Actor.Path != "B" {
			t.Errorf("b is told %+v %v", o.Stop, err)
		}
	})
}

func TestWhatALostMachineHadIsLostWithinTheGrace(t *testing.T) {
	for name, restarted := range map[string]bool{"": false, "with a restart of the daemon": true} {
		t.Run(name, func(t *testing.T) {
			inHouse(t, dispatch.Options{}, func(t *testing.T, h *house) {
				tr := h.started()
				joined, err := tr.join("m", "one")
				m := mustJoin(t, joined, err)
				tr.spawn("root", placed("W", "m", ""))
				m.begin()
				h.take(tr.cast["W"], dispatch.RunScope, "x", time.Hour)
				h.hangUp(m.op)
				if restarted {
					h.crash()
					tr.op = h.connect(dispatch.Credentials{Operator: true}, launcherPID)
					runs, _ := h.Runs(t.Context(), "r")
					if _, err := h.DispatchRun(t.Context(), tr.op, dispatch.Dispatch{Run: "r", Attach: runs[0].ID}); err != nil {
						t.Fatal(err)
					}
				}
				time.Sleep(25 * time.Second)
				h.wantStatus(map[string]work.Status{"root": work.Running, "W": work.Running})
				time.Sleep(10 * time.Second)
				h.wantStatus(map[string]work.Status{"root": work.Running, "W": work.Lost})
				if restarted {
					return // the session of the root went with it, in this house
				}
				if got := h.heldBy(tr.cast["root"], dispatch.RunScope, "x"); got != "" {
					t.Errorf("what an agent of a lost machine held is held by %q", got)
				}
				inbox, _, err := tr.cast["root"].Inbox(t.Context(), "", 0)
				if err != nil || len(inbox) != 1 || !strings.Contains(inbox[0].Text, `machine "m" is lost, and with it the agents that ran there: W.`) {
					t.Errorf("the root reads %+v %v", inbox, err)
				}
			})
		})
	}
}

func TestALauncherOfAMachineMayComeBack(t *testing.T) {
	inHouse(t, dispatch.Options{}, func(t *testing.T, h *house) {
		tr := h.started()
		joined, err := tr.join("m", "one")
		m := mustJoin(t, joined, err)
		tr.spawn("root", placed("W", "m", ""))
		m.begin()
		h.hangUp(m.op)
		time.Sleep(10 * time.Second)
		joined, err = tr.join("m", "one")
		m = mustJoin(t, joined, err)
		m.wait(time.Minute)
		h.wantStatus(map[string]work.Status{"root": work.Running, "W": work.Running})

		// Another process in its place knows nothing of what the first had started.
		h.hangUp(m.op)
		joined, err = tr.join("m", "two")
		m = mustJoin(t, joined, err)
		h.wantStatus(map[string]work.Status{"root": work.Running, "W": work.Lost})

		// One that says that it leaves is not waited for.
		tr.spawn("root", placed("V", "m", ""))
		m.begin()
		if err := tr.LeaveRun(t.Context(), m.op, "r"); err != nil {
			t.Fatal(err)
		}
		if _, err := tr.cast["root"].Spawn(t.Context(), placed("X", "m", "")); !errors.Is(err, dispatch.ErrNoLauncher) {
			t.Errorf("spawned for one that leaves: %v", err)
		}
		h.hangUp(m.op)
		time.Sleep(2 * time.Second)
		h.wantStatus(map[string]work.Status{"root": work.Running, "W": work.Lost, "V": work.Lost})
	})
}

// A machine whose launcher is frozen keeps its connection, and does not ask for orders any
// more. It is lost as one that is away is.
func TestAFrozenMachineIsLost(t *testing.T) {
	inHouse(t, dispatch.Options{}, func(t *testing.T, h *house) {
		tr := h.started()
		joined, err := tr.join("m", "one")
		m := mustJoin(t, joined, err)
		tr.spawn("root", placed("W", "m", ""))
		m.begin()
		h.take(tr.cast["W"], dispatch.RunScope, "x", time.Hour)
		m.wait(5 * time.Minute) // one that works waits for orders all the time
		h.wantStatus(map[string]work.Status{"root": work.Running, "W": work.Running})
		time.Sleep(work.SilentLimit + 2*time.Second)
		if m.op.Context().Err() == nil {
			t.Error("the connection of a frozen launcher stays")
		}
		h.wantStatus(map[string]work.Status{"root": work.Running, "W": work.Running})
		// It wakes up in time.
		joined, err = tr.join("m", "one")
		m = mustJoin(t, joined, err)
		m.wait(time.Minute)
		h.wantStatus(map[string]work.Status{"root": work.Running, "W": work.Running})
		time.Sleep(time.Minute)
		h.wantStatus(map[string]work.Status{"root": work.Running, "W": work.Lost})
		h.take(tr.cast["root"], dispatch.RunScope, "x", time.Hour)
		// It wakes up too late, and is told to end what it still runs.
		joined, err = tr.join("m", "one")
		m = mustJoin(t, joined, err)
		if err := tr.LaunchStarted(t.Context(), m.op, "r", tr.ids["W"], 5, ""); !isForbidden(err) {
			t.Errorf("a process that is lost is reported: %v", err)
		}
	})
}
