package server_test

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/leasehold/leasehold/dispatch/server"
)

func socketPath(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "lh") // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return filepath.Join(dir, "d", "s.sock")
}

func mode(t *testing.T, path string) fs.FileMode {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Mode().Perm()
}

func TestSocketIsPrivateAndGoesAway(t *testing.T) {
	path := socketPath(t)
	ln, err := server.ListenSocket(path)
	if err != nil {
		t.Fatal(err)
	}
	if m := mode(t, path); m != 0o600 {
		t.Errorf("socket has mode %v", m)
	}
	if m := mode(t, filepath.Dir(path)); m != 0o700 {
		t.Errorf("its directory has mode %v", m)
	}
	if err := ln.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after Close: %v", err)
	}
}

func TestStaleSocketIsReplacedALiveOneIsNot(t *testing.T) {
	path := socketPath(t)
	if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	stale, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := server.ListenSocket(path); !errors.Is(err, server.ErrSocketInUse) {
		t.Fatalf("beside one that knows no lock: %v", err)
	}
	stale.(*net.UnixListener).SetUnlinkOnClose(false)
	stale.Close()

	ln, err := server.ListenSocket(path)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if _, err := server.ListenSocket(path); !errors.Is(err, server.ErrSocketInUse) {
		t.Errorf("beside another daemon: %v", err)
	}
	nc, err := net.Dial("unix", path)
	if err != nil {
		t.Fatalf("the first does not listen any more: %v", err)
	}
	nc.Close()
}

// What removes the socket may leave the directory and the lock, or take all.
func TestSocketThatWasRemovedIsRestored(t *testing.T) {
	path := socketPath(t)
	ln, err := server.ListenSocket(path)
	if err != nil {
		t.Fatal(err)
	}
	accepted := make(chan net.Conn)
	go func() {
		defer close(accepted)
		for {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			accepted <- nc
		}
	}()
	for _, gone := range []string{path, path + ".lock", filepath.Dir(path)} {
		if err := os.RemoveAll(gone); err != nil {
			t.Fatal(err)
		}
		_, err := os.Lstat(path)
		if restored, failed := ln.Restore(); restored != (err != nil) || failed != nil {
			t.Fatalf("without %s: %v %v", gone, restored, failed)
		}
		nc, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		nc.Close()
		(<-accepted).Close()
		if _, err := server.ListenSocket(path); !errors.Is(err, server.ErrSocketInUse) {
			t.Errorf("beside it: %v", err)
		}
	}

	// What another daemon has made there since is not removed.
	if err := os.RemoveAll(filepath.Dir(path)); err != nil {
		t.Fatal(err)
	}
	other, err := server.ListenSocket(path)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if restored, err := ln.Restore(); restored || err != nil {
		t.Errorf("beside another daemon: %v %v", restored, err)
	}
	if err := ln.Close(); err != nil {
		t.Error(err)
	}
	<-accepted
	if restored, err := ln.Restore(); restored || err != nil {
		t.Errorf("after Close: %v %v", restored, err)
	}
	if _, err := os.Lstat(path); err != nil {
		t.Errorf("the other's socket: %v", err)
	}
}

func TestSocketThatCannotBePrivateIsRefused(t *testing.T) {
	path := socketPath(t)
	if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Dir(path), 0o770); err != nil {
		t.Fatal(err)
	}
	if _, err := server.ListenSocket(path); err == nil || !strings.Contains(err.Error(), "chmod 700") {
		t.Errorf("in a shared directory: %v", err)
	}
	if _, err := server.ListenSocket("/tmp/" + strings.Repeat("x", 110)); err == nil || !strings.Contains(err.Error(), "has 115 bytes, and this system allows") {
		t.Errorf("with a long path: %v", err)
	}
	file := filepath.Join(filepath.Dir(filepath.Dir(path)), "file")
	if err := os.WriteFile(file, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := server.ListenSocket(file); err == nil || !strings.Contains(err.Error(), "not a socket") {
		t.Errorf("in place of a file: %v", err)
	}
}

