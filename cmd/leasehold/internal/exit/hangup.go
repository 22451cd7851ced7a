package exit

import (
	"syscall"

	"github.com/spf13/cobra"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/terminal"
)

// Tidily lets the function of a command clean up when the terminal is closed, as it does
// after Ctrl-C: its context ends.
func Tidily(run func(*cobra.Command, []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		outer := cmd.Context()
		ctx, stop := terminal.UntilHangup(outer)
		defer stop()
		defer terminal.SurviveBrokenPipes()()
		cmd.SetContext(ctx)
		err := run(cmd, args)
		if err != nil && ctx.Err() != nil && outer.Err() == nil {
			return Code(128 + int(syscall.SIGHUP))
		}
		return err
	}
}
