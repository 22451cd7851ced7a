package client_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold/dispatch/client"
	"github.com/leasehold/leasehold/dispatch/server"
	"github.com/leasehold/leasehold/engine/traceparent"
)

// A handshake that does not succeed says why, and closes the connection.
func TestAHandshakeThatFailsSaysWhy(t *testing.T) {
	errSilent := errors.New("the daemon is silent")
	silent := func(err error) bool { return err == errSilent }
	const welcome = `{"ok":true,"actor":{"name":"a"}}`
	for name, c := range map[string]struct {
		answers []string
		is      func(error) bool
	}{
		"it says nothing":             {nil, silent},
		"it says nothing but welcome": {[]string{welcome}, silent},
		"it refuses the hello": {
			[]string{`{"ok":false,"error":{"code":"LIMIT","message":"full"}}`},
			func(err error) bool { return errors.As(err, new(*server.HelloError)) },
		},
		"it refuses to initialize": {
			[]string{welcome, `{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"no room"}}`},
			func(err error) bool { return err.Error() == "no room" },
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			near, far := net.Pipe()
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				in := bufio.NewScanner(far)
				for n := 0; in.Scan(); n++ {
					if n < len(c.answers) {
						_, _ = io.WriteString(far, c.answers[n]+"\n")
					}
				}
			}()
			ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errSilent)
			defer cancel()
			if _, err := client.Connect(ctx, near, server.Hello{}, "test", ""); err == nil || !c.is(err) {
				t.Errorf("%s: %v", name, err)
			}
			<-ended
		})
	}
}

// What a daemon answers to a call is an answer, a refusal, or neither.
func TestWhatACallIsAnswered(t *testing.T) {
	for name, c := range map[string]struct {
		answer  string // the members of the response besides the id
		code    string // of the refusal
		message string
	}{
		"an answer":               {`"result":{"content":[{"type":"text","text":"one\n"},{"type":"text","text":"{}"}],"structuredContent":{"n":12345678901234567890},"isError":false}`, "", ""},
		"a refusal":               {`"result":{"content":[{"type":"text","text":"held\n"}],"structuredContent":{"code":"LEASE_HELD","message":"held"},"isError":true}`, "LEASE_HELD", "held"},
		"an error without a code": {`"result":{"content":[{"type":"text","text":"broken"}],"structuredContent":{},"isError":true}`, "", "kv_get: broken"},
		"an error without more":   {`"result":{"content":[{"type":"text","text":"broken"}],"isError":true}`, "", "kv_get: broken"},
		"no such tool":            {`"error":{"code":-32602,"message":"kv_get: tool not found"}`, "INVALID_ARGUMENT", `this session has no tool "kv_get", or the daemon has none`},
		"a message not read":      {`"error":{"code":-32600,"message":"too deep"}`, "INVALID_ARGUMENT", "too deep"},
	} {
		synctest.Test(t, func(t *testing.T) {
			near, far := net.Pipe()
			c0, d := connect(t, near, far)
			defer c0.Close()
			go func() {
				id := d.hear("tools/call")
				d.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"content":[]`+"\n", id)) // no JSON
				d.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,%s}`+"\n", id, c.answer))
			}()
			a, err := c0.Call(t.Context(), "kv_get", nil)
			refusal, _ := errors.AsType[*client.Refusal](err)
			switch {
			case c.message == "":
				if err != nil || a.Text != "one\n{}" || a.Line() != "one" || string(a.Object) != `{"n":12345678901234567890}` {
					t.Errorf("%s: %+v %v", name, a, err)
				}
			case err == nil || err.Error() != c.message || (refusal != nil) != (c.code != ""):
				t.Errorf("%s: %v", name, err)
			case refusal != nil:
				var object struct{ Code, Message string }
				if err := json.Unmarshal(a.Object, &object); err != nil || refusal.Code != c.code || object.Code != c.code || object.Message != c.message || a.Line() != c.message {
					t.Errorf("%s: %+v %+v %v", name, refusal, object, err)
				}
			}
		})
	}
}

// A call carries its arguments, its name, whose notices its answer leaves, and its span.
func TestWhatACallSays(t *testing.T) {
	const span = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	text := func(ctx context.Context, c *client.Client) error {
		_, err := c.Call(ctx, "kv_get", map[string]any{"path": "/shared/a"})
		return err
	}
	for name, test := range map[string]struct {
		ctx  func(context.Context) context.Context
		call func(context.Context, *client.Client) error
		want string // "": it is refused, and not sent
	}{
		"a call":          {nil, text, `{"name":"kv_get","arguments":{"path":"/shared/a"}}`},
		"without notices": {client.WithoutNotices, text, `{"name":"kv_get","arguments":{"path":"/shared/a"},"_meta":{"leasehold/unread":true}}`},
		"in a span": {
			func(ctx context.Context) context.Context { return traceparent.With(ctx, span) }, text,
			`{"name":"kv_get","arguments":{"path":"/shared/a"},"_meta":{"traceparent":"` + span + `","tracestate":""}}`,
		},
		"with a name": {nil, func(ctx context.Context, c *client.Client) error {
			_, err := c.CallAs(ctx, "m", true, "lease_list", nil)
			return err
		}, `{"name":"lease_list","_meta":{"leasehold/call":"m","leasehold/resent":true}}`},
		"with text that is not UTF-8": {nil, func(ctx context.Context, c *client.Client) error {
			a, err := c.Call(ctx, "kv_get", map[string]any{"path": "\xff"})
			if refusal, ok := errors.AsType[*client.Refusal](err); !ok || refusal.Code != "INVALID_ARGUMENT" || !strings.Contains(string(a.Object), `"argument":"path"`) {
				t.Errorf("it is refused with %s, %v", a.Object, err)
			}
			return err
		}, ""},
		"with a number that JSON has not": {nil, func(ctx context.Context, c *client.Client) error {
			_, err := c.Call(ctx, "kv_set", map[string]any{"value": math.Inf(1)})
			return err
		}, ""},
		"that is over": {func(ctx context.Context) context.Context {
			ctx, cancel := context.WithCancel(ctx)
			cancel()
			return ctx
		}, text, ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			near, far := net.Pipe()
			c, d := connect(t, near, far)
			said := make(chan string, 1)
			go func() {
				defer close(said)
				line, err := d.in.ReadBytes('\n')
				if err != nil {
					return
				}
				var m struct {
					ID     json.RawMessage
					Params json.RawMessage
				}
				if err := json.Unmarshal(line, &m); err != nil {
					t.Error(err)
				}
				said <- string(m.Params)
				d.answer(string(m.ID), `{"content":[]}`)
			}()
			ctx := t.Context()
			if test.ctx != nil {
				ctx = test.ctx(ctx)
			}
			if err := test.call(ctx, c); (err == nil) != (test.want != "") {
				t.Errorf("%s: %v", name, err)
			}
			synctest.Wait()
			c.Close()
			if got := <-said; got != test.want {
				t.Errorf("%s says %s, want %s", name, got, test.want)
			}
		})
	}
}
