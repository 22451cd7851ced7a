package shim

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/connection"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/place"
	"github.com/leasehold/leasehold/dispatch/server"
	"github.com/leasehold/leasehold/dispatch/server/wire"
)

// A daemon that reads a call only once its answers have been read does not wait for a
// shim that waits for it. What the client and the daemon send arrives in order.
func TestADaemonThatIsWrittenToIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		s := newShim(Config{Name: "agent"}, io.Discard)
		s.link = newLink(near, near)
		stdin, client := io.Pipe()
		answers, stdout := io.Pipe()
		go s.run(t.Context(), stdin, stdout)

		const calls, each = 100, 10
		go func() {
			for i := range calls {
				fmt.Fprintf(client, `{"jsonrpc":"2.0","method":"notifications/call","params":{"n":%d}}`+"\n", i)
			}
		}()
		var daemon sync.WaitGroup
		daemon.Go(func() {
			read := bufio.NewReader(far)
			for i := range calls {
				for n := range each {
					fmt.Fprintf(far, `{"jsonrpc":"2.0","method":"notifications/answer","params":{"n":%d}}`+"\n", i*each+n)
				}
				if line, _ := read.ReadString('\n'); line != fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/call","params":{"n":%d}}`+"\n", i) {
					t.Errorf("as call %d the daemon has read %q", i, line)
				}
			}
		})
		read := bufio.NewReader(answers)
		for i := range calls * each {
			if line, _ := read.ReadString('\n'); line != fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/answer","params":{"n":%d}}`+"\n", i) {
				t.Fatalf("as answer %d the client has read %q", i, line)
			}
		}
		daemon.Wait()
		client.Close()
		far.Close()
	})
}

// Calls are told that no daemon starts only after some starts have failed in a row. A
// daemon that is killed as soon as it listens has started.
func TestCallsWaitForADaemonThatIsKilledAgainAndAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShim(Config{}, io.Discard)
		s.patience = time.Now().Add(s.cfg.Outage)
		waiting := func(err error) bool {
			s.attempted(attempt{err: err})
			return !s.patience.IsZero()
		}
		killed, failed := fmt.Errorf("handshake: %w", io.EOF), &connection.StartError{Err: errors.New("no space left on device")}
		for range maxStarts {
			if !waiting(killed) || !waiting(failed) {
				t.Fatal("the calls do not wait for the next daemon")
			}
		}
		waiting(killed)
		for n := 1; n < maxStarts; n++ {
			if !waiting(failed) {
				t.Errorf("the calls do not wait after %d starts that failed", n)
			}
		}
		if waiting(failed) {
			t.Errorf("the calls still wait after %d starts that failed", maxStarts)
		}
	})
}

// A call for which there is no session is refused as the daemon refused the session.
func TestACallIsRefusedAsItsSessionIs(t *testing.T) {
	limit := server.HelloError{Code: "LIMIT", Message: "too many", Which: "connections of one actor", Max: 256}
	wrong := server.HelloError{Code: "INVALID_ARGUMENT", Message: "no name", Argument: "name"}
	for want, err := range map[string]error{
		`{"code":"LIMIT","max":256,"message":"too many","which":"connections of one actor"}`:            &limit,
		`{"code":"LIMIT","max":256,"message":"no server: too many","which":"connections of one actor"}`: fmt.Errorf("no server: %w", &limit),
		`{"argument":"name","code":"INVALID_ARGUMENT","message":"no name"}`:                             &wrong,
		`{"code":"UNAVAILABLE","message":"no daemon"}`:                                                  connection.ErrNoDaemon,
	} {
		s := newShim(Config{}, io.Discard)
		s.dialer = connection.NewDialer(place.Target{})
		s.requests["1"] = &request{message: wire.Message{ID: []byte("1"), Key: "1", Method: wire.ToolsCall}}
		s.attempted(attempt{err: err})
		var told []byte
		for _, o := range s.unread {
			told = append(told, o.line...)
		}
		if !bytes.Contains(told, []byte(`"structuredContent":`+want)) {
			t.Errorf("%v is told as %s", err, told)
		}
	}
}
