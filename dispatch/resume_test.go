package dispatch_test

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/process"
	"github.com/leasehold/leasehold/dispatch/work"
	"github.com/leasehold/leasehold/engine/call"
)

// die is a dispatcher's kill -9: it is gone, and so are all its processes.
func (tr *troupe) die() {
	tr.t.Helper()
	tr.alive.Store(launcherPID, false)
	for _, pid := range tr.pid {
		tr.alive.Store(pid, false)
	}
	tr.hangUp(tr.op)
}

// again is the dispatcher that attaches again, or else another one of the run.
// Whom it starts has other pids.
func (tr *troupe) again(req dispatch.Dispatch) (next *troupe, info dispatch.RunInfo, err error) {
	tr.t.Helper()
	next = &troupe{
		house: tr.house, pids: tr.pids + 1000, cast: make(map[string]*dispatch.Session),
		ids: make(map[string]uuid.UUID), pid: make(map[string]int), tokens: make(map[string]string),
	}
	pid := launcherPID
	if req.Attach == uuid.Nil {
		pid += next.pids
	}
	next.op = tr.connect(dispatch.Credentials{Operator: true}, pid)
	info, err = tr.DispatchRun(tr.t.Context(), next.op, req)
	return next, info, err
}

func resume(settings work.Settings) dispatch.Dispatch {
	req := begin(settings)
	req.Resume = true
	return req
}

// Who had finished before the daemon ended stays so for the run that goes on days later,
// and for as long as that takes.
func TestARunGoesOnAfterDays(t *testing.T) {
	if testing.Short() {
		t.Skip("the daemon looks at its clock in each second of these days")
	}
	for _, up := range []bool{false, true} {
		inHouse(t, dispatch.Options{}, func(t *testing.T, h *house) {
			tr := h.started()
			for _, name := range []string{"early", "late"} {
				tr.spawn("root", dispatch.Spawn{Role: dispatch.Worker, Name: name, Prompt: "p"})
				tr.start()
				if err := tr.cast[name].Report(t.Context(), json.RawMessage("1")); err != nil {
					t.Fatal(err)
				}
				tr.exit(name, work.Exit{Status: work.Succeeded})
			}
			if up { // it is the launcher's machine that was off
				tr.die()
				time.Sleep(26 * time.Hour)
			} else { // it is the whole machine: nobody has counted the processes as lost
				h.close()
				for pid := range tr.pids + 1 {
					h.alive.Store(pid, false)
				}
				h.alive.Store(launcherPID, false)
				time.Sleep(26 * time.Hour)
				h.open()
				synctest.Wait()
			}
			next, _, err := tr.again(resume(work.Settings{}))
			if err != nil {
				t.Fatal(err)
			}
			next.start()
			for i, name := range []string{"early", "late"} {
				time.Sleep(time.Duration(i) * 26 * time.Hour)
				if made := next.spawn("root", dispatch.Spawn{Role: dispatch.Worker, Name: name, Prompt: "p"}); !made.Finished || string(made.Result) != "1" {
					t.Errorf("daemon up %v: %s is spawned again: %+v", up, name, made)
				}
			}
		})
	}
}

