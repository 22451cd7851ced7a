package client

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/leasehold/leasehold/client/address"
)

// A server is one way to reach the state.
type server struct {
	url  string // before the path
	runs string // the URL at which it says that it runs
	http *http.Client
}

// servers are those of a client, one of which is current.
type servers struct {
	list []server
	now  atomic.Int64
}

func newServers(urls []string, secure *tls.Config) (*servers, error) {
	if len(urls) == 0 {
		return nil, fmt.Errorf("no servers are given: name at least one, such as unix:///run/user/1000/leasehold.sock or https://leases.example.org")
	}
	ss := &servers{}
	for _, text := range urls {
		s, err := newServer(text, secure)
		if err != nil {
			return nil, err
		}
		ss.list = append(ss.list, s)
	}
	return ss, nil
}

func newServer(text string, secure *tls.Config) (server, error) {
	u, err := url.Parse(text)
	if err != nil {
		return server{}, fmt.Errorf("server %q: %w", text, err)
	}
	dialer := &net.Dialer{Timeout: dialTimeout}
	transport := &http.Transport{
		DialContext: dialer.DialContext, TLSClientConfig: secure, TLSHandshakeTimeout: dialTimeout,
		MaxIdleConnsPerHost: maxIdleConns, IdleConnTimeout: time.Minute, DisableCompression: true,
		WriteBufferSize: bufferSize, ReadBufferSize: bufferSize,
	}
	s := server{http: &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse // the token is for this server
	}}}
	switch {
	case u.Scheme == "unix" && u.Path != "":
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", u.Path)
		}
		s.url = "http://localhost"
	case u.Host != "" && address.Exposes(u):
		return server{}, fmt.Errorf("server %q: http:// would show the token to everybody on the way; serve it with --tls-cert and --tls-key, and use https://", text)
	case (u.Scheme == "http" || u.Scheme == "https") && u.Host != "":
		transport.Proxy = http.ProxyFromEnvironment
		s.url = strings.TrimSuffix(u.Scheme+"://"+u.Host+u.Path, "/")
	default:
		return server{}, fmt.Errorf("server %q: must be unix:///path, http://localhost:port or https://host", text)
	}
	s.url, s.runs = s.url+apiPrefix, s.url+"/healthz"
	return s, nil
}

// endIfStill ends a request once its server stands still, as one that was stopped does.
// It returns when ctx ends.
func (s *server) endIfStill(ctx context.Context, end func()) {
	for ctx.Err() == nil {
		select {
		case <-time.After(askEvery):
			if s.still(ctx) {
				end()
			}
		case <-ctx.Done():
		}
	}
}

// askEvery is how often a server is asked while a call waits there and might go on to
// another server.
const askEvery = 10 * time.Second

// still reports whether the server stands still.
func (s *server) still(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	return address.StandsStill(ctx, s.http, s.runs)
}

const (
	apiPrefix    = "/api/v1"
	dialTimeout  = 3 * time.Second
	maxIdleConns = 16
	bufferSize   = 32 << 10 // a request of a hundred small tasks is one write
)

func (ss *servers) current() (s *server, number int64) {
	number = ss.now.Load()
	return &ss.list[number%int64(len(ss.list))], number
}

// failed makes the next server current, unless another call has already done
// so.
func (ss *servers) failed(number int64) { ss.now.CompareAndSwap(number, number+1) }

func (ss *servers) close() {
	for _, s := range ss.list {
		s.http.CloseIdleConnections()
	}
}
