package exit_test

import (
	"context"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"

	"github.com/spf13/cobra"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/exit"
)

// A command whose terminal is closed ends with the code of that, and writes nothing.
func TestAClosedTerminalIsNoError(t *testing.T) {
	if signal.Ignored(syscall.SIGHUP) {
		t.Skip("runs under nohup")
	}
	cmd := &cobra.Command{RunE: exit.Tidily(func(cmd *cobra.Command, _ []string) error {
		if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		<-cmd.Context().Done()
		return context.Cause(cmd.Context())
	}), SilenceErrors: true, SilenceUsage: true}
	cmd.SetArgs([]string{})
	err := cmd.ExecuteContext(t.Context())
	var out strings.Builder
	if code := exit.Report(t.Context(), &out, "usage", err); code != 129 || out.String() != "" {
		t.Errorf("exit code %d, and it says %q", code, out.String())
	}
}