func TestAResumedRunGoesOnWhereItWas(t *testing.T) {
	inHouse(t, dispatch.Options{}, func(t *testing.T, h *house) {
		settings := work.Settings{Limits: work.Limits{BudgetUSD: 10}}
		tr := h.dispatch(settings)
		tr.start()
		order := func(name, prompt string) dispatch.Spawn {
			return dispatch.Spawn{Role: dispatch.Worker, Name: name, Prompt: prompt}
		}
		tr.spawn("root", order("done", "a"))
		tr.spawn("root", order("crashed", "a"))
		tr.spawn("root", order("", "first"))  // W1
		tr.spawn("root", order("", "second")) // W2
		tr.spawn("root", order("", "second")) // W3
		tr.start()
		if err := tr.cast["done"].Report(t.Context(), json.RawMessage("1")); err != nil {
			t.Fatal(err)
		}
		tr.exit("done", work.Exit{Status: work.Succeeded, Cost: money(2)})
		tr.exit("W2", work.Exit{Status: work.Succeeded, Output: "two"})
		tr.exit("W3", work.Exit{Status: work.Succeeded, Output: "three"})
		tr.exit("crashed", work.Exit{Status: work.Failed, Cost: money(1)})
		if _, _, err := tr.again(begin(settings)); !errors.Is(err, dispatch.ErrExists) {
			t.Errorf("begun while it runs: %v", err)
		}
		if _, _, err := tr.again(resume(settings)); !errors.Is(err, dispatch.ErrExists) {
			t.Errorf("resumed while it runs: %v", err)
		}
		held := tr.cast["root"]
		h.take(held, dispatch.RunScope, "x", time.Hour)
		tr.die()
		if _, _, err := tr.again(begin(settings)); !errors.Is(err, dispatch.ErrExists) {
			t.Errorf("begun over what is unfinished: %v", err)
		}

		next, info, err := tr.again(resume(settings))
		if err != nil || info.Dispatched.Life != 2 {
			t.Fatalf("resumed: %+v %v", info, err)
		}
		synctest.Wait() // the sweep that found the launcher gone may still be closing the session
		if held.Context().Err() == nil {
			t.Error("a session of the earlier life lives on")
		}
		h.wantStatus(map[string]work.Status{
			"root": work.Pending, "done": work.Succeeded, "crashed": work.Failed,
			"W1": work.Lost, "W2": work.Succeeded, "W3": work.Succeeded,
		})
		next.start()
		if g := h.take(next.cast["root"], dispatch.RunScope, "x", time.Minute); g.Reentrant {
			t.Error("a lease of the earlier life was not given back")
		}
		met := func(sp dispatch.Spawn, path string, finished bool, result string) {
			t.Helper()
			made := next.spawn("root", sp)
			if made.Path != path || made.Finished != finished || string(made.Result) != result {
				t.Errorf("%q %q is %s, finished %v, result %s", sp.Name, sp.Prompt, made.Path, made.Finished, made.Result)
			}
		}
		met(order("done", "another prompt"), "done", true, "1")
		met(order("crashed", "a"), "crashed", false, "")
		met(order("", "second"), "W2", true, `"two"`)
		met(order("", "second"), "W3", true, `"three"`)
		met(order("", "second"), "W4", false, "")
		met(order("", "new"), "W5", false, "")
		met(order("", "first"), "W1", false, "")
		for _, name := range []string{"done", "crashed", "W1"} {
			h.unchanged(name, func() {
				if _, err := next.cast["root"].Spawn(t.Context(), order(name, "a")); !errors.Is(err, dispatch.ErrExists) {
					t.Errorf("%s again in the same life: %v", name, err)
				}
			})
		}
		next.start()
		if _, err := next.cast["root"].Spawn(t.Context(), dispatch.Spawn{Role: dispatch.Sublead, Prompt: "x", BudgetUSD: new(7.01)}); !overBudget(work.USD(7))(err) {
			t.Errorf("what was spent before: %v", err)
		}
		next.exit("crashed", work.Exit{Status: work.Succeeded, Cost: money(3)})
		if _, err := next.cast["root"].Spawn(t.Context(), dispatch.Spawn{Role: dispatch.Sublead, Prompt: "x", BudgetUSD: new(4.01)}); !overBudget(work.USD(4))(err) {
			t.Errorf("what was spent in both lives: %v", err)
		}
		next.exitAll()
		if _, err := h.FinishRun(t.Context(), next.op, "r"); err != nil {
			t.Fatal(err)
		}
		last, info, err := next.again(begin(settings))
		if err != nil || info.Dispatched.Life != 1 || len(info.Actors) != 1 {
			t.Fatalf("begun anew: %+v %v", info, err)
		}
		last.start()
		last.exitAll()
	})
}

// A dispatcher may die when the root has succeeded, before it has ended the run
// or has noted down what came of it. Who resumes it is only to do that.
func TestARunThatSucceededIsOnlyFinished(t *testing.T) {
	inHouse(t, dispatch.Options{}, func(t *testing.T, h *house) {
		tr := h.started()
		tr.exitAll()
		for _, last := range []string{"before the run was ended", "after"} {
			h.hangUp(tr.op)
			next, info, err := tr.again(resume(work.Settings{}))
			if err != nil || info.Dispatched.Life != 1 {
				t.Fatalf("resumed %s: %+v, %v", last, info, err)
			}
			orders, err := h.NextOrders(t.Context(), next.op, "r", time.Second)
			if err != nil || len(orders.Launch) > 0 || orders.Unfinished > 0 {
				t.Errorf("resumed %s: %+v, %v", last, orders, err)
			}
			ended, err := h.FinishRun(t.Context(), next.op, "r")
			if err != nil || ended.Actors[0].Work.Status != work.Succeeded {
				t.Errorf("finished %s: %+v, %v", last, ended, err)
			}
			if !info.EndedAt.IsZero() && !ended.EndedAt.Equal(info.EndedAt) {
				t.Errorf("it ended at %v and then at %v", info.EndedAt, ended.EndedAt)
			}
			tr = next
		}
	})
}

