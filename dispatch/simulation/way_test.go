package simulation

import (
	"errors"
	"net"
	"slices"
	"sync"
	"time"
)

// A way is what is between a client and the daemon on one connection: a network, or
// another server. When it stands still, the client gives the connection up, and what it
// has sent arrives when the way goes on.
type way struct {
	net.Conn
	among *ways

	mu     sync.Mutex
	stands bool
	left   bool // the client has closed its end, which the daemon does not see yet
	held   []byte
}

var errStands = errors.New("the client has given up the connection")

// Ways are those of a client's open connections.
type ways struct {
	mu   sync.Mutex
	list []*way
}

// add gives a connection that was just dialled a way.
func (ws *ways) add(nc net.Conn, err error) (net.Conn, error) {
	if err != nil {
		return nil, err
	}
	w := &way{Conn: nc, among: ws}
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.list = append(ws.list, w)
	return w, nil
}

func (ws *ways) remove(w *way) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.list = slices.DeleteFunc(ws.list, func(o *way) bool { return o == w })
}

// take returns all of them, which are then others' to close.
func (ws *ways) take() []*way {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	list := ws.list
	ws.list = nil
	return list
}

func (w *way) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.left:
		return 0, errStands
	case w.stands:
		w.held = append(w.held, p...)
		return len(p), nil
	}
	return w.Conn.Write(p)
}

func (w *way) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stands {
		w.left = true
		return w.Conn.SetReadDeadline(time.Unix(1, 0))
	}
	w.among.remove(w)
	return w.Conn.Close()
}

// goOn delivers what was held back, and the end of the connection.
func (w *way) goOn() {
	w.mu.Lock()
	defer w.mu.Unlock()
	_ = w.Conn.SetDeadline(time.Now().Add(time.Second))
	_, _ = w.Conn.Write(w.held)
	w.Conn.Close()
}

// strand lets all ways of a client stand still. It gives them up after a while, and comes
// back over others. Later the first ones go on.
func (c *client) strand(first, later time.Duration) {
	c.w.note("the ways of %s stand still for %v, and go on after %v", c.name, first, first+later)
	c.mu.Lock()
	c.disturbs++
	c.mu.Unlock()
	stand := c.ways.take()
	for _, w := range stand {
		w.mu.Lock()
		w.stands = true
		w.mu.Unlock()
	}
	c.rest(first)
	c.cut()
	c.rest(later)
	c.w.note("the ways of %s go on", c.name)
	for _, w := range stand {
		w.goOn()
	}
	if !c.kind.bridges() {
		c.doubted(c.w.now()) // the daemon sees requests that break off
	}
}
