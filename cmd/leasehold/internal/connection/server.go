package connection

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/leasehold/leasehold/client/address"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/exit"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/place"
	"github.com/leasehold/leasehold/dispatch/server"
	"github.com/leasehold/leasehold/dispatch/server/wire"
)

// ErrNoServer means that no server answered.
var ErrNoServer = errors.New("no server answers")

const (
	// dialTimeout is how long one server may take to accept a connection, and then to
	// answer, before the next is tried. A server that stands still accepts, and the session
	// of a client that lost another server lasts for 10 s.
	dialTimeout = 3 * time.Second

	// goodbyeTimeout limits the goodbye to a server that may no longer read.
	goodbyeTimeout = 100 * time.Millisecond

	// A client pings its server every 15 s, so that the server hears it, and when it has
	// heard nothing for 5 s. If there is no answer 5 s later, and other servers are named,
	// it asks that server over another connection, which may take stillTimeout. A server
	// that is busy, or reads a large message, answers there.
	pingEvery    = 3 // looks of [server.Ear.Watch]
	askAfter     = 2 // silent looks
	stillTimeout = 5 * time.Second

	maxProblem = 16 << 10 // bytes read of a refusal
)

// peerSilence is how long a server's machine may not answer.
const peerSilence = server.Silence(9 * time.Second)

// reachServer connects to a server elsewhere. It tries the server of the last connection
// first, and then the next ones in turn; it waits longer for the last. After a refusal that is
// not [Final] it tries the next server, and after a certificate that is not trusted.
func (d *Dialer) reachServer(ctx context.Context) (net.Conn, error) {
	urls := d.target.Servers.URLs
	var failed, untrusted error
	for left := len(urls); left > 0; left-- {
		u := urls[d.at%len(urls)]
		limit := d.helloTimeout
		if left > 1 {
			limit = dialTimeout
		}
		nc, err := d.upgrade(ctx, u, limit)
		if err == nil {
			d.Socket = u.String()
			return nc, nil
		}
		if _, ok := errors.AsType[notTrusted](err); ok {
			untrusted = cmp.Or(untrusted, err)
		} else if Final(err) || ctx.Err() != nil {
			return nil, err
		}
		failed = errors.Join(failed, fmt.Errorf("%s: %w", u, err))
		d.at++
	}
	if untrusted != nil {
		return nil, untrusted
	}
	return nil, fmt.Errorf("%w: %w", ErrNoServer, oneLine{failed})
}

// oneLine writes several joined errors on one line.
type oneLine struct{ error }

func (e oneLine) Error() string { return strings.ReplaceAll(e.error.Error(), "\n", "; ") }
func (e oneLine) Unwrap() error { return e.error }

// upgrade connects to one server, which may take limit to answer.
func (d *Dialer) upgrade(ctx context.Context, u *url.URL, limit time.Duration) (net.Conn, error) {
	s := d.target.Servers
	dialer := net.Dialer{Timeout: dialTimeout, KeepAliveConfig: peerSilence.KeepAlive(), Control: peerSilence.Control}
	raw, err := dialer.DialContext(ctx, "tcp", place.Address(u))
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { raw.Close() })
	_ = raw.SetDeadline(time.Now().Add(limit))
	c, err := ask(ctx, raw, u, s)
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		raw.Close()
		return nil, err
	}
	if len(s.URLs) > 1 {
		c.still = func() bool { return still(u, s.TLS) }
	}
	go c.watch() // ends when c is closed
	return c, nil
}

// still reports whether a server stands still.
func still(u *url.URL, secure *tls.Config) bool {
	client := &http.Client{Timeout: stillTimeout, Transport: &http.Transport{TLSClientConfig: secure, DisableKeepAlives: true}}
	return address.StandsStill(context.Background(), client, u.JoinPath("/healthz").String())
}

