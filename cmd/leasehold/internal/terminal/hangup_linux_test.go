package terminal_test

import (
	"context"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/terminal"
)

// Two commands may stop a daemon at once, and both the kernel and a shell report a
// terminal that is closed. A daemon that such a signal killed would not drain.
func TestARepeatedSignalDoesNotKill(t *testing.T) {
	if signal.Ignored(syscall.SIGHUP) {
		t.Skip("runs under nohup")
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	send := func(s syscall.Signal) { // it has arrived when send returns
		t.Helper()
		if err := unix.Tgkill(os.Getpid(), unix.Gettid(), s); err != nil {
			t.Fatal(err)
		}
	}
	terminated, release := signal.NotifyContext(t.Context(), syscall.SIGTERM) // as main does
	defer release()
	ctx, stop := terminal.UntilHangup(terminated)
	defer stop()
	send(syscall.SIGTERM)
	<-ctx.Done()
	release()
	send(syscall.SIGTERM)

	ctx, stop = terminal.UntilHangup(context.WithoutCancel(ctx))
	defer stop()
	send(syscall.SIGHUP)
	<-ctx.Done()
	send(syscall.SIGHUP)
}

// What nohup has told a command to ignore stays ignored, also by what it starts.
func TestAnIgnoredHangupStaysIgnored(t *testing.T) {
	if !signal.Ignored(syscall.SIGHUP) {
		signal.Ignore(syscall.SIGHUP)
		defer signal.Reset(syscall.SIGHUP)
	}
	_, stop := terminal.UntilHangup(t.Context())
	defer stop()
	if !signal.Ignored(syscall.SIGHUP) {
		t.Error("a hangup ends the command")
	}
}
