package dispatch_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/process"
	"github.com/leasehold/leasehold/dispatch/work"
	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/clock"
	"github.com/leasehold/leasehold/layer"
	"github.com/leasehold/leasehold/queue"
	"github.com/leasehold/leasehold/registry"
)

// A tree that is larger than what one transaction does ends as a small one does:
// nobody of it is handed a lease, and all that it held is free.
func TestALargeTreeEndsInSteps(t *testing.T) {
	inHouse(t, dispatch.Options{}, func(t *testing.T, h *house) {
		h.add(dispatch.Root, "", "boss")
		_, outside := h.add(dispatch.Worker, "", "outside")
		waiting := h.connect(dispatch.Credentials{Token: outside}, 50)
		h.add(dispatch.Sublead, "", "S1")
		h.add(dispatch.Sublead, "S1", "S2")
		const n = 150
		pid := 1000
		var first *dispatch.Session
		var all []*dispatch.Session
		for _, lead := range []string{"S1", "S1→S2"} {
			for i := range n {
				_, token := h.add(dispatch.Worker, lead, fmt.Sprintf("w%d", i))
				pid++
				se := h.connect(dispatch.Credentials{Token: token}, pid)
				h.take(se, dispatch.RunScope, fmt.Sprintf("%s %d", lead, i), time.Minute)
				all = append(all, se)
			}
		}
		first = all[0]
		h.take(first, dispatch.RunScope, "wanted", time.Minute)
		granted := make(chan string, 3)
		for _, se := range []*dispatch.Session{all[n+n-1], all[n/2], waiting} {
			go func() {
				if _, err := se.Acquire(context.Background(), dispatch.RunScope, request("wanted", 40*time.Second)); err == nil {
					granted <- se.Actor().Path
				}
			}()
			synctest.Wait()
		}
		if err := h.EndActor(t.Context(), "r", "S1", "enough"); err != nil {
			t.Fatal(err)
		}
		if path := <-granted; path != "outside" {
			t.Errorf("the lease went to %s, which ended with its holder", path)
		}
		for _, se := range all {
			if se.Context().Err() == nil {
				t.Fatalf("%s lives on", se.Actor().Path)
			}
		}
		if n := h.leases(); n != 1 {
			t.Errorf("%d leases are left", n)
		}
		h.noRows("ending/")
	})
}

