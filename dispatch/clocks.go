package dispatch

import (
	"context"
	"time"

	"github.com/leasehold/leasehold/engine"
)

// Clocks are the clocks of a State, read at one instant.
type Clocks struct {
	Boot    string        // names the life of the machine; "": not known
	Running time.Duration // a reading of the machine's running clock
	Now     time.Time     // the running clock of the state, which measures its durations
	Wall    time.Time
	Stepped time.Duration // by how much the wall clock was set since the state was opened
}

// Clocks reads the clocks, for those who compare them with their own.
func (s *State) Clocks(ctx context.Context) (c Clocks, err error) {
	return c, s.eng.View(ctx, func(tx engine.Tx) error {
		c = Clocks{Boot: s.opts.Clock.Boot, Running: s.opts.Clock.Running(), Now: tx.Now(), Wall: tx.Wall()}
		c.Stepped = c.Wall.Sub(c.Now) - s.ahead
		return nil
	})
}
