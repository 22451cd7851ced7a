package server

import (
	"sync"
	"sync/atomic"

	"github.com/google/uuid"
	"github.com/mark3labs/mcp-go/mcp"

	"github.com/leasehold/leasehold/dispatch/server/tools"
	"github.com/leasehold/leasehold/queue"
	"github.com/leasehold/leasehold/registry"
)

// A client is an MCP client for mcp-go. Its id is random and has no other use:
// everything belongs to the dispatch session. It does not keep what initialize
// says of the client and the protocol's version, because nobody asks for it.
type client struct {
	id          string
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

		id:      uuid.NewString(),
		notices: make(chan mcp.JSONRPCNotification, maxNotices),
		level:   mcp.LoggingLevelWarning,
	}
}

func (c *client) SessionID() string                                   { return c.id }
func (c *client) NotificationChannel() chan<- mcp.JSONRPCNotification { return c.notices }
func (c *client) Initialize()                                         { c.initialized.Store(true) }
func (c *client) Initialized() bool                                   { return c.initialized.Load() }

func (c *client) SetLogLevel(level mcp.LoggingLevel) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.level = level
}

func (c *client) GetLogLevel() mcp.LoggingLevel {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.level
}

// tellNotice tells the client of a lease that its session has lost, that
// another waits for, or that is offered to it. A client that reads no notices
// gets it in its next answer.
func (c *client) tellNotice(l registry.Notice) {
	if !c.Initialized() || !mcp.LoggingLevelWarning.ShouldSendTo(c.GetLogLevel()) {
		return
	}
	notice := tools.NoticeOf(l)
	text := notice.String()
	switch {
	case l.Kind != registry.Loss:
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
