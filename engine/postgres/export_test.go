package postgres

import (
	"context"
	"time"
)

// TooOld is tested with what old versions said: only one is installed.
var TooOld = tooOld

// SetPatience is for an engine that nobody uses at this instant.
func (e *Engine) SetPatience(d time.Duration) { e.store.patience, e.store.conns.writer.patience = d, d }

// Ready returns how many partitions wait for the writer.
func (c *Connections) Ready() int {
	c.writer.mu.Lock()
	defer c.writer.mu.Unlock()
	return len(c.writer.ready)
}

// Patiently tries within a patience, and logs nothing.
func Patiently(patience time.Duration, try func(context.Context) error) error {
	return patiently(context.Background(), patience, func(string, ...any) {}, try)
}

// Connecting returns how many hosts a connection asks, and for how long each.
func (o Options) Connecting() (asked int, each time.Duration, err error) {
	cfg, err := o.withDefaults().config()
	if err != nil {
		return 0, 0, err
	}
	return len(hosts(&cfg.ConnConfig.Config)), cfg.ConnConfig.ConnectTimeout, nil
}
