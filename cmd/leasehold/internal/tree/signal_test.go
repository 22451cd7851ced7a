package tree

import (
	"os"
	"os/signal"
	"syscall"
	"testing"
)

// A terminal that is closed sends SIGHUP more than once. Only Ctrl-C asks for more than
// to drain.
func TestOnlyCtrlCAsksForMore(t *testing.T) {
	if signal.Ignored(syscall.SIGHUP) {
		t.Skip("runs under nohup")
	}
	interrupts, stop := interruptsOf()
	defer stop()
	seen := make(chan os.Signal, 8) // what was sent has arrived
	signal.Notify(seen, syscall.SIGHUP, syscall.SIGTERM, os.Interrupt)
	defer signal.Stop(seen)
	for _, s := range []syscall.Signal{syscall.SIGHUP, syscall.SIGHUP, syscall.SIGTERM, syscall.SIGINT, syscall.SIGINT} {
		if err := syscall.Kill(os.Getpid(), s); err != nil {
			t.Fatal(err)
		}
		<-seen
	}
	for range 3 {
		<-interrupts
	}
	select {
	case <-interrupts:
		t.Error("a repeated signal counts as Ctrl-C")
	default:
	}
}
