package event

import (
	"fmt"
	"time"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/record"
)

const (
	// MarkKey is the key of a row that changes about once per one to eight
	// thousand numbers; a [Keeper] should run then. It is also kept outside the
	// log, so that the loss of the log does not repeat a number.
	MarkKey = engine.Mark + "token"

	// NumberKey is the key of a row that changes with every number that is
	// issued, and therefore with every event.
	NumberKey = "number"
)

// block is how many numbers one disk write reserves at least. It reserves as many
// as were issued since the state was opened, up to maxBlock, because everybody
// waits for the disk meanwhile. A restart skips the rest of them, which is
// allowed: numbers rise, but may have gaps.
const (
	block    = 1024
	maxBlock = 8 * block
)

// Numbers has the last token and the last revision that were issued, the
// greatest number that may be issued without another disk write, and the last
// number before the state was opened.
type Numbers struct{ Token, Revision, Reserved, before uint64 }

// Next issues a token greater than any before.
func Next(tx engine.Tx) uint64 { return issue(tx, 1, 0).Token }

// NextBoth issues a token, as Next does, and the revision of an event about it.
func NextBoth(tx engine.Tx) (token, revision uint64) {
	n := issue(tx, 1, 1)
	return n.Token, n.Revision
}

func issue(tx engine.Tx, tokens, revisions uint64) Numbers {
	n := NumbersOf(tx)
	n.Token += tokens
	n.Revision += revisions
	n.put(tx)
	return n
}

// put stores the numbers, and reserves more if necessary.
func (n Numbers) put(tx engine.Tx) {
	if last := max(n.Token, n.Revision); last > n.Reserved {
		n.Reserved = last + min(max(last-n.before, block), maxBlock)
		tx.Put(engine.Row{Key: MarkKey, Value: record.Fixed(n.Reserved)})
		tx.Sync() // a power cut must not make numbers repeat
	}
	w := record.New(32)
	w.Fixed(n.Token)
	w.Fixed(n.Revision)
	w.Fixed(n.Reserved)
	w.Fixed(n.before)
	tx.Touch(engine.Row{Key: NumberKey, Value: w.String()})
}

// NumbersOf reads the numbers. After a crash only the mark is left, and the
// whole block counts as issued.
func NumbersOf(tx engine.Tx) (n Numbers) {
	if row, ok := tx.Get(NumberKey); ok {
		return Numbers{record.ReadFixed(row.Value), record.ReadFixed(row.Value[8:]), record.ReadFixed(row.Value[16:]), record.ReadFixed(row.Value[24:])}
	}
	if row, ok := tx.Get(MarkKey); ok {
		n.Reserved = record.ReadFixed(row.Value)
		n.Token, n.Revision, n.before = n.Reserved, n.Reserved, n.Reserved
	}
	return n
}

// Raise makes the next token and the next revision greater than above.
func Raise(tx engine.Tx, above uint64) {
	if n := NumbersOf(tx); n.Token < above || n.Revision < above {
		n.Token, n.Revision = max(n.Token, above), max(n.Revision, above)
		n.put(tx)
	}
}

// A copy (see [engine.CopyRow]) does not know which numbers were issued after it
// was made, neither in the original nor in other copies of it. So the first that
// are issued in it are those of the wall clock: what the fastest daemon would have
// issued since epoch, and reserve. So the numbers also rise if the same copy is used
// twice, or an older and then a newer one. If the wall clock was set back, the copy's
// own numbers go on behind reserve.
const (
	fastest = 1 << 20 // numbers a second
	reserve = 1 << 36 // as many in eighteen hours
	oldest  = 10 * 366 * 24 * time.Hour
	latest  = 64 * 366 * 24 * time.Hour // since epoch
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// Restore makes the next token and the next revision of a copy greater than all
// that were issued in the original and its copies, and returns since when that may
// have changed. From then on it is a state like any other. In one that is no copy,
// Restore does nothing and returns the zero time.
func Restore(tx engine.Tx) (since time.Time, err error) {
	row, ok := tx.Get(engine.CopyKey)
	if !ok {
		return since, nil
	}
	if len(row.Value) != 8 {
		return since, fmt.Errorf("%w: %q", engine.ErrCorrupt, engine.CopyKey)
	}
	since = time.Unix(0, int64(record.ReadFixed(row.Value))).UTC()
	n, wall := NumbersOf(tx), tx.Wall()
	above := max(n.Token, n.Revision) + issuedIn(min(wall.Sub(since), oldest))
	next := issuedIn(min(wall.Sub(epoch), latest)) + reserve
	if wall.Before(since) || wall.Before(epoch) || next < above {
		next = max(next, above+reserve)
	}
	Raise(tx, next)
	tx.Delete(engine.CopyKey)
	return since, nil
}

// issuedIn returns how many numbers the fastest daemon issues.
func issuedIn(d time.Duration) uint64 {
	d = max(d, 0)
	return fastest*uint64(d/time.Second) + fastest*uint64(d%time.Second)/uint64(time.Second)
}

// Recover makes sure, when a state is opened, that the next token is greater
// than highest and every token before. If the record cannot be read, it returns
// an [engine.ErrCorrupt].
func Recover(tx engine.Tx, highest uint64) error {
	row, ok := tx.Get(MarkKey)
	switch {
	case ok && len(row.Value) != 8, !ok && highest > 0:
		return fmt.Errorf("%w: %q", engine.ErrCorrupt, MarkKey)
	case !ok:
		return nil
	}
	if n := NumbersOf(tx); n.Token < highest {
		n.Token = highest
		n.put(tx)
	}
	return nil
}