func TestAnInterruptedRunCanBeResumedAfterItEnded(t *testing.T) {
	inHouse(t, dispatch.Options{}, func(t *testing.T, h *house) {
		tr := h.started()
		tr.spawn("root", dispatch.Spawn{Role: dispatch.Sublead})
		tr.start()
		tr.spawn("S1", dispatch.Spawn{Role: dispatch.Worker, Name: "w"})
		tr.start()
		if _, err := h.DrainRun(t.Context(), tr.op, "r", "Ctrl-C", true); err != nil {
			t.Fatal(err)
		}
		for path := range tr.ids {
			tr.exit(path, work.Exit{Status: work.Cancelled, Signal: "SIGTERM"})
		}
		if _, err := h.FinishRun(t.Context(), tr.op, "r"); err != nil {
			t.Fatal(err)
		}
		h.hangUp(tr.op)
		next, _, err := tr.again(resume(work.Settings{Limits: work.Limits{MaxWorkersPerLayer: 1}}))
		if err != nil {
			t.Fatal(err)
		}
		next.start()
		if made := next.spawn("root", dispatch.Spawn{Role: dispatch.Sublead}); made.Path != "S1" || made.ID != tr.ids["S1"] {
			t.Errorf("S1 is met as %s", made.Path)
		}
		next.start()
		if made := next.spawn("S1", dispatch.Spawn{Role: dispatch.Worker, Name: "w"}); made.ID != tr.ids["S1→w"] || made.Work.Life != 2 {
			t.Errorf("w is met as %+v", made)
		}
		h.unchanged("the new bound", func() {
			if _, err := next.cast["S1"].Spawn(t.Context(), dispatch.Spawn{Role: dispatch.Worker, Prompt: "x"}); !limit(1)(err) {
				t.Errorf("over the bound of this life: %v", err)
			}
		})
		next.start()
		next.exitAll()
	})
}

func TestWithItsLauncherGoneARunLosesWhatIsGone(t *testing.T) {
	inHouse(t, dispatch.Options{}, func(t *testing.T, h *house) {
		tr := h.started()
		tr.spawn("root", dispatch.Spawn{Role: dispatch.Worker})
		tr.spawn("root", dispatch.Spawn{Role: dispatch.Worker})
		tr.start()
		tr.spawn("root", dispatch.Spawn{Role: dispatch.Worker}) // W3, never handed out
		h.take(tr.cast["W1"], dispatch.RunScope, "x", time.Hour)
		h.take(tr.cast["W2"], dispatch.RunScope, "y", time.Hour)

		h.alive.Store(launcherPID, false)
		h.alive.Store(tr.pid["W1"], false)
		h.hangUp(tr.op)
		synctest.Wait() // for what is found to be gone at once
		h.unchanged("a spawn", func() {
			if _, err := tr.cast["root"].Spawn(t.Context(), dispatch.Spawn{Role: dispatch.Worker, Prompt: "x"}); err == nil {
				t.Error("spawned without a launcher")
			}
		})
		time.Sleep(1500 * time.Millisecond)
		h.wantStatus(map[string]work.Status{"root": work.Running, "W1": work.Lost, "W2": work.Running, "W3": work.Lost})
		if got := h.heldBy(tr.cast["root"], dispatch.RunScope, "x"); got != "" {
			t.Errorf("what a lost process held is held by %q", got)
		}
		if got := h.heldBy(tr.cast["root"], dispatch.RunScope, "y"); got != "W2" {
			t.Errorf("what a living process holds is held by %q", got)
		}
		interrupted := func(want bool) {
			t.Helper()
			runs, err := h.Runs(t.Context(), "r")
			alone, failed := h.RunsAlone(t.Context(), dispatch.RunQuery{Name: "r", Limit: 1})
			if err := errors.Join(err, failed); err != nil || runs[0].Interrupted != want || alone.Runs[0].Interrupted != want {
				t.Errorf("its runs are %+v, %+v, %v", runs, alone, err)
			}
		}
		interrupted(false)
		if _, _, err := tr.again(resume(work.Settings{})); err == nil {
			t.Error("resumed while processes of it run")
		}
		for _, pid := range tr.pid {
			h.alive.Store(pid, false)
		}
		time.Sleep(2 * time.Second)
		h.wantStatus(map[string]work.Status{"root": work.Lost, "W1": work.Lost, "W2": work.Lost, "W3": work.Lost})
		interrupted(true)
		ctx := call.With(t.Context(), call.Call{Session: tr.op.ID(), Name: "1"})
		if err := h.EndActor(ctx, "r", "root", "given up"); err != nil {
			t.Errorf("a run that was left behind cannot be ended: %v", err)
		}
		// What is left if the daemon is killed between the two transactions.
		h.plant("run/r", func(run map[string]any) { delete(run, "EndedAt") })
		if err := h.EndActor(ctx, "r", "root", "given up"); err != nil {
			t.Error(err)
		}
		if runs, err := h.Runs(t.Context(), "r"); err != nil || runs[0].EndedAt.IsZero() {
			t.Errorf("a call that is sent again does not finish the end: %+v %v", runs, err)
		}
		interrupted(false)
	})
}

