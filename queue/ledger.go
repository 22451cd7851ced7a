package queue

import (
	"errors"
	"time"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/record"
)

// A ledger is a transaction of the rules. What nearly every task that moves
// changes, the account of its queue and the last place given, it reads once, and
// writes once when it is closed.
type ledger struct {
	Tx
	account account // that was asked for first: mostly the only one
	places  places
	refusal error   // what the rule answers
	ahead   records // of tasks whose claims stood when it was begun
}

// A places is the last place given in any line, and the last that is reserved.
type places struct {
	last, reserved uint64
	read, given    bool
}

// An account is what is written down of a queue.
type account struct {
	line  line
	stats Stats
	first [MaxPriority + 1]uint64 // by priority: before what place nothing is ready, if anything is
	due   time.Time               // when the queue wants attention: when its earliest delay or retention ends, or before
	moved bool                    // it is to be written
	next  *account                // of the ledger
}

// accountOf gives the account of a queue. It is the ledger's until that is closed.
func (tx *ledger) accountOf(l line) *account {
	for a := &tx.account; ; a = a.next {
		switch {
		case a.line == l:
			return a
		case a.line == "":
			a.read(tx.Tx, l)
			return a
		case a.next == nil:
			a.next = new(account)
		}
	}
}

// close writes what has changed.
func (tx *ledger) close() {
	for a := &tx.account; a != nil; a = a.next {
		if a.moved {
			a.write(tx.Tx)
		}
	}
	if tx.places.given {
		tx.places.write(tx.Tx)
	}
}

// entered runs a rule in a transaction that others began, or that is a ledger.
func entered(tx Tx, rule func(*ledger)) {
	if book, ok := tx.(*ledger); ok {
		rule(book)
		return
	}
	book := ledger{Tx: tx}
	rule(&book)
	book.close()
}

// wanted makes the queue due at an instant, or before.
func (a *account) wanted(at time.Time) {
	if a.due.IsZero() || at.Before(a.due) {
		a.due = at
	}
}

const accountFormat = 4 // also tells Recover of tasks that cannot be read

// write puts the account's row, or removes it with the last task.
func (a *account) write(tx Tx) {
	if a.stats.empty() {
		tx.Delete(string(a.line))
		return
	}
	tx.Put(engine.Row{Key: string(a.line), Value: a.encode(), Due: a.due})
}

func (a *account) encode() string {
	w := record.New(48)
	w.Byte(accountFormat)
	var ready uint64 // a bit for each priority of which there are tasks
	for p, n := range a.stats.Ready {
		if n > 0 {
			ready |= 1 << p
		}
	}
	w.Uint(ready)
	for p, n := range a.stats.Ready {
		if n > 0 {
			w.Uint(n)
			w.Uint(a.first[p])
		}
	}
	for _, n := range a.stats.others() {
		w.Uint(*n)
	}
	return w.String()
}

func (a *account) decode(value string) (ok bool) {
	r := record.Read(value)
	format, ready := r.Byte(), r.Uint()
	for p := range a.stats.Ready {
		if ready&(1<<p) != 0 {
			a.stats.Ready[p], a.first[p] = r.Uint(), r.Uint()
		}
	}
	for _, n := range a.stats.others() {
		*n = r.Uint()
	}
	return format == accountFormat && ready < 1<<len(a.stats.Ready) && r.Done()
}

// read makes a the account of a queue. That of one without tasks has no row.
func (a *account) read(tx Tx, l line) {
	a.line, a.stats.Queue = l, l.queue()
	row, ok := tx.Get(string(l))
	if !ok {
		return
	}
	if !a.decode(row.Value) {
		panic(corrupt(row.Key, errors.New("not a record of a queue")))
	}
	a.due = row.Due
}

// nextPlace numbers the places of all lines, so that the oldest of several
// queues can be told.
func (tx *ledger) nextPlace() uint64 {
	p := &tx.places
	if !p.read {
		*p = readPlaces(tx.Tx)
	}
	p.last++
	p.given = true
	return p.last
}

// placeBlock is how many places one durable write reserves.
const placeBlock = 1 << 12

func (p *places) write(tx Tx) {
	if p.last > p.reserved {
		p.reserved = p.last + placeBlock
		tx.Put(engine.Row{Key: placeKey, Value: record.Fixed(p.reserved) + record.Fixed(p.reserved)}) // what a crash leaves
	}
	tx.Touch(engine.Row{Key: placeKey, Value: record.Fixed(p.last) + record.Fixed(p.reserved)})
}

func readPlaces(tx Tx) places {
	row, ok := tx.Get(placeKey)
	if !ok {
		return places{read: true}
	}
	if len(row.Value) != 16 {
		panic(corrupt(row.Key, errors.New("not a count of places")))
	}
	return places{last: record.ReadFixed(row.Value[:8]), reserved: record.ReadFixed(row.Value[8:]), read: true}
}
