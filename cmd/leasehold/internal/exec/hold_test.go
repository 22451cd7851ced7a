package exec_test

import (
	"bufio"
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
