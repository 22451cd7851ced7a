package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	mcpserver "github.com/mark3labs/mcp-go/server"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/server/tools"
	"github.com/leasehold/leasehold/dispatch/server/wire"
	"github.com/leasehold/leasehold/engine/event"
	"github.com/leasehold/leasehold/registry"
)

// mcp-go can announce resources, but its lists are the same for all sessions,
// and its subscriptions notify nobody.

// resources answers a request about resources.
func (s *service) resources(ctx context.Context, se *dispatch.Session, env *wire.Message) []byte {
	result, err := s.resourceResult(ctx, se, env)
	if err == nil {
		return wire.Reply(env.ID, result)
	}
	r := tools.RefusalOf(err)
	code := wire.InternalError
	switch r.Code {
	case "NOT_FOUND", "FORBIDDEN":
		code = wire.NotFound
	case "INVALID_ARGUMENT":
		code = wire.InvalidParams
	}
	return wire.ErrorReply(env.ID, code, r.Message, r.Reply().Object)
}

func (s *service) resourceResult(ctx context.Context, se *dispatch.Session, env *wire.Message) (json.RawMessage, error) {
	if _, err := se.Tasks(); err != nil { // an operator's session is in no run
		return nil, err
	}
	switch env.Method {
	case wire.ListResources:
		groups, _ := ctx.Value(groupsKey{}).([]string)
		list, err := tools.ListResources(ctx, se, groups)
		return resultOf(mcp.ListResourcesResult{Resources: list}), err
	case wire.ListTemplates:
		return resultOf(mcp.ListResourceTemplatesResult{ResourceTemplates: tools.ResourceTemplates()}), nil
	}
	uri := env.Params.URI
	switch env.Method {
	case wire.ReadResource, wire.Subscribe, wire.Unsubscribe:
	default:
		return nil, &registry.ArgumentError{Argument: "method", Problem: fmt.Sprintf("%.100q is not one of this server's", env.Method)}
	}
	subs := &mcpserver.ClientSessionFromContext(ctx).(*client).subscriptions
	if env.Method == wire.Unsubscribe {
		return resultOf(mcp.EmptyResult{}), subs.remove(ctx, se, uri)
	}
	r, err := tools.ParseResource(uri)
	if err != nil {
		return nil, err
	}
	since, err := se.Revision(ctx)
	if err != nil {
		return nil, err
	}
	text, err := r.Read(ctx, se)
	if err != nil {
		return nil, err
	}
	if env.Method == wire.Subscribe {
		return resultOf(mcp.EmptyResult{}), subs.add(ctx, se, uri, r, since)
	}
	return tools.ReadResult(uri, text), nil
}

func resultOf(result any) json.RawMessage {
	text, err := json.Marshal(result)
	if err != nil {
		panic("server: a result has no JSON: " + err.Error())
	}
	return text
}

// updatePause is the shortest time between two notifications about one
// resource.
const updatePause = 100 * time.Millisecond

// subscriptions are the resources about whose changes a client is notified,
// based on the events of its run. Each change is followed by a notification,
// but several changes may share one. For a client that does not read, at most
// one notification per resource is pending, apart from those already sent.
type subscriptions struct {
	lasting bool // they survive a restart of the daemon with the session, because no client repeats them

	mu    sync.Mutex
	uris  map[string]subscription // by URI, as the client wrote it
	since uint64                  // revision up to which events have been read
	first chan struct{}           // holds one token if there may be subscriptions
}

type subscription struct {
	tools.Resource
	since uint64 // revision at which its client last knew it
}

// add starts notifications about a resource whose state at revision since the
// client knows.
func (s *subscriptions) add(ctx context.Context, se *dispatch.Session, uri string, r tools.Resource, since uint64) error {
	s.mu.Lock()
	if _, ok := s.uris[uri]; !ok && len(s.uris) == maxSubscriptions {
		s.mu.Unlock()
		return &registry.LimitError{Which: "subscriptions of one client", Max: maxSubscriptions}
	}
	if len(s.uris) == 0 {
		s.uris, s.since = make(map[string]subscription), since
		select {
		case s.first <- struct{}{}:
		default:
		}
	}
	s.uris[uri] = subscription{r, since}
	s.mu.Unlock()
	return s.note(ctx, se)
}

