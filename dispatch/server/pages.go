package server

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/server/page"
	"github.com/leasehold/leasehold/dispatch/server/tools"
	"github.com/leasehold/leasehold/registry"
)

// pages lets browsers sign in to the page.
type pages struct {
	codes page.Codes
	asked chan chan<- pagePort // requests for a port; see ServePages
}

// A pagePort is a port that was opened on request to serve the page.
type pagePort struct {
	url string
	err error
}

// openPage is the tool operator_page_open of a state. The life of a code is
// measured by the state's clock, which runs while the machine sleeps.
func (s *Server) openPage(ctx context.Context, state *dispatch.State, role dispatch.Role, port, own bool) (made tools.PageCode, err error) {
	if port {
		if made.URL, err = s.pagePort(ctx); err != nil {
			return tools.PageCode{}, err
		}
	}
	clocks, err := state.Clocks(ctx)
	if err != nil {
		return tools.PageCode{}, err
	}
	made.Code, made.For = s.pages.codes.Issue(string(role), own, clocks.Now), page.CodeLasts
	return made, nil
}

// errNoPort is returned by a server that shares its state with others, because
// the browser may be on another server's machine.
var errNoPort = &registry.ArgumentError{Argument: "port", Problem: "cannot be opened by a server that shares its state with others: start the server on your machine with --http 127.0.0.1:7711"}

// portTimeout is how long the daemon may take to open a port.
const portTimeout = 5 * time.Second

// pagePort returns the URL of the page on the loopback. The first call opens
// the port.
func (s *Server) pagePort(ctx context.Context) (string, error) {
	if s.opts.Elsewhere != nil {
		return "", errNoPort
	}
	ctx, cancel := context.WithTimeoutCause(ctx, portTimeout, errors.New("the daemon opens no port for the page"))
	defer cancel()
	answer := make(chan pagePort, 1)
	select {
	case s.pages.asked <- answer:
		p := <-answer
		return p.url, p.err
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

// ServePages opens a port of the loopback when the page is first requested, and
// serves HTTP there until ctx ends. A connected browser keeps the daemon from
// being idle.
func (s *Server) ServePages(ctx context.Context) error {
	services, ctx := errgroup.WithContext(ctx)
	services.Go(func() error {
		var open pagePort
		for {
			select {
			case answer := <-s.pages.asked:
				if open.url == "" {
					var ln net.Listener
					if ln, open.err = ListenHTTP("127.0.0.1:0", false); open.err == nil {
						open.url = "http://" + ln.Addr().String()
						s.opts.Log.Info().Str("url", open.url).Msg("serving the page")
						services.Go(func() error { return s.ServeEndpoint(ctx, &attendedListener{ln, s.attendance}) })
					}
				}
				answer <- open
			case <-ctx.Done():
				return nil
			}
		}
	})
	return services.Wait()
}

// An attendedListener counts its connections like those to the socket.
type attendedListener struct {
	net.Listener
	attendance *attendance
}

func (l *attendedListener) Accept() (net.Conn, error) {
	nc, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.attendance.add(1)
	return &attendedConn{TCPConn: nc.(*net.TCPConn), attendance: l.attendance}, nil
}

type attendedConn struct {
	*net.TCPConn
	attendance *attendance
	once       sync.Once
}

func (c *attendedConn) Close() error {
	c.once.Do(func() { c.attendance.add(-1) })
	return c.TCPConn.Close()
}
