package dispatch_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/process"
	"github.com/leasehold/leasehold/dispatch/work"
	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/call"
	"github.com/leasehold/leasehold/registry"
)

// launcherPID is the process of the launcher in a test.
const launcherPID = 9000

// A troupe is a dispatched run, as its launcher sees it.
type troupe struct {
	*house
	op   *dispatch.Session
	pids int
	cast map[string]*dispatch.Session // sessions of processes, by path
	ids  map[string]uuid.UUID
	pid  map[string]int

	tokens map[string]string
}

func (h *house) dispatch(settings work.Settings) *troupe {
	h.t.Helper()
	tr := &troupe{house: h, pids: 100, cast: make(map[string]*dispatch.Session), ids: make(map[string]uuid.UUID), pid: make(map[string]int), tokens: make(map[string]string)}
	tr.op = h.connect(dispatch.Credentials{Operator: true}, launcherPID)
	if _, err := h.DispatchRun(h.t.Context(), tr.op, begin(settings)); err != nil {
		h.t.Fatal(err)
	}
	return tr
}

// started dispatches a run whose root has begun.
func (h *house) started() *troupe {
	h.t.Helper()
	tr := h.dispatch(work.Settings{})
	tr.start()
	return tr
}

func begin(settings work.Settings) dispatch.Dispatch {
	return dispatch.Dispatch{
		Run: "r", Root: work.Order{Name: "boss", Agent: "sh", Prompt: "lead"},
		Agents: []string{"sh", "claude"}, Settings: settings,
	}
}

func (tr *troupe) orders() dispatch.Orders {
	tr.t.Helper()
	o, err := tr.NextOrders(tr.t.Context(), tr.op, "r", 0)
	if err != nil {
		tr.t.Fatal(err)
	}
	return o
}

// start starts everything that has been ordered. Each process connects.
func (tr *troupe) start() dispatch.Orders {
	tr.t.Helper()
	o := tr.orders()
	for _, l := range o.Launch {
		tr.pids++
		tr.alive.Store(tr.pids, true)
		if err := tr.LaunchStarted(tr.t.Context(), tr.op, "r", l.Actor.ID, tr.pids, ""); err != nil {
			tr.t.Fatal(err)
		}
		tr.ids[l.Actor.Path], tr.pid[l.Actor.Path], tr.tokens[l.Actor.Path] = l.Actor.ID, tr.pids, l.Token
		tr.cast[l.Actor.Path] = tr.connect(dispatch.Credentials{Handle: l.Handle}, tr.pids)
	}
	return o
}

func (tr *troupe) spawn(by string, sp dispatch.Spawn) dispatch.Spawned {
	tr.t.Helper()
	if sp.Prompt == "" {
		sp.Prompt = "work"
	}
	made, err := tr.cast[by].Spawn(tr.t.Context(), sp)
	if err != nil {
		tr.t.Fatalf("%s spawns %+v: %v", by, sp, err)
	}
	return made
}

func (tr *troupe) exit(path string, e work.Exit) dispatch.ActorInfo {
	tr.t.Helper()
	tr.alive.Store(tr.pid[path], false)
	info, _, err := tr.LaunchExited(tr.t.Context(), tr.op, "r", tr.ids[path], e)
	if err != nil {
		tr.t.Fatalf("%s exits: %v", path, err)
	}
	return info
}

func (tr *troupe) exitAll() {
	tr.t.Helper()
	for _, path := range slices.Backward(slices.Sorted(maps.Keys(tr.ids))) {
		tr.exit(path, work.Exit{Status: work.Succeeded})
	}
}

// status returns the statuses of the run's works, by path.
func (h *house) status() map[string]work.Status {
	h.t.Helper()
	runs, err := h.Runs(h.t.Context(), "r")
	if err != nil {
		h.t.Fatal(err)
	}
	all := make(map[string]work.Status)
	for _, a := range runs[0].Actors {
		if a.Work != nil {
			all[a.Path] = a.Work.Status
		}
	}
	return all
}

func (h *house) wantStatus(want map[string]work.Status) {
	h.t.Helper()
	if got := h.status(); !maps.Equal(got, want) {
		h.t.Errorf("works stand as %v, want %v", got, want)
	}
}

// rows returns the whole state, byte for byte.
func (h *house) rows() map[string]engine.Row {
	h.t.Helper()
	rows := make(map[string]engine.Row)
	err := h.eng.View(h.t.Context(), func(tx engine.Tx) error {
		for _, prefix := range []string{"", engine.Cold} {
			for row := range tx.Scan(prefix) {
				rows[row.Key] = row
			}
		}
		return nil
	})
	if err != nil {
		h.t.Fatal(err)
	}
	return rows
}

