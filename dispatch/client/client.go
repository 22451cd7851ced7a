// Package client is an MCP client for the daemon's socket. leasehold's own
// commands and stories use it. It is not public: programs use package client at
// the top of this module.
package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/leasehold/leasehold/dispatch/server"
	"github.com/leasehold/leasehold/dispatch/server/wire"
	"github.com/leasehold/leasehold/engine/traceparent"
	"github.com/leasehold/leasehold/registry"
)

// A Client is one session with a daemon.
type Client struct {
	server.Welcome
	rpc *rpc
}

// Connect opens a session over nc, which the Client owns from then on, and
// performs the handshakes. If the daemon refuses, the error is a
// [*server.HelloError]. If ctx ends first, it is the cause of that.
func Connect(ctx context.Context, nc net.Conn, hello server.Hello, name, version string) (*Client, error) {
	stop := context.AfterFunc(ctx, func() { nc.Close() })
	c, err := connect(ctx, nc, hello, mcp.Implementation{Name: name, Version: version})
	if !stop() { // ctx has ended and nc is closed
		if err == nil {
			c.Close()
		}
		return nil, context.Cause(ctx)
	}
	if err != nil {
		nc.Close()
		return nil, err
	}
	return c, nil
}

func connect(ctx context.Context, nc net.Conn, hello server.Hello, info mcp.Implementation) (*Client, error) {
	br, welcome, err := server.Greet(nc, hello)
	if err != nil {
		return nil, err
	}
	c := &Client{Welcome: welcome, rpc: newRPC(nc, br)}
	handshake := mcp.InitializeParams{ProtocolVersion: mcp.LATEST_LEGACY_PROTOCOL_VERSION, ClientInfo: info}
	if _, err = c.rpc.call(ctx, wire.Initialize, handshake); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	c.rpc.notify(wire.Initialized, nil)
	return c, nil
}

// Close closes the connection. The session ends if no other connection uses it.
func (c *Client) Close() error {
	err := c.rpc.close()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// An Answer is the result of a tool call.
type Answer struct {
	Text   string
	Object json.RawMessage
}

// Line is the first line of the text, which is written for people.
func (a Answer) Line() string {
	line, _, _ := strings.Cut(a.Text, "\n")
	return line
}

// A Refusal is a result that reports a refusal.
type Refusal struct {
	Code    string
	Message string
	Answer
}

func (r *Refusal) Error() string { return r.Message }

// Passing reports whether the same call may be served a moment later: the daemon, or one
// of its limits, refuses it for the present. That does not help a call that is itself too
// large, nor one that finds the disk full.
func (r *Refusal) Passing() bool {
	var data struct {
		DiskFull bool `json:"disk_full"`
		TooLarge bool `json:"too_large"`
	}
	_ = json.Unmarshal(r.Object, &data) // without them it is neither
	return r.Code == "UNAVAILABLE" && !data.DiskFull || r.Code == "LIMIT" && !data.TooLarge
}

// Call calls a tool. A refusal is returned as a [*Refusal], and so are arguments with
// text that is not UTF-8, which are not sent.
func (c *Client) Call(ctx context.Context, tool string, args any) (Answer, error) {
	return c.call(ctx, tool, args, make(map[string]any))
}

// CallAs is Call with a name that is unique among all calls. With again set,
// the call may already have been sent on another connection of the session; it
// still takes effect only once.
func (c *Client) CallAs(ctx context.Context, name string, again bool, tool string, args any) (Answer, error) {
	return c.call(ctx, tool, args, map[string]any{wire.CallMark: name, wire.ResentMark: again})
}

type unreadKey struct{}

// WithoutNotices returns a context for calls whose answers are not shown whole.
// The daemon then leaves what it has to tell the actor for another answer, and the
// text is one line, which does not repeat the object.
func WithoutNotices(ctx context.Context) context.Context {
	return context.WithValue(ctx, unreadKey{}, true)
}

// call calls a tool. The call belongs to the span of ctx, if it has one.
func (c *Client) call(ctx context.Context, tool string, args any, meta map[string]any) (Answer, error) {
	if ctx.Value(unreadKey{}) != nil {
		meta[wire.UnreadMark] = true
	}
	if parent, state := traceparent.Split(traceparent.Of(ctx)); parent != "" {
		meta[traceparent.Header], meta[traceparent.StateHeader] = parent, state
	}
	params := struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments,omitempty"`
		Meta      map[string]any  `json:"_meta,omitempty"`
	}{Name: tool, Meta: meta}
	if args != nil {
		text, err := wire.Marshal(args)
		if wrong, ok := errors.AsType[*registry.ArgumentError](err); ok {
			refusal := invalid(wrong.Argument, err)
			return refusal.Answer, refusal
		}
		if err != nil {
			return Answer{}, fmt.Errorf("the arguments of %s have no JSON: %w", tool, err)
		}
		params.Arguments = text
	}
	line, err := c.rpc.call(ctx, wire.ToolsCall, params)
	if refusal := refusalOf(tool, err); refusal != nil {
		return refusal.Answer, refusal
	}
	if err != nil {
		return Answer{}, err
	}
	a, failed := readResult(line)
	if !failed {
		return a, nil
	}
	r := &Refusal{Answer: a}
	if err := json.Unmarshal(a.Object, r); err != nil || r.Code == "" {
		return Answer{}, fmt.Errorf("%s: %s", tool, a.Text)
	}
	return a, r
}

// readResult reads the result of a tool. failed says that the result is an error. The
// object is not decoded, so that its numbers keep their digits and a large one is not
// scanned again.
func readResult(result json.RawMessage) (a Answer, failed bool) {
	for name, value := range wire.Members(result) {
		switch string(name) {
		case "content":
			for item := range wire.Elements(value) {
				for name, value := range wire.Members(item) {
					if string(name) == "text" {
						text, _ := wire.TextOf(value)
						a.Text += text
					}
				}
			}
		case "structuredContent":
			a.Object = value
		case "isError":
			failed = string(value) == "true"
		}
	}
	return a, failed
}

// refusalOf returns the refusal that err is if the daemon answered the call with an error
// of JSON-RPC. That answer is final: it says that the daemon has no such tool, or that it
// cannot read the message, as a daemon of another version may. If no answer came,
// refusalOf returns nil, and the call may be made again on another connection.
func refusalOf(tool string, err error) *Refusal {
	if _, answered := errors.AsType[*rpcError](err); !answered {
		return nil
	}
	if strings.HasSuffix(err.Error(), "tool not found") {
		err = fmt.Errorf("this session has no tool %q, or the daemon has none", tool)
	}
	return invalid("", err)
}

// invalid returns the refusal of a call because of an argument, or "" if it is none.
func invalid(argument string, err error) *Refusal {
	r := &Refusal{Code: "INVALID_ARGUMENT", Message: err.Error()}
	r.Text = r.Message
	r.Object, _ = json.Marshal(struct { // strings have JSON
		Argument string `json:"argument,omitempty"`
		Code     string `json:"code"`
		Message  string `json:"message"`
	}{argument, r.Code, r.Message})
	return r
}

// Tools lists the tools that the session may call.
func (c *Client) Tools(ctx context.Context) ([]mcp.Tool, error) {
	line, err := c.rpc.call(ctx, wire.ListTools, nil)
	if err != nil {
		return nil, err
	}
	var result mcp.ListToolsResult
	err = json.Unmarshal(line, &result)
	return result.Tools, err
}
