package queue_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"path"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/queue"
)

// A ledger is what was acknowledged: the worst that a crash may do to a task is
// what an operation does that was not.
type ledger struct {
	tasks map[uuid.UUID]*acknowledged
	order []uuid.UUID
}

type acknowledged struct {
	payload string
	final   queue.State // 0: it is not finished
	unsure  bool        // an operation failed that may have finished it all the same
	claim   queue.Claimed
	owner   worker
}

func (l *ledger) enqueued(t queue.Task, payload string) {
	l.tasks[t.ID] = &acknowledged{payload: payload}
	l.order = append(l.order, t.ID)
}

// verify finds every acknowledged operation in an opened house, and that what
// is not finished can be finished, once.
func (l *ledger) verify(h *house) {
	h.t.Helper()
	h.check()
	live := 0
	for id, want := range l.tasks {
		d, err := h.Get(context.Background(), h.run, id)
		if err != nil || string(d.Payload) != want.payload {
			h.t.Fatalf("task %s, payload %s: %v", id, d.Payload, err)
		}
		switch {
		case want.final != 0 && d.State != want.final:
			h.t.Fatalf("task %s was %s and is %s", id, want.final, d.State)
		case want.final == queue.Completed && string(d.Result) != want.payload:
			h.t.Fatalf("task %s was submitted with %s and has %s", id, want.payload, d.Result)
		case want.final == 0 && !want.unsure && d.State.Finished():
			h.t.Fatalf("task %s is %s, and nobody finished it", id, d.State)
		case !d.State.Finished():
			live++
		}
	}
	h.drain(live)
}

// drain finishes what is not finished, and finds how much that was. Claims that
// nobody has any more expire on the way.
func (h *house) drain(want int) {
	h.t.Helper()
	time.Sleep(2 * time.Minute) // ttls and backoffs
	synctest.Wait()
	w := h.worker("drain")
	seen := make(map[uuid.UUID]bool)
	for {
		tasks, err := w.ask(queue.Claim{Count: 10})
		if err != nil {
			h.t.Fatal(err)
		}
		if len(tasks) == 0 {
			break
		}
		for _, c := range tasks {
			if seen[c.ID] {
				h.t.Fatalf("task %s was claimed twice", c.ID)
			}
			seen[c.ID] = true
			if err := w.submit(c); err != nil {
				h.t.Fatal(err)
			}
		}
	}
	if len(seen) < want { // what was enqueued without an answer comes on top
		h.t.Fatalf("%d tasks were left to do, and %d came", want, len(seen))
	}
	s, err := h.Stats(context.Background(), h.run, "q")
	if err != nil || s[0].ReadyTotal()+s[0].Delayed+s[0].InProgress > 0 {
		h.t.Fatalf("stuck: %+v %v", s, err)
	}
	h.check()
}

// A crashed is what a crash left, and what must be there.
type crashed struct {
	fs *vfs.MemFS
	*ledger
}

func (l *ledger) copy() *ledger {
	c := &ledger{tasks: make(map[uuid.UUID]*acknowledged)}
	for id, a := range l.tasks {
		c.tasks[id] = new(*a)
	}
	return c
}

func shortBackoff(o *queue.Options) { o.BackoffMax = 5 * time.Second }

