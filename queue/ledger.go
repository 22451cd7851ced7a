package queue

import (
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/record"
)

// A ledger is a transaction of the rules. Nearly every move of a task changes the
// account of its queue. The ledger reads an account once, and writes it once when
// it is closed.
type ledger struct {
	engine.Tx
	q        *Queue
	accounts map[line]*account // those asked for
	answer   error             // of the rule
	careful  bool              // each index yields one entry and reads no further, because what follows may be unreadable
}

// An account is what is stored about a queue.
type account struct {
	line  line
	stats Stats
	bytes uint64                  // payloads of tasks that are not finished
	actor uuid.UUID               // that began the queue
	last  uint64                  // no task of the queue has a higher place
	first [MaxPriority + 1]uint64 // lower bounds of the ready lines that are not empty
	due   time.Time               // running clock: nothing is due earlier, by either clock; zero: nothing is due

	moved   bool // it must be written to disk
	planned bool // only due has changed: a write to memory is enough
	counted bool // the queue is counted for its run and its actor
}

// accountOf returns the account of a queue. It belongs to the ledger until that
// is closed.
func (tx *ledger) accountOf(l line) *account {
	a := tx.accounts[l]
	if a == nil {
		a = new(account)
		a.read(tx.Tx, l)
		if tx.accounts == nil {
			tx.accounts = make(map[line]*account)
		}
		tx.accounts[l] = a
	}
	return a
}

func (tx *ledger) close() {
	for _, a := range tx.accounts {
		a.write(tx)
	}
}

// wallCheck is how long the running clock is trusted to go as the wall clock
// does. The engine reports a step, but not slow corrections.
const wallCheck = 10 * time.Minute

// wanted makes the queue due at an instant of one of the clocks, or earlier.
func (a *account) wanted(tx engine.Tx, at time.Time, byWall bool) {
	if byWall {
		at = tx.Now().Add(min(at.Sub(tx.Wall()), wallCheck))
	}
	if a.due.IsZero() || at.Before(a.due) {
		a.due = at
	}
}

// write writes the account's row if it has changed. A queue without tasks is
// forgotten: its row is removed.
func (a *account) write(tx *ledger) {
	if !a.moved && !a.planned {
		return
	}
	exists := !a.stats.empty()
	if !exists && a.counted {
		tx.countQueue(a, -1)
	}
	row := engine.Row{Key: string(a.line), Value: a.encode(), Due: a.due}
	switch {
	case exists && a.moved:
		tx.Put(row)
	case exists:
		tx.Touch(row)
	default:
		tx.Delete(row.Key)
		for _, in := range indexesOf(a.line) {
			in.forget(tx)
		}
	}
}

// none says that a state has no entry left. Tasks that are still counted were
// skipped, because they cannot be read.
func (a *account) none(state State, priority int) {
	*a.stats.of(state, priority), a.moved = 0, true
}

// countQueue counts a new queue, or one that ends, for its run and its actor.
func (tx *ledger) countQueue(a *account, n int) {
	a.counted = n > 0
	for _, of := range []uuid.UUID{a.line.run(), a.actor} {
		if count := tx.queuesOf(of) + n; count > 0 {
			tx.Touch(engine.Row{Key: queuesKey(of), Value: record.Fixed(uint64(count))})
		} else {
			tx.Delete(queuesKey(of))
		}
	}
}

// queuesOf returns how many queues with tasks a run has, or an actor has begun.
func (tx *ledger) queuesOf(of uuid.UUID) int {
	row, ok := tx.Get(queuesKey(of))
	if !ok {
		return 0
	}
	return int(record.ReadFixed(row.Value))
}

const accountFormat = 6

func (a *account) encode() string {
	w := record.New(64)
	w.Byte(accountFormat)
	for p, n := range a.stats.Ready {
		if w.Uint(n); n > 0 {
			w.Uint(a.first[p])
		}
	}
	for _, n := range a.stats.others() {
		w.Uint(*n)
	}
	w.Uint(a.bytes)
	w.Uint(a.last)
	w.ID(a.actor)
	return w.String()
}

func (a *account) decode(value string) (ok bool) {
	r := record.Read(value)
	format := r.Byte()
	for p := range a.stats.Ready {
		if a.stats.Ready[p] = r.Uint(); a.stats.Ready[p] > 0 {
			a.first[p] = r.Uint()
		}
	}
	for _, n := range a.stats.others() {
		*n = r.Uint()
	}
	a.bytes, a.last, a.actor = r.Uint(), r.Uint(), r.ID()
	return format == accountFormat && r.Done()
}

// read reads the account of a queue. A queue without tasks has no row.
func (a *account) read(tx engine.Tx, l line) {
	a.line, a.stats.Queue = l, l.queue()
	row, ok := tx.Get(string(l))
	if !ok {
		return
	}
	if !a.decode(row.Value) {
		panic("queue: row " + row.Key + " is not an account, and Recover has read it")
	}
	a.due, a.counted = row.Due, true
}

// nextPlace returns the next place. Places are numbered across all lines, so
// that the oldest task of several queues can be found. A place given in a
// failed transaction is not given again, and Recover continues after the
// highest place of any queue.
func (a *account) nextPlace(q *Queue) uint64 {
	q.place++
	a.last = q.place
	return a.last
}
