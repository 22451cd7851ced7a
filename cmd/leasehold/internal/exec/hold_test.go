package exec_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/connection"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/exec"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/place"
	"github.com/leasehold/leasehold/dispatch/client"
	"github.com/leasehold/leasehold/dispatch/server"
)

// A daemon that stands still after it granted a lease is given up as soon as one that is
// away, however long the lease lasts.
func TestALongLeaseIsNotAwaitedForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		go func() { // ends with the connection
			in := bufio.NewReader(far)
			for n := 0; ; n++ {
				if _, err := in.ReadString('\n'); err != nil {
					return
				}
				switch n {
				case 0:
					fmt.Fprintln(far, `{"ok":true,"actor":{"name":"a"}}`)
				case 1:
					fmt.Fprintln(far, `{"jsonrpc":"2.0","id":1,"result":{}}`)
				}
			}
		}()
		c, err := client.Connect(t.Context(), near, server.Hello{}, "test", "")
		if err != nil {
			t.Fatal(err)
		}
		nobody := &place.Servers{URLs: []*url.URL{{Scheme: "http", Host: "127.0.0.1:1"}}}
		began := time.Now()
		err = exec.Confirm(t.Context(), connection.NewDialer(place.Target{Servers: nobody}), c, 24*time.Hour)
		if took := time.Since(began); err == nil || took > time.Minute {
			t.Errorf("%v after %v", err, took)
		}
	})
}

// A renewal that failed before or during a sleep, or at once after it, says nothing of the
// moment after.
func TestAfterASleepTheDaemonIsAskedAnew(t *testing.T) {
	for _, test := range []struct {
		name    string
		answers []string // to the renewals: yes, no, or sleep, which is no after an hour
		held    bool
	}{
		{"a sleep while a renewal fails", []string{"yes", "no", "sleep", "yes"}, true},
		{"a network that comes back late", []string{"sleep", "no", "no", "yes"}, true},
		{"a second sleep before the answer", []string{"sleep", "sleep", "yes"}, true},
		{"no answer", []string{"yes", "sleep"}, false},
		{"no sleep", []string{"yes"}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				var slept time.Duration
				near, far := net.Pipe()
				go func() { // ends with the connection
					in := bufio.NewReader(far)
					for n := 0; ; {
						line, err := in.ReadBytes('\n')
						if err != nil {
							return
						}
						var call struct {
							ID     int
							Method string
						}
						if err := json.Unmarshal(line, &call); err != nil {
							t.Error(err)
						}
						switch {
						case call.Method == "":
							fmt.Fprintln(far, `{"ok":true,"actor":{"name":"a"}}`)
						case call.Method != "tools/call":
							if call.ID != 0 {
								fmt.Fprintf(far, `{"jsonrpc":"2.0","id":%d,"result":{}}`+"\n", call.ID)
							}
						default:
							answer := "no"
							if n < len(test.answers) {
								answer = test.answers[n]
							}
							n++
							result := `{"structuredContent":{"code":"UNAVAILABLE","message":"away"},"isError":true}`
							switch answer {
							case "yes":
								result = "{}"
							case "sleep":
								slept += time.Hour
							}
							fmt.Fprintf(far, `{"jsonrpc":"2.0","id":%d,"result":%s}`+"\n", call.ID, result)
						}
						if test.held && n == len(test.answers) {
							time.Sleep(time.Millisecond) // the answer is read
							cancel()
						}
					}
				}()
				c, err := client.Connect(t.Context(), near, server.Hello{}, "test", "")
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				clock := func() time.Duration { return time.Duration(time.Now().UnixNano()) + slept }
				nobody := &place.Servers{URLs: []*url.URL{{Scheme: "http", Host: "127.0.0.1:1"}}}
				began := time.Now()
				err = exec.Keep(ctx, connection.NewDialer(place.Target{Servers: nobody}), c, time.Minute, clock, nil)
				if took := time.Since(began); (err == nil) != test.held || took > time.Minute {
					t.Errorf("%v after %v", err, took)
				}
			})
		})
	}
}
