package memory

import (
	"fmt"
	"time"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/clock"
	"github.com/leasehold/leasehold/engine/record"
)

const (
	// beatEvery is how much of the running clock the state may lose when the
	// machine crashes. A commit records the clock if the last record of it is
	// that old.
	beatEvery = time.Second
	// stepLimit is how much the wall clock must move against the running clock
	// to count as a step. A smaller move is a normal correction.
	stepLimit = time.Second
	// longestOff is the longest time that a machine is believed to have been
	// off. If the wall clock has moved further, it was wrong before or is wrong
	// now.
	longestOff = 366 * 24 * time.Hour
)

// A running is the engine's running clock: the reading of Clock.Running, plus
// the time that passed in earlier boots of the machine.
type running struct {
	clock.Clock
	base time.Time // the running clock when the reading is 0

	written time.Time     // when the clock was last recorded; guarded by Engine.mu, as is noted
	noted   time.Duration // the wall clock minus the running clock then

	// offset is the wall clock minus the running clock, at the last step or at
	// the opening. It is guarded by Engine.mu.
	offset time.Duration

	// told is the wall clock minus the running clock for [engine.Tx.WallAt]. It is
	// guarded by Engine.mu.
	told time.Duration
}

// wallNoise is how much later the wall clock may be read than the running clock.
const wallNoise = time.Millisecond

// tellBy keeps told up to date. The caller holds Engine.mu.
func (c *running) tellBy(now, wall time.Time) time.Duration {
	if by := wall.Sub(now); (by - c.told).Abs() >= wallNoise {
		c.told = by
	}
	return c.told
}

func (c *running) read() (now, wall time.Time) {
	return c.base.Add(c.Running()), c.Wall().Round(0).UTC()
}

// stepped reports whether the wall clock was stepped since the last call, and
// by how much.
func (c *running) stepped(now, wall time.Time) (by time.Duration, ok bool) {
	by = wall.Sub(now) - c.offset
	if by.Abs() < stepLimit {
		return 0, false
	}
	c.offset += by
	return by, true
}

func steppedBy(by time.Duration) string {
	if by < 0 {
		return fmt.Sprintf("back by %v", (-by).Round(time.Millisecond))
	}
	return fmt.Sprintf("forward by %v", by.Round(time.Millisecond))
}

const clockKey = "clock"

// A beat is the record of the clock in the state:
//
//	uint      version, 1
//	text      Clock.Boot
//	duration  the reading of Clock.Running
//	time      the running clock then
//	time      the wall clock then
type beat struct {
	boot      string
	reading   time.Duration
	now, wall time.Time
}

const beatVersion = 1

func (b beat) encode() string {
	w := record.New(64)
	w.Uint(beatVersion)
	w.Text(b.boot)
	w.Duration(b.reading)
	w.Time(b.now)
	w.Time(b.wall)
	return w.String()
}

func decodeBeat(stored []byte) (b beat, err error) {
	value, _, _, err := decode(stored)
	if err == nil {
		r := record.Read(string(value))
		version := r.Uint()
		b = beat{r.Text(), r.Duration(), r.Time(), r.Time()}
		if version != beatVersion || !r.Done() {
			err = errRecord
		}
	}
	if err != nil {
		return b, fmt.Errorf("%w: %w", engine.ErrCorrupt, err)
	}
	return b, nil
}

// lastBeat reads the record of the clock.
func lastBeat(r Reader) (last beat, known bool, err error) {
	known, err = r.Get(Meta, clockKey, func(stored []byte) (err error) {
		last, err = decodeBeat(stored)
		return err
	})
	if err != nil {
		err = fmt.Errorf("read the clock of the state: %w", err)
	}
	return last, known, err
}

// beat adds a record of the clock to the writes of a commit if one is due, or
// always. One is due at once when the wall clock was stepped: after a crash of the
// machine the step would count as time in which it was off.
func (c *running) beat(writes []Write, now, wall time.Time, always bool) []Write {
	by := wall.Sub(now)
	if !always && now.Sub(c.written) < beatEvery && (by-c.noted).Abs() < stepLimit {
		return writes
	}
	c.written, c.noted = now, by
	b := beat{c.Boot, now.Sub(c.base), now, wall}
	return append(writes, Write{Space: Meta, Key: clockKey, value: b.encode(), due: never})
}

// resume continues the running clock of a state, or starts one at the wall
// clock's time.
//
// If the machine has not restarted, the clock has run on while the state was
// closed. After a restart of the machine only the wall clock shows how long
// that was. It is trusted unless it would make the running clock go back or
// leap. In any case the clock is not behind any time that was stored, because a
// commit comes less than beatEvery after a beat. If the state may come from
// another machine, nothing more is known.
func resume(o Options, store Store) (*running, error) {
	machine, logf := o.Clock, o.Logf
	last, known, err := lastBeat(store)
	if err != nil {
		return nil, err
	}
	reading, wall := machine.Running(), machine.Wall().Round(0).UTC()
	now := wall
	switch passed := reading - last.reading; {
	case !known:
	case machine.Boot != "" && machine.Boot == last.boot && passed >= 0:
		now = last.now.Add(passed)
		if by := wall.Sub(now) - last.wall.Sub(last.now); by.Abs() >= stepLimit {
			logf("engine: while the state was closed, the wall clock was set %s; leases, claims and delays keep their length", steppedBy(by))
		}
	case o.AnyMachine:
		now = last.now.Add(beatEvery)
	default:
		off := wall.Sub(last.wall)
		if off < beatEvery || off > longestOff {
			logf("engine: the machine was started anew, and by the wall clock it was off for %v; this is not believed: leases, claims and delays go on where they were", off.Round(time.Second))
			off = beatEvery
		}
		now = last.now.Add(off)
	}
	return &running{Clock: machine, base: now.Add(-reading), offset: wall.Sub(now)}, nil
}
