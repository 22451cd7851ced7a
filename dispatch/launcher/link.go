package launcher

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/leasehold/leasehold/dispatch/client"
)

const (
	redialPause = 100 * time.Millisecond

	// patience is how long a daemon may be away. Agents wait as long for it
	// as their clients let them; without a daemon nobody holds anything.
	patience = 60 * time.Second

	// shortCalls bounds the calls under way besides the one that waits for
	// orders, well below what a connection may have.
	shortCalls = 64
)

// errDaemonGone ends a run whose daemon stays away.
var errDaemonGone = fmt.Errorf("the daemon has been away for %v", patience)

// A link is a connection to the daemon that outlives it: a call that breaks off
// is made again on the next connection, so it must bear being made twice.
type link struct {
	dial   func(context.Context) (*client.Client, error)
	attach func(context.Context, *client.Client) error // first on every connection but the first
	told   func(lost bool)                             // of every loss and return
	slots  chan struct{}

	mu sync.Mutex
	c  *client.Client
}

func newLink(dial func(context.Context) (*client.Client, error)) *link {
	return &link{dial: dial, told: func(bool) {}, slots: make(chan struct{}, shortCalls)}
}

// call makes a call and reads its object into answer, if that is not nil. An
// answer that refuses is a [*client.Refusal].
func (l *link) call(ctx context.Context, tool string, args, answer any) error {
	select {
	case l.slots <- struct{}{}:
		defer func() { <-l.slots }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return l.wait(ctx, tool, args, answer)
}

// wait is call for one that waits: it takes no slot.
func (l *link) wait(ctx context.Context, tool string, args, answer any) error {
	for {
		c, err := l.client(ctx)
		if err != nil {
			return err
		}
		got, err := c.Call(ctx, tool, args)
		var refusal *client.Refusal
		switch {
		case err == nil && answer == nil:
			return nil
		case err == nil:
			if err := json.Unmarshal(got.Object, answer); err != nil {
				return fmt.Errorf("the answer of %s cannot be read: %w", tool, err)
			}
			return nil
		case errors.As(err, &refusal):
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		}
		l.drop(c)
	}
}

// client is the connection, made anew if need be by whoever comes first.
func (l *link) client(ctx context.Context) (*client.Client, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.c != nil {
		return l.c, nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, patience, errDaemonGone)
	defer cancel()
	for {
		c, err := l.dial(ctx)
		if err == nil {
			if err = l.attach(ctx, c); err == nil {
				l.c = c
				l.told(false)
				return c, nil
			}
			c.Close()
			var refusal *client.Refusal
			if errors.As(err, &refusal) && refusal.Code != "UNAVAILABLE" {
				return nil, err
			}
		}
		select {
		case <-time.After(redialPause):
		case <-ctx.Done():
			return nil, errors.Join(context.Cause(ctx), err)
		}
	}
}

// drop forgets a connection that has broken.
func (l *link) drop(c *client.Client) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.c == c {
		l.c = nil
		c.Close()
		l.told(true)
	}
}

func (l *link) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.c != nil {
		l.c.Close()
		l.c = nil
	}
}
