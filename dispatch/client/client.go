// Package client is an MCP client for the daemon's socket. leasehold's own
// commands and stories use it. It is not public: programs use package client at
// the top of this module.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"

	mcpclient "github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"

	"github.com/leasehold/leasehold/dispatch/server"
	"github.com/leasehold/leasehold/dispatch/server/wire"
	"github.com/leasehold/leasehold/engine/traceparent"
	"github.com/leasehold/leasehold/registry"
)

// A Client is one session with a daemon.
type Client struct {
	server.Welcome
	mcp *mcpclient.Client
}

// Connect opens a session over nc, which the Client owns from then on, and
// performs the handshakes. If the daemon refuses, the error is a
// [*server.HelloError].
func Connect(ctx context.Context, nc net.Conn, hello server.Hello, name, version string) (*Client, error) {
	stop := context.AfterFunc(ctx, func() { nc.Close() })
	c, err := connect(ctx, nc, hello, mcp.Implementation{Name: name, Version: version})
	if !stop() && err == nil { // ctx has ended and nc is closed
		c.Close()
		err = context.Cause(ctx)
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
	m := mcpclient.NewClient(transport.NewIO(untilEnd{br}, nc, io.NopCloser(bytes.NewReader(nil))))
	if err := m.Start(ctx); err != nil {
		return nil, err
	}
	handshake := mcp.InitializeRequest{}
	handshake.Params.ProtocolVersion = mcp.LATEST_LEGACY_PROTOCOL_VERSION
	handshake.Params.ClientInfo = info
	if _, err := m.Initialize(ctx, handshake); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return &Client{Welcome: welcome, mcp: m}, nil
}

// untilEnd reports every read error as io.EOF. The caller learns of the error
// from the calls that fail, and mcp-go would log it.
type untilEnd struct{ io.Reader }

func (r untilEnd) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if err != nil {
		err = io.EOF
	}
	return n, err
}

// Close closes the connection. The session ends if no other connection uses it.
func (c *Client) Close() error {
	err := c.mcp.Close() // closes nc
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

// call calls a tool. The call belongs to the span of ctx, if it has one.
func (c *Client) call(ctx context.Context, tool string, args any, meta map[string]any) (Answer, error) {
	if parent, state := traceparent.Split(traceparent.Of(ctx)); parent != "" {
		meta[traceparent.Header], meta[traceparent.StateHeader] = parent, state
	}
	request := mcp.CallToolRequest{}
	request.Params.Name = tool
	if args != nil {
		text, err := wire.Marshal(args)
		if wrong, ok := errors.AsType[*registry.ArgumentError](err); ok {
			refusal := invalid(wrong.Argument, err)
			return refusal.Answer, refusal
		}
		if err != nil {
			return Answer{}, fmt.Errorf("the arguments of %s have no JSON: %w", tool, err)
		}
		request.Params.Arguments = text
	}
	if len(meta) > 0 {
		request.Params.Meta = &mcp.Meta{AdditionalFields: meta}
	}
	result, err := c.mcp.CallTool(ctx, request)
	if refusal := refusalOf(tool, err); refusal != nil {
		return refusal.Answer, refusal
	}
	if err != nil {
		return Answer{}, err
	}
	var a Answer
	for _, content := range result.Content {
		if text, ok := content.(mcp.TextContent); ok {
			a.Text += text.Text
		}
	}
	a.Object = result.RawStructuredContent // unparsed, so that numbers keep their digits
	if !result.IsError {
		return a, nil
	}
	r := &Refusal{Answer: a}
	if err := json.Unmarshal(a.Object, r); err != nil || r.Code == "" {
		return Answer{}, fmt.Errorf("%s: %s", tool, a.Text)
	}
	return a, r
}

// refusalOf returns the refusal that err is if the daemon answered the call with an error
// of JSON-RPC. That answer is final: it says that the daemon has no such tool, or that it
// cannot read the message, as a daemon of another version may. If no answer came,
// refusalOf returns nil, and the call may be made again on another connection.
func refusalOf(tool string, err error) *Refusal {
	final := []error{mcp.ErrParseError, mcp.ErrInvalidRequest, mcp.ErrMethodNotFound, mcp.ErrInvalidParams, mcp.ErrInternalError}
	if !slices.ContainsFunc(final, func(e error) bool { return errors.Is(err, e) }) {
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
	result, err := c.mcp.ListTools(ctx, mcp.ListToolsRequest{})
	if err != nil {
		return nil, err
	}
	return result.Tools, nil
}
