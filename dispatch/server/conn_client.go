package server

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/leasehold/leasehold/dispatch/server/tools"
	"github.com/leasehold/leasehold/queue"
	"github.com/leasehold/leasehold/registry"
)

// A client is the MCP client of a connection, or of a session over HTTP. Its leases and
// tasks belong to the dispatch session. What initialize says of the client and the
// protocol's version is not kept, because nobody asks for it.
type client struct {
	groups []string      // of tools that it wants to see; nil: all
	idle   time.Duration // how long its session lasts without a request; 0: as long as its connection

	notices     chan mcp.JSONRPCNotification
	updates     chan mcp.JSONRPCNotification // of resources; the sender waits
	initialized atomic.Bool

	subscriptions subscriptions

	mu    sync.Mutex
	level mcp.LoggingLevel
}

func newClient() *client {
	return &client{
		updates:       make(chan mcp.JSONRPCNotification),
		subscriptions: subscriptions{first: make(chan struct{}, 1)},

		notices: make(chan mcp.JSONRPCNotification, maxNotices),
		level:   mcp.LoggingLevelWarning,
	}
}

type clientKey struct{} // the client of a request

func withClient(ctx context.Context, c *client) context.Context {
	return context.WithValue(ctx, clientKey{}, c)
}

func clientOf(ctx context.Context) *client { return ctx.Value(clientKey{}).(*client) }

// setLevel changes which notices the client gets.
func (c *client) setLevel(level mcp.LoggingLevel) error {
	if !level.ShouldSendTo(mcp.LoggingLevelDebug) { // there is no such level
		return fmt.Errorf("params.level must be debug, info, notice, warning, error, critical, alert or emergency, and not %q", level)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.level = level
	return nil
}

// wants reports whether the client gets notices of that level.
func (c *client) wants(level mcp.LoggingLevel) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.initialized.Load() && level.ShouldSendTo(c.level)
}

// tellNotice tells the client of a lease that its session has lost, that
// another waits for, or that is offered to it. A client that reads no notices
// gets it in its next answer.
func (c *client) tellNotice(l registry.Notice) {
	if !c.wants(mcp.LoggingLevelWarning) {
		return
	}
	notice := tools.NoticeOf(l)
	text := notice.String()
	switch {
	case l.Kind != registry.Loss, l.Token == 0:
	case l.Scope == queue.Scope:
		text += "; drop what you did and claim another task"
	default:
		text = (&registry.LostError{Notice: l}).Error()
	}
	data := struct {
		Code    string `json:"code"`
		Message string `json:"message"`
		tools.Notice
	}{notice.Code, text, notice}
	message := mcp.JSONRPCNotification{
		JSONRPC: mcp.JSONRPC_VERSION,
		Notification: mcp.Notification{
			Method: "notifications/message",
			Params: mcp.NotificationParams{AdditionalFields: map[string]any{
				"level": mcp.LoggingLevelWarning, "logger": "leasehold", "data": data,
			}},
		},
	}
	select {
	case c.notices <- message:
	default:
	}
}
