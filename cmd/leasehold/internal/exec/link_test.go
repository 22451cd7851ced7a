package exec

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

// Exec connects again, as other commands do, when its first connection ends without an
// answer, or when hooks have taken all connections at that moment.
func TestExecConnectsAgain(t *testing.T) {
	for name, first := range map[string][]byte{
		"ended": nil,
		"taken": wire.Line(server.Welcome{Error: &server.HelloError{Code: "LIMIT", Message: "all are taken"}}),
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			socket := filepath.Join(dir, "s")
			ln, err := net.Listen("unix", socket)
			if err != nil {
				t.Fatal(err)
			}
			defer ln.Close()
			go func() { // ends with the listener
				for answer := first; ; answer = wire.Line(server.Welcome{Error: &server.HelloError{Code: "FORBIDDEN", Message: "this is an answer"}}) {
					nc, err := ln.Accept()
					if err != nil {
						return
					}
					_, _ = bufio.NewReader(nc).ReadString('\n')
					_, _ = nc.Write(answer)
					nc.Close()
				}
			}()
			l := execLink{dialer: connection.NewDialer(place.Target{State: dir, Socket: socket, Named: true})}
			err = l.connect(t.Context())
			if refused, ok := errors.AsType[*server.HelloError](err); !ok || refused.Message != "this is an answer" {
				t.Error(err)
			}
		})
	}
}
