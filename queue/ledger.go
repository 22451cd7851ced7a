package queue

import (
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/record"
)

// A ledger is a transaction of the rules. Nearly every task that moves changes the
// account of its queue and the last place given. A ledger reads these once, and
// writes them once when it is closed.
type ledger struct {
	engine.Tx
	q       *Queue
	account account // that was asked for first: mostly the only one
	places  places
	rearm   bool // the first alarm may be another one when it is closed
}

// A places is the last place given in any line, and the last that is reserved.
type places struct {
	last, reserved uint64
	read, given    bool
}

// An account is what is written down about a queue.
type account struct {
	line  line
	stats Stats
	bytes uint64                  // payloads of tasks that are not finished
	actor uuid.UUID               // who began the queue
	first [MaxPriority + 1]uint64 // lower bounds of the ready lines that are not empty
	due   time.Time               // running clock: no delay ends earlier
	alarm time.Time               // wall clock: no run_at and no retention ends earlier

	moved    bool      // it is to be written
	existed  bool      // it had a row when it was read
	alarmWas time.Time // as it is stored
	next     *account  // of the ledger
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
			a.write(tx)
		}
	}
	if tx.places.given {
		tx.places.write(tx.Tx)
	}
	if tx.rearm {
		rearm(tx)
	}
}

// wanted makes the queue due at an instant of one of the clocks, or before.
func (a *account) wanted(at time.Time, byWall bool) {
	due := &a.due
	if byWall {
		due = &a.alarm
	}
	if due.IsZero() || at.Before(*due) {
		*due = at
	}
}

// write puts the account's row. It removes the row with the last task: an empty
// queue is forgotten.
func (a *account) write(tx *ledger) {
	exists := !a.stats.empty()
	if !exists {
		a.due, a.alarm = time.Time{}, time.Time{}
	}
	if exists != a.existed {
		tx.countQueue(a, exists)
	}
	if !a.alarm.Equal(a.alarmWas) {
		setAlarm(tx, a.line, a.alarmWas, a.alarm)
	}
	if exists {
		tx.Put(engine.Row{Key: string(a.line), Value: a.encode(), Due: a.due})
		return
	}
	tx.Delete(string(a.line))
	for _, in := range append(indexesOf(a.line), deadIndex(a.line)) {
		in.forget(tx)
	}
}

// countQueue counts a queue that begins or ends, for its run and its actor.
func (tx *ledger) countQueue(a *account, begins bool) {
	for _, of := range []uuid.UUID{a.line.run(), a.actor} {
		n := queuesWritten(tx, of)
		switch {
		case begins:
			n++
		case n > 0:
			n--
		}
		if n == 0 {
			tx.Delete(queuesKey(of))
		} else {
			tx.Touch(engine.Row{Key: queuesKey(of), Value: record.Fixed(n)})
		}
	}
}

func queuesWritten(tx engine.Tx, of uuid.UUID) uint64 {
	row, ok := tx.Get(queuesKey(of))
	if !ok {
		return 0
	}
	return record.ReadFixed(row.Value)
}

// queuesOf is how many queues a run has, or an actor has begun, that have tasks.
// Those that begin in this transaction count, too.
func (tx *ledger) queuesOf(of uuid.UUID) uint64 {
	n := queuesWritten(tx, of)
	for a := &tx.account; a != nil; a = a.next {
		if a.line != "" && (a.line.run() == of || a.actor == of) && !a.existed && a.moved && !a.stats.empty() {
			n++
		}
	}
	return n
}

const accountFormat = 5

func (a *account) encode() string {
	w := record.New(72)
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
	w.Uint(a.bytes)
	w.Time(a.alarm)
	w.ID(a.actor)
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
	a.bytes, a.alarm, a.actor = r.Uint(), r.Time(), r.ID()
	a.alarmWas, a.existed = a.alarm, true
	return format == accountFormat && ready < 1<<len(a.stats.Ready) && r.Done()
}

// read makes a the account of a queue. That of one without tasks has no row.
func (a *account) read(tx engine.Tx, l line) {
	a.line, a.stats.Queue = l, l.queue()
	row, ok := tx.Get(string(l))
	if !ok {
		return
	}
	if !a.decode(row.Value) {
		panic("queue: row " + row.Key + " is not an account, and Recover has read it")
	}
	a.due = row.Due
}

// nextPlace numbers the places of all lines, so that it can be told which task is
// the oldest of several queues.
func (tx *ledger) nextPlace() uint64 {
	p := &tx.places
	if !p.read {
		*p, _ = readPlaces(tx.Tx)
	}
	p.last++
	p.given = true
	return p.last
}

// placeBlock is how many places one durable write reserves.
const placeBlock = 1 << 12

func (p *places) write(tx engine.Tx) {
	if p.last > p.reserved {
		p.reserved = p.last + placeBlock
		tx.Put(engine.Row{Key: placeKey, Value: record.Fixed(p.reserved) + record.Fixed(p.reserved)}) // what a crash leaves
	}
	tx.Touch(engine.Row{Key: placeKey, Value: record.Fixed(p.last) + record.Fixed(p.reserved)})
}

func readPlaces(tx engine.Tx) (p places, ok bool) {
	row, found := tx.Get(placeKey)
	switch {
	case !found:
		return places{read: true}, true
	case len(row.Value) != 16:
		return places{}, false
	}
	return places{last: record.ReadFixed(row.Value[:8]), reserved: record.ReadFixed(row.Value[8:]), read: true}, true
}
