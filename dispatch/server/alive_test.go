package server_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold/dispatch/server"
)

// A proxy or tunnel keeps the connection of a client that it has lost. The client's leases
// must not stay with it for as long as that lasts.
func TestASilentClientOverTheNetworkIsTakenForLost(t *testing.T) {
	for name, pings := range map[string]bool{"silent": false, "quiet": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWeb(t, server.Options{})
				other := &web{daemon: w.daemon, client: w.client, token: w.daemon.token(t, "w2")}
				nc, err := w.client.Transport.(*http.Transport).DialContext(t.Context(), "", "")
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = nc.Close() })
				if _, err := fmt.Fprintf(nc, "GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: %s\r\nAuthorization: Bearer %s\r\n\r\n",
					server.RemotePath, server.RemoteProtocol, w.token); err != nil {
					t.Fatal(err)
				}
				resp, err := http.ReadResponse(bufio.NewReader(oneByOne{nc}), nil)
				if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
					t.Fatalf("the upgrade: %v, %v", resp, err)
				}
				br, _, err := server.Greet(nc, server.Hello{})
				if err != nil {
					t.Fatal(err)
				}
				if _, err := io.WriteString(nc, initialize+"\n"+`{"jsonrpc":"2.0","method":"notifications/initialized"}`+"\n"+
					`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"run_lease_acquire","arguments":{"key":"k","keep_alive":true}}}`+"\n"); err != nil {
					t.Fatal(err)
				}
				for answer := ""; !strings.Contains(answer, `"id":2`); {
					if answer, err = br.ReadString('\n'); err != nil {
						t.Fatal(err)
					}
				}
				ended := make(chan error, 1)
				go func() {
					_, err := io.Copy(io.Discard, br)
					ended <- err
				}()
				left := make(chan struct{})
				defer close(left)
				if pings {
					ear := server.Ear{From: br}
					go ear.Watch(left, func(int) { _, _ = nc.Write(server.Ping) })
				}
				at := time.Now()
				select {
				case <-ended:
				case <-time.After(time.Hour):
				}
				if d := time.Since(at); pings != (d == time.Hour) || !pings && d > 65*time.Second {
					t.Errorf("the connection ended after %v", d)
				}
				session := other.open(t)
				_, answer := other.do(t, "POST", `{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"run_lease_acquire","arguments":{"key":"k","wait_secs":50}}}`, session...)
				if held := strings.Contains(answer, `"isError":true`); held != pings {
					t.Errorf("another client asked for the lease and was told %s", answer)
				}
			})
		})
	}
}

// oneByOne reads no further than its reader asks, byte by byte.
type oneByOne struct{ io.Reader }

func (r oneByOne) Read(p []byte) (int, error) { return r.Reader.Read(p[:1]) }
