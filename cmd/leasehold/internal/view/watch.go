package view

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/connection"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/terminal"
	"github.com/leasehold/leasehold/dispatch/client"
)

// watchPause is the least time between two reads. More frequent changes could not be
// seen, and would load a busy daemon.
const watchPause = 100 * time.Millisecond

// pauseAfter returns the time between two reads, of which the first took so long. A read
// of a large run is as much work for the daemon, so it is made less often.
func pauseAfter(took time.Duration) time.Duration {
	return min(max(watchPause, 20*took), longestPause)
}

const longestPause = 5 * time.Second

// A state is the answer to a look.
type state struct {
	client.Answer
	missing bool // the answer is NOT_FOUND
}

// Follow repeats the look whenever the daemon reports a change. On a terminal it draws in
// place, and at the end leaves the last state there if keep is set; elsewhere it prints
// each new state once.
func (l *look) Follow(ctx context.Context, c *client.Client, out io.Writer, keep bool) error {
	states := make(chan state)
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error { return l.observe(gctx, c, states) })
	g.Go(func() error {
		if !l.JSON && terminal.Redraws(out) {
			return l.animate(gctx, out, keep, states)
		}
		return l.log(gctx, out, states)
	})
	err := g.Wait()
	if ctx.Err() != nil {
		return nil // Ctrl-C ends a watch normally
	}
	return err
}

// observe sends the current state, and the new one after every change.
func (l *look) observe(ctx context.Context, c *client.Client, states chan<- state) error {
	for {
		answer, err := connection.Call(ctx, c, "operator_watch", nil) // the first answers at once
		if err != nil {
			return err
		}
		if seen, err := connection.Decode[struct{ Changed bool }](answer.Object); err != nil || !seen.Changed {
			if err != nil {
				return err
			}
			continue
		}
		began := time.Now()
		answer, err = connection.Call(ctx, c, l.tool, l.args)
		took := time.Since(began)
		missing := connection.IsCode(err, "NOT_FOUND")
		if err != nil && !missing {
			return err
		}
		select {
		case states <- state{answer, missing}:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if err := connection.Pause(ctx, pauseAfter(took)); err != nil {
			return err
		}
	}
}

// log prints each state that differs from the last one in more than its times.
func (l *look) log(ctx context.Context, out io.Writer, states <-chan state) error {
	var last []byte
	for {
		select {
		case seen := <-states:
			now, err := withoutClocks(seen.Object)
			if err != nil {
				return err
			}
			if bytes.Equal(now, last) {
				continue
			}
			text, err := l.text(seen, 0, terminal.PaintFor(out))
			if err != nil {
				return err
			}
			if last != nil && !l.JSON {
				text = "\n" + text
			}
			last = now
			if _, err := io.WriteString(out, text); err != nil {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// withoutClocks returns an answer without the fields that change with time alone.
func withoutClocks(object json.RawMessage) ([]byte, error) {
	v, err := connection.Decode[any](object)
	if err != nil {
		return nil, err
	}
	stopClocks(v)
	return json.Marshal(v)
}

func stopClocks(v any) {
	switch v := v.(type) {
	case map[string]any:
		for name, field := range v {
			// Both instants are counted from the clock of each answer.
			if strings.HasSuffix(name, "_ms") || name == "expires_at" || name == "acquired_at" {
				delete(v, name)
			}
			stopClocks(field)
		}
	case []any:
		for _, item := range v {
			stopClocks(item)
		}
	}
}

// animate draws the state in place. Between changes it advances the times itself, without
// asking the daemon.
func (l *look) animate(ctx context.Context, out io.Writer, keep bool, states <-chan state) (err error) {
	s, err := terminal.OpenScreen(out)
	if err != nil {
		return err
	}
	var (
		seen *state
		when time.Time
		text string
	)
	defer func() {
		if !keep {
			text = ""
		}
		err = errors.Join(err, s.Close(text))
	}()
	stops := make(chan os.Signal, 1)
	signal.Notify(stops, syscall.SIGTSTP)
	defer signal.Stop(stops)
	second := time.NewTicker(time.Second)
	defer second.Stop()
	for {
		select {
		case <-stops:
			if err := s.Suspend(ctx); err != nil {
				return err
			}
			continue // the next second draws it again
		case now := <-states:
			seen, when = &now, time.Now()
		case <-second.C:
			if seen == nil {
				continue
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		p := terminal.PaintFor(out) // each time, because the width may change
		if text, err = l.text(*seen, time.Since(when), p); err != nil {
			return err
		}
		title := fmt.Sprintf("%s  ·  %s  ·  Ctrl-C ends", terminal.Printable(l.title), time.Now().Format(time.TimeOnly))
		if err := s.Draw(p.Dim(title) + "\n\n" + text); err != nil {
			return err
		}
	}
}
