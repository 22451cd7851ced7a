package server

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/server/fair"
	"github.com/leasehold/leasehold/dispatch/server/tools"
	"github.com/leasehold/leasehold/dispatch/server/wire"
	"github.com/leasehold/leasehold/registry"
)

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
		list, err := tools.ListResources(ctx, se, clientOf(ctx).groups)
		return resultOf(mcp.ListResourcesResult{Resources: list}), err
	case wire.ListTemplates:
		return resultOf(mcp.ListResourceTemplatesResult{ResourceTemplates: tools.ResourceTemplates()}), nil
	}
	uri := env.Params.URI
	subs := &clientOf(ctx).subscriptions
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
	since uint64                  // revision at which the first of them was added
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
func (c *client) tellUpdates(ctx context.Context, se *dispatch.Session) {
	s := &c.subscriptions
	for {
		select {
		case <-s.first:
		case <-ctx.Done():
			return
		}
		s.follow(ctx, se, func(uri string) bool {
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
func (s *subscriptions) follow(ctx context.Context, se *dispatch.Session, tell func(uri string) bool) {
	watch := se.NewEvents()
	defer watch.Stop()
	s.mu.Lock()
	since := s.since
	s.mu.Unlock()
	changes, leave := se.Follow(since)
	defer leave()
	for ctx.Err() == nil {
		known, more, err := changes.Read(ctx)
		if err != nil {
			return // the session or the daemon has ended
		}
		changed, some := s.changed(changes, known)
		if !some {
			return
		}
		for _, uri := range changed {
			if !tell(uri) {
				return
			}
		}
		fair.Sleep(ctx, updatePause)
		if more {
			continue
		}
		select {
		case <-watch.C:
		case <-ctx.Done():
		}
	}
}

// changed returns the resources that have changed since their client last knew
// them, and whether there are any resources. The client is told after what is
// known now.
func (s *subscriptions) changed(changes *dispatch.Changes, known uint64) (uris []string, some bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for uri, sub := range s.uris {
		if at := changes.Of(dispatch.Topic(sub.Resource)); at > sub.since {
			uris = append(uris, uri)
			s.uris[uri] = subscription{sub.Resource, max(at, known)}
		}
	}
	slices.Sort(uris)
	return uris, len(s.uris) > 0
}
