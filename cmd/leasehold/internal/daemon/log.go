package daemon

import (
	"fmt"
	"io"
	"time"

	"github.com/rs/zerolog"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/terminal"
)

// logConfig says how a daemon logs. No log has a token, a handle or a lease_id.
type logConfig struct {
	Format string // json or console; "": as fits the place
	Level  string
}

func (c logConfig) check() error {
	switch c.Format {
	case "", "json", "console":
	default:
		return fmt.Errorf("--log-format %q: must be json or console", c.Format)
	}
	switch c.Level {
	case "trace", "debug", "info", "warn", "error":
		return nil
	default:
		return fmt.Errorf("--log-level %q: must be trace, debug, info, warn or error", c.Level)
	}
}

// open returns a logger that writes to w.
func (c logConfig) open(w io.Writer) zerolog.Logger {
	level, err := zerolog.ParseLevel(c.Level)
	if err != nil {
		level = zerolog.InfoLevel
	}
	if c.Format == "console" || c.Format == "" && terminal.Is(w) {
		w = zerolog.ConsoleWriter{Out: w, NoColor: !terminal.PaintFor(w).On, TimeFormat: time.TimeOnly}
	}
	return zerolog.New(w).Level(level).With().Timestamp().Logger()
}