// An actor that has not begun is lost with its lead, and not cancelled because its lead
// ends.
func TestASubTreeIsLostAsAWhole(t *testing.T) {
	inHouse(t, dispatch.Options{}, func(t *testing.T, h *house) {
		tr := h.started()
		tr.spawn("root", dispatch.Spawn{Role: dispatch.Sublead})
		tr.start()
		want := map[string]work.Status{"root": work.Lost, "S1": work.Lost}
		for range 8 { // works are stored in a random order
			want[tr.spawn("S1", dispatch.Spawn{Role: dispatch.Worker}).Path] = work.Lost
		}
		tr.die()
		time.Sleep(2 * time.Second)
		h.wantStatus(want)
	})
}

func TestALauncherThatLosesItsConnectionMayComeBack(t *testing.T) {
	inHouse(t, dispatch.Options{}, func(t *testing.T, h *house) {
		tr := h.started()
		tr.spawn("root", dispatch.Spawn{Role: dispatch.Worker})
		tr.start()
		tr.spawn("root", dispatch.Spawn{Role: dispatch.Worker})
		tr.spawn("root", dispatch.Spawn{Role: dispatch.Worker})
		handed := tr.orders().Launch
		before, begun := handed[0], handed[1] // the first is not acted upon, the second is started and not reported
		h.take(tr.cast["W1"], dispatch.RunScope, "x", time.Hour)
		h.hangUp(tr.op)
		h.alive.Store(tr.pid["W1"], false)
		time.Sleep(2 * time.Second)
		h.wantStatus(map[string]work.Status{"root": work.Running, "W1": work.Running, "W2": work.Pending, "W3": work.Pending})
		if got := h.heldBy(tr.cast["root"], dispatch.RunScope, "x"); got != "" {
			t.Errorf("what a process that is gone held is held by %q", got)
		}
		runs, err := h.Runs(t.Context(), "r")
		if err != nil {
			t.Fatal(err)
		}
		attach := dispatch.Dispatch{Run: "r", Attach: runs[0].ID}
		next, info, err := tr.again(attach)
		if err != nil || info.Dispatched.Life != 1 {
			t.Fatalf("attached: %+v %v", info, err)
		}
		maps.Copy(next.ids, tr.ids)
		maps.Copy(next.pid, tr.pid)
		if info := next.exit("W1", work.Exit{Status: work.Succeeded}); info.Work.Status != work.Succeeded {
			t.Errorf("an exit while it was away: %s", info.Work.Status)
		}
		next.ids["W3"], next.pid["W3"] = begun.Actor.ID, 700
		h.alive.Store(700, true)
		if err := h.LaunchStarted(t.Context(), next.op, "r", begun.Actor.ID, 700, ""); err != nil {
			t.Fatal(err)
		}
		if !h.connect(dispatch.Credentials{Handle: begun.Handle}, 700).Resumed() {
			t.Error("the session of a process that was started meanwhile has ended")
		}
		o := next.start()
		if len(o.Launch) != 1 || o.Launch[0].Actor.ID != before.Actor.ID || o.Launch[0].Token == before.Token {
			t.Errorf("the order that was not acted upon: %+v", o)
		}
		for _, c := range []dispatch.Credentials{{Token: before.Token}, {Handle: before.Handle}} {
			if _, err := h.Connect(t.Context(), c, process.Peer{}); !errors.Is(err, dispatch.ErrUnauthenticated) {
				t.Errorf("the secrets of the order that was replaced: %v", err)
			}
		}
		next.exitAll()
	})
}