// unchanged runs something that must not change the state.
func (h *house) unchanged(what string, try func()) {
	h.t.Helper()
	before := h.rows()
	try()
	after := h.rows()
	for key := range before {
		if before[key] != after[key] {
			h.t.Errorf("%s changed %q", what, key)
		}
	}
	for key := range after {
		if _, ok := before[key]; !ok {
			h.t.Errorf("%s left %q", what, key)
		}
	}
}

func draining(err error) bool {
	var d *dispatch.DrainingError
	return errors.As(err, &d)
}

func isForbidden(err error) bool {
	var f *dispatch.ForbiddenError
	return errors.As(err, &f)
}

func overBudget(left work.Money) func(error) bool {
	return func(err error) bool {
		var b *work.BudgetError
		return errors.As(err, &b) && b.Available == left
	}
}

func money(usd float64) *work.Money {
	m := work.USD(usd)
	return &m
}

func TestARefusedSpawnLeavesNothing(t *testing.T) {
	settings := work.Settings{
		Limits:  work.Limits{MaxDepth: 2, MaxWorkersPerLayer: 4, MaxActors: 6, BudgetUSD: 10},
		Sublead: work.Sublead{BudgetUSD: 4, MaxWorkers: 1}, Worker: work.Worker{BudgetUSD: 1},
	}
	settings.Store.MaxValueBytes, settings.Store.MaxEntries = 100, 2
	inHouse(t, dispatch.Options{}, func(t *testing.T, h *house) {
		tr := h.dispatch(settings)
		tr.start()
		tr.spawn("root", dispatch.Spawn{Role: dispatch.Sublead})               // S1
		tr.spawn("root", dispatch.Spawn{Role: dispatch.Worker, Name: "named"}) // leaves 5 of 10
		tr.start()
		tr.spawn("S1", dispatch.Spawn{Role: dispatch.Worker}) // S1→W1: all it may have
		tr.start()

		sub, worker := dispatch.Sublead, dispatch.Worker
		ref := func(path string, value string) map[string]json.RawMessage {
			return map[string]json.RawMessage{"/ref/ok": json.RawMessage("1"), path: json.RawMessage(value)}
		}
		for _, c := range []struct {
			by    string
			spawn dispatch.Spawn
			want  func(error) bool
		}{
			{"named", dispatch.Spawn{Role: worker, Prompt: "x"}, isForbidden},
			{"root", dispatch.Spawn{Role: dispatch.Root, Prompt: "x"}, names("role")},
			{"root", dispatch.Spawn{Role: worker}, names("prompt")},
			{"root", dispatch.Spawn{Role: worker, Prompt: "a\x00b"}, names("prompt")},
			{"root", dispatch.Spawn{Role: worker, Prompt: strings.Repeat("x", work.MaxPrompt+1)}, names("prompt")},
			{"root", dispatch.Spawn{Role: worker, Prompt: "x", Name: "named"}, is(dispatch.ErrExists)},
			{"root", dispatch.Spawn{Role: worker, Prompt: "x", Name: "boss"}, is(dispatch.ErrExists)},
			{"root", dispatch.Spawn{Role: worker, Prompt: "x", Name: "root"}, names("name")},
			{"root", dispatch.Spawn{Role: worker, Prompt: "x", Name: "a→b"}, names("name")},
			{"root", dispatch.Spawn{Role: worker, Prompt: "x", Name: "self"}, names("name")},
			{"root", dispatch.Spawn{Role: worker, Prompt: "x", Agent: "nobody"}, names("agent")},
			{"root", dispatch.Spawn{Role: worker, Prompt: "x", Model: "a\nb"}, names("model")},
			{"root", dispatch.Spawn{Role: worker, Prompt: "x", Directory: "a\x00"}, names("directory")},
			{"root", dispatch.Spawn{Role: worker, Prompt: "x", Directory: strings.Repeat("x", 5000)}, names("directory")},
			{"root", dispatch.Spawn{Role: worker, Prompt: "x", Timeout: -1}, names("timeout_secs")},
			{"root", dispatch.Spawn{Role: worker, Prompt: "x", Timeout: work.MaxTimeout + 1}, names("timeout_secs")},
			{"root", dispatch.Spawn{Role: worker, Prompt: "x", Env: map[string]string{"A B": ""}}, names("env")},
			{"root", dispatch.Spawn{Role: worker, Prompt: "x", Env: map[string]string{"LEASEHOLD_TOKEN": "x"}}, names("env")},
			{"root", dispatch.Spawn{Role: worker, Prompt: "x", Env: map[string]string{"A": "\x00"}}, names("env")},
			{"root", dispatch.Spawn{Role: worker, Prompt: "x", Env: map[string]string{"A": strings.Repeat("x", work.MaxEnv)}}, names("env")},
			{"root", dispatch.Spawn{Role: worker, Prompt: "x", Tools: []string{""}}, names("tools")},
			{"root", dispatch.Spawn{Role: worker, Prompt: "x", Tools: make([]string, work.MaxTools+1)}, names("tools")},
			{"root", dispatch.Spawn{Role: worker, Prompt: "x", InitialRef: ref("/ref/a", "1")}, names("initial_ref")},
			{"root", dispatch.Spawn{Role: sub, Prompt: "x", BudgetUSD: new(-1.0)}, names("budget_usd")},
			{"root", dispatch.Spawn{Role: sub, Prompt: "x", BudgetUSD: new(5.01)}, overBudget(work.USD(5))},
			{"root", dispatch.Spawn{Role: sub, Prompt: "x", InitialRef: ref("/shared/a", "1")}, names("initial_ref")},
			{"root", dispatch.Spawn{Role: sub, Prompt: "x", InitialRef: ref("/ref/../a", "1")}, names("initial_ref")},
			{"root", dispatch.Spawn{Role: sub, Prompt: "x", InitialRef: ref("/ref", "1")}, names("initial_ref")},
			{"root", dispatch.Spawn{Role: sub, Prompt: "x", InitialRef: ref("", "1")}, names("initial_ref")},
			{"root", dispatch.Spawn{Role: sub, Prompt: "x", InitialRef: ref("/ref/a", "{")}, names("initial_ref")},
			{"root", dispatch.Spawn{Role: sub, Prompt: "x", InitialRef: ref("/ref/a", `"`+strings.Repeat("x", 100)+`"`)}, limit(100)},
			{"root", dispatch.Spawn{Role: sub, Prompt: "x", InitialRef: map[string]json.RawMessage{"a": json.RawMessage("1"), "b": json.RawMessage("2"), "c": json.RawMessage("3")}}, limit(2)},
			{"S1", dispatch.Spawn{Role: worker, Prompt: "x"}, limit(1)},
		} {
			what := fmt.Sprintf("%s spawning %.80s", c.by, fmt.Sprintf("%+v", c.spawn))
			h.unchanged(what, func() {
				if _, err := tr.cast[c.by].Spawn(t.Context(), c.spawn); !c.want(err) {
					t.Errorf("%s: %v", what, err)
				}
			})
		}
		tr.exitAll()
	})
}