// A restart in the middle of an end goes on with it.
func TestARestartGoesOnWithWhatWasEnding(t *testing.T) {
	inHouse(t, dispatch.Options{}, func(t *testing.T, h *house) {
		h.add(dispatch.Root, "", "boss")
		h.add(dispatch.Sublead, "", "S1")
		for i := range 100 {
			h.add(dispatch.Worker, "S1", fmt.Sprintf("w%d", i))
		}
		se := h.member(dispatch.Worker, "S1", "last", 50)
		h.take(se, dispatch.RunScope, "x", time.Hour)
		s1 := h.actorAt("S1")
		// What the first transaction leaves: the lead has ended, nobody below.
		err := h.eng.Update(t.Context(), func(tx engine.Tx) error {
			tx.Put(engine.Row{Key: "ending/1" + string(s1.ID[:]), Value: fmt.Sprintf(`{"Cause":"enough","Stop":{"Status":"cancelled"},"Actor":%q,"Layer":%q}`, s1.ID, s1.Leads)})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		h.crash()
		time.Sleep(time.Second)
		synctest.Wait()
		for i := range 100 {
			if !h.actorAt(fmt.Sprintf("S1→w%d", i)).Ended() {
				t.Fatalf("w%d lives on", i)
			}
		}
		if n := h.leases(); n != 0 {
			t.Errorf("%d leases are left", n)
		}
		h.noRows("ending/")
	})
}

// The name of an actor that has ended can be another's; the one before is found
// by its id.
func TestANameCanBeUsedAgain(t *testing.T) {
	inHouse(t, dispatch.Options{}, func(t *testing.T, h *house) {
		_, rootToken := h.add(dispatch.Root, "", "boss")
		root := h.connect(dispatch.Credentials{Token: rootToken}, 50)
		before, _ := h.add(dispatch.Sublead, "", "S1")
		h.add(dispatch.Worker, "S1", "W1")
		if _, _, err := h.AddActor(t.Context(), dispatch.NewActor{Run: "r", Name: "S1", Role: dispatch.Worker}); !errors.Is(err, dispatch.ErrExists) {
			t.Errorf("the name of one who lives: %v", err)
		}
		if err := h.EndActor(t.Context(), "r", "S1", "done"); err != nil {
			t.Fatal(err)
		}
		now, _ := h.add(dispatch.Worker, "", "S1")
		if o, err := root.Status(t.Context(), "S1"); err != nil || o.ID != now.ID {
			t.Errorf("by its name: %+v %v", o, err)
		}
		if o, err := root.Status(t.Context(), before.ID.String()); err != nil || !o.Ended() || o.EndCause != "done" {
			t.Errorf("the one before, by its id: %+v %v", o, err)
		}
		if err := h.EndActor(t.Context(), "r", "root", "all done"); err != nil {
			t.Fatal(err)
		}
		if err := h.RemoveRun(t.Context(), "r"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		h.noRows("")
	})
}

// A run that has ended is removed on request, with all it has, and one that
// lives is not.
func TestARunIsRemovedOnRequest(t *testing.T) {
	inHouse(t, dispatch.Options{}, func(t *testing.T, h *house) {
		if err := h.RemoveRun(t.Context(), "r"); !errors.Is(err, dispatch.ErrNotFound) {
			t.Errorf("a run that is not there: %v", err)
		}
		se := h.member(dispatch.Root, "", "boss", 50)
		view, err := se.Store(t.Context(), dispatch.SelfLayer)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 500 {
			if _, err := view.Set(t.Context(), layer.Write{Path: fmt.Sprintf("/shared/%d", i), Value: []byte(`1`)}); err != nil {
				t.Fatal(err)
			}
		}
		tasks, err := se.Tasks()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tasks.Enqueue(t.Context(), queue.NewTask{Queue: "q", Payload: []byte("1")}); err != nil {
			t.Fatal(err)
		}
		for i := range 300 {
			h.add(dispatch.Worker, "", fmt.Sprintf("w%d", i))
		}
		if err := h.RemoveRun(t.Context(), "r"); !isForbidden(err) || !strings.Contains(err.Error(), "leasehold actor end --run r root") {
			t.Errorf("a run that lives: %v", err)
		}
		if err := h.EndActor(t.Context(), "r", "root", "done"); err != nil {
			t.Fatal(err)
		}
		if err := h.RemoveRun(t.Context(), "r"); err != nil {
			t.Fatal(err)
		}
		h.add(dispatch.Root, "", "another") // at once: the name is free
		synctest.Wait()
		if runs, err := h.Runs(t.Context(), "r"); err != nil || len(runs) != 1 || len(runs[0].Actors) != 1 {
			t.Errorf("the next run of that name: %+v %v", runs, err)
		}
		if err := h.EndActor(t.Context(), "r", "root", "done"); err != nil {
			t.Fatal(err)
		}
		if err := h.RemoveRun(t.Context(), "r"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second) // its queue is due
		synctest.Wait()
		h.noRows("")
	})
}

// short keeps what has ended for as long as a test may wait: the engine looks at
// the clocks once a second.
var short = dispatch.Retention{Runs: 3 * time.Hour, Actors: time.Hour}

// What has ended is forgotten in time, an actor and then its run, and not before.
func TestWhatHasEndedIsForgotten(t *testing.T) {
	inHouse(t, dispatch.Options{Keep: short}, func(t *testing.T, h *house) {
		h.add(dispatch.Root, "", "boss")
		h.add(dispatch.Sublead, "", "S1")
		w1, token := h.add(dispatch.Worker, "S1", "W1")
		view, err := h.connect(dispatch.Credentials{Token: token}, 50).Store(t.Context(), dispatch.SelfLayer)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := view.Set(t.Context(), layer.Write{Path: "/peer/self/notes", Value: []byte(`1`)}); err != nil {
			t.Fatal(err)
		}
		if err := h.EndActor(t.Context(), "r", "S1", "done"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(50 * time.Minute)
		if len(h.tree()) != 3 {
			t.Errorf("after 50 min: %v", h.tree())
		}
		time.Sleep(25 * time.Minute)
		if got := h.tree(); len(got) != 1 {
			t.Errorf("after 75 min: %v", got)
		}
		for _, row := range h.rows() {
			if strings.Contains(row.Key, string(w1.ID[:])) || strings.Contains(row.Key, "notes") {
				t.Errorf("left: %q %q", row.Key, row.Value)
			}
		}
		if err := h.EndActor(t.Context(), "r", "root", "done"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(170 * time.Minute)
		if len(h.tree()) != 1 {
			t.Error("the run was forgotten before its time")
		}
		time.Sleep(30 * time.Minute)
		h.noRows("")
	})
}

// TestRetentionMayChange from one start of the daemon to the next, and then holds
// for what has ended before: longer and shorter.
func TestRetentionMayChange(t *testing.T) {
	inHouse(t, dispatch.Options{Keep: short}, func(t *testing.T, h *house) {
		h.add(dispatch.Root, "", "boss")
		h.add(dispatch.Worker, "", "W1")
		h.add(dispatch.Worker, "", "W2")
		end := func(path string) {
			t.Helper()
			if err := h.EndActor(t.Context(), "r", path, "done"); err != nil {
				t.Fatal(err)
			}
		}
		keep := func(k dispatch.Retention) {
			h.opts.Keep = k
			h.close()
			h.open()
			time.Sleep(11 * time.Minute) // nothing is forgotten before that
		}
		end("W1")
		keep(dispatch.Retention{Runs: 9 * time.Hour, Actors: 5 * time.Hour})
		time.Sleep(225 * time.Minute)
		if got := h.tree(); len(got) != 3 {
			t.Errorf("after 4 of 5 hours: %v", got)
		}
		end("W2")
		keep(dispatch.Retention{Runs: 9 * time.Hour, Actors: 2 * time.Hour})
		if got := h.tree(); len(got) != 2 {
			t.Errorf("after 4 of 2 hours: %v", got)
		}
		end("root")
		time.Sleep(4 * time.Hour)
		if got := h.tree(); len(got) != 2 {
			t.Errorf("4 of 9 hours after the run: %v", got)
		}
		keep(short)
		h.noRows("")
	})
}

var heapTells = true // how much lives

var endedRuns = flag.Int("ended.runs", 1000, "how many runs TestEndedRunsLeaveNothing makes and ends")

// After any number of runs that were made and have ended, the state has as many
// rows as after ten, as large a heap, and is about as large.
func TestEndedRunsLeaveNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("makes a thousand runs")
	}
	runs := *endedRuns
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		h := &house{t: t, opts: dispatch.Options{Keep: short}}
		h.opts.Alive = func(process.Peer) bool { return true }
		h.opts.Process = func(pid int) process.Running { return process.Running{Peer: process.Peer{PID: pid, Start: "1"}} }
		h.openAt(dir, vfs.Default)
		defer func() { h.close() }()
		type size struct {
			rows          int
			running, heap uint64 // KiB, before the restart and after it
			disk          int64  // KiB
			open          time.Duration
		}
		figures := func(n int) (s size) {
			synctest.Wait()
			time.Sleep(5 * time.Hour)
			synctest.Wait()
			s.rows = len(h.rows())
			s.running = heap()
			h.close()
			machine := clock.Machine() // time is a fake here
			began := machine.Running()
			h.openAt(dir, vfs.Default)
			s.open = machine.Running() - began
			synctest.Wait() // the store has removed the logs that it kept to use again
			s.disk = diskUsage(t, dir)
			s.heap = heap()
			t.Logf("after %5d runs: %d rows, %d KiB of state, opened in %v, heap %d KiB, %d KiB before it was opened again",
				n, s.rows, s.disk, s.open.Round(time.Microsecond), s.heap, s.running)
			return s
		}
		round := func(from, to int) {
			for i := from; i < to; i++ {
				name := fmt.Sprintf("run-%d", i)
				se, err := h.Connect(t.Context(), dispatch.Credentials{Run: name, Name: "w"}, process.Peer{PID: 100 + i, Start: "1", Transport: "unix"})
				if err != nil {
					t.Fatal(err)
				}
				h.take(se, dispatch.RunScope, "x", time.Minute)
				if err := h.EndActor(t.Context(), name, "root", "done"); err != nil {
					t.Fatal(err)
				}
			}
		}
		round(0, 10)
		few := figures(10)
		round(10, runs)
		many := figures(runs)
		if many.rows > few.rows {
			t.Errorf("%d rows after 10 runs, %d after %d", few.rows, many.rows, runs)
		}
		if many.disk > few.disk+16<<10 {
			t.Errorf("%d KiB of state after 10 runs, %d after %d", few.disk, many.disk, runs)
		}
		if heapTells && (many.heap > few.heap+1<<10 || many.running > few.running+1<<10) {
			t.Errorf("after 10 runs the heap has %d KiB, and %d when it is opened again; after %d: %d and %d",
				few.running, few.heap, runs, many.running, many.heap)
		}
	})
}

// heap is what is in use, in KiB.
func heap() uint64 {
	runtime.GC()
	runtime.GC() // what the first left to finalizers
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc >> 10
}

// diskUsage is how much the files below dir hold, in KiB.
func diskUsage(t *testing.T, dir string) (kib int64) {
	t.Helper()
	err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		kib += info.Size() >> 10
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return kib
}

// A cancelled actor that comes back learns who cancelled it, why, and what it
// lost, by its token and by its handle.
func TestACancelledActorIsToldSo(t *testing.T) {
	inHouse(t, dispatch.Options{Keep: short}, func(t *testing.T, h *house) {
		_, rootToken := h.add(dispatch.Root, "", "boss")
		root := h.connect(dispatch.Credentials{Token: rootToken}, 50)
		_, token := h.add(dispatch.Worker, "", "W1")
		se := h.connect(dispatch.Credentials{Token: token}, 51)
		h.take(se, dispatch.RunScope, "file:a", time.Minute)
		joined, err := h.Connect(t.Context(), dispatch.Credentials{Run: "r", Name: "guest"}, peerOf(h, 52))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"W1", "guest"} {
			if _, err := root.Cancel(t.Context(), name, "not needed"); err != nil {
				t.Fatal(err)
			}
		}
		check := func(what string, err error, held int) {
			t.Helper()
			var ended *dispatch.EndedError
			if !errors.As(err, &ended) {
				t.Fatalf("%s: %v", what, err)
			}
			if ended.By != "root" || !strings.Contains(ended.Cause, "not needed") || len(ended.Held) != held || !errors.Is(err, dispatch.ErrUnauthenticated) {
				t.Errorf("%s: %+v", what, ended)
			}
		}
		check("the session", context.Cause(se.Context()), 1)
		_, err = h.Connect(t.Context(), dispatch.Credentials{Token: token}, peerOf(h, 51))
		check("by token", err, 1)
		_, err = h.Connect(t.Context(), dispatch.Credentials{Handle: se.Handle(), Token: token}, peerOf(h, 51))
		check("by handle and token", err, 1)
		_, err = h.Connect(t.Context(), dispatch.Credentials{Handle: joined.Handle(), Run: "r", Name: "guest"}, peerOf(h, 52))
		check("one that had joined by itself", err, 0)
		_, err = h.Authenticate(t.Context(), token)
		check("a token alone", err, 1)
		h.crash()
		_, err = h.Connect(t.Context(), dispatch.Credentials{Handle: joined.Handle(), Run: "r", Name: "guest"}, peerOf(h, 52))
		check("after a restart", err, 0)
		if _, err := h.Connect(t.Context(), dispatch.Credentials{Handle: joined.Handle()[:20] + strings.Repeat("A", len(joined.Handle())-20), Run: "r", Name: "guest"}, peerOf(h, 52)); errors.As(err, new(*dispatch.EndedError)) {
			t.Error("a handle with another secret is told of an actor")
		}
		time.Sleep(75 * time.Minute)
		if _, err := h.Connect(t.Context(), dispatch.Credentials{Token: token}, peerOf(h, 51)); errors.As(err, new(*dispatch.EndedError)) || !errors.Is(err, dispatch.ErrUnauthenticated) {
			t.Errorf("after its record is gone: %v", err)
		}
	})
}

