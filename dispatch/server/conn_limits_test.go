package server

import (
	"syscall"
	"testing"
)

// However few files the daemon may open, connections leave those to the state that it
// needs.
func TestConnectionsLeaveFilesToTheState(t *testing.T) {
	var before syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
			t.Fatal(err)
		}
	}()
	for files := before.Cur; files >= 320; files /= 2 {
		limit := before
		limit.Cur = files
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
			t.Fatal(err)
		}
		limits := Transport{}.withDefaults()
		if left := int(files) - limits.MaxConns - limits.HTTPConns; left < fileReserve {
			t.Errorf("of %d files, %d connections to the socket and %d over HTTP leave %d", files, limits.MaxConns, limits.HTTPConns, left)
		}
		if limits.ProcessConns > limits.MaxConns || limits.ActorConns > limits.ProcessConns || limits.ActorHTTPConns > limits.HTTPConns/2 {
			t.Errorf("with %d files one can have all connections: %+v", files, limits)
		}
	}
}
