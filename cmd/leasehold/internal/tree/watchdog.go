package tree

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/leasehold/leasehold/dispatch/process"
)

// NewWatchdogCommand is the watchdog, which only dispatch, launcher, exec and spotlight
// start. It reads their messages from standard input.
func NewWatchdogCommand() *cobra.Command {
	var mark string
	var grace time.Duration
	cmd := &cobra.Command{
		Use:    "watchdog",
		Short:  "End the processes of a command that was killed or stopped",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			// No signal may end the watchdog, and nobody waits for it. It gives
			// up on processes that the kernel cannot kill within this time.
			const patience = time.Minute
			ctx := context.WithoutCancel(cmd.Context())
			ended, err := process.RunWatchdog(ctx, cmd.InOrStdin(), cmd.OutOrStdout(), mark, grace, patience)
			if ended > 0 {
				fmt.Fprintf(cmd.ErrOrStderr(), "leasehold: the command was killed or stopped; its watchdog ended the processes that it left: %d\n", ended)
			}
			return err
		},
	}
	cmd.Flags().StringVar(&mark, "mark", "", "NAME=value in the environment of the processes")
	cmd.Flags().DurationVar(&grace, "grace", 0, "how long they may take before they are killed")
	return cmd
}