// Another user can make a link in a directory such as /tmp.
func TestALockMakesNoFileElsewhere(t *testing.T) {
	path := socketPath(t)
	elsewhere := filepath.Join(t.TempDir(), "elsewhere")
	if err := errors.Join(os.Mkdir(filepath.Dir(path), 0o700), os.Symlink(elsewhere, server.SocketLock(path))); err != nil {
		t.Fatal(err)
	}
	if _, err := server.ListenSocket(path); err == nil || !strings.Contains(err.Error(), server.SocketLock(path)+" is a symbolic link") {
		t.Errorf("beside a link: %v", err)
	}
	if _, err := os.Lstat(elsewhere); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("where the link leads: %v", err)
	}
}

// Its mode would be no help there.
func TestSocketInTheDirectoryOfAnotherUserIsRefused(t *testing.T) {
	path := socketPath(t)
	if err := os.Mkdir(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(filepath.Dir(path), 12345, -1); err != nil {
		t.Skip(err)
	}
	_, err := server.ListenSocket(path)
	if err == nil || !strings.Contains(err.Error(), "belongs to user 12345") || strings.Contains(err.Error(), "chmod") {
		t.Errorf("it says: %v", err)
	}
}

func TestSocketKnowsItsPeers(t *testing.T) {
	d := newDaemon(t, server.Options{Transport: server.Transport{MaxConns: 1}})
	path := socketPath(t)
	ln, err := server.ListenSocket(path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error)
	go func() { served <- d.ServeSocket(ctx, ln) }()

	dial := func() net.Conn {
		nc, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		return nc
	}
	first := dial()
	if _, w, err := server.Greet(first, server.Hello{Operator: true}); err != nil || w.Actor.Path != "operator" {
		t.Errorf("greeting: %+v %v", w, err)
	}
	second := dial()
	defer second.Close()
	_, _, err = server.Greet(second, server.Hello{Operator: true})
	if refused, ok := errors.AsType[*server.HelloError](err); !ok || refused.Code != "LIMIT" || !strings.Contains(refused.Message, "at most 1; end some clients, or start the daemon with a higher limit of open files") {
		t.Errorf("one connection too many: %v", err)
	}
	stop()
	if err := <-served; err != nil {
		t.Errorf("ServeSocket: %v", err)
	}
	if _, err := first.Read(make([]byte, 1)); err == nil {
		t.Error("a connection outlived the server")
	}
	if _, err := net.Dial("unix", path); err == nil {
		t.Error("the socket outlived the server")
	}
}

func TestNobodyIsServedWithoutCredentials(t *testing.T) {
	d := newDaemon(t, server.Options{})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error)
	go func() { served <- d.ServeSocket(ctx, ln) }()
	nc, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if _, _, err := server.Greet(nc, server.Hello{Operator: true}); err == nil {
		t.Error("a TCP client was served")
	}
	stop()
	<-served
}

// Others can move a path away that is below a directory which every user may write,
// unless that has the sticky bit.
func TestWhatIsAboveAPathIsOpen(t *testing.T) {
	for mode, open := range map[fs.FileMode]bool{0o755: false, 0o775: false, 0o777: true, 0o777 | fs.ModeSticky: false} {
		dir, err := filepath.EvalSymlinks(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		dir = filepath.Join(dir, "dir")
		if err := os.MkdirAll(filepath.Join(dir, "a"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
		link := filepath.Join(t.TempDir(), "link")
		if err := os.Symlink(filepath.Join(dir, "a"), link); err != nil {
			t.Fatal(err)
		}
		want := ""
		if open {
			want = dir
		}
		for _, path := range []string{filepath.Join(dir, "a"), filepath.Join(dir, "b", "c", "d"), link, filepath.Join(link, "state")} {
			if got := server.OpenAbove(path); got != want {
				t.Errorf("above %s, mode %v: %q, want %q", path, mode, got, want)
			}
		}
		if got := server.OpenAbove(dir); got != "" {
			t.Errorf("the directory itself, mode %v, counts: %q", mode, got)
		}
	}
}