func TestTheTreeBoundsWhatIsSpawned(t *testing.T) {
	inHouse(t, dispatch.Options{}, func(t *testing.T, h *house) {
		tr := h.dispatch(work.Settings{Limits: work.Limits{MaxDepth: 2, MaxWorkersPerLayer: 2, MaxActors: 5}})
		tr.start()
		for range 2 {
			tr.spawn("root", dispatch.Spawn{Role: dispatch.Sublead})
		}
		tr.start()
		tr.spawn("S1", dispatch.Spawn{Role: dispatch.Sublead})
		tr.start()
		refused := func(by string, max int64) {
			t.Helper()
			h.unchanged(by, func() {
				if _, err := tr.cast[by].Spawn(t.Context(), dispatch.Spawn{Role: dispatch.Worker, Prompt: "x"}); !limit(max)(err) {
					t.Errorf("%s: %v, want a limit of %d", by, err, max)
				}
			})
		}
		refused("root", 2)
		refused("S1→S2", 2) // the depth
		tr.spawn("S1", dispatch.Spawn{Role: dispatch.Worker})
		refused("S2", 5)
		tr.start()
		tr.exit("S1→W1", work.Exit{Status: work.Succeeded})
		tr.spawn("S2", dispatch.Spawn{Role: dispatch.Worker}) // an ended actor makes room
		tr.start()
		tr.exitAll()
	})
}

func TestNobodySpawnsWhereNobodyLaunches(t *testing.T) {
	inHouse(t, dispatch.Options{}, func(t *testing.T, h *house) {
		refused := func(what string, se *dispatch.Session, want func(error) bool) {
			t.Helper()
			h.unchanged(what, func() {
				if _, err := se.Spawn(t.Context(), dispatch.Spawn{Role: dispatch.Worker, Prompt: "x"}); !want(err) {
					t.Errorf("%s: %v", what, err)
				}
			})
		}
		_, token, err := h.AddActor(t.Context(), dispatch.NewActor{Run: "plain", Name: "boss", Role: dispatch.Root})
		if err != nil {
			t.Fatal(err)
		}
		plain := h.connect(dispatch.Credentials{Token: token}, 1)
		refused("a run that is not dispatched", plain, is(dispatch.ErrNoLauncher))
		h.hangUp(plain)

		tr := h.started()
		_, token = h.add(dispatch.Sublead, "", "added")
		added := h.connect(dispatch.Credentials{Token: token}, 2)
		refused("one that was added", added, isForbidden)

		tr.spawn("root", dispatch.Spawn{Role: dispatch.Sublead})
		tr.start()
		if _, err := tr.cast["root"].Cancel(t.Context(), "S1", "enough"); err != nil {
			t.Fatal(err)
		}
		refused("one that is told to stop", tr.cast["S1"], draining)
		if _, err := h.DrainRun(t.Context(), tr.op, "r", "enough", false); err != nil {
			t.Fatal(err)
		}
		refused("a run that drains", tr.cast["root"], draining)
		tr.exitAll()
		// Refused for its session or for its actor, whichever is checked first.
		refused("one that has ended", tr.cast["root"], func(err error) bool {
			return errors.Is(err, registry.ErrSessionEnded) || errors.Is(err, dispatch.ErrUnauthenticated)
		})
	})
}