// ask sends an HTTP upgrade request over raw, and returns a connection that speaks the
// session protocol.
func ask(ctx context.Context, raw net.Conn, u *url.URL, s *place.Servers) (*upgraded, error) {
	c := &upgraded{Conn: raw, raw: raw, closed: make(chan struct{})}
	if u.Scheme == "https" {
		config := s.TLS.Clone()
		config.ServerName = u.Hostname()
		secure := tls.Client(raw, config)
		if err := secure.HandshakeContext(ctx); err != nil {
			return nil, explainTLS(u, err)
		}
		c.Conn = secure
	}
	at := *u
	at.Path += server.RemotePath
	r := &http.Request{
		Method: http.MethodGet, URL: &at, Host: u.Host, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Connection": {"Upgrade"}, "Upgrade": {server.RemoteProtocol}, "Authorization": {"Bearer " + s.TokenNow()}},
	}
	// If the time ran out before the request was written, reading says so.
	if err := r.Write(c.Conn); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		return nil, err
	}
	in := bufio.NewReaderSize(c.Conn, 4<<10)
	c.in.From = in
	resp, err := http.ReadResponse(in, r)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil, fmt.Errorf("it has accepted the connection, and not answered yet, as a server that waits for its database: %w", err)
	}
	if err != nil && u.Scheme == "http" {
		return nil, fmt.Errorf("it does not answer as a server of leasehold; if it is served over TLS, the URL must begin with https://: %w", err)
	}
	if err != nil {
		return nil, fmt.Errorf("it does not answer as a server of leasehold: %w", err)
	}
	if resp.StatusCode != http.StatusSwitchingProtocols || !strings.EqualFold(resp.Header.Get("Upgrade"), server.RemoteProtocol) {
		defer resp.Body.Close()
		return nil, refusal(resp)
	}
	_ = raw.SetDeadline(time.Time{})
	return c, nil
}

// notTrusted refuses a server because of its certificate.
type notTrusted struct{ *server.HelloError }

func (e notTrusted) Unwrap() error { return e.HelloError }

func explainTLS(u *url.URL, err error) error {
	if _, plain := errors.AsType[tls.RecordHeaderError](err); plain {
		return fmt.Errorf("it speaks no TLS; if it serves plain HTTP on this machine, the URL must begin with http://: %w", err)
	}
	bad, ok := errors.AsType[*tls.CertificateVerificationError](err)
	if !ok {
		return err
	}
	do := "LEASEHOLD_SERVER_CA names the file with that of its authority, and the server's --tls-cert must contain the certificates between the two"
	if _, name := errors.AsType[x509.HostnameError](err); name {
		do = "it must be for the name or address in the URL of --server"
	} else if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok && invalid.Reason == x509.Expired {
		do = "renew it, and see that the clocks of both machines are right"
	}
	return notTrusted{&server.HelloError{Code: "UNAUTHENTICATED", Message: fmt.Sprintf("the certificate of %s is not trusted: %v; %s", u, bad.Err, do)}}
}

// refusal turns the answer of a server that refuses a connection into an error.
func refusal(resp *http.Response) error {
	text, _ := io.ReadAll(io.LimitReader(resp.Body, maxProblem))
	var problem struct {
		server.HelloError
		Detail string
	}
	message := strings.TrimSpace(string(text))
	switch {
	case json.Unmarshal(text, &problem) == nil:
		message = problem.Detail + problem.Message
	case resp.StatusCode >= http.StatusInternalServerError:
		message = fmt.Sprintf("a proxy before it answers %s; see whether the server runs", resp.Status)
	}
	var code string
	switch resp.StatusCode {
	case http.StatusBadRequest:
		code = problem.Code
	case http.StatusUnauthorized:
		code = "UNAUTHENTICATED"
	case http.StatusForbidden:
		code = "FORBIDDEN"
	case http.StatusServiceUnavailable, http.StatusBadGateway, http.StatusGatewayTimeout:
		code = "UNAVAILABLE"
	case http.StatusTooManyRequests:
		code = "LIMIT"
	}
	if code == "" {
		return &server.HelloError{Code: "NOT_FOUND", Message: fmt.Sprintf("it answers %s (%.200q) to a command that connects: it is no server of leasehold, or an older one, or a proxy before it passes no upgrade on", resp.Status, message)}
	}
	problem.Code, problem.Message = code, message
	return &problem.HelloError
}

