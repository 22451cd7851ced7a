package registry

import (
	"time"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/record"
)

// An uptime is how long the state has been open, in all its lives, at some
// instant. A long lease has its end in that time, as it is not to end while nobody
// can renew it. It is written down at each beat: one write, whatever lives. What
// comes after the last beat a restart does not know of, and counts for nothing.
type uptime struct {
	was time.Duration
	at  time.Time
}

const (
	// beatEvery is how often the uptime is written, while there are leases.
	beatEvery = time.Minute
	// lag is how much later than the end that is stored a long lease may end,
	// by renewals that wrote nothing. A restart adds it.
	lag = 5 * time.Minute
)

// row is due at the next beat, if there is a lease.
func (u uptime) row(tx Tx) engine.Row {
	row := engine.Row{Key: uptimeKey, Value: u.encode()}
	for range tx.Scan(leasePrefix) {
		row.Due = u.at.Add(beatEvery)
		break
	}
	return row
}

const uptimeFormat = 1

func (u uptime) encode() string {
	w := record.New(20)
	w.Byte(uptimeFormat)
	w.Duration(u.was)
	w.Time(u.at)
	return w.String()
}

func decodeUptime(value string) (u uptime, ok bool) {
	r := record.Read(value)
	format := r.Byte()
	u.was, u.at = r.Duration(), r.Time()
	return u, format == uptimeFormat && r.Done()
}

// uptimeNow gives the uptime at this instant, and whether there is a next beat.
func uptimeNow(tx Tx) (u uptime, beats bool) {
	u.at = tx.Now()
	if row, ok := tx.Get(uptimeKey); ok {
		last := must(row, decodeUptime)
		u.was = last.was + u.at.Sub(last.at)
		beats = !row.Due.IsZero()
	}
	return u, beats
}

// beat writes the uptime.
func beat(tx Tx) {
	u, _ := uptimeNow(tx)
	tx.Put(u.row(tx))
}

// long reports whether a restart must not give the full ttl again.
func (l *Lease) long() bool { return l.TTL > longTTL }

// endsAt gives when a long lease ends that is to end at its deadline.
func (l *Lease) endsAt(u uptime) time.Duration { return u.was + l.Deadline.Sub(u.at) }

// put writes a lease down, and of a long one when it ends.
func (l *Lease) put(tx Tx) {
	beats := true
	if l.long() {
		var u uptime
		u, beats = uptimeNow(tx)
		l.end = l.endsAt(u).Truncate(time.Second) + time.Second // in a few bytes
	}
	tx.Put(leaseRow(l, tx.Now()))
	if !beats {
		beat(tx)
	}
}

// left gives what a restart gives a lease, when it knows of so much uptime: its
// ttl, or for a long one no more than may be left.
func (l *Lease) left(known time.Duration) time.Duration {
	if l.long() {
		return max(0, min(l.TTL, l.end+lag-known))
	}
	return l.TTL
}
