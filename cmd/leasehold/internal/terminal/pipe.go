package terminal

import (
	"os"
	"os/signal"
	"syscall"
)

// SurviveBrokenPipes makes a write to standard output or standard error fail if its
// reader has gone, such as the program that collected the log. Otherwise the write ends
// this process. It is for the commands that others depend on while they run. SIGPIPE is
// caught and not ignored, because all that this process starts would inherit that.
func SurviveBrokenPipes() (stop func()) {
	pipe := make(chan os.Signal, 1)
	signal.Notify(pipe, syscall.SIGPIPE)
	return func() { signal.Stop(pipe) }
}
