package connection

import (
	"bufio"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold/dispatch/server"
)

// open returns a connection and the server's end of it.
func open(t *testing.T, still func() bool) (*upgraded, net.Conn) {
	ours, theirs := net.Pipe()
	c := &upgraded{Conn: ours, raw: ours, in: server.Ear{From: ours}, still: still, closed: make(chan struct{})}
	go c.watch()
	t.Cleanup(func() {
		_ = c.Close()
		_ = theirs.Close()
	})
	return c, theirs
}

// A proxy or tunnel that has lost the server goes on to take what it is sent. The call
// that waits there must not wait for ever, and not that long if the server stands still
// and there are others.
func TestAConnectionOfASilentServerEnds(t *testing.T) {
	for name, test := range map[string]struct {
		takes bool
		still func() bool
		after time.Duration
	}{
		"takes everything": {true, nil, time.Minute},
		"takes nothing":    {false, nil, time.Minute},
		"answers others":   {true, func() bool { return false }, time.Minute},
		"stands still":     {true, func() bool { return true }, 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, theirs := open(t, test.still)
				if test.takes {
					go func() { _, _ = io.Copy(io.Discard, theirs) }()
				}
				start := time.Now()
				if _, err := c.Read(make([]byte, 1)); err == nil {
					t.Fatal("something was read")
				}
				if d := time.Since(start); d != test.after {
					t.Errorf("the connection ended after %v, want %v", d, test.after)
				}
			})
		})
	}
}

// A server that has nothing to say answers the pings. It is not asked otherwise.
func TestAConnectionOfAQuietServerLasts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, theirs := open(t, func() bool { return true })
		go func() {
			for lines := bufio.NewScanner(theirs); lines.Scan(); {
				if lines.Text()+"\n" != string(server.Ping) {
					continue // the goodbye
				}
				if _, err := io.WriteString(theirs, `{"jsonrpc":"2.0","id":"leasehold-alive","result":{}}`+"\n"); err != nil {
					return
				}
			}
		}()
		ended := make(chan error, 1)
		go func() {
			_, err := io.Copy(io.Discard, c)
			ended <- err
		}()
		select {
		case err := <-ended:
			t.Errorf("the connection ended: %v", err)
		case <-time.After(time.Hour):
		}
	})
}

// Whoever does not read hears nothing, and that says nothing about the server.
func TestAConnectionThatNobodyReadsLasts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, theirs := open(t, func() bool { return true })
		go func() { _, _ = io.WriteString(theirs, "an answer\n") }()
		go func() { _, _ = io.Copy(io.Discard, theirs) }()
		time.Sleep(time.Hour)
		if _, err := c.Read(make([]byte, 1)); err != nil {
			t.Error(err)
		}
	})
}

// A network may end one direction of a connection alone. A client that has lost it, or has
// waited too long for its welcome, comes back, and its session must be there.
func TestOnlyAClientThatLeavesSaysGoodbye(t *testing.T) {
	for name, test := range map[string]struct {
		answers string
		lost    bool
		goodbye bool
	}{
		"leaves":                  {"welcome", false, true},
		"has lost the connection": {"welcome", true, false},
		"was not welcomed":        {"", false, false},
	} {
		t.Run(name, func(t *testing.T) {
			ours, theirs := net.Pipe()
			defer theirs.Close()
			c := &upgraded{Conn: ours, raw: ours, in: server.Ear{From: strings.NewReader(test.answers)}, closed: make(chan struct{})}
			if _, err := io.ReadFull(c, make([]byte, len(test.answers))); err != nil {
				t.Fatal(err)
			}
			if test.lost {
				if _, err := c.Read(make([]byte, 1)); err == nil {
					t.Fatal("something was read")
				}
			}
			go func() { _ = c.Close() }()
			heard, err := io.ReadAll(theirs)
			if err != nil || strings.Contains(string(heard), "goodbye") != test.goodbye {
				t.Errorf("the server heard %q, %v", heard, err)
			}
		})
	}
}