func TestARestartedDaemonWaitsForTheLauncher(t *testing.T) {
	inHouse(t, dispatch.Options{}, func(t *testing.T, h *house) {
		tr := h.started()
		tr.spawn("root", dispatch.Spawn{Role: dispatch.Worker})
		tr.spawn("root", dispatch.Spawn{Role: dispatch.Worker})
		tr.start()
		for path, se := range tr.cast {
			h.take(se, dispatch.RunScope, path, time.Hour)
		}
		handle := tr.cast["W1"].Handle()
		info, err := h.Runs(t.Context(), "r")
		if err != nil {
			t.Fatal(err)
		}
		h.alive.Store(tr.pid["W2"], false) // goes while the daemon is away
		h.crash()

		back := h.connect(dispatch.Credentials{Handle: handle}, tr.pid["W1"])
		if !back.Resumed() || h.heldBy(back, dispatch.RunScope, "W1") != "W1" {
			t.Errorf("resumed %v, its lease is held by %q", back.Resumed(), h.heldBy(back, dispatch.RunScope, "W1"))
		}
		h.hangUp(back) // a script's call ends; the process, and its session, do not
		time.Sleep(2 * time.Second)
		if back = h.connect(dispatch.Credentials{Handle: handle}, tr.pid["W1"]); !back.Resumed() {
			t.Error("the session of a process ended with a connection")
		}
		if got := h.heldBy(back, dispatch.RunScope, "W2"); got != "" {
			t.Errorf("what a process that is gone held is held by %q", got)
		}
		next, _, err := tr.again(dispatch.Dispatch{Run: "r", Attach: info[0].ID})
		if err != nil {
			t.Fatal(err)
		}
		maps.Copy(next.ids, tr.ids)
		maps.Copy(next.pid, tr.pid)
		next.exit("W2", work.Exit{Status: work.Failed, Signal: "SIGKILL"})
		next.exitAll()
		h.wantStatus(map[string]work.Status{"root": work.Succeeded, "W1": work.Succeeded, "W2": work.Failed})
	})
}

func TestARestartedDaemonGivesALauncherUpThatDoesNotComeBack(t *testing.T) {
	inHouse(t, dispatch.Options{}, func(t *testing.T, h *house) {
		tr := h.started()
		tr.spawn("root", dispatch.Spawn{Role: dispatch.Worker})
		h.alive.Store(tr.pid["root"], false)
		h.crash()
		time.Sleep(29 * time.Second)
		h.wantStatus(map[string]work.Status{"root": work.Running, "W1": work.Pending})
		time.Sleep(2 * time.Second)
		h.wantStatus(map[string]work.Status{"root": work.Lost, "W1": work.Lost})
	})
}