func (s *subscriptions) remove(ctx context.Context, se *dispatch.Session, uri string) error {
	s.mu.Lock()
	_, ok := s.uris[uri]
	delete(s.uris, uri)
	s.mu.Unlock()
	if !ok {
		return nil
	}
	return s.note(ctx, se)
}

// note stores the subscriptions in the session's record, if they are to survive
// the daemon.
func (s *subscriptions) note(ctx context.Context, se *dispatch.Session) error {
	if !s.lasting {
		return nil
	}
	s.mu.Lock()
	uris := slices.Sorted(maps.Keys(s.uris))
	s.mu.Unlock()
	return se.Subscribe(ctx, uris)
}

// restore restores the subscriptions that an earlier daemon stored. It is not
// known what has changed in the meantime, so all of them are treated as
// changed.
func (s *subscriptions) restore(ctx context.Context, se *dispatch.Session) error {
	uris, err := se.Subscriptions(ctx)
	if err != nil || len(uris) == 0 {
		return err
	}
	now, err := se.Revision(ctx)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.uris, s.since = make(map[string]subscription), now
	for _, uri := range uris {
		if r, err := tools.ParseResource(uri); err == nil {
			s.uris[uri] = subscription{r, 0}
		}
	}
	s.first <- struct{}{}
	return nil
}

// tellUpdates notifies the client about changes of its resources, until ctx
// ends.
func (c *client) tellUpdates(ctx context.Context, se *dispatch.Session, sh *share) {
	s := &c.subscriptions
	for {
		select {
		case <-s.first:
		case <-ctx.Done():
			return
		}
		s.follow(ctx, se, sh, func(uri string) bool {
			select {
			case c.updates <- updated(uri):
				return true
			case <-ctx.Done():
				return false
			}
		})
	}
}

func updated(uri string) mcp.JSONRPCNotification {
	return mcp.JSONRPCNotification{
		JSONRPC: mcp.JSONRPC_VERSION,
		Notification: mcp.Notification{
			Method: wire.ResourceUpdated,
			Params: mcp.NotificationParams{AdditionalFields: map[string]any{"uri": uri}},
		},
	}
}

// follow reports changes while there are subscriptions.
func (s *subscriptions) follow(ctx context.Context, se *dispatch.Session, sh *share, tell func(uri string) bool) {
	watch := se.NewEvents()
	defer watch.Stop()
	for ctx.Err() == nil {
		changed, more, err := s.look(ctx, se, sh)
		if err != nil || changed == nil {
			return // the session or the daemon has ended, or there are no subscriptions
		}
		for _, uri := range changed {
			if !tell(uri) {
				return
			}
		}
		sleep(ctx, updatePause)
		if more {
			continue
		}
		select {
		case <-watch.C:
		case <-ctx.Done():
		}
	}
}

// look reads events, in a turn for large reads, until they have changed all of the
// resources, and returns those that they change; nil if there are no subscriptions
// any more. The client is told after what was read, so later events up to then
// change nothing for it.
func (s *subscriptions) look(ctx context.Context, se *dispatch.Session, sh *share) (changed []string, more bool, err error) {
	ctx, t, err := sh.turn(ctx, false)
	if err != nil {
		return nil, false, err
	}
	s.mu.Lock()
	asked, since := maps.Clone(s.uris), s.since
	s.mu.Unlock()
	same := maps.Clone(asked)
	maps.DeleteFunc(same, func(_ string, sub subscription) bool { return sub.since == 0 })
	next, more, err := se.Changes(ctx, since, func(e *event.Event) bool {
		maps.DeleteFunc(same, func(_ string, sub subscription) bool {
			return e.Revision > sub.since && sub.ChangedBy(e)
		})
		return len(same) > 0
	})
	t.end()
	if compacted, ok := errors.AsType[*event.CompactedError](err); ok {
		next, more, err = compacted.Through, true, nil
		clear(same)
	}
	if err != nil {
		return nil, false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.uris) == 0 {
		return nil, false, nil
	}
	changed = []string{}
	for uri, sub := range s.uris {
		switch _, unchanged := same[uri]; {
		case sub.since >= next: // it was added meanwhile
		case unchanged && sub.since == asked[uri].since:
		default: // a subscription that was added meanwhile may have missed something
			changed = append(changed, uri)
			sub.since = next
			s.uris[uri] = sub
		}
	}
	s.since = next
	slices.Sort(changed)
	return changed, more, nil
}