// act does the next thing of a life in which everything happens, and enters
// what was acknowledged.
func (l *ledger) act(h *house, rnd *rand.Rand, n int) error {
	ctx := context.Background()
	pick := func(ok func(*acknowledged) bool) (uuid.UUID, *acknowledged) {
		for _, i := range rnd.Perm(len(l.order)) {
			if a := l.tasks[l.order[i]]; ok(a) {
				return l.order[i], a
			}
		}
		return uuid.Nil, nil
	}
	held := func(a *acknowledged) bool { return a.claim.Token != 0 && a.final == 0 }
	done := func(a *acknowledged, final queue.State, err error) error {
		var stale *queue.StaleError
		switch {
		case err == nil:
			a.final = final
		case errors.As(err, &stale):
			a.claim.Token = 0
			return nil
		default:
			a.unsure = true
		}
		return err
	}
	switch op := rnd.IntN(12); {
	case op < 4:
		payload := fmt.Sprint(n)
		t, err := h.Enqueue(ctx, queue.NewTask{
			Run: h.run, Queue: "q", Payload: json.RawMessage(payload), Priority: rnd.IntN(3), MaxAttempts: 100,
			Delay: time.Duration(rnd.IntN(2)) * time.Second, Key: []string{"", payload}[rnd.IntN(2)],
		})
		if err == nil {
			l.enqueued(t, payload)
		}
		return err
	case op < 7:
		w := h.worker("W")
		tasks, err := w.ask(queue.Claim{Count: 1 + rnd.IntN(3), TTL: time.Second, RequestID: []string{"", "r"}[rnd.IntN(2)]})
		for _, c := range tasks {
			if a := l.tasks[c.ID]; a != nil {
				a.claim, a.owner = c, w
			}
		}
		return err
	case op == 7:
		id, a := pick(held)
		if a == nil {
			return nil
		}
		_, err := h.Submit(ctx, a.owner.Holder, h.run, id, a.claim.Token, queue.Completed, json.RawMessage(a.payload))
		return done(a, queue.Completed, err)
	case op == 10:
		var list []queue.NewTask
		for i := range 1 + rnd.IntN(5) {
			list = append(list, queue.NewTask{Run: h.run, Queue: "q", Payload: json.RawMessage(fmt.Sprintf(`"%d.%d"`, n, i)), MaxAttempts: 100})
		}
		tasks, err := h.EnqueueMany(ctx, list)
		for i, t := range tasks {
			l.enqueued(t, string(list[i].Payload))
		}
		return err
	case op == 11:
		_, first := pick(held)
		if first == nil {
			return nil
		}
		var list []queue.Submission
		for _, id := range l.order {
			if a := l.tasks[id]; held(a) && a.owner.Session == first.owner.Session {
				list = append(list, queue.Submission{ID: id, Token: a.claim.Token, State: queue.Completed, Result: json.RawMessage(a.payload)})
			}
		}
		answers, err := h.SubmitMany(ctx, first.owner.Holder, h.run, list)
		for i, s := range list {
			if err != nil {
				l.tasks[s.ID].unsure = true
			} else if err := done(l.tasks[s.ID], queue.Completed, answers[i].Err); err != nil {
				return err
			}
		}
		return err
	case op == 8:
		id, a := pick(func(a *acknowledged) bool { return a.final == 0 && !a.unsure })
		if a == nil || rnd.IntN(3) > 0 {
			return nil
		}
		_, err := h.Cancel(ctx, h.run, id)
		return done(a, queue.Cancelled, err)
	default:
		id, a := pick(held)
		if a == nil {
			time.Sleep(time.Duration(rnd.IntN(3)) * time.Second)
			return nil
		}
		_, err := h.Nack(ctx, a.owner.Holder, h.run, id, a.claim.Token, nil, "")
		return done(a, 0, err)
	}
}

// TestACrashAfterEveryCommitLosesNothingAcknowledged stops a life after each of
// its operations, opens what a crash leaves of the disk there, with all that was
// not synced lost or half of it written, and finds all that was acknowledged.
func TestACrashAfterEveryCommitLosesNothingAcknowledged(t *testing.T) {
	for _, torn := range []int{0, 50} {
		t.Run(fmt.Sprintf("torn=%d%%", torn), func(t *testing.T) {
			s := newSeed(t)
			synctest.Test(t, func(t *testing.T) {
				rnd := rand.New(rand.NewPCG(s, 0))
				h := newHouse(t, shortBackoff)
				defer h.close()
				l := &ledger{tasks: make(map[uuid.UUID]*acknowledged)}
				var crashes []crashed // looked at afterwards, as that takes time, by which claims would end
				for n := range 150 {
					if err := l.act(h, rnd, n); err != nil {
						t.Fatal(err)
					}
					cfg := vfs.CrashCloneCfg{UnsyncedDataPercent: torn, RNG: rnd}
					crashes = append(crashes, crashed{h.fs.CrashClone(cfg), l.copy()})
				}
				for _, c := range crashes {
					after := &house{t: t, fs: c.fs, run: h.run, opts: h.opts, ended: h.ended}
					after.open()
					c.verify(after)
					after.close()
				}
			})
		})
	}
}

