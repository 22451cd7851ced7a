package memory

import (
	"fmt"
	"time"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/clock"
	"github.com/leasehold/leasehold/engine/record"
)

const (
	// beatEvery is how much of the running clock a crash of the machine can
	// make the state forget: a commit writes the clock down if the last one
	// that did is that long ago.
	beatEvery = time.Second
	// stepLimit is by how much the wall clock moves against the running clock
	// in a step. Less than that is the usual correction.
	stepLimit = time.Second
	// longestOff is how long a machine is believed to have been off: a wall
	// clock that has moved more was wrong before, or is now.
	longestOff = 366 * 24 * time.Hour
)

// A running is the engine's running clock: a reading of Clock.Running, plus what
// has passed in earlier lives of the machine.
type running struct {
	clock.Clock
	base time.Time // now, at a reading of 0

	written time.Time // when the clock was last written down; guarded by Engine.mu

	// offset is the wall clock less the running clock, at the last step or at
	// the opening. Guarded by Engine.mu, as is steps.
	offset time.Duration
	steps  int
}

func (c *running) read() (now, wall time.Time) {
	return c.base.Add(c.Running()), c.Wall().Round(0).UTC()
}

// stepped reports whether the wall clock was set since this was last asked.
func (c *running) stepped(now, wall time.Time) (by time.Duration, ok bool) {
	by = wall.Sub(now) - c.offset
	if by.Abs() < stepLimit {
		return 0, false
	}
	c.offset += by
	c.steps++
	return by, true
}

func (c *running) tick() time.Duration {
	if c.Sleeps {
		return time.Second
	}
	return 0
}

func steppedBy(by time.Duration) string {
	if by < 0 {
		return fmt.Sprintf("back by %v", (-by).Round(time.Millisecond))
	}
	return fmt.Sprintf("forward by %v", by.Round(time.Millisecond))
}

const clockKey = "clock"

// A beat is what the state keeps of the clock:
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

func decodeBeat(value string) (b beat, err error) {
	r := record.Read(value)
	version := r.Uint()
	b = beat{r.Text(), r.Duration(), r.Time(), r.Time()}
	if version != beatVersion || !r.Done() {
		return b, errRecord
	}
	return b, nil
}

// beat adds the clock to the writes of a commit, if it is time to.
func (c *running) beat(writes []Write, always bool) []Write {
	reading := c.Running()
	now := c.base.Add(reading)
	if !always && now.Sub(c.written) < beatEvery {
		return writes
	}
	c.written = now
	b := beat{c.Boot, reading, now, c.Wall()}
	return append(writes, Write{Space: Meta, Key: clockKey, value: b.encode(), due: never})
}

// resume goes on with the running clock of a state, or starts one at the wall
// clock's time.
//
// Within one life of the machine the clock has gone on while the state was
// closed. After another start of the machine only the wall clock knows how long
// that took, so it is believed as far as it does not make the running clock go
// back or leap. At least the clock is behind nothing that was stored: a commit
// comes less than beatEvery after a beat. Where the state comes from another machine,
// that is all that is known.
func resume(o Options, store Store) (*running, error) {
	machine, logf := o.Clock, o.Logf
	var last beat
	known, err := store.Get(Meta, clockKey, func(record []byte) error {
		value, _, _, err := decode(record)
		if err == nil {
			last, err = decodeBeat(string(value))
		}
		if err != nil {
			err = fmt.Errorf("%w: %w", engine.ErrCorrupt, err)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read the clock of the state: %w", err)
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
