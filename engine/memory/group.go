package memory

import (
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/leasehold/leasehold/engine"
)

// A group is the commits that go to the store as one batch. Whoever began it lets
// others who can go on join it, and then appends it. A commit that need not reach the
// disk waits for nobody and appends the group, with all that is in it, at once.
//
// Until then the hot writes of the group are in Engine.gathered, and the cold ones in
// Engine.fresh, where reads look before they ask the store. One batch for many
// commits takes the store half the time of many batches.
type group struct {
	number   atomic.Uint64  // of the batch; 0 until the store has it
	appended sync.WaitGroup // until it has, or has failed
}

// fullGroup is about the size of a group that waits for no more commits.
const fullGroup = 1 << 20

// gatherLocked adds the writes of a transaction to the group that is open.
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

// appendLocked gives the store the group that is open.
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

// appendGroup appends a group that this caller began, unless somebody has.
func (e *Engine) appendGroup(g *group) {
	defer g.appended.Done()
	if g.number.Load() > 0 {
		return
	}
	runtime.Gosched() // who can go on now joins
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.open == g {
		e.appendLocked(false)
	}
}

// confirm waits until the groups up to g are durable: on disk, or else only beyond
// the end of the process. Nil is no group.
func (e *Engine) confirm(g *group, disk bool) error {
	if g != nil {
		if g.number.Load() == 0 {
			g.appended.Wait()
		}
		if err := e.store.Wait(g.number.Load(), disk); err != nil {
			e.fail(err)
		}
	}
	// The store may have failed on another goroutine: then nothing is certain.
	return e.failure.Failed()
}
