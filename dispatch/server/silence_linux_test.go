package server_test

import (
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/leasehold/leasehold/dispatch/server"
)

// An answer to a machine that has gone is not sent again for a quarter of an hour: the
// connections that a listener accepts, and those that are dialled, end before.
func TestWhatIsSentToAMachineThatIsGoneEndsTheConnection(t *testing.T) {
	ln, err := server.ListenHTTP("127.0.0.1:0", false)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	accepted := make(chan net.Conn, 1)
	go func() {
		nc, err := ln.Accept()
		if err != nil {
			t.Error(err)
		}
		accepted <- nc
	}()
	const dialled = server.Silence(9 * time.Second)
	dialer := net.Dialer{KeepAliveConfig: dialled.KeepAlive(), Control: dialled.Control}
	client, err := dialer.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for name, c := range map[string]struct {
		nc   net.Conn
		want int
	}{
		"accepted": {<-accepted, 30_000},
		"dialled":  {client, 9_000},
	} {
		raw, err := c.nc.(*net.TCPConn).SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		var ms int
		if ctlErr := raw.Control(func(fd uintptr) { ms, err = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT) }); ctlErr != nil || err != nil {
			t.Fatal(ctlErr, err)
		}
		if ms != c.want {
			t.Errorf("what was sent over the %s connection may be unacknowledged for %d ms, want %d", name, ms, c.want)
		}
		c.nc.Close()
	}
}
