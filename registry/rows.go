package registry

import (
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/record"
)

// The prefixes of the key schema in the package doc.
const (
	leasePrefix   = "lease/"
	idPrefix      = "leaseid/"
	countPrefix   = "leases/"
	waitPrefix    = "wait/"
	ticketPrefix  = "ticket/"
	requestPrefix = "request/"
	lostPrefix    = "lost/"
	newsPrefix    = "news/"
	tokenKey      = "token"
	uptimeKey     = "uptime"
	placeKey      = "place"
)

func leaseKey(scope, key string) string    { return leasePrefix + scope + "\x00" + key }
func idKey(id uuid.UUID) string            { return idPrefix + string(id[:]) }
func countKey(scope string) string         { return countPrefix + scope }
func waitKeys(scope, key string) string    { return waitPrefix + scope + "\x00" + key + "\x00" }
func ticketKeys(actor uuid.UUID) string    { return ticketPrefix + string(actor[:]) }
func ticketKey(actor, id uuid.UUID) string { return ticketKeys(actor) + string(id[:]) }
func lostKeys(actor uuid.UUID) string      { return lostPrefix + string(actor[:]) }
func lostKey(actor, id uuid.UUID) string   { return lostKeys(actor) + string(id[:]) }
func newsKey(session uuid.UUID) string     { return newsPrefix + string(session[:]) }
func requestKey(session uuid.UUID, id string) string {
	return requestPrefix + string(session[:]) + id
}

func leaseOf(row engine.Row) (l Lease, ok bool) {
	ok = l.read(row)
	return l, ok
}

func (l *Lease) read(row engine.Row) (ok bool) {
	if !l.decode(row.Value, row.Due) {
		return false
	}
	l.Scope, l.Key, ok = strings.Cut(strings.TrimPrefix(row.Key, leasePrefix), "\x00")
	l.Holder.Session, l.row = row.Owner, row.Key
	return ok
}

// must reads a row that Recover has read before, or that this process wrote:
// that it cannot be read now is a fault of the program.
func must[T any](row engine.Row, decode func(value string) (T, bool)) T {
	v, ok := decode(row.Value)
	if !ok {
		panic(fmt.Sprintf("registry: row %q is not a %T", row.Key, v))
	}
	return v
}

// mustLease is must for a lease, part of which is in the row's key.
func mustLease(row engine.Row) (l Lease) {
	l.mustRead(row)
	return l
}

func (l *Lease) mustRead(row engine.Row) {
	if !l.read(row) {
		panic(fmt.Sprintf("registry: row %q is not a lease", row.Key))
	}
}

func getLease(tx Tx, scope, key string) (l Lease, ok bool) {
	row, ok := tx.Get(leaseKey(scope, key))
	if ok {
		l.mustRead(row)
	}
	return l, ok
}

// leaseByID finds a lease by its secret.
func leaseByID(tx Tx, id uuid.UUID) (Lease, bool) {
	ref, ok := tx.Get(idKey(id))
	if !ok {
		return Lease{}, false
	}
	row, ok := tx.Get(ref.Value)
	if !ok {
		return Lease{}, false
	}
	return mustLease(row), true
}

// attention is when the lease wants it next: at its deadline, or half a ttl from
// now if the server is to extend it.
func (l *Lease) attention(now time.Time) time.Time {
	if l.KeepAlive {
		return earliest(l.Deadline, now.Add(l.TTL/2))
	}
	return l.Deadline
}

func leaseRow(l *Lease, now time.Time) engine.Row {
	due := l.attention(now)
	return engine.Row{Key: l.row, Value: l.encode(due), Owner: l.Holder.Session, Due: due}
}

func earliest(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// tokenBlock is how many tokens one disk write reserves. A crash skips what is
// left of the block: tokens rise, they need not be dense.
const tokenBlock = 1024

// nextToken issues a token greater than any issued before.
func nextToken(tx Tx) uint64 {
	last, reserved := tokens(tx)
	last++
	if last > reserved {
		reserved = last + tokenBlock
		tx.Put(tokenRow(reserved, reserved)) // what a crash leaves: all of the block is spent
	}
	tx.Touch(tokenRow(last, reserved))
	return last
}

func tokens(tx Tx) (last, reserved uint64) {
	row, ok := tx.Get(tokenKey)
	if !ok {
		return 0, 0
	}
	return record.ReadFixed(row.Value), record.ReadFixed(row.Value[8:])
}

func tokenRow(last, reserved uint64) engine.Row {
	return engine.Row{Key: tokenKey, Value: record.Fixed(last) + record.Fixed(reserved)}
}

// count is how many leases a scope has.
func count(tx Tx, scope string) uint64 {
	row, ok := tx.Get(countKey(scope))
	if !ok {
		return 0
	}
	return record.ReadFixed(row.Value)
}

func setCount(tx Tx, scope string, n uint64) {
	tx.Touch(engine.Row{Key: countKey(scope), Value: record.Fixed(n)})
}

// addCount is setCount for one more or less.
func addCount(tx Tx, scope string, n int) {
	row := engine.Row{Key: countKey(scope)}
	if was, ok := tx.Get(row.Key); ok {
		n += int(record.ReadFixed(was.Value))
	}
	row.Value = record.Fixed(uint64(n))
	tx.Touch(row)
}
