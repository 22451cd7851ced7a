package terminal

import (
	"os"
	"os/signal"
	"slices"
	"syscall"
)

// Unignored leaves out SIGHUP if this process ignores it, because nohup started it.
// [signal.Notify] would end that, also for what this process starts. The other signals are
// obeyed even so: a shell without job control makes what it starts with & ignore Ctrl-C.
func Unignored(signals ...os.Signal) []os.Signal {
	return slices.DeleteFunc(signals, func(s os.Signal) bool { return s == syscall.SIGHUP && signal.Ignored(s) })
}
