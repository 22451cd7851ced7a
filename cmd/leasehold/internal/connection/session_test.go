package connection_test

import (
	"bufio"
	"errors"
	"net"
	"path/filepath"
	"testing"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/connection"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/place"
	"github.com/leasehold/leasehold/dispatch/server"
	"github.com/leasehold/leasehold/dispatch/server/wire"
)

// A server ends a connection without an answer if the client's run moves to another
// server just then.
func TestOpenConnectsAgainWhenItsConnectionEnds(t *testing.T) {
	opensAfter(t, func(net.Conn) {})
}

// Hooks of many agents may come at one moment and take all connections. A hook that gave
// up at once would let its write happen unchecked.
func TestOpenConnectsAgainWhenAllConnectionsAreTaken(t *testing.T) {
	opensAfter(t, func(nc net.Conn) {
		_, _ = nc.Write(wire.Line(server.Welcome{Error: &server.HelloError{Code: "LIMIT", Message: "all are taken"}}))
	})
}

// opensAfter tests that Open connects again when the first connection was answered so.
func opensAfter(t *testing.T, first func(net.Conn)) {
	t.Helper()
	dir := t.TempDir()
	socket := filepath.Join(dir, "s")
	ln, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go func() { // ends with the listener
		for n := 0; ; n++ {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			_, err = bufio.NewReader(nc).ReadString('\n')
			switch {
			case n == 0:
				first(nc)
			case err == nil:
				_, _ = nc.Write(wire.Line(server.Welcome{Error: &server.HelloError{Code: "FORBIDDEN", Message: "this is an answer"}}))
			}
			nc.Close()
		}
	}()
	d := connection.NewDialer(place.Target{State: dir, Socket: socket, Named: true})
	_, err = d.Open(t.Context(), server.Hello{Operator: true}, false)
	if refused, ok := errors.AsType[*server.HelloError](err); !ok || refused.Message != "this is an answer" {
		t.Error(err)
	}
}