// TestACrashWithinACommitLosesNothingAcknowledged is the same at instants that
// no operation ends at: several are under way when the disk is copied.
func TestACrashWithinACommitLosesNothingAcknowledged(t *testing.T) {
	s := newSeed(t)
	for round := range 20 {
		synctest.Test(t, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(s, uint64(round)))
			h := newHouse(t, shortBackoff)
			l := &ledger{tasks: make(map[uuid.UUID]*acknowledged)}
			ctx, cancel := context.WithCancel(context.Background())
			var copies atomic.Int64
			type done struct {
				task    queue.Task
				payload string
				final   queue.State
			}
			answered := make(chan done, 10_000)
			left := make(chan struct{})
			go func() {
				defer close(left)
				for n := 0; ctx.Err() == nil; n++ {
					payload := fmt.Sprint(n)
					task, err := h.Enqueue(ctx, queue.NewTask{Run: h.run, Queue: "q", Payload: json.RawMessage(payload)})
					if err != nil {
						return
					}
					answered <- done{task: task, payload: payload}
					w := h.worker("W")
					tasks, err := w.ask(queue.Claim{})
					if err != nil || len(tasks) != 1 || n%3 > 0 {
						continue
					}
					c := tasks[0]
					if _, err := h.Submit(ctx, w.Holder, h.run, c.ID, c.Token, queue.Completed, c.Payload); err == nil {
						answered <- done{c.Task, string(c.Payload), queue.Completed}
					}
				}
			}()
			for copies.Add(1) < int64(20+rnd.IntN(200)) {
				for n := rnd.IntN(10); n > 0; n-- {
					d := <-answered
					l.enqueued(d.task, d.payload)
					l.tasks[d.task.ID].final, l.tasks[d.task.ID].unsure = d.final, true // its submit may be under way
				}
			}
			fs := h.fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 50, RNG: rnd})
			cancel()
			<-left
			h.close()
			h.fs = fs
			h.open()
			l.verify(h)
			h.close()
		})
	}
}

var errDisk = errors.New("the disk has failed, says the test")

// breaking fails an operation on the files of a pattern, and all that follow.
type breaking struct {
	pattern string
	left    atomic.Int64
	armed   atomic.Bool
}

func (b *breaking) String() string { return b.pattern }

func (b *breaking) MaybeError(op errorfs.Op) error {
	if !b.armed.Load() || op.Kind.ReadOrWrite() != errorfs.OpIsWrite || op.Kind == errorfs.OpFileClose {
		return nil
	}
	if ok, _ := path.Match(b.pattern, path.Base(op.Path)); !ok || b.left.Add(-1) >= 0 {
		return nil
	}
	return errDisk
}

// TestADiskThatFailsLosesNothingAcknowledged breaks the disk at some write of a
// life: everything is refused from there on, and what was acknowledged is there
// when the state is opened again, on a disk that works.
func TestADiskThatFailsLosesNothingAcknowledged(t *testing.T) {
	s := newSeed(t)
	for round := range 40 {
		synctest.Test(t, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(s, uint64(round)))
			b := &breaking{pattern: "*.log"}
			b.left.Store(int64(rnd.IntN(150)))
			disk := vfs.NewCrashableMem()
			h := newHouse(t, shortBackoff)
			h.stop()
			<-h.done
			if err := h.eng.Close(); err != nil {
				t.Fatal(err)
			}
			h.fs, h.disk = disk, errorfs.Wrap(disk, b)
			h.open()
			b.armed.Store(true)
			l := &ledger{tasks: make(map[uuid.UUID]*acknowledged)}
			failed := error(nil)
			for n := 0; n < 400 && failed == nil; n++ {
				failed = l.act(h, rnd, n)
			}
			if failed != nil && !errors.Is(failed, engine.ErrFailed) {
				t.Fatal(failed)
			}
			h.stop()
			<-h.done
			_ = h.eng.Close() // tells of the failure
			h.disk = nil
			h.open()
			l.verify(h)
			h.close()
		})
	}
}