func TestNamesCountUpAndSkipWhatIsTaken(t *testing.T) {
	inHouse(t, dispatch.Options{}, func(t *testing.T, h *house) {
		tr := h.started()
		var got []string
		for _, sp := range []dispatch.Spawn{
			{Role: dispatch.Worker},
			{Role: dispatch.Worker, Name: "W2"},
			{Role: dispatch.Worker},
			{Role: dispatch.Sublead},
			{Role: dispatch.Worker, Name: "S2"},
			{Role: dispatch.Sublead},
			{Role: dispatch.Worker},
		} {
			got = append(got, tr.spawn("root", sp).Path)
		}
		if want := []string{"W1", "W2", "W3", "S1", "S2", "S3", "W4"}; !slices.Equal(got, want) {
			t.Errorf("names %v, want %v", got, want)
		}
		tr.start()
		tr.exitAll()
	})
}

// Whom an operator has added is nobody's to start.
func TestTheNameOfAnActorThatWasAddedIsTaken(t *testing.T) {
	inHouse(t, dispatch.Options{}, func(t *testing.T, h *house) {
		tr := h.started()
		if _, _, err := h.AddActor(t.Context(), dispatch.NewActor{Run: "r", Name: "helper", Role: dispatch.Worker}); err != nil {
			t.Fatal(err)
		}
		h.unchanged("a spawn by its name", func() {
			_, err := tr.cast["root"].Spawn(t.Context(), dispatch.Spawn{Role: dispatch.Worker, Name: "helper", Prompt: "x"})
			if !errors.Is(err, dispatch.ErrExists) {
				t.Errorf("spawned: %v", err)
			}
		})
		tr.exitAll()
	})
}

func TestAnExitEndsWhatTheActorHeldAndStopsWhomItSpawned(t *testing.T) {
	inHouse(t, dispatch.Options{}, func(t *testing.T, h *house) {
		tr := h.started()
		tr.spawn("root", dispatch.Spawn{Role: dispatch.Sublead})
		tr.start()
		tr.spawn("S1", dispatch.Spawn{Role: dispatch.Sublead})
		tr.start()
		tr.spawn("S1→S2", dispatch.Spawn{Role: dispatch.Worker})
		tr.start()
		tr.spawn("S1", dispatch.Spawn{Role: dispatch.Worker, Name: "waiting"}) // never handed out
		added := h.member(dispatch.Worker, "S1", "added", 5)
		h.take(tr.cast["S1"], dispatch.RunScope, "x", time.Hour)
		h.take(tr.cast["S1"], dispatch.LayerScope, "y", time.Hour)
		h.claim(tr.cast["S1"], work.MaxLeaseNames) // which hides none of its leases
		h.take(tr.cast["S1→S2→W1"], dispatch.RunScope, "deep", time.Hour)
		lost := h.take(tr.cast["S1"], dispatch.RunScope, "lost", time.Second)
		time.Sleep(2 * time.Second)
		_ = lost

		info := tr.exit("S1", work.Exit{Status: work.Failed, Cause: "exit code 1"})
		if held := fmt.Sprint(info.Work.Held); held != "[{layer y } {run x }]" {
			t.Errorf("held at its exit: %v", held)
		}
		if lost := fmt.Sprint(info.Work.Lost); lost != "[{run lost expired}]" {
			t.Errorf("lost before its exit: %v", lost)
		}
		h.wantStatus(map[string]work.Status{
			"root": work.Running, "S1": work.Failed, "S1→S2": work.Running, "S1→S2→W1": work.Running, "S1→waiting": work.Cancelled,
		})
		if tr.cast["S1"].Context().Err() == nil || added.Context().Err() == nil {
			t.Error("a session of an actor that has ended lives on")
		}
		if got := h.heldBy(tr.cast["root"], dispatch.RunScope, "deep"); got != "S1→S2→W1" {
			t.Errorf("what a process below holds that still runs is held by %q", got)
		}
		var stops []string
		for _, stop := range tr.orders().Stop {
			stops = append(stops, fmt.Sprint(stop.Actor.Path, " ", stop.Status, " ", stop.Reason))
		}
		if want := []string{"S1→S2→W1 cancelled its lead S1 ended", "S1→S2 cancelled its lead S1 ended"}; !slices.Equal(stops, want) {
			t.Errorf("told to stop: %q", stops)
		}
		if again := tr.orders(); len(again.Stop)+len(again.Launch) > 0 {
			t.Errorf("told twice: %+v", again)
		}
		h.unchanged("a second report", func() { tr.exit("S1", work.Exit{Status: work.Succeeded}) })
		tr.exitAll()
		if got := h.status()["S1→S2"]; got != work.Succeeded {
			t.Errorf("a stop that came too late: %s", got)
		}
	})
}