// claim has a session enqueue tasks and claim them.
func (h *house) claim(se *dispatch.Session, count int) []queue.Claimed {
	h.t.Helper()
	tasks, err := se.Tasks()
	if err != nil {
		h.t.Fatal(err)
	}
	for range count {
		if _, err := tasks.Enqueue(h.t.Context(), queue.NewTask{Queue: "q", Payload: []byte("1")}); err != nil {
			h.t.Fatal(err)
		}
	}
	claimed, err := tasks.Claim(h.t.Context(), queue.Claim{Queues: []string{"q"}, TTL: time.Minute, Count: count})
	if err != nil || len(claimed) != count {
		h.t.Fatal(len(claimed), err)
	}
	return claimed
}

// Some clients are shown the text of the refusal and nothing else.
func TestACancelledActorReadsWhatItLost(t *testing.T) {
	inHouse(t, dispatch.Options{}, func(t *testing.T, h *house) {
		h.add(dispatch.Root, "", "boss")
		_, token := h.add(dispatch.Worker, "", "W1")
		se := h.connect(dispatch.Credentials{Token: token}, 50)
		for i := range 3 {
			h.take(se, dispatch.RunScope, fmt.Sprint("key", i), time.Minute)
		}
		claimed := h.claim(se, 1)
		if err := h.EndActor(t.Context(), "r", "W1", "enough"); err != nil {
			t.Fatal(err)
		}
		_, err := h.Connect(t.Context(), dispatch.Credentials{Token: token}, peerOf(h, 50))
		if claim := "lost its claim on task " + claimed[0].ID.String(); err == nil || !strings.Contains(err.Error(), claim) {
			t.Errorf("without %s: %v", claim, err)
		}
		for i := range 3 {
			if key := fmt.Sprintf(`"key%d"`, i); err == nil || !strings.Contains(err.Error(), key) {
				t.Errorf("without %s: %v", key, err)
			}
		}
	})
	e := dispatch.EndedError{Path: "W1", Run: "r"}
	for i := range 30 {
		e.Held = append(e.Held, work.LeaseName{Key: fmt.Sprint("key", i)})
	}
	if s := e.Error(); !strings.Contains(s, `"key9" and 20 more are released`) {
		t.Errorf("of many leases: %s", s)
	}
}

