package client_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold/dispatch/client"
	"github.com/leasehold/leasehold/dispatch/server"
)

// A daemon is the far end of a client's connection, as a test wants it.
type daemon struct {
	t *testing.T
	net.Conn
	in *bufio.Reader
}

// connect returns a client and its daemon, which has answered the handshakes. Each is at
// one end of a connection.
func connect(t *testing.T, near, far net.Conn) (*client.Client, *daemon) {
	d := &daemon{t, far, bufio.NewReader(far)}
	t.Cleanup(func() { far.Close() })
	greeted := make(chan struct{})
	go func() {
		defer close(greeted)
		_, _ = d.in.ReadString('\n')
		d.say(`{"ok":true,"actor":{"name":"a"}}` + "\n")
		d.answer(d.hear("initialize"), `{}`)
		d.hear("notifications/initialized")
	}()
	c, err := client.Connect(t.Context(), near, server.Hello{}, "test", "")
	if err != nil {
		t.Fatal(err)
	}
	<-greeted
	return c, d
}

// hear reads a message, and returns the id of the request that it makes or cancels.
func (d *daemon) hear(method string) string {
	line, err := d.in.ReadBytes('\n')
	var m struct {
		ID     json.RawMessage
		Method string
		Params struct{ RequestID json.RawMessage }
	}
	if err := errors.Join(err, json.Unmarshal(line, &m)); err != nil || m.Method != method {
		d.t.Errorf("the daemon has read %.80q and %v, want %s", line, err, method)
	}
	return string(m.ID) + string(m.Params.RequestID)
}

func (d *daemon) say(text string) {
	if _, err := io.WriteString(d, text); err != nil {
		d.t.Error(err)
	}
}

func (d *daemon) answer(id, result string) {
	d.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`+"\n", id, result))
}

func text(s string) string { return fmt.Sprintf(`{"content":[{"type":"text","text":%q}]}`, s) }

func TestACallEndsWithItsContextAlthoughTheDaemonDoesNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe() // holds no message: one end writes only while the other reads
		c, d := connect(t, near, far)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := c.Call(ctx, "kv_set", nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the call ended with %v", err)
		}
		// Once the daemon reads, it learns of the call, and then that nobody waits.
		asked := d.hear("tools/call")
		if cancelled := d.hear("notifications/cancelled"); cancelled != asked {
			t.Errorf("request %s was cancelled instead of %s", cancelled, asked)
		}
		c.Close()
	})
}

func TestCloseEndsACallThatTheDaemonDoesNotRead(t *testing.T) {
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	near, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	far, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	c, d := connect(t, near, far)
	go func() {
		_, _ = d.in.ReadByte() // the rest is more than the socket holds
		c.Close()
	}()
	large := map[string]any{"value": strings.Repeat("a", 8<<20)}
	if _, err := c.Call(t.Context(), "kv_set", large); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the call ended with %v", err)
	}
	if err := c.Close(); err != nil {
		t.Errorf("it is closed twice: %v", err)
	}
}

func TestACallGetsOnlyItsOwnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe() // holds no message: one end writes only while the other reads
		c, d := connect(t, near, far)
		go func() {
			late := d.hear("tools/call")
			d.hear("notifications/cancelled")
			asked := d.hear("tools/call")
			d.answer(late, text("late"))
			for range 10_000 {
				d.say(`{"jsonrpc":"2.0","method":"notifications/message","params":{}}` + "\n")
			}
			d.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"ping"}`+"\n", asked))
			d.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"res`, asked)) // half of it
			time.Sleep(time.Hour)
			d.say(fmt.Sprintf(`ult":%s}`+"\n", text("in time")))
			d.hear("tools/call")
			d.say(`{"jsonrpc":"2.0","id":`)
			d.Close()
		}()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := c.Call(ctx, "kv_get", nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the first call ended with %v", err)
		}
		if a, err := c.Call(t.Context(), "kv_get", nil); err != nil || a.Text != "in time" {
			t.Errorf("the second call: %q, %v", a.Text, err)
		}
		if _, err := c.Call(t.Context(), "kv_get", nil); !errors.Is(err, net.ErrClosed) {
			t.Errorf("the call whose answer broke off: %v", err)
		}
		c.Close()
	})
}