func TestCancellingStopsASubTree(t *testing.T) {
	inHouse(t, dispatch.Options{}, func(t *testing.T, h *house) {
		tr := h.started()
		tr.spawn("root", dispatch.Spawn{Role: dispatch.Sublead})
		tr.spawn("root", dispatch.Spawn{Role: dispatch.Worker})
		tr.start()
		tr.spawn("S1", dispatch.Spawn{Role: dispatch.Worker})
		tr.spawn("root", dispatch.Spawn{Role: dispatch.Worker}) // W2, never handed out
		for _, ref := range []string{"root", "S9", "S1→W9", uuid.NewString(), ""} {
			h.unchanged(ref, func() {
				if _, err := tr.cast["root"].Cancel(t.Context(), ref, "x"); err == nil {
					t.Errorf("cancelled %q", ref)
				}
			})
		}
		if _, err := tr.cast["S1"].Cancel(t.Context(), "W2", "x"); !errors.Is(err, dispatch.ErrNotFound) {
			t.Errorf("cancelling one above: %v", err)
		}
		if _, err := tr.cast["W1"].Cancel(t.Context(), "S1", "x"); !isForbidden(err) {
			t.Errorf("a worker cancels: %v", err)
		}
		o, err := tr.cast["root"].Cancel(t.Context(), "W2", "not needed")
		if err != nil || o.Work.Status != work.Cancelled || o.Work.Cause != "not needed" {
			t.Errorf("cancelled before it began: %+v %v", o.Work, err)
		}
		if o, err = tr.cast["root"].Cancel(t.Context(), "S1", "wrong"); err != nil || o.Work.Stop == nil {
			t.Errorf("cancelled: %+v %v", o.Work, err)
		}
		h.wantStatus(map[string]work.Status{"root": work.Running, "S1": work.Running, "S1→W1": work.Cancelled, "W1": work.Running, "W2": work.Cancelled})
		if o := tr.orders(); len(o.Launch) != 0 || len(o.Stop) != 1 || o.Stop[0].Actor.Path != "S1" {
			t.Errorf("orders: %+v", o)
		}
		tr.exitAll()
	})
}

func TestAwaitedActorsAreToldAsTheyFinish(t *testing.T) {
	inHouse(t, dispatch.Options{}, func(t *testing.T, h *house) {
		tr := h.started()
		for range 3 {
			tr.spawn("root", dispatch.Spawn{Role: dispatch.Worker})
		}
		tr.start()
		lead := tr.cast["root"]
		go func() {
			time.Sleep(10 * time.Second)
			if err := tr.cast["W2"].Report(t.Context(), json.RawMessage(` {"n": 2} `)); err != nil {
				t.Error(err)
			}
			tr.exit("W2", work.Exit{Status: work.Succeeded, Output: "noise"})
			time.Sleep(10 * time.Second)
			tr.exit("W1", work.Exit{Status: work.Succeeded, Output: "so\nit \"is\""})
			tr.exit("W3", work.Exit{Status: work.Failed})
		}()
		began := time.Now()
		refs := []string{"W1", "W2", tr.ids["W3"].String()}
		list, done, err := lead.Await(t.Context(), "", refs, false, 50*time.Second)
		if err != nil || !done || time.Since(began) != 10*time.Second || string(list[1].Result) != `{"n":2}` || list[0].Finished() {
			t.Errorf("any: %+v %v %v after %s", list, done, err, time.Since(began))
		}
		list, done, err = lead.Await(t.Context(), "", refs, true, 5*time.Second)
		if err != nil || done || time.Since(began) != 15*time.Second {
			t.Errorf("all, too early: %+v %v %v after %s", list, done, err, time.Since(began))
		}
		list, done, err = lead.Await(t.Context(), "", refs, true, 50*time.Second)
		if err != nil || !done || time.Since(began) != 20*time.Second {
			t.Errorf("all: %+v %v %v after %s", list, done, err, time.Since(began))
		}
		if got := string(list[0].Result); got != `"so\nit \"is\""` {
			t.Errorf("the last output as a result: %s", got)
		}
		if list[2].Result != nil || list[2].Work.Status != work.Failed {
			t.Errorf("one that failed: %+v", list[2])
		}
		if _, _, err := lead.Await(t.Context(), "", []string{"root"}, true, 0); !names("actors")(err) {
			t.Errorf("waits for itself: %v", err)
		}
		tr.exit("root", work.Exit{Status: work.Succeeded})
	})
}

