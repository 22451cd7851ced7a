package launcher

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/leasehold/leasehold/dispatch/client"
)

const (
	// observePause is the least time between two looks at the leases.
	observePause = 100 * time.Millisecond

	// observeShare keeps a look at very many leases, which takes its time, from
	// being all that is done.
	observeShare = 10

	// observeRetry is how long to wait for a daemon that is away.
	observeRetry = time.Second
)

// observe turns what changes among the run's leases into events, until ctx
// ends. It has a connection of its own, and a run goes on without it.
func (l *Launcher) observe(ctx context.Context) error {
	seen := standings{}
	for ctx.Err() == nil {
		if c, err := l.opts.Connect(ctx); err == nil {
			seen = l.observeOn(ctx, c, seen)
			c.Close()
		}
		select {
		case <-time.After(observeRetry):
		case <-ctx.Done():
		}
	}
	return nil
}

func (l *Launcher) observeOn(ctx context.Context, c *client.Client, seen standings) standings {
	for {
		if _, err := c.Call(ctx, "operator_watch", nil); err != nil { // the first answers at once
			return seen
		}
		began := time.Now()
		answer, err := c.Call(ctx, "operator_leases", map[string]any{"run": l.run})
		if err != nil {
			return seen
		}
		var list leaseList
		if err := json.Unmarshal(answer.Object, &list); err != nil {
			return seen
		}
		now := list.standings()
		for _, e := range seen.changes(now) {
			l.event(e)
		}
		seen = now
		select {
		case <-time.After(max(observePause, observeShare*time.Since(began))):
		case <-ctx.Done():
			return seen
		}
	}
}

// leaseList is what operator_leases answers.
type leaseList struct {
	Leases []struct {
		Scope       string
		Layer       string // path of the layer's lead
		Name        string // in a layer
		Key         string // across the run
		Token       uint64
		ExpiresInMS int64 `json:"expires_in_ms"`
		Holder      party
		Waiters     []party
	}
}

type party struct {
	ActorID string `json:"actor_id"`
	Path    string
}

// A standing is one party's stand with one lease.
type standing struct {
	scope, layer, key string
	path              string // of the party
	token             uint64 // of what it holds; 0: it waits
}

// standings are all of them, in the order of the list, each with its event.
type standings struct {
	order  []standing
	events map[standing]Event
}

func (list leaseList) standings() standings {
	s := standings{events: make(map[standing]Event)}
	add := func(at standing, e Event) {
		if _, ok := s.events[at]; ok {
			return // another session of the same actor waits too
		}
		e.Scope, e.Key, e.Path = at.scope, at.key, at.path
		s.order = append(s.order, at)
		s.events[at] = e
	}
	for _, le := range list.Leases {
		key := cmp.Or(le.Key, le.Name)
		add(standing{le.Scope, le.Layer, key, le.Holder.Path, le.Token},
			Event{Event: LeaseHeld, Text: fmt.Sprintf("%s holds %s lease %q, token %d", le.Holder.Path, le.Scope, key, le.Token)})
		for _, w := range le.Waiters {
			add(standing{le.Scope, le.Layer, key, w.Path, 0}, Event{
				Event: LeaseWaiting, Holder: le.Holder.Path,
				Text: fmt.Sprintf("%s waits: lease %q held by actor %s (%s), expires in %ds",
					w.Path, key, le.Holder.ActorID, le.Holder.Path, (le.ExpiresInMS+999)/1000),
			})
		}
	}
	return s
}

// changes are the events between two looks: first what was given back, then
// what began.
func (s standings) changes(now standings) (list []Event) {
	for _, at := range s.order {
		if _, still := now.events[at]; !still && at.token != 0 {
			list = append(list, Event{
				Event: LeaseFreed, Scope: at.scope, Key: at.key, Path: at.path,
				Text: fmt.Sprintf("%s no longer holds %s lease %q", at.path, at.scope, at.key),
			})
		}
	}
	for _, at := range now.order {
		if _, before := s.events[at]; !before {
			list = append(list, now.events[at])
		}
	}
	return list
}