// After each step of a run's life the daemon dies, and finds what it had
// answered for.
func TestACrashAtAnyStepLosesNothingThatWasAnswered(t *testing.T) {
	inHouse(t, dispatch.Options{}, func(t *testing.T, h *house) {
		tr := h.dispatch(work.Settings{Limits: work.Limits{BudgetUSD: 10}})
		attach := func() {
			t.Helper()
			before := h.rows()
			h.crash()
			after := h.rows()
			for key, row := range before {
				if got, ok := after[key]; key[:5] == "work/" && (!ok || got != row) {
					t.Errorf("a crash changed %q", key)
				}
			}
			runs, err := h.Runs(t.Context(), "r")
			if err != nil {
				t.Fatal(err)
			}
			handles := make(map[string]string)
			for path, se := range tr.cast {
				handles[path] = se.Handle()
			}
			next, _, err := tr.again(dispatch.Dispatch{Run: "r", Attach: runs[0].ID})
			if err != nil {
				t.Fatal(err)
			}
			next.ids, next.pid = tr.ids, tr.pid
			for path, handle := range handles {
				if pid := tr.pid[path]; handle != "" {
					next.cast[path] = h.connect(dispatch.Credentials{Handle: handle}, pid)
				}
			}
			tr = next
		}
		gone := func(path string, e work.Exit) {
			tr.exit(path, e)
			delete(tr.cast, path)
			attach()
		}
		attach()
		tr.start()
		attach()
		tr.spawn("root", dispatch.Spawn{Role: dispatch.Sublead, BudgetUSD: new(4.0), InitialRef: map[string]json.RawMessage{"plan": json.RawMessage("1")}})
		attach()
		tr.start()
		attach()
		tr.spawn("S1", dispatch.Spawn{Role: dispatch.Worker})
		attach()
		tr.start()
		attach()
		if err := tr.cast["S1→W1"].Report(t.Context(), json.RawMessage("1")); err != nil {
			t.Fatal(err)
		}
		attach()
		gone("S1→W1", work.Exit{Status: work.Succeeded, Cost: money(1)})
		if o, err := tr.cast["root"].Status(t.Context(), "S1→W1"); err != nil || string(o.Result) != "1" {
			t.Errorf("its result: %+v %v", o, err)
		}
		if _, err := tr.cast["root"].Cancel(t.Context(), "S1", "enough"); err != nil {
			t.Fatal(err)
		}
		attach()
		if o := tr.orders(); len(o.Stop) != 1 {
			t.Errorf("the order to stop: %+v", o)
		}
		gone("S1", work.Exit{Status: work.Cancelled, Cost: money(2)})
		if _, err := h.DrainRun(t.Context(), tr.op, "r", "enough", false); err != nil {
			t.Fatal(err)
		}
		attach()
		if !tr.orders().Draining {
			t.Error("drains no more")
		}
		gone("root", work.Exit{Status: work.Succeeded})
		info, err := h.FinishRun(t.Context(), tr.op, "r")
		if err != nil || info.Actors[0].Work.Total() != work.USD(3) {
			t.Errorf("summary: %+v %v", info, err)
		}
		h.crash()
	})
}

func TestAStopOfWhatWasNeverStartedEndsItWhenTheLauncherIsBack(t *testing.T) {
	inHouse(t, dispatch.Options{}, func(t *testing.T, h *house) {
		tr := h.started()
		tr.spawn("root", dispatch.Spawn{Role: dispatch.Sublead})
		late := tr.orders().Launch[0] // handed out; the answer is lost
		if _, err := tr.cast["root"].Cancel(t.Context(), "S1", "not needed"); err != nil {
			t.Fatal(err)
		}
		if got := h.status()["S1"]; got != work.Pending {
			t.Errorf("what may be starting is %s", got)
		}
		runs, err := h.Runs(t.Context(), "r")
		if err != nil {
			t.Fatal(err)
		}
		attach := dispatch.Dispatch{Run: "r", Attach: runs[0].ID}
		stranger := h.connect(dispatch.Credentials{Operator: true}, 8000)
		if _, err := h.DispatchRun(t.Context(), stranger, attach); !errors.Is(err, dispatch.ErrExists) {
			t.Errorf("another process attaches beside the launcher: %v", err)
		}
		attach.Attach = uuid.New()
		if _, err := h.DispatchRun(t.Context(), tr.op, attach); !errors.Is(err, dispatch.ErrNotFound) {
			t.Errorf("attached to another run of the name: %v", err)
		}
		attach.Attach = runs[0].ID
		next, _, err := tr.again(attach) // its last connection is not known to be gone
		if err != nil {
			t.Fatal(err)
		}
		if _, err := h.NextOrders(t.Context(), tr.op, "r", 0); !isForbidden(err) {
			t.Errorf("the connection that was replaced is given orders: %v", err)
		}
		h.hangUp(tr.op)
		synctest.Wait()
		if o := next.orders(); len(o.Launch)+len(o.Stop) != 0 || o.Unfinished != 1 {
			t.Errorf("orders: %+v", o)
		}
		h.wantStatus(map[string]work.Status{"root": work.Running, "S1": work.Cancelled})
		if err := h.LaunchStarted(t.Context(), next.op, "r", late.Actor.ID, 7000, ""); !isForbidden(err) {
			t.Errorf("started after it was cancelled: %v", err)
		}
		next.ids, next.pid = tr.ids, tr.pid
		next.exitAll()
	})
}