// An upgraded connection has finished its HTTP exchange. What is written to it at once
// must be one or more lines.
type upgraded struct {
	net.Conn
	raw net.Conn // below TLS
	in  server.Ear

	still    func() bool // asks whether the server stands still; nil: it is the only one
	welcomed atomic.Bool // something was read
	lost     atomic.Bool // a Read has failed
	once     sync.Once
	closed   chan struct{}
}

func (c *upgraded) Read(p []byte) (int, error) {
	n, err := c.in.Read(p)
	if n > 0 {
		c.welcomed.Store(true)
	}
	if err != nil {
		c.lost.Store(true)
	}
	return n, err
}

// watch ends the connection if the server is silent for a minute, or stands still while
// there are others. The session goes on over the next one, so it says no goodbye.
func (c *upgraded) watch() {
	ping := inTurn(func() { _, _ = c.Write(server.Ping) }) // if it cannot be written, the silence goes on
	defer close(ping)
	ask := inTurn(func() {
		if c.still() {
			_ = c.raw.Close()
		}
	})
	defer close(ask)
	looks := 0
	if c.in.Watch(c.closed, func(silent int) {
		if looks++; looks%pingEvery == 0 || silent == 1 {
			signal(ping)
		}
		if silent >= askAfter && c.still != nil {
			signal(ask)
		}
	}) {
		_ = c.raw.Close()
	}
}

// inTurn does something at each signal, until the channel is closed.
func inTurn(do func()) chan struct{} {
	signals := make(chan struct{})
	go func() {
		for range signals {
			do()
		}
	}()
	return signals
}

// signal does nothing while what the signal before began goes on.
func signal(to chan<- struct{}) {
	select {
	case to <- struct{}{}:
	default:
	}
}

// Close tells the server that the client leaves, so the server does not wait for it to
// return. The client comes back if it has lost the connection, or was not welcomed in time.
// The server may still hear it then, and a goodbye would end a session that goes on.
func (c *upgraded) Close() error {
	c.once.Do(func() { close(c.closed) })
	if c.welcomed.Load() && !c.lost.Load() {
		_ = c.SetWriteDeadline(time.Now().Add(goodbyeTimeout))
		_, _ = c.Write(wire.Notification(wire.Goodbye, nil)) // if this fails, the server notices the end of the connection
	}
	return c.Conn.Close()
}

// SyscallConn returns the TCP connection, which another process can keep open.
func (c *upgraded) SyscallConn() (syscall.RawConn, error) {
	return c.raw.(syscall.Conn).SyscallConn()
}

// WhereServer is what to do about a server that does not answer.
const WhereServer = "see whether that server runs, with --http, and whether this machine reaches its port"

// serverHint adds to a server's refusal, or silence, what the user can do about it.
func serverHint(err error) error {
	refused, _ := errors.AsType[*server.HelloError](err)
	switch {
	case refused == nil && errors.Is(err, ErrNoServer):
		return exit.Hint(err, WhereServer)
	case refused == nil:
		return err
	case refused.Code == "UNAUTHENTICATED" && !strings.Contains(refused.Message, "certificate"):
		return exit.Hint(err, "the token in LEASEHOLD_TOKEN, or in the file that LEASEHOLD_TOKEN_FILE names, is not known there, or no longer: leasehold actor add or leasehold token issue makes one, where the server runs")
	case refused.Code == "FORBIDDEN" && strings.Contains(refused.Message, "host "):
		return exit.Hint(err, "start the server with --http-host and the name that --server has")
	}
	return err
}
