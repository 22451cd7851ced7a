package memory

import (
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/leasehold/leasehold/engine"
)

// A group is the commits that go to the store as one batch. The caller that
// began it lets others join, and then appends it. A commit that need not reach
// the disk waits for nobody: it appends the group at once, with everything in
// it.
//
// Until then, the hot writes of the group are in Engine.gathered and the cold
// ones in Engine.fresh, where reads look before they ask the store. One batch
// for many commits takes the store half the time of many batches.
type group struct {
	number   atomic.Uint64  // of the batch; 0 until the store has it
	appended sync.WaitGroup // done when the store has the batch, or has failed
}

// fullGroup is the approximate size at which a group is appended at once.
// Appending it takes about half a millisecond, and everybody waits.
const fullGroup = 256 << 10

// gatherLocked adds the writes of a transaction to the open group. It reports
// whether it began the group.
func (e *Engine) gatherLocked(t *tx) (begun bool) {
	for _, r := range t.rows {
		if r != nil {
			r.dirty = 0
		}
	}
	writes := slices.DeleteFunc(t.writes, func(w Write) bool { return w.Key == "" })
	if len(writes) == 0 && len(t.coldUndo) == 0 {
		return false
	}
	if begun = e.open == nil; begun {
		e.open = new(group)
		e.open.appended.Add(1)
		e.last, e.toDisk, e.size = e.open, true, 0
	}
	for i := range writes {
		e.size += len(writes[i].Key) + len(writes[i].value)
	}
	e.gathered = append(e.gathered, writes...)
	for i := range t.coldUndo {
		key := t.coldUndo[i].key
		w, _ := e.fresh.Get(key)
		if !strings.HasPrefix(key, engine.ColdLog) {
			e.recent.set(key, w)
		}
		e.size += len(key) + len(w.value)
	}
	e.toDisk = e.toDisk && t.disk
	if !e.toDisk || e.size > fullGroup {
		e.appendLocked(false)
	}
	return begun
}

// appendLocked appends the open group to the store.
func (e *Engine) appendLocked(beat bool) {
	writes := e.gathered
	e.fresh.Scan(func(key string, w coldWrite) bool {
		writes = append(writes, Write{Space: Cold, Key: key, Delete: w.gone, value: w.value, due: never})
		return true
	})
	writes = e.clock.beat(writes, beat)
	number, err := e.store.Append(Batch{Writes: writes, Disk: e.toDisk})
	if err != nil {
		e.fail(err)
	}
	e.open.number.Store(number)
	e.open = nil
	e.gathered = reuse(writes)
	e.fresh.Clear()
}

// appendGroup appends the group that this caller began, unless another caller
// already has.
func (e *Engine) appendGroup(g *group) {
	defer g.appended.Done()
	if g.number.Load() > 0 {
		return
	}
	runtime.Gosched() // goroutines that are ready can join now
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.open == g {
		e.appendLocked(false)
	}
}

// confirm waits until the groups up to g are durable: with disk, they survive
// the machine, otherwise the process. A nil g is no group.
func (e *Engine) confirm(g *group, disk bool) error {
	if g != nil {
		if g.number.Load() == 0 {
			g.appended.Wait()
		}
		if err := e.store.Wait(g.number.Load(), disk); err != nil {
			e.fail(err)
		}
	}
	// The store may have failed on another goroutine. Then nothing is certain.
	return e.failure.Failed()
}
