package memory

import (
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/leasehold/leasehold/engine"
)

// A group is the commits that go to the store as one batch. Until then its
// writes are in Engine.gathered, and the cold ones also in Engine.fresh, where
// reads look before they ask the store. One batch for many commits takes the
// store half the time of many batches.
//
// Commits that must reach the disk form a group until one of their callers has
// let others join and appends it. A commit that need not reach the disk waits
// for nobody. It is kept by the store (see [Store.Keep]), and its group stays
// open until a commit comes that must reach the disk, or for keptTime. So a lease
// that is soon released never becomes a record. If the store cannot keep the
// commit, or if the open group has commits that are not kept, it appends the group
// at once.
//
// A group whose callers do not wait for it (see [engine.Tx]) stays open until
// somebody needs it on the disk, or for looseTime.
type group struct {
	number atomic.Uint64 // of the batch; 0 until the store has it
	kept   atomic.Bool   // its commits, and all earlier ones, survive the end of the process already
}

// looseTime is how long a commit for which nobody waits may wait for others.
const looseTime = 5 * time.Millisecond

// keptTime is how long a commit that is only kept may wait for the disk. Without a
// limit, an engine with nothing but such commits would not notice that its disk has
// failed, and all of them would be lost when the disk is mounted again.
const keptTime = time.Second

// fullGroup is the approximate size at which a group is appended at once.
// Appending it takes about half a millisecond, and everybody waits.
const fullGroup = 256 << 10

// gatherLocked adds the writes of a transaction to the open group.
func (e *Engine) gatherLocked(t *tx) {
	keep := !t.disk
	hot := len(t.writes)
	// The rows of one kind go to the store one after the other: a key is
	// inserted faster beside the one before it.
	slices.SortFunc(t.coldUndo, func(a, b coldUndo) int { return strings.Compare(a.key, b.key) })
	for i := range t.coldUndo {
		key := t.coldUndo[i].key
		w, _ := e.fresh.Get(key)
		if !strings.HasPrefix(key, engine.ColdLog) {
			e.recent.set(key, w)
		}
		t.writes = append(t.writes, Write{Space: Cold, Key: key, Delete: w.gone, value: w.value, due: never})
	}
	if e.open != nil && e.open.kept.Load() && !keep {
		e.appendLocked(true)
		for _, w := range t.writes[hot:] { // these are of the next group
			e.fresh.Set(w.Key, coldWrite{value: w.value, gone: w.Delete})
		}
	}
	if len(t.writes) == 0 {
		return
	}
	t.writes = e.clock.beat(t.writes, t.now, t.wall, false)
	if e.open == nil {
		e.openLocked()
		e.open.kept.Store(keep)
	}
	g := e.open
	keep = g.kept.Load() && e.store.Keep(t.writes)
	for i := range t.writes {
		w := &t.writes[i]
		if !keep || !e.cancelLocked(w) {
			e.gathered = append(e.gathered, *w)
			e.size += len(w.Key) + len(w.value)
		}
	}
	e.toDisk = e.toDisk && t.disk
	if !keep && !e.toDisk || e.size > fullGroup {
		e.appendLocked(keep)
		g.kept.Store(keep) // after the group has its number: see confirm
	}
	if keep {
		e.settleSoonLocked()
	}
}

// settleSoonLocked sees to it that all commits so far are on the disk within
// keptTime, though nobody waits for them.
func (e *Engine) settleSoonLocked() {
	if e.settling == nil {
		e.loose.Add(1)
		e.settling = time.AfterFunc(keptTime, e.settle)
	}
}

// settle takes to the disk what nobody waits for.
func (e *Engine) settle() {
	defer e.loose.Done()
	e.mu.Lock()
	e.settling = nil
	last := e.last
	e.mu.Unlock()
	_ = e.confirm(last, true) // from a failure on, the engine refuses everything
}

// cancelLocked removes the record of a kept group that w deletes, and reports
// whether that is all that w does.
func (e *Engine) cancelLocked(w *Write) bool {
	switch at, ok := e.placed[w.Key]; {
	case w.Space != Hot:
	case !w.Delete:
		e.placed[w.Key] = len(e.gathered)
	case ok && w.Once: // the store has no record: the only one is in this group
		e.gathered[at] = Write{}
		delete(e.placed, w.Key)
		return true
	}
	return false
}

// recordClockLocked appends a record of the clock, after all commits.
func (e *Engine) recordClockLocked(now, wall time.Time) {
	if e.open != nil {
		e.appendLocked(e.open.kept.Load())
	}
	e.openLocked()
	e.gathered = e.clock.beat(e.gathered, now, wall, true)
	e.appendLocked(false)
}

func (e *Engine) openLocked() {
	e.open = new(group)
	e.last, e.toDisk, e.size = e.open, true, 0
}

func (e *Engine) appendLocked(kept bool) {
	writes := slices.DeleteFunc(e.gathered, func(w Write) bool { return w.Key == "" })
	number, err := e.store.Append(Batch{Writes: writes, Disk: e.toDisk, Kept: kept})
	if err != nil {
		e.fail(err)
	}
	e.open.number.Store(number)
	e.open = nil
	e.gathered = reuse(e.gathered)
	e.fresh.Clear()
	clear(e.placed)
}

// appendGroup appends a group, unless that has happened.
func (e *Engine) appendGroup(g *group) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.open == g {
		e.appendLocked(g.kept.Load())
	}
}

// answer is confirm before an answer, for which the store must also still be this
// process's.
func (e *Engine) answer(g *group, disk bool) error {
	if err := e.confirm(g, disk); err != nil || e.lead == nil {
		return err
	}
	if err := e.lead(); err != nil {
		e.fail(err)
	}
	return e.failure.Failed()
}

// confirm waits until the groups up to g are durable: with disk, they survive
// the machine, otherwise the process. A nil g is no group.
//
// A caller that finds g kept has seen only what was kept: a group that gets a
// commit that is not kept is appended in the same critical section.
func (e *Engine) confirm(g *group, disk bool) error {
	if g != nil && (disk || !g.kept.Load()) {
		if g.number.Load() == 0 && !g.kept.Load() {
			runtime.Gosched() // goroutines that are ready can join now
		}
		if g.number.Load() == 0 {
			e.appendGroup(g)
		}
		if err := e.store.Wait(g.number.Load(), disk); err != nil {
			e.fail(err)
		}
	}
	// The store may have failed on another goroutine. Then nothing is certain.
	return e.failure.Failed()
}
