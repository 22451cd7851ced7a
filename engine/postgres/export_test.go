package postgres

import "time"

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