func TestASpawnWaitsForALauncherThatMayComeBack(t *testing.T) {
	inHouse(t, dispatch.Options{}, func(t *testing.T, h *house) {
		tr := h.started()
		runs, err := h.Runs(t.Context(), "r")
		if err != nil {
			t.Fatal(err)
		}
		handle := tr.cast["root"].Handle()
		h.crash()
		lead := h.connect(dispatch.Credentials{Handle: handle}, tr.pid["root"])
		began := time.Now()
		h.unchanged("a spawn", func() {
			if _, err := lead.Spawn(t.Context(), dispatch.Spawn{Role: dispatch.Worker, Prompt: "x"}); !errors.Is(err, dispatch.ErrNoLauncher) || time.Since(began) != 5*time.Second {
				t.Errorf("its launcher stays away: %v after %s", err, time.Since(began))
			}
		})
		var next *troupe
		go func() {
			time.Sleep(2 * time.Second)
			next, _, err = tr.again(dispatch.Dispatch{Run: "r", Attach: runs[0].ID})
			if err != nil {
				t.Error(err)
			}
		}()
		began = time.Now()
		if _, err := lead.Spawn(t.Context(), dispatch.Spawn{Role: dispatch.Worker, Prompt: "x"}); err != nil || time.Since(began) != 2*time.Second {
			t.Errorf("its launcher comes back: %v after %s", err, time.Since(began))
		}
		synctest.Wait()
		next.ids, next.pid = tr.ids, tr.pid
		next.start()
		next.exitAll()
	})
}

func TestOnlyItsLauncherIsGivenARunsOrders(t *testing.T) {
	inHouse(t, dispatch.Options{}, func(t *testing.T, h *house) {
		tr := h.started()
		root := tr.ids["root"]
		other := h.connect(dispatch.Credentials{Operator: true}, 8000)
		for _, se := range []*dispatch.Session{other, tr.cast["root"]} {
			h.unchanged(se.Actor().Path, func() {
				_, orders := h.NextOrders(t.Context(), se, "r", 0)
				_, _, exited := h.LaunchExited(t.Context(), se, "r", root, work.Exit{Status: work.Failed})
				_, drained := h.DrainRun(t.Context(), se, "r", "x", true)
				_, finished := h.FinishRun(t.Context(), se, "r")
				for _, err := range []error{orders, h.LaunchStarted(t.Context(), se, "r", root, 5, ""), exited, drained, finished} {
					if !isForbidden(err) {
						t.Errorf("%s: %v", se.Actor().Path, err)
					}
				}
			})
		}
		h.unchanged("what is wrong", func() {
			if _, err := h.DispatchRun(t.Context(), tr.cast["root"], begin(work.Settings{})); !isForbidden(err) {
				t.Errorf("an actor dispatches: %v", err)
			}
			if _, err := h.NextOrders(t.Context(), tr.op, "r", time.Minute); !names("wait_secs")(err) {
				t.Errorf("a long wait: %v", err)
			}
			if _, _, err := h.LaunchExited(t.Context(), tr.op, "r", root, work.Exit{Status: work.Running}); !names("status")(err) {
				t.Errorf("an exit that is none: %v", err)
			}
			if err := h.LaunchStarted(t.Context(), tr.op, "r", uuid.New(), 5, ""); !errors.Is(err, dispatch.ErrNotFound) {
				t.Errorf("an actor that is none: %v", err)
			}
			for argument, change := range map[string]func(*dispatch.Dispatch){
				"run":    func(d *dispatch.Dispatch) { d.Run = "a/b" },
				"name":   func(d *dispatch.Dispatch) { d.Root.Name = "a/b" },
				"agent":  func(d *dispatch.Dispatch) { d.Root.Agent = "none" },
				"prompt": func(d *dispatch.Dispatch) { d.Root.Prompt = "" },
			} {
				req := begin(work.Settings{})
				req.Run = "other"
				change(&req)
				if _, err := h.DispatchRun(t.Context(), other, req); !names(argument)(err) {
					t.Errorf("a wrong %s: %v", argument, err)
				}
			}
		})
		tr.spawn("root", dispatch.Spawn{Role: dispatch.Worker})
		h.unchanged("a call that was given up", func() {
			gone, cancel := context.WithCancel(t.Context())
			cancel()
			if _, err := h.NextOrders(gone, tr.op, "r", 0); err == nil {
				t.Error("orders for nobody")
			}
		})
		if o := tr.start(); len(o.Launch) != 1 {
			t.Errorf("what nobody was told is not told again: %+v", o)
		}
		tr.exitAll()
	})
}
