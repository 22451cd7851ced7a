package dispatch_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/uuid"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/process"
	"github.com/leasehold/leasehold/dispatch/work"
	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/enginetest"
	"github.com/leasehold/leasehold/engine/event"
	"github.com/leasehold/leasehold/registry"
)

// A countedEngine counts the rows that its largest transaction under the lock
// has read.
type countedEngine struct {
	engine.Engine
	most     atomic.Int64
	updates  atomic.Int64
	snapshot atomic.Int64 // the rows that the last snapshot has read
}

func (e *countedEngine) Snapshot(ctx context.Context, fn func(engine.Tx) error) error {
	return e.Engine.Snapshot(ctx, func(tx engine.Tx) error {
		counted := &enginetest.CountedTx{Tx: tx}
		defer func() { e.snapshot.Store(int64(counted.Rows)) }()
		return fn(counted)
	})
}

func (e *countedEngine) Update(ctx context.Context, fn func(engine.Tx) error) error {
	e.updates.Add(1)
	return e.Engine.Update(ctx, e.counting(fn))
}

func (e *countedEngine) View(ctx context.Context, fn func(engine.Tx) error) error {
	return e.Engine.View(ctx, e.counting(fn))
}

func (e *countedEngine) counting(fn func(engine.Tx) error) func(engine.Tx) error {
	return func(tx engine.Tx) error {
		counted := &enginetest.CountedTx{Tx: tx}
		defer func() { e.most.Store(max(e.most.Load(), int64(counted.Rows))) }() // one transaction at a time
		return fn(counted)
	}
}

// inCountedHouse is inHouse with an engine that counts what its transactions read.
func inCountedHouse(t *testing.T, story func(t *testing.T, h *house, count *countedEngine)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		count := &countedEngine{}
		over := func(eng engine.Engine) engine.Engine {
			count.Engine = eng
			return count
		}
		at(&house{t: t, over: over}, vfs.NewCrashableMem(), func(h *house) { story(t, h, count) })
	})
}

// A hook that asks who has leased what, before each shell command of an agent, and
// one that reports a write, make nobody wait longer for many leased files. Nor does
// a commit of many files that others have leased.
func TestHooksDoLittleUnderTheLock(t *testing.T) {
	most := func(many int) map[string]int64 {
		does := make(map[string]int64)
		inCountedHouse(t, func(t *testing.T, h *house, count *countedEngine) {
			boss := h.member(dispatch.Root, "", "boss", 1)
			asks := h.connect(dispatch.Credentials{Operator: true}, 2)
			var files []string
			for i := range many {
				files = append(files, fmt.Sprintf("file:src/%d.ts", i))
			}
			measure := func(what string, call func() error) {
				t.Helper()
				count.most.Store(0)
				if err := call(); err != nil {
					t.Errorf("%s: %v", what, err)
				}
				does[what] = count.most.Load()
			}
			ctx := t.Context()
			measure("hook_write", func() error { _, err := boss.Guard(ctx, "", files, time.Hour, ""); return err })
			for what, keys := range map[string][]string{"a command": nil, "a commit": files} {
				var held []*registry.HeldError
				measure(what, func() (err error) {
					held, err = h.Conflicts(ctx, asks, []int{2}, nil, "r", keys)
					return err
				})
				if want := min(many, cmp.Or(len(keys), dispatch.MaxConflicts)); len(held) != want {
					t.Errorf("%s: %d files are leased, want %d", what, len(held), want)
				}
				measure(what+" all the same", func() error { return h.NoteCommitted(ctx, asks, []int{2}, nil, "r", held) })
			}
			if held, err := h.Conflicts(ctx, boss, nil, nil, "r", nil); err != nil || len(held) > 0 {
				t.Errorf("their holder is told of %d leases: %v", len(held), err)
			}
		})
		return does
	}
	few, many := most(600), most(1200)
	for what, n := range few {
		if many[what] > n {
			t.Errorf("%s: a transaction reads %d rows with 600 leased files, and %d with 1200", what, n, many[what])
		}
	}
}

