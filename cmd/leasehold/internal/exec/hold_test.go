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
				n := 0
				go serve(far, func() string { // ends with the connection
					answer := "no"
					if n < len(test.answers) {
						answer = test.answers[n]
					}
					if n++; test.held && n == len(test.answers) {
						time.AfterFunc(time.Millisecond, cancel) // once the answer is read
					}
					switch answer {
					case "yes":
						return "{}"
					case "sleep":
						slept += time.Hour
					}
					return `{"structuredContent":{"code":"UNAVAILABLE","message":"away"},"isError":true}`
				})
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

// If exec was stopped until shortly before its lease expires, the daemon is asked only for as long
// as there is then time to end the program.
func TestAfterAStopTheDaemonIsAskedBeforeTheLeaseExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ttl, stop = 20 * time.Second, 16 * time.Second
		var slept, renewed time.Duration
		clock := func() time.Duration { return time.Duration(time.Now().UnixNano()) + slept }
		near, far := net.Pipe()
		go serve(far, func() string { // ends with the connection
			if slept > 0 {
				time.Sleep(ttl) // it stands still
			}
			renewed = clock()
			time.AfterFunc(time.Second, func() { slept = stop })
			return "{}"
		})
		c, err := client.Connect(t.Context(), near, server.Hello{}, "test", "")
		if err != nil {
			t.Fatal(err)
		}
		defer time.Sleep(ttl) // until the daemon has ended
		defer c.Close()
		nobody := &place.Servers{URLs: []*url.URL{{Scheme: "http", Host: "127.0.0.1:1"}}}
		err = exec.Keep(t.Context(), connection.NewDialer(place.Target{Servers: nobody}), c, ttl, clock, nil)
		if held := clock() - renewed; err == nil || held < stop || held >= ttl-ttl/50 {
			t.Errorf("%v, %v after the last renewal", err, held)
		}
	})
}

// serve is a daemon on a connection. answer returns the result of a call, or "" to hang up.
func serve(conn net.Conn, answer func() string) {
	defer conn.Close()
	for in := json.NewDecoder(conn); ; {
		var call struct {
			ID     int
			Method string
		}
		if in.Decode(&call) != nil {
			return
		}
		result := "{}"
		switch call.Method {
		case "":
			fmt.Fprintln(conn, `{"ok":true,"actor":{"name":"a"}}`)
		case "tools/call":
			if result = answer(); result == "" {
				return
			}
		}
		if call.ID != 0 {
			fmt.Fprintf(conn, `{"jsonrpc":"2.0","id":%d,"result":%s}`+"\n", call.ID, result)
		}
	}
}

// A daemon that restarts is awaited, however long a limit refused the lease before.
func TestADaemonIsAwaitedAfterALimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		began := time.Now()
		const full = time.Minute
		go serve(far, func() string { // ends with the connection
			if time.Since(began) > full {
				return ""
			}
			return `{"structuredContent":{"code":"LIMIT","message":"full"},"isError":true}`
		})
		c, err := client.Connect(t.Context(), near, server.Hello{}, "test", "")
		if err != nil {
			t.Fatal(err)
		}
		nobody := &place.Servers{URLs: []*url.URL{{Scheme: "http", Host: "127.0.0.1:1"}}}
		err = exec.Obtain(t.Context(), connection.NewDialer(place.Target{Servers: nobody}), c, time.Hour)
		if took := time.Since(began); err == nil || took < full+exec.Outage {
			t.Errorf("%v after %v", err, took)
		}
	})
}