func TestAReportIsBoundedAndTheLastOneCounts(t *testing.T) {
	inHouse(t, dispatch.Options{}, func(t *testing.T, h *house) {
		se := h.member(dispatch.Root, "", "boss", 1)
		for _, c := range []struct {
			result string
			want   func(error) bool
		}{
			{`"` + strings.Repeat("x", work.MaxResult-1) + `"`, limit(work.MaxResult)},
			{`{`, names("result")},
			{``, names("result")},
		} {
			h.unchanged(fmt.Sprintf("%.10s", c.result), func() {
				if err := se.Report(t.Context(), json.RawMessage(c.result)); !c.want(err) {
					t.Errorf("%.10s: %v", c.result, err)
				}
			})
		}
		for _, result := range []string{`1`, `null`, `"` + strings.Repeat("x", work.MaxResult-2) + `"`} {
			if err := se.Report(t.Context(), json.RawMessage(result)); err != nil {
				t.Error(err)
			}
			if o, err := se.Status(t.Context(), "root"); err != nil || string(o.Result) != result {
				t.Errorf("reported %.10s, is %.10s, %v", result, o.Result, err)
			}
		}
		h.hangUp(se)
	})
}

// What an answer told that nobody read is told again. A run that was resumed does not end.
func TestADrainIsToldOnceToEachAgent(t *testing.T) {
	inHouse(t, dispatch.Options{}, func(t *testing.T, h *house) {
		tr := h.started()
		tr.spawn("root", dispatch.Spawn{Role: dispatch.Worker})
		tr.start()
		tr.spawn("root", dispatch.Spawn{Role: dispatch.Worker}) // never handed out
		for _, stop := range []bool{false, true} {
			if left, err := h.DrainRun(t.Context(), tr.op, "r", "Ctrl-C", stop); err != nil || stop && left != 2 {
				t.Errorf("drained, %d left: %v", left, err)
			}
		}
		h.wantStatus(map[string]work.Status{"root": work.Running, "W1": work.Running, "W2": work.Cancelled})
		for path, se := range tr.cast {
			told := func(when string, want bool, agents ...string) {
				t.Helper()
				for _, agent := range agents {
					if d := se.TakeDrain(t.Context(), agent); (d != nil) != want || want && d.Reason != "Ctrl-C" {
						t.Errorf("%s: %s, agent %q, is told %+v", when, path, agent, d)
					}
				}
			}
			told("at first", true, "", "a1", "a2")
			told("the second time", false, "", "a1", "a2")
			time.Sleep(2 * time.Minute)
			told("later", true, "a3")
			if err := se.Retell(t.Context()); err != nil {
				t.Error(err)
			}
			told("after an answer that nobody read", true, "a3")
			told("after an answer that nobody read", false, "", "a1", "a2", "a3")
		}
		o := tr.orders()
		if !o.Draining || len(o.Stop) != 2 || o.Stop[0].Actor.Path != "W1" {
			t.Errorf("orders: %+v", o)
		}
		late := h.connect(dispatch.Credentials{Handle: tr.cast["W1"].Handle()}, tr.pid["W1"])
		if late.TakeDrain(t.Context(), "") != nil {
			t.Error("another connection of a session is told again")
		}
		if _, err := h.FinishRun(t.Context(), tr.op, "r"); !isForbidden(err) {
			t.Errorf("finished with actors left: %v", err)
		}
		tr.exitAll()
		info, err := h.FinishRun(t.Context(), tr.op, "r")
		if err != nil || len(info.Actors) != 3 || info.EndedAt.IsZero() {
			t.Errorf("summary: %+v %v", info, err)
		}
	})
}

func TestASpawnThatIsSentAgainIsCarriedOutOnce(t *testing.T) {
	inHouse(t, dispatch.Options{}, func(t *testing.T, h *house) {
		tr := h.started()
		session := tr.cast["root"]
		spawn := func(name string) dispatch.Spawned {
			ctx := call.With(t.Context(), call.Call{Session: session.ID(), Name: name})
			made, err := session.Spawn(ctx, dispatch.Spawn{Role: dispatch.Worker, Prompt: "work"})
			if err != nil {
				t.Fatal(err)
			}
			return made
		}
		first := spawn("1")
		tr.spawn("root", dispatch.Spawn{Role: dispatch.Worker})
		h.unchanged("sending it again", func() {
			if again := spawn("1"); again.ID != first.ID {
				t.Errorf("sent again it makes %s", again.Path)
			}
		})
		if again := spawn("2"); again.Path != "W3" { // the first one never arrived
			t.Errorf("what had not arrived is %s", again.Path)
		}
		tr.start()
		tr.exitAll()
	})
}