// Whoever asks about an actor that holds many leases, or about a layer of a run
// with many, makes nobody wait for longer than if there were few.
func TestNoCallReadsAllThatLivesUnderTheLock(t *testing.T) {
	most := func(many int) map[string]int64 {
		reads := make(map[string]int64)
		inCountedHouse(t, func(t *testing.T, h *house, count *countedEngine) {
			boss := h.member(dispatch.Root, "", "boss", 1)
			w := h.member(dispatch.Worker, "", "W1", 2)
			for i := range many {
				h.take(w, dispatch.RunScope, fmt.Sprint("k", i), time.Hour)
				h.add(dispatch.Sublead, "", fmt.Sprint("S", i))
			}
			measure := func(what string, call func() error) {
				t.Helper()
				count.most.Store(0)
				if err := call(); err != nil {
					t.Errorf("%s: %v", what, err)
				}
				reads[what] = count.most.Load()
			}
			ctx := t.Context()
			measure("actor_status", func() error { _, err := boss.Status(ctx, "W1"); return err })
			measure("actor_wait", func() error { _, _, err := boss.Await(ctx, "", []string{"W1"}, true, time.Millisecond); return err })
			measure("lease check", func() error { _, err := h.CheckToken(ctx, "r", "", dispatch.LayerScope, "x", 1); return err })
			measure("store", func() error { _, err := h.RunStore(ctx, "r", ""); return err })
			measure("revoke", func() error {
				_, err := h.Revoke(ctx, "r", dispatch.Revocation{Key: "x", Scope: dispatch.LayerScope, Reason: "r"})
				return err
			})
			measure("end of a sub-agent", func() error { return w.EndParty(ctx, "p") })

			// All that was lost in the last hour can be asked for.
			loser := h.member(dispatch.Worker, "", "W2", 3)
			for i := range many {
				h.take(loser, dispatch.RunScope, fmt.Sprint("lost", i), time.Second)
			}
			time.Sleep(2 * time.Second)
			for more := 1; more > 0; {
				var err error
				if _, more, err = loser.TakeNotices(ctx, "", dispatch.Model); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(2 * time.Minute) // what was told has been read
			h.take(loser, dispatch.RunScope, "last", time.Second)
			time.Sleep(2 * time.Second)
			if list, _, err := loser.TakeNotices(ctx, "", dispatch.Model); err != nil || len(list) != 1 {
				t.Errorf("told of %d leases: %v", len(list), err)
			}
			measure("an answer that nobody reads", func() error { return loser.Retell(ctx) })
			if list, _, err := loser.TakeNotices(ctx, "", dispatch.Model); err != nil || len(list) != 1 {
				t.Errorf("told again of %d leases: %v", len(list), err)
			}
		})
		return reads
	}
	few, many := most(300), most(800)
	for what, n := range few {
		if many[what] > n {
			t.Errorf("%s: a transaction reads %d rows with 300 leases and layers, and %d with 800", what, n, many[what])
		}
	}
}

// A page of the leases of a run costs what it shows, and not what else is in the run:
// whoever lists a hundred thousand of them asks for a hundred pages.
func TestAPageOfLeasesReadsWhatItShows(t *testing.T) {
	read := func(many int) (rows int64) {
		inCountedHouse(t, func(t *testing.T, h *house, count *countedEngine) {
			boss := h.member(dispatch.Root, "", "boss", 1)
			for i := range 20 {
				h.take(boss, dispatch.RunScope, fmt.Sprintf("k%02d", i), time.Hour)
			}
			h.take(boss, dispatch.LayerScope, "x", time.Hour)
			for i := range many {
				h.add(dispatch.Sublead, "", fmt.Sprint("S", i))
			}
			both := []dispatch.Scope{dispatch.RunScope, dispatch.LayerScope}
			var keys []string
			for after := ""; ; {
				page, err := h.RunLeases(t.Context(), "r", "", dispatch.LeaseQuery{Scopes: both, After: after, Limit: 10})
				if err != nil {
					t.Fatal(err)
				}
				for _, l := range page.Leases {
					keys = append(keys, l.Key)
				}
				if after = page.Next; after == "" {
					break
				}
				rows = max(rows, count.snapshot.Load())
			}
			if len(keys) != 21 || keys[0] != "k00" || keys[20] != "x" {
				t.Errorf("the pages have %q", keys)
			}
		})
		return rows
	}
	if few, many := read(20), read(100); many > few {
		t.Errorf("a page reads %d rows with 20 layers, and %d with 100", few, many)
	}
}

// What is asked about the agents of a run reads, under the lock, at most one row for
// each that is no concern of it: the index of those that have not finished.
func TestALargeTreeOfAgentsHoldsUpNobody(t *testing.T) {
	const few, many = 20, 60
	most := func(agents int) map[string]int64 {
		reads := make(map[string]int64)
		inCountedHouse(t, func(t *testing.T, h *house, count *countedEngine) {
			measure := func(what string, call func() error) {
				t.Helper()
				count.most.Store(0)
				if err := call(); err != nil {
					t.Errorf("%s: %v", what, err)
				}
				reads[what] = count.most.Load()
			}
			tr := h.started()
			ctx, boss := t.Context(), tr.cast["root"]
			var paths []string
			var ids []uuid.UUID
			for range agents {
				a := tr.spawn("root", dispatch.Spawn{Role: dispatch.Worker})
				paths, ids = append(paths, a.Path), append(ids, a.ID)
			}
			measure("the next orders", func() error {
				if o := tr.start(); len(o.Launch) != 16 {
					t.Errorf("%d of %d are launched at once", len(o.Launch), agents)
				}
				return nil
			})
			for range agents / 16 {
				tr.start()
			}
			measure("results", func() error { _, err := h.RunResults(ctx, tr.op, "r", ids); return err })
			measure("actor_wait", func() error { _, _, err := boss.Await(ctx, "", paths, true, time.Millisecond); return err })
			count.updates.Store(0)
			_, err := boss.Spawn(ctx, dispatch.Spawn{
				Role: dispatch.Sublead, Prompt: "x", InitialRef: map[string]json.RawMessage{"a": json.RawMessage("[1")},
			})
			if !names("initial_ref")(err) || count.updates.Load() != 0 {
				t.Errorf("initial_ref that is no JSON: %v, after %d transactions", err, count.updates.Load())
			}
			measure("a launcher that is away", func() error {
				h.hangUp(tr.op)
				time.Sleep(5 * time.Second)
				return nil
			})
		})
		return reads
	}
	a, b := most(few), most(many)
	for what, n := range a {
		if b[what] > n+many-few {
			t.Errorf("%s: a transaction reads %d rows with %d agents, and %d with %d", what, n, few, b[what], many)
		}
	}
}

// Who drains a run with many agents, and stops them, holds up nobody for longer than with
// few: besides the index, a transaction reads the rows of some of them.
func TestADrainStopsAgentsInSteps(t *testing.T) {
	const few, many = 150, 250
	most := func(agents int) (rows int64) {
		inCountedHouse(t, func(t *testing.T, h *house, count *countedEngine) {
			tr := h.started()
			for range agents {
				tr.spawn("root", dispatch.Spawn{Role: dispatch.Worker})
			}
			for len(tr.start().Launch) > 0 {
			}
			count.most.Store(0)
			if left, err := h.DrainRun(t.Context(), tr.op, "r", "enough", true); err != nil || left != agents+1 {
				t.Errorf("%d agents are left: %v", left, err)
			}
			rows = count.most.Load()
		})
		return rows
	}
	if a, b := most(few), most(many); b > a+2*(many-few) {
		t.Errorf("a transaction reads %d rows with %d agents, and %d with %d", a, few, b, many)
	}
}

// A listing of leases finds the layers of a run without reading its workers, most of
// which have ended in a run that has lasted for long: each costs a row of the index.
func TestAListingOfLeasesReadsNoWorkers(t *testing.T) {
	read := func(many int) (rows int64) {
		inCountedHouse(t, func(t *testing.T, h *house, count *countedEngine) {
			h.add(dispatch.Root, "", "boss")
			h.take(h.member(dispatch.Sublead, "", "S1", 1), dispatch.LayerScope, "x", time.Hour)
			for i := range many {
				h.add(dispatch.Worker, []string{"", "S1"}[i%2], fmt.Sprint("W", i))
			}
			page, err := h.RunLeases(t.Context(), "r", "", dispatch.LeaseQuery{Scopes: []dispatch.Scope{dispatch.RunScope, dispatch.LayerScope}, Limit: 10})
			if err != nil || len(page.Leases) != 1 || page.Leases[0].Layer != "S1" {
				t.Errorf("the page has %v: %v", page.Leases, err)
			}
			rows = count.snapshot.Load()
		})
		return rows
	}
	if few, many := read(20), read(100); many-few > 80 {
		t.Errorf("a listing reads %d rows with 20 workers, and %d with 100", few, many)
	}
}

// A page of actors costs what it shows: not what they hold, and not how many come
// before it.
func TestAPageOfActorsReadsWhatItShows(t *testing.T) {
	read := func(many int) map[string]int64 {
		rows := make(map[string]int64)
		inCountedHouse(t, func(t *testing.T, h *house, count *countedEngine) {
			_, token := h.add(dispatch.Root, "", "boss")
			boss := h.connect(dispatch.Credentials{Token: token}, 1)
			_, token = h.add(dispatch.Sublead, "", "S1")
			lead := h.connect(dispatch.Credentials{Token: token}, 2)
			var w *dispatch.Session
			for i := range many {
				_, token = h.add(dispatch.Worker, "S1", fmt.Sprintf("W%03d", i))
				if i == 0 {
					w = h.connect(dispatch.Credentials{Token: token}, 3)
				}
			}
			h.add(dispatch.Worker, "", "T1")
			for i := range many {
				h.take(w, dispatch.RunScope, fmt.Sprint("k", i), time.Hour)
				h.take(w, dispatch.LayerScope, fmt.Sprint("k", i), time.Hour)
			}
			pages := func(who string, held int, list func(after string) ([]dispatch.ActorInfo, string, error)) {
				t.Helper()
				var paths []string
				for after := ""; ; {
					infos, next, err := list(after)
					if err != nil {
						t.Fatal(who, err)
					}
					for _, a := range infos {
						if paths = append(paths, a.Path); a.Name == "W000" && (a.Leases != held || len(a.Holds) != 8) {
							t.Errorf("%s is told that %s holds %d leases, as %d, want %d", who, a.Path, a.Leases, len(a.Holds), held)
						}
					}
					rows[who] = max(rows[who], count.snapshot.Load())
					if after = next; after == "" {
						break
					}
				}
				var want []string
				if who == "root" || who == "the operator" {
					want = append(want, "root")
				}
				want = append(want, "S1")
				for i := range many {
					want = append(want, fmt.Sprintf("S1→W%03d", i))
				}
				if who == "root" || who == "the operator" {
					want = append(want, "T1")
				}
				if !slices.Equal(paths, want) {
					t.Errorf("%s sees %q", who, paths)
				}
			}
			by := func(se *dispatch.Session) func(string) ([]dispatch.ActorInfo, string, error) {
				return func(after string) ([]dispatch.ActorInfo, string, error) { return se.Actors(t.Context(), after, 4) }
			}
			pages("root", many, by(boss))
			pages("its lead", 2*many, by(lead))
			pages("a worker", 2*many, by(w))
			pages("the operator", 2*many, func(after string) (list []dispatch.ActorInfo, next string, err error) {
				page, err := h.RunsAfter(t.Context(), dispatch.RunQuery{After: after, Limit: 4})
				for _, r := range page.Runs {
					list = append(list, r.Actors...)
				}
				return list, page.Next, err
			})
			for _, gone := range []string{"S2", "S1→W", "S1→W000→x", "T1"} {
				if _, _, err := lead.Actors(t.Context(), gone, 4); !names("after")(err) {
					t.Errorf("a page behind %s: %v", gone, err)
				}
			}
			_, token = h.add(dispatch.Worker, "", "T2")
			outside := h.connect(dispatch.Credentials{Token: token}, 4)
			if _, _, err := outside.Actors(t.Context(), "S1→W000", 4); !names("after")(err) {
				t.Errorf("a page behind an actor of another layer: %v", err)
			}
		})
		return rows
	}
	few, many := read(20), read(60)
	for who, n := range few {
		if many[who] > n {
			t.Errorf("a page for %s reads %d rows with 20 actors and leases, and %d with 60", who, n, many[who])
		}
	}
}

// A spawn in a resumed run that gives no name looks, under the lock, at no agents of the
// earlier life with other orders.
func TestASpawnLooksAtNoOtherAgentsUnderTheLock(t *testing.T) {
	most := func(agents int) (rows int64) {
		inCountedHouse(t, func(t *testing.T, h *house, count *countedEngine) {
			tr := h.started()
			for i := range agents {
				tr.spawn("root", dispatch.Spawn{Role: dispatch.Worker, Prompt: fmt.Sprint(i)})
			}
			tr.die()
			next, _, err := tr.again(resume(work.Settings{}))
			if err != nil {
				t.Fatal(err)
			}
			next.start()
			spawn := func(prompt, path string) {
				t.Helper()
				count.most.Store(0)
				if made := next.spawn("root", dispatch.Spawn{Role: dispatch.Worker, Prompt: prompt}); made.Path != path {
					t.Errorf("the agent with prompt %s is %s, want %s", prompt, made.Path, path)
				}
				rows = max(rows, count.most.Load())
			}
			spawn(fmt.Sprint(agents-1), fmt.Sprint("W", agents))
			spawn("another", fmt.Sprint("W", agents+1))
			spawn("0", "W1")
		})
		return rows
	}
	if few, many := most(10), most(40); many > few {
		t.Errorf("a spawn reads %d rows with 10 earlier agents, and %d with 40", few, many)
	}
}

// What an actor that has lost much is told of it holds up nobody: the watch for notices
// reads it without the lock, and an answer looks up only the leases that it tells of.
func TestManyLossesAreToldWithoutHoldingUpOthers(t *testing.T) {
	inCountedHouse(t, func(t *testing.T, h *house, count *countedEngine) {
		boss := h.member(dispatch.Root, "", "boss", 1)
		const many = 600
		for i := range many {
			h.take(boss, dispatch.RunScope, fmt.Sprint("k", i), time.Second)
		}
		time.Sleep(5 * time.Second)
		heard := make(map[string]int)
		var watching sync.WaitGroup
		defer watching.Wait()
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		follow := boss.WatchNotices()
		watching.Go(func() { follow(ctx, func(n registry.Notice) { heard[n.Key]++ }) })
		synctest.Wait()
		for i := range 3 {
			h.take(boss, dispatch.RunScope, fmt.Sprint("last", i), time.Second)
			count.most.Store(0)
			time.Sleep(3 * time.Second)
			if most := count.most.Load(); most > 100 {
				t.Errorf("with %d losses, %d rows are read under the lock for one more", many, most)
			}
		}
		synctest.Wait()
		if len(heard) != many+3 || slices.Max(slices.Collect(maps.Values(heard))) > 1 {
			t.Errorf("of %d losses it hears %d: %v", many+3, len(heard), heard)
		}
		count.most.Store(0)
		list, more, err := boss.TakeNotices(t.Context(), "", dispatch.Model)
		if err != nil || len(list) != dispatch.MaxNotices || len(list)+more != many+3 {
			t.Errorf("an answer tells of %d losses and of %d more: %v", len(list), more, err)
		}
		if most := count.most.Load(); most > 2*many+300 {
			t.Errorf("an answer reads %d rows under the lock to tell of %d losses of %d", most, len(list), many)
		}
	})
}

// Those who follow what changes in a run read each of its events once, all of them
// together. Each learns when what it follows changed.
func TestManyWhoFollowReadTheEventsOnce(t *testing.T) {
	inCountedHouse(t, func(t *testing.T, h *house, count *countedEngine) {
		boss := h.member(dispatch.Root, "", "boss", 1)
		since, err := boss.Revision(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		const followers, events, looks = 50, 3*dispatch.MaxEventList - 100, 3
		first, leave := boss.Follow(since)
		for range followers - 1 {
			c, leave := boss.Follow(since)
			defer leave()
			if c != first {
				t.Error("each has changes of its own")
			}
		}
		h.take(boss, dispatch.RunScope, "first", time.Hour)
		taken, err := boss.Revision(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		last := h.enqueued(boss, events-1, func(int) string { return "q" })
		before, pages := count.snapshot.Load(), 0
		for range followers {
			for more := true; more; pages++ {
				if _, more, err = first.Read(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
		}
		if read := count.snapshot.Load() - before; read > events+5*looks || pages != followers+looks-1 {
			t.Errorf("%d events are read as %d rows in %d looks of %d who follow", events, read, pages, followers)
		}
		for topic, want := range map[dispatch.Topic]uint64{{}: taken, {Queue: "q"}: last, {Queue: "quiet"}: since, {Layer: "boss"}: since} {
			if got := first.Of(topic); got != want {
				t.Errorf("%v changed at %d, and not at %d", topic, got, want)
			}
		}
		leave()
	})
}

// However many topics change, they take little memory, and no change is missed.
func TestTopicsThatChangeAreBounded(t *testing.T) {
	inCountedHouse(t, func(t *testing.T, h *house, _ *countedEngine) {
		boss := h.member(dispatch.Root, "", "boss", 1)
		since, err := boss.Revision(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		changes, leave := boss.Follow(since)
		defer leave()
		const many = 10_000
		last := h.enqueued(boss, many, func(i int) string { return fmt.Sprint("q", i) })
		for more := true; more; {
			if _, more, err = changes.Read(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		for i := range uint64(many) {
			q := dispatch.Topic{Queue: fmt.Sprint("q", i)}
			if at, got := last-many+1+i, changes.Of(q); got < at {
				t.Errorf("%v changed at %d, and is said to have changed at %d", q, at, got)
			}
		}
		if changes.Of(dispatch.Topic{Queue: "quiet"}) <= since {
			t.Error("all topics are kept")
		}
	})
}

// enqueued records that so many tasks were enqueued in the run of a session, each in
// a queue, and returns the revision of the last.
func (h *house) enqueued(se *dispatch.Session, many int, queue func(i int) string) (last uint64) {
	h.t.Helper()
	runs, err := h.Runs(h.t.Context(), se.Actor().Run)
	if err != nil {
		h.t.Fatal(err)
	}
	run := runs[0].Run
	if err := h.eng.Update(h.t.Context(), func(tx engine.Tx) error {
		for i := range many {
			event.Record(tx, run.ID, event.Event{Kind: event.TaskEnqueued, Queue: queue(i), Key: "t"})
		}
		last = event.NumbersOf(tx).Revision
		return nil
	}); err != nil {
		h.t.Fatal(err)
	}
	return last
}

// A hook finds the sessions of its client without reading the processes of all others:
// with five hundred clients that took the daemon longer than a hook waits.
func TestAHookReadsNoProcessOfOtherClients(t *testing.T) {
	inHouse(t, dispatch.Options{}, func(t *testing.T, h *house) {
		var reads atomic.Int64
		find := h.opts.Process
		h.opts.Process = func(pid int) process.Running { reads.Add(1); return find(pid) }
		h.close()
		h.open()
		_, token := h.add(dispatch.Root, "", "boss")
		const clients = 50
		for client := 1001; client <= 1000+clients; client++ {
			h.alive.Store(client, true)
			h.family.Store(client+1000, process.Running{Parent: client})
			h.connect(dispatch.Credentials{Token: token}, client+1000)
		}
		h.SessionsOf(1001) // reads each of them once
		for client := 1001; client <= 1000+clients; client++ {
			reads.Store(0)
			list := h.SessionsOf(client)
			if len(list) != 1 || list[0].Peer().PID != client+1000 {
				t.Fatalf("client %d has %d sessions, want that of its shim", client, len(list))
			}
			if n := reads.Load(); n > 2 {
				t.Errorf("finding the session of client %d reads %d processes", client, n)
			}
		}
	})
}

// An answer reads no shared state if there is nothing to tell its reader, nor if there is
// only what a program leaves for a model. It writes nothing to find that out.
func TestAnAnswerThatTellsNothingReadsNothing(t *testing.T) {
	inCountedHouse(t, func(t *testing.T, h *house, count *countedEngine) {
		_, token := h.add(dispatch.Root, "", "boss")
		last := h.connect(dispatch.Credentials{Token: token}, 1)
		se := h.connect(dispatch.Credentials{Token: token}, 2)
		answer := func(by dispatch.Audience) (told int, read bool) {
			t.Helper()
			synctest.Wait()
			count.most.Store(-1)
			losses, _, err := se.TakeNotices(t.Context(), "", by)
			if err != nil {
				t.Error(err)
			}
			messages, _, err := se.TakeMessages(t.Context(), "")
			if err != nil {
				t.Error(err)
			}
			return len(losses) + len(messages), count.most.Load() >= 0
		}
		quiet := func(when string, by dispatch.Audience) {
			t.Helper()
			synctest.Wait() // for what the state itself writes after it was opened
			before := count.updates.Load()
			answer(by) // the first may look whether there is something
			told, read := answer(by)
			if wrote := count.updates.Load() != before; told > 0 || read || wrote {
				t.Errorf("%s: an answer tells %d things, reads: %t, and writes: %t", when, told, read, wrote)
			}
		}
		quiet("nothing has happened", dispatch.Model)
		h.take(last, dispatch.RunScope, "x", time.Minute)
		h.hangUp(last)
		quiet("an earlier session has lost a lease", dispatch.Program)
		for _, want := range []int{1, 0} {
			if told, _ := answer(dispatch.Model); told != want {
				t.Errorf("a model is told %d things, want %d", told, want)
			}
		}
		quiet("all has been told", dispatch.Model)
		h.hangUp(se)
	})
}
