package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/leasehold/leasehold/dispatch/process"
	"github.com/leasehold/leasehold/dispatch/server/wire"
	"github.com/leasehold/leasehold/registry"
)

// acceptRetry is how long to wait after a connection could not be accepted,
// usually because there are no file descriptors left.
const acceptRetry = 50 * time.Millisecond

// ServeSocket serves the clients that connect to ln, a unix socket, until ctx
// ends, and closes ln. It serves only processes of the daemon's own user. Each
// connection has one session (see [Server.ServeConn]) or speaks HTTP.
func (s *Server) ServeSocket(ctx context.Context, ln net.Listener) error {
	return s.serveBoth(ctx, ln, s.accept, turnAway)
}

// serveBoth serves the connections of a listener, of which accept gives those that speak HTTP
// to web.
func (s *Server) serveBoth(ctx context.Context, ln net.Listener, accept func(ctx context.Context, nc net.Conn, web *passageListener), refuse func(net.Conn, *HelloError)) error {
	ctx, stop := context.WithCancel(ctx)
	web := &passageListener{addr: ln.Addr(), conns: make(chan net.Conn), done: make(chan struct{})}
	ended := make(chan error, 1)
	go func() { ended <- s.ServeEndpoint(ctx, web) }()
	err := s.acceptAll(ctx, ln, func(ctx context.Context, nc net.Conn) { accept(ctx, nc, web) }, refuse)
	stop()
	return errors.Join(err, <-ended)
}

// acceptAll serves each connection of a listener on its own goroutine.
func (s *Server) acceptAll(ctx context.Context, ln net.Listener, serve func(context.Context, net.Conn), refuse func(net.Conn, *HelloError)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { ln.Close() })
	defer stop()

	var conns sync.WaitGroup
	defer conns.Wait()
	slots := make(chan struct{}, s.opts.MaxConns)
	for {
		nc, err := ln.Accept()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				nc.Close()
			}
			return nil
		case errors.Is(err, net.ErrClosed):
			cancel() // no client can connect any more, so the others are disconnected too
			return err
		case err != nil:
			s.opts.Log.Warn().Err(err).Msg("a connection could not be accepted")
			select {
			case <-time.After(acceptRetry):
			case <-ctx.Done():
			}
			continue
		}
		select {
		case slots <- struct{}{}:
			conns.Go(func() {
				defer func() { <-slots }()
				serve(ctx, nc)
			})
		default:
			refuse(nc, refusal(s.allTaken()).Error)
		}
	}
}

// allTaken says what to do about all connections being taken.
func (s *Server) allTaken() error {
	next := ""
	if s.opts.MaxConns < maxConns {
		next = "end some clients, or start the daemon with a higher limit of open files (ulimit -n, or LimitNOFILE in a unit of systemd)"
	}
	return &registry.LimitError{Which: "connections to the daemon", Max: int64(s.opts.MaxConns), Next: next}
}

func (s *Server) accept(ctx context.Context, nc net.Conn, web *passageListener) {
	peer, err := peerOf(nc)
	if err != nil {
		s.opts.Log.Warn().Err(err).Msg("a peer was turned away")
		turnAway(nc, &HelloError{Code: "UNAUTHENTICATED", Message: err.Error()})
		return
	}
	leave, err := s.shares.EnterProcess(peer.PID)
	if err != nil {
		s.opts.Log.Warn().Err(err).Int("pid", peer.PID).Msg("a connection was turned away")
		turnAway(nc, refusal(err).Error)
		return
	}
	defer leave()
	peer.Machine = s.opts.Machine
	s.shares.Comings.Wait(ctx, peer.PID)
	if uc, ok := nc.(*net.UnixConn); ok {
		first, err := firstByte(ctx, uc, s.opts.HelloTimeout)
		if err != nil {
			// A client of HTTP may have opened it for later. It would take a
			// refusal for the answer to a request that it has not sent yet.
			s.opts.Log.Debug().Err(err).Int("pid", peer.PID).Msg("nothing came over a connection")
			_ = nc.Close()
			return
		}
		if first >= 'A' && first <= 'Z' {
			s.serveWeb(ctx, uc, peer, web)
			return
		}
	}
	s.ServeConn(ctx, nc, peer)
}

// turnAway closes a connection with a reason, which it sends if that is
// possible without waiting.
func turnAway(nc net.Conn, reason *HelloError) {
	nc.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
	nc.Write(wire.Line(Welcome{Error: reason}))
	nc.Close()
}

// peerOf returns the process at the other end of a unix socket. It must belong
// to our own user.
func peerOf(nc net.Conn) (process.Peer, error) {
	pid, uid, err := credentials(nc)
	if err != nil {
		return process.Peer{}, fmt.Errorf("peer credentials: %w", err)
	}
	return admit(pid, uid)
}

// PeerPID returns the process at the other end of a unix socket. For a
// connection to a listener that is the process that listens.
func PeerPID(nc net.Conn) (int, error) {
	pid, _, err := credentials(nc)
	return pid, err
}

// CheckListener returns an error if another user listens at the other end of nc. In
// a directory such as /tmp, every user can take the path of a socket while no daemon
// listens there, and read the token of each client that connects. A daemon would
// refuse clients of other users itself.
func CheckListener(nc net.Conn) error {
	pid, uid, err := credentials(nc)
	if err == nil && uid != os.Getuid() {
		err = fmt.Errorf("process %d of user %d listens there, and this process runs as user %d", pid, uid, os.Getuid())
	}
	return err
}

func credentials(nc net.Conn) (pid, uid int, err error) {
	uc, ok := nc.(*net.UnixConn)
	if !ok {
		return 0, 0, fmt.Errorf("a %T has none", nc)
	}
	raw, err := uc.SyscallConn()
	if err != nil {
		return 0, 0, err
	}
	ctlErr := raw.Control(func(fd uintptr) { pid, uid, err = peerCredentials(int(fd)) })
	return pid, uid, errors.Join(ctlErr, err)
}