// TestASpawnThatIsCancelledIsUndone: an actor without a process never gets one,
// and a running one is told to stop, with those below it.
func TestASpawnThatIsCancelledIsUndone(t *testing.T) {
	inHouse(t, dispatch.Options{}, func(t *testing.T, h *house) {
		tr := h.started()
		lead := tr.cast["root"]
		spawn := func(name string, role dispatch.Role) call.Call {
			c := call.Call{Session: lead.ID(), Name: name}
			if _, err := lead.Spawn(call.With(t.Context(), c), dispatch.Spawn{Role: role, Prompt: "work"}); err != nil {
				t.Fatal(err)
			}
			return c
		}
		undo := func(c call.Call) {
			t.Helper()
			if err := lead.Undo(t.Context(), c); err != nil {
				t.Fatal(err)
			}
		}
		undo(spawn("1", dispatch.Worker))
		if o := tr.orders(); len(o.Launch) != 0 {
			t.Errorf("a spawn that was undone is launched: %+v", o)
		}
		h.wantStatus(map[string]work.Status{"root": work.Running, "W1": work.Cancelled})

		running := spawn("2", dispatch.Sublead)
		tr.start()
		tr.spawn("S1", dispatch.Spawn{Role: dispatch.Worker})
		undo(running)
		undo(running) // a second undo finds nothing
		if o := tr.orders(); len(o.Launch) != 0 || len(o.Stop) != 1 || o.Stop[0].Actor.Path != "S1" {
			t.Errorf("orders: %+v", o)
		}
		h.wantStatus(map[string]work.Status{"root": work.Running, "W1": work.Cancelled, "S1": work.Running, "S1→W1": work.Cancelled})
		tr.exitAll()
	})
}

