package server

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/process"
	"github.com/leasehold/leasehold/dispatch/server/api"
)

// What speaks the socket's protocol from another machine comes over HTTP: a request to
// [RemotePath] bears a token and asks to upgrade its connection to [RemoteProtocol].
// From the answer on the connection is as one to the socket, with three differences. The
// server believes the token, and nothing else, about who it is. A client that is silent
// for a minute has lost its connection: see [Ear]. And the end of the connection does not
// say that the client has gone, unless that said so with [wire.Goodbye]: a network may
// have cut it, and the client has a short while to come back. A connection that another
// server passes on is passed on as any other over HTTP.

const (
	RemotePath     = "/connect"
	RemoteProtocol = "leasehold"
)

// remoteTransport is the Transport of a peer that came so.
const remoteTransport = "remote"

// A remote is a connection over HTTP that was upgraded.
type remote struct {
	*webConn
	in    Ear // for what was read ahead, then the connection
	actor dispatch.Actor
	token string

	partition int // of the token

	letIn atomic.Bool           // the token of an operator has let in a client that is somebody else
	over  atomic.Pointer[error] // why it lets in nobody any more
}

func (c *remote) Read(p []byte) (int, error) { return c.in.Read(p) }

// credentials are those that a hello has, as far as the way that it came lets it.
func (c *remote) credentials(h dispatch.Credentials) (dispatch.Credentials, error) {
	role := c.actor.Role
	switch {
	case h.Operator && !role.Outside():
		return h, &dispatch.ForbiddenError{What: fmt.Sprintf("the token is that of actor %s, and this takes an operator's or a reader's", c.actor.Path)}
	case h.Token != "" && h.Token != c.token:
		return h, fmt.Errorf("%w: the hello has another token than the request", dispatch.ErrUnauthenticated)
	case role == dispatch.Operator && !h.Operator && h.Token == "" && (h.Run != "" || h.Handle != ""):
		// An operator may let anybody in, for as long as the token is valid: see endWhenVoid.
		c.letIn.Store(true)
		if over := c.over.Load(); over != nil {
			return h, *over
		}
		return h, nil
	}
	h.Token, h.Operator, h.Run, h.Name = c.token, false, "", ""
	return h, nil
}

// access returns the name of the operator's token that has let in the client as somebody
// else, or "".
func (c *remote) access() string {
	if !c.letIn.Load() {
		return ""
	}
	return c.actor.Name
}

// connect upgrades a connection and serves it.
func (e *endpoint) connect(w http.ResponseWriter, r *http.Request) {
	r, actor, leave, refused := e.admit(r)
	leave() // it enters again when it has said hello
	if refused != nil {
		e.tell(w, refused.answer())
		return
	}
	if !strings.EqualFold(r.Header.Get("Upgrade"), RemoteProtocol) || r.Method != http.MethodGet {
		w.Header().Set("Upgrade", RemoteProtocol)
		e.tell(w, api.Problem(http.StatusUpgradeRequired, "INVALID_ARGUMENT", "this is where commands connect with --server; MCP clients use /mcp, and programs "+api.Prefix))
		return
	}
	if !e.begin() {
		e.tell(w, api.Problem(http.StatusServiceUnavailable, "UNAVAILABLE", errShutdown.Error()))
		return
	}
	defer e.endings.Done()
	c := webConnOf(r)
	nc, buf, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	peer := c.peer()
	if peer.PID == 0 {
		peer = process.Peer{Transport: remoteTransport}
	}
	_ = nc.SetDeadline(time.Time{})
	_ = nc.SetWriteDeadline(time.Now().Add(e.server.opts.HelloTimeout))
	if _, err := fmt.Fprintf(nc, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", RemoteProtocol); err != nil {
		_ = c.close()
		return
	}
	s := &remote{webConn: c, in: Ear{From: behind(buf.Reader, c)}, actor: actor, token: bearer(r), partition: e.partitionOf(r)}
	over := make(chan struct{})
	defer close(over)
	go func() {
		if s.in.Watch(over, func(int) {}) {
			e.server.opts.Log.Info().Str("actor", actor.Path).Msg("a client over the network was silent for a minute and its connection is closed; it may come back")
			_ = c.close()
		}
	}()
	if dispatch.IsAccess(s.token) {
		var watch sync.WaitGroup
		defer watch.Wait()
		ctx, stop := context.WithCancel(e.ctx)
		defer stop()
		watch.Go(func() { e.endWhenVoid(ctx, s) })
	}
	e.server.ServeConn(e.ctx, s, peer)
}

// endWhenVoid closes the connection of a client that an operator's token has let in, once
// the token is void, or this server does not have the tokens any more. The client may come
// back with a valid token; otherwise its session ends. A session of the operator itself is
// ended where it is served.
func (e *endpoint) endWhenVoid(ctx context.Context, c *remote) {
	for {
		home, _, err := e.server.enter(ctx, c.partition, false)
		if home != nil {
			err = awaitVoid(ctx, home, c.token)
			home.guests.Done()
		}
		if ctx.Err() != nil {
			return
		}
		if home == nil || errors.Is(err, dispatch.ErrUnauthenticated) {
			if err == nil {
				err = errNotReached // another server has the tokens, and the client will come to it
			}
			if c.over.Store(&err); c.letIn.Load() {
				e.server.opts.Log.Info().Err(err).Str("token", c.actor.Name).Msg("a client that an operator's token has let in must come back with a valid one")
				_ = c.close()
			}
			return
		}
		select { // the home is about to go
		case <-time.After(lastPassRetry):
		case <-ctx.Done():
			return
		}
	}
}

// awaitVoid waits until the token is void, or the home is not to be asked any more.
func awaitVoid(ctx context.Context, h *home, token string) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(h.ctx, stop)()
	return h.state.AwaitVoid(ctx, token)
}

// behind reads what br has read ahead of r, then r.
func behind(br *bufio.Reader, r io.Reader) io.Reader {
	if br.Buffered() == 0 {
		return r
	}
	ahead, _ := br.Peek(br.Buffered())
	return io.MultiReader(strings.NewReader(string(ahead)), r)
}

// begin counts one more that the end of the endpoint waits for.
func (e *endpoint) begin() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closing {
		return false
	}
	e.endings.Add(1)
	return true
}