// An actor may have many claims. They keep none of its leases out of what its end tells.
func TestManyClaimsHideNoLeaseOfAnEndedActor(t *testing.T) {
	inHouse(t, dispatch.Options{}, func(t *testing.T, h *house) {
		h.add(dispatch.Root, "", "boss")
		_, token := h.add(dispatch.Worker, "", "W1")
		se := h.connect(dispatch.Credentials{Token: token}, 50)
		h.take(se, dispatch.LayerScope, "a", time.Minute)
		h.take(se, dispatch.RunScope, "b", time.Minute)
		h.claim(se, work.MaxLeaseNames)
		if err := h.EndActor(t.Context(), "r", "W1", "enough"); err != nil {
			t.Fatal(err)
		}
		_, err := h.Connect(t.Context(), dispatch.Credentials{Token: token}, peerOf(h, 50))
		if err == nil || !strings.Contains(err.Error(), `its leases "a" and "b" are released; it has lost its claims on tasks`) {
			t.Errorf("it is told %v", err)
		}
	})
}

// A token that is issued anew is the only one, and sessions last.
func TestATokenIsIssuedAnew(t *testing.T) {
	inHouse(t, dispatch.Options{}, func(t *testing.T, h *house) {
		h.add(dispatch.Root, "", "boss")
		_, before := h.add(dispatch.Worker, "", "W1")
		se := h.connect(dispatch.Credentials{Token: before}, 50)
		_, token, err := h.ReissueToken(t.Context(), "r", "W1", 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := h.Connect(t.Context(), dispatch.Credentials{Token: before}, peerOf(h, 51)); !errors.Is(err, dispatch.ErrUnauthenticated) {
			t.Errorf("the token before: %v", err)
		}
		h.connect(dispatch.Credentials{Token: token}, 51)
		h.take(se, dispatch.RunScope, "x", time.Minute)
		if _, _, err := h.ReissueToken(t.Context(), "r", "nobody", 0); !errors.Is(err, dispatch.ErrNotFound) {
			t.Errorf("of nobody: %v", err)
		}
	})
}

// A list of actors tells nobody about the leases of a layer that is not its own.
func TestActorListsAreSilentAboutOtherLayers(t *testing.T) {
	inHouse(t, dispatch.Options{}, func(t *testing.T, h *house) {
		_, rootToken := h.add(dispatch.Root, "", "boss")
		root := h.connect(dispatch.Credentials{Token: rootToken}, 50)
		_, leadToken := h.add(dispatch.Sublead, "", "S1")
		lead := h.connect(dispatch.Credentials{Token: leadToken}, 51)
		w1 := h.member(dispatch.Worker, "S1", "W1", 52)
		peer := h.member(dispatch.Worker, "", "peer", 53)
		h.take(lead, dispatch.LayerScope, "secret", time.Minute)
		h.take(w1, dispatch.LayerScope, "secret too", time.Minute)
		h.take(w1, dispatch.RunScope, "open", time.Minute)
		look := func(se *dispatch.Session) string {
			list, _, err := se.Actors(t.Context(), "", 100)
			if err != nil {
				t.Fatal(err)
			}
			var b strings.Builder
			for _, a := range list {
				fmt.Fprint(&b, a.Path, " ", a.Leases, " ", a.Holds, "; ")
			}
			return b.String()
		}
		for _, se := range []*dispatch.Session{root, peer} {
			if got := look(se); strings.Contains(got, "secret") || strings.Contains(got, "S1 1") || strings.Contains(got, "W1 2") {
				t.Errorf("%s reads %s", se.Actor().Path, got)
			}
		}
		if got := look(root); !strings.Contains(got, "open") {
			t.Errorf("root does not see a lease of the run: %s", got)
		}
		if got := look(w1); !strings.Contains(got, "secret") {
			t.Errorf("a member does not see its own layer: %s", got)
		}
		o, err := root.Status(t.Context(), "S1→W1")
		if err != nil || o.Leases != 1 || len(o.Holds) != 1 {
			t.Errorf("actor_status of another layer's: %+v %v", o, err)
		}
		if err := h.EndActor(t.Context(), "r", "S1→W1", "done"); err != nil {
			t.Fatal(err)
		}
		for se, want := range map[*dispatch.Session]string{root: "[{run open done}]", lead: "[{layer secret too done} {run open done}]"} {
			if o, err := se.Status(t.Context(), "S1→W1"); err != nil || fmt.Sprint(o.Held) != want {
				t.Errorf("%s reads that it held %v at its end, want %s; %v", se.Actor().Path, o.Held, want, err)
			}
		}
	})
}

// An offer to an actor that ends is void, and its holder is shown none.
func TestAnOfferToAnActorThatEndsIsVoid(t *testing.T) {
	inHouse(t, dispatch.Options{}, func(t *testing.T, h *house) {
		root := h.member(dispatch.Root, "", "boss", 50)
		h.add(dispatch.Worker, "", "W1")
		const many = 300 // more than one transaction withdraws
		for i := range many {
			g := h.take(root, dispatch.RunScope, fmt.Sprintf("x%03d", i), time.Minute)
			if _, err := root.Transfer(t.Context(), g.ID, "W1"); err != nil {
				t.Fatal(err)
			}
		}
		if err := h.EndActor(t.Context(), "r", "W1", "done"); err != nil {
			t.Fatal(err)
		}
		page, err := root.Leases(t.Context(), dispatch.LeaseQuery{Scopes: []dispatch.Scope{dispatch.RunScope}, Limit: many})
		if err != nil || len(page.Leases) != many {
			t.Fatalf("%d leases, %v", len(page.Leases), err)
		}
		for _, l := range page.Leases {
			if l.Offer != (registry.Holder{}) {
				t.Errorf("%s is still offered to %s", l.Key, l.Offer.Path)
			}
		}
	})
}

// A record of what is ending that cannot be read keeps nobody else from ending, also
// after a restart.
func TestASpoiltEndingStopsNoOther(t *testing.T) {
	inHouse(t, dispatch.Options{}, func(t *testing.T, h *house) {
		h.add(dispatch.Root, "", "boss")
		h.add(dispatch.Sublead, "", "S1")
		worker := h.member(dispatch.Worker, "S1", "W1", 50)
		h.take(worker, dispatch.RunScope, "x", time.Hour)
		spoilt := []string{"ending/1spoilt", "ending/2spoilt"}
		for _, key := range spoilt {
			h.plantText(key, "{")
		}
		mend := func() { // or the check at the close of a state would find them
			t.Helper()
			for _, key := range spoilt {
				if err := h.eng.Update(t.Context(), func(tx engine.Tx) error { tx.Delete(key); return nil }); err != nil {
					t.Fatal(err)
				}
			}
		}
		fs := h.fs.CrashClone(vfs.CrashCloneCfg{})
		mend()
		h.close()
		h.fs = fs
		h.open()
		if err := h.EndActor(t.Context(), "r", "S1", "done"); err != nil {
			t.Fatal(err)
		}
		h.noRows("lease/")
		proof := h.Check(t.Context())
		for _, key := range spoilt {
			if was := h.plantText(key, ""); was != "{" {
				t.Errorf("the row %s is %q", key, was)
			}
			for who, told := range map[string]error{"the state that was opened": h.Spoilt(), "its proof": proof} {
				if !errors.Is(told, engine.ErrCorrupt) || !strings.Contains(fmt.Sprint(told), key) {
					t.Errorf("%s does not name %s: %v", who, key, told)
				}
			}
		}
		mend()
	})
}

// noRows fails for what is left under prefix but counters that only rise.
func (h *house) noRows(prefix string) {
	h.t.Helper()
	for key := range h.rows() {
		if strings.HasPrefix(key, prefix) && !lasting(key) {
			h.t.Errorf("left: %q", key)
		}
	}
}

// lasting are the rows that are of no run.
func lasting(key string) bool {
	for _, prefix := range []string{"token", "place", "count/places", "clock", "mark", "number", "!", "lost/", "format"} {
		if strings.HasPrefix(key, prefix) {
			return true
		}
	}
	return false
}

// leases are how many there are in the run.
func (h *house) leases() int {
	h.t.Helper()
	page, err := h.RunLeases(h.t.Context(), "r", "", dispatch.LeaseQuery{Scopes: []dispatch.Scope{dispatch.RunScope, dispatch.LayerScope}})
	if err != nil {
		h.t.Fatal(err)
	}
	return len(page.Leases)
}

func (h *house) tree() (paths []string) {
	h.t.Helper()
	runs, err := h.Runs(h.t.Context(), "r")
	if err != nil {
		h.t.Fatal(err)
	}
	for _, a := range runs[0].Actors {
		paths = append(paths, a.Path)
	}
	return paths
}

func (h *house) actorAt(path string) dispatch.Actor {
	h.t.Helper()
	runs, err := h.Runs(h.t.Context(), "r")
	if err != nil {
		h.t.Fatal(err)
	}
	for _, a := range runs[0].Actors {
		if a.Path == path {
			return a.Actor
		}
	}
	h.t.Fatalf("no actor at %s", path)
	return dispatch.Actor{}
}
