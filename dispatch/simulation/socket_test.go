package simulation

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/leasehold/leasehold/dispatch/process"
	"github.com/leasehold/leasehold/dispatch/server"
	"github.com/leasehold/leasehold/dispatch/server/wire"
)

// A request is one call of a tool. It keeps its id when it is sent again.
type request struct {
	id     int
	tool   string
	args   map[string]any
	again  bool          // it may have arrived before
	giveUp time.Duration // cancel it after so long; 0: never
	breaks bool          // by breaking its connection, over HTTP
}

func (r request) line() []byte {
	params := map[string]any{
		"name": r.tool, "arguments": r.args,
		"_meta": map[string]any{wire.CallMark: fmt.Sprint("call ", r.id), wire.ResentMark: r.again},
	}
	if !r.again {
		delete(params["_meta"].(map[string]any), wire.ResentMark)
	}
	line, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": r.id, "method": wire.ToolsCall, "params": params})
	if err != nil {
		panic(err)
	}
	return line
}

func (r request) cancellation() []byte {
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","method":%q,"params":{"requestId":%d}}`, wire.Cancelled, r.id)
}

// What can become of a request.
var (
	errBroken    = errors.New("the connection broke")
	errOver      = errors.New("the session is over")
	errCancelled = errors.New("cancelled")
	errGone      = errors.New("there is nobody to ask")

	// errUntold is errCancelled where the daemon may only see that the client has hung up.
	errUntold = fmt.Errorf("%w, which nobody was told", errCancelled)
)

// A socket is a client's connection to the socket, after its hello.
type socket struct {
	nc      net.Conn
	welcome server.Welcome
	closed  chan struct{} // nothing more is read

	mu      sync.Mutex
	pending map[int]chan []byte
	deaf    chan struct{} // closed when it reads on; nil while it reads
}

// upgrade asks a server to speak the socket's protocol on a connection over HTTP, as the
// commands do with --server.
func upgrade(nc net.Conn, token string) (net.Conn, error) {
	_ = nc.SetDeadline(time.Now().Add(helloTimeout))
	_, err := fmt.Fprintf(nc, "GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: %s\r\nAuthorization: Bearer %s\r\n\r\n",
		server.RemotePath, server.RemoteProtocol, token)
	if err != nil {
		return nil, err
	}
	br := bufio.NewReader(nc)
	resp, err := http.ReadResponse(br, nil)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		return nil, errors.New(resp.Status)
	}
	_ = nc.SetDeadline(time.Time{})
	up := &upgraded{Conn: nc, br: br, closed: make(chan struct{})}
	go func() { // ends when up is closed
		for {
			select {
			case <-time.After(15 * time.Second):
				_, _ = up.Write(server.Ping)
			case <-up.closed:
				return
			}
		}
	}()
	return up, nil
}

// An upgraded connection has answered the request to upgrade it. It shows that its client
// lives.
type upgraded struct {
	net.Conn
	br     *bufio.Reader
	once   sync.Once
	closed chan struct{}
}

func (c *upgraded) Read(p []byte) (int, error) { return c.br.Read(p) }

func (c *upgraded) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// helloTimeout is how long a server may take to let a client in, before it tries the
// next one.
const helloTimeout = 10 * time.Second

// openSocket connects, with the handle of a session or a token.
func openSocket(dial func(process.Peer) (net.Conn, error), peer process.Peer, hello server.Hello) (*socket, error) {
	nc, err := dial(peer)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errBroken, err)
	}
	br, welcome, err := server.Greet(nc, hello)
	if err != nil {
		nc.Close()
		if refused := (*server.HelloError)(nil); errors.As(err, &refused) && refused.Code == "UNAUTHENTICATED" {
			return nil, errOver
		}
		return nil, fmt.Errorf("%w: %w", errBroken, err)
	}
	s := &socket{nc: nc, welcome: welcome, closed: make(chan struct{}), pending: make(map[int]chan []byte)}
	go s.read(br)
	handshake := `{"jsonrpc":"2.0","id":"hello","method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"s","version":"1"}}}` + "\n" +
		`{"jsonrpc":"2.0","method":"notifications/initialized"}` + "\n"
	if _, err := nc.Write([]byte(handshake)); err != nil {
		nc.Close()
		return nil, errBroken
	}
	return s, nil
}

func (s *socket) read(br *bufio.Reader) {
	defer close(s.closed)
	for {
		s.mu.Lock()
		deaf := s.deaf
		s.mu.Unlock()
		if deaf != nil {
			<-deaf
		}
		line, err := br.ReadBytes('\n')
		if err != nil {
			return
		}
		var m struct{ ID any }
		if err := json.Unmarshal(line, &m); err != nil {
			return
		}
		id, ok := m.ID.(float64)
		if !ok {
			continue
		}
		s.mu.Lock()
		if to := s.pending[int(id)]; to != nil {
			to <- line
			delete(s.pending, int(id))
		}
		s.mu.Unlock()
	}
}

// listen stops to read, or reads on.
func (s *socket) listen(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case on && s.deaf != nil:
		close(s.deaf)
		s.deaf = nil
	case !on && s.deaf == nil:
		s.deaf = make(chan struct{})
	}
}

// hears waits until the client reads, and has read what was on its way.
func (s *socket) hears() {
	s.mu.Lock()
	deaf := s.deaf
	s.mu.Unlock()
	if deaf != nil {
		<-deaf
		time.Sleep(time.Millisecond)
	}
}

func (s *socket) close() {
	s.nc.Close()
	s.listen(true)
}

// ask sends a request and waits for its answer.
func (s *socket) ask(r request) ([]byte, error) {
	answer := make(chan []byte, 1)
	s.mu.Lock()
	s.pending[r.id] = answer
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.pending, r.id)
	}()
	if _, err := s.nc.Write(append(r.line(), '\n')); err != nil {
		s.close()
		<-s.closed // or the client would take the same connection again, and again
		return nil, errBroken
	}
	var giveUp <-chan time.Time
	if r.giveUp > 0 {
		giveUp = time.After(r.giveUp)
	}
	select {
	case line := <-answer:
		return line, nil
	case <-s.closed:
		return nil, errBroken
	case <-giveUp:
	}
	// A client that reads nothing cancels nothing either: the daemon takes a cancel
	// that comes long after the answer for one of a client that has the answer.
	s.hears()
	select { // what was there before the call was cancelled counts, and nothing after
	case line := <-answer:
		return line, nil
	default:
	}
	_, err := s.nc.Write(append(r.cancellation(), '\n'))
	time.Sleep(100 * time.Millisecond) // an answer that was on its way has arrived
	select {
	case <-s.closed: // the daemon may have been killed before it read the cancel, so the shim cancels the call again
		return nil, errBroken
	default:
	}
	if err != nil {
		return nil, errBroken
	}
	return nil, errCancelled
}