// TestASpawnThatWasUndoneGetsItsNameAgain as soon as what it has started has stopped,
// with all below it.
func TestASpawnThatWasUndoneGetsItsNameAgain(t *testing.T) {
	inHouse(t, dispatch.Options{}, func(t *testing.T, h *house) {
		tr := h.started()
		lead := tr.cast["root"]
		c := call.Call{Session: lead.ID(), Name: "1"}
		spawn := func() (dispatch.Spawned, error) {
			return lead.Spawn(call.With(t.Context(), c), dispatch.Spawn{Role: dispatch.Sublead, Name: "helper", Prompt: "work"})
		}
		first, err := spawn()
		if err != nil {
			t.Fatal(err)
		}
		tr.start()
		tr.spawn("helper", dispatch.Spawn{Role: dispatch.Worker})
		tr.start()
		if err := lead.Undo(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if _, err := spawn(); !errors.Is(err, dispatch.ErrExists) || !strings.Contains(err.Error(), "is being stopped") || time.Since(began) != 30*time.Second {
			t.Errorf("while it is being stopped, after %v: %v", time.Since(began), err)
		}
		type outcome struct {
			dispatch.Spawned
			error
		}
		again := make(chan outcome, 1)
		go func() {
			made, err := spawn()
			again <- outcome{made, err}
		}()
		synctest.Wait()
		tr.exit("helper", work.Exit{Status: work.Cancelled})
		synctest.Wait()
		if len(again) > 0 {
			t.Error("the name is given again while a process below it runs")
		}
		tr.exit("helper→W1", work.Exit{Status: work.Cancelled})
		synctest.Wait()
		select {
		case made := <-again:
			if made.error != nil || made.Path != "helper" || made.ID == first.ID {
				t.Errorf("sent again, it makes %+v: %v", made.ActorInfo, made.error)
			}
		default:
			t.Error("the name is not free")
		}
		if o := tr.orders(); len(o.Launch) != 1 || o.Launch[0].Actor.Path != "helper" {
			t.Errorf("orders: %+v", o)
		}
		tr.start()
		tr.exitAll()
	})
}

func TestAnOperatorEndsWhatIsLaunchedByStoppingIt(t *testing.T) {
	inHouse(t, dispatch.Options{}, func(t *testing.T, h *house) {
		tr := h.dispatch(work.Settings{})
		if _, _, err := h.AddActor(t.Context(), dispatch.NewActor{Run: "r", Name: "usurper", Role: dispatch.Root}); !errors.Is(err, dispatch.ErrExists) {
			t.Errorf("the root's place is taken before it begins: %v", err)
		}
		tr.start()
		tr.spawn("root", dispatch.Spawn{Role: dispatch.Sublead})
		tr.start()
		added, token := h.add(dispatch.Worker, "S1", "added")
		se := h.connect(dispatch.Credentials{Token: token}, 5)
		if err := h.EndActor(t.Context(), "r", "S1", "enough"); err != nil {
			t.Fatal(err)
		}
		if se.Context().Err() == nil {
			t.Error("one that is not launched lives on")
		}
		list, done, err := tr.cast["root"].Await(t.Context(), "", []string{added.Path}, true, 0)
		if err != nil || !done || list[0].EndCause != "enough" {
			t.Errorf("one that was added and has ended: %+v %v %v", list, done, err)
		}
		if o := tr.orders(); len(o.Stop) != 1 || o.Stop[0].Actor.Path != "S1" || o.Stop[0].Reason != "enough" {
			t.Errorf("orders: %+v", o)
		}
		if err := h.EndActor(t.Context(), "r", "root", "all of it"); err != nil {
			t.Fatal(err)
		}
		if o := tr.orders(); len(o.Stop) != 1 || o.Stop[0].Actor.Path != "root" {
			t.Errorf("orders: %+v", o)
		}
		tr.exitAll()
		if _, err := h.Connect(t.Context(), dispatch.Credentials{Run: "r", Name: "late"}, process.Peer{}); !errors.Is(err, dispatch.ErrNotFound) {
			t.Errorf("joined below a root that has ended: %v", err)
		}
	})
}

// Leads spawn, wait and end, and the launcher starts and reports, all at once.
// Nothing is started twice, nothing is forgotten, and the sums agree.
func TestManyAtOnce(t *testing.T) {
	inHouse(t, dispatch.Options{}, func(t *testing.T, h *house) {
		tr := h.dispatch(work.Settings{Limits: work.Limits{BudgetUSD: 100}, Worker: work.Worker{BudgetUSD: 0.1}})
		const leads, workers = 5, 20
		var wg sync.WaitGroup
		seen := make(map[uuid.UUID]bool)
		play := func(l dispatch.Launch, pid int) {
			end := func(e work.Exit) {
				h.alive.Store(pid, false)
				if _, _, err := h.LaunchExited(t.Context(), tr.op, "r", l.Actor.ID, e); err != nil {
					t.Error(err)
				}
			}
			if err := h.LaunchStarted(t.Context(), tr.op, "r", l.Actor.ID, pid, ""); err != nil {
				t.Error(err)
			}
			se, err := h.Connect(t.Context(), dispatch.Credentials{Handle: l.Handle}, process.Peer{PID: pid, Start: "1"})
			if err != nil {
				t.Error(err)
				return
			}
			role, n := dispatch.Sublead, leads
			switch l.Actor.Role {
			case dispatch.Worker:
				g, err := se.Acquire(t.Context(), dispatch.RunScope, registry.Request{Key: "x", Wait: 50 * time.Second})
				if err == nil && pid%2 == 0 {
					_, _, err = se.Release(t.Context(), "", g.ID) // the others keep it until they end
				}
				if err != nil {
					t.Errorf("%s: %v", l.Actor.Path, err)
				}
				end(work.Exit{Status: work.Succeeded, Cost: money(0.05)})
				return
			case dispatch.Sublead:
				role, n = dispatch.Worker, workers
			}
			var refs []string
			for range n {
				made, err := se.Spawn(t.Context(), dispatch.Spawn{Role: role, Prompt: "x"})
				if err != nil {
					t.Error(err)
				}
				refs = append(refs, made.Name)
			}
			for done := false; !done; {
				if _, done, err = se.Await(t.Context(), "", refs, true, 50*time.Second); err != nil {
					t.Error(err)
					return
				}
			}
			end(work.Exit{Status: work.Succeeded, Cost: money(0.05)})
		}
		for {
			o, err := h.NextOrders(t.Context(), tr.op, "r", 50*time.Second)
			if err != nil {
				t.Fatal(err)
			}
			for _, l := range o.Launch {
				if seen[l.Actor.ID] {
					t.Errorf("%s is to be started twice", l.Actor.Path)
				}
				seen[l.Actor.ID] = true
				tr.pids++
				pid := tr.pids
				h.alive.Store(pid, true)
				wg.Go(func() { play(l, pid) })
			}
			if o.Unfinished == 0 {
				break
			}
		}
		wg.Wait()
		info, err := h.FinishRun(t.Context(), tr.op, "r")
		if err != nil || len(seen) != 1+leads+leads*workers || info.Actors[0].Work.Total() != work.USD(0.05*float64(len(seen))) {
			t.Errorf("%d started, %d spent: %v", len(seen), info.Actors[0].Work.Total(), err)
		}
	})
}
