package postgres

import "time"

// SetPatience is for an engine that nobody uses at this instant.
func (e *Engine) SetPatience(d time.Duration) { e.store.patience = d }
