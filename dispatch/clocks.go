package dispatch

import (
	"context"
	"time"

	"github.com/leasehold/leasehold/engine"
)

// Clocks are the clocks of a State, read at one instant.
type Clocks struct {
	Boot    string        // identifies this boot of the machine; "": unknown
	Running time.Duration // a reading of the machine's running clock
	Now     time.Time     // the running clock of the state, for durations
	Wall    time.Time
	Stepped time.Duration // how far the wall clock has been set since the state was opened
}

// Clocks reads all clocks, for a caller that compares them with its own.
func (s *State) Clocks(ctx context.Context) (c Clocks, err error) {
	return c, s.eng.View(ctx, func(tx engine.Tx) error {
		c = Clocks{Boot: s.opts.Clock.Boot, Running: s.opts.Clock.Running(), Now: tx.Now(), Wall: tx.Wall()}
		c.Stepped = c.Wall.Sub(c.Now) - s.ahead
		return nil
	})
}
