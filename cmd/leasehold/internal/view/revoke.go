package view

import (
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/connection"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/exit"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/place"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/terminal"
	"github.com/leasehold/leasehold/dispatch"
)

// NewRevokeCommand takes a lease away.
func NewRevokeCommand() *cobra.Command {
	var run, layer, holder, reason string
	var reply connection.Reply
	cmd := place.WithServer(&cobra.Command{
		Use:   "revoke KEY --reason TEXT",
		Short: "Take a lease away from its holder",
		Long: `Take a lease away from its holder, without asking first. The next in line gets it at
once. The holder is told who revoked it and why, in its next answer and by a
notification. Its token is refused from then on: a write that names the lease fails.
Other writes are not stopped, and neither is the holder: for that see actor end.

KEY is a lease of the run, or with --layer of that layer. If several parties share it,
all of them lose it, or only the one that --holder names. To take back a task that a
worker has claimed, use queue cancel.

Exit code 1: nobody held it.`,
		Example: `  leasehold revoke deploy --reason 'the release is stopped'
  leasehold revoke output.json --layer S1 --reason 'W2 hangs'
  leasehold revoke schema --run build --holder S1/W2 --reason 'it reads no more' --json`,
		Args: oneKey,
		RunE: func(cmd *cobra.Command, args []string) error {
			if reason == "" {
				return exit.Usagef("--reason is missing: the holder is told why")
			}
			scope := "run"
			if layer != "" {
				scope = "layer"
			}
			c, err := connection.Operator(cmd, true)
			if err != nil {
				return reply.Refused(cmd, err)
			}
			defer c.Close()
			which := leasesOf(run, scope, layer)
			which["key"], which["holder"], which["reason"] = args[0], dispatch.PathOf(holder), reason
			answer, err := connection.Call(cmd.Context(), c, "operator_lease_revoke", which)
			if err != nil {
				return reply.Refused(cmd, err)
			}
			done, err := connection.Decode[struct{ Revoked bool }](answer.Object)
			if err != nil {
				return err
			}
			line := terminal.Line(cmd.OutOrStdout(), answer.Line())
			if !done.Revoked && !reply.JSON {
				advice := connection.MeantLease(cmd.Context(), c, leasesOf(run, scope, layer), args[0])
				return exit.Hint(errors.New(line), "%s", strings.TrimPrefix(advice+" leasehold leases shows what is held", " "))
			}
			if err := reply.Print(cmd, answer.Object, line); err != nil || done.Revoked {
				return err
			}
			return exit.ErrReported
		},
	})
	f := cmd.Flags()
	RunFlag(cmd, &run)
	f.StringVar(&layer, "layer", "", "a lease of the layer of the lead at this `path`")
	f.StringVar(&holder, "holder", "", "if several share it, take it only from the actor at this `path`")
	f.StringVar(&reason, "reason", "", "`text` for the holder")
	reply.Flag(cmd, "print JSON, one object per line")
	CompleteWith(cmd, "layer", CompleteLeads)
	CompleteWith(cmd, "holder", CompleteActors)
	cmd.ValidArgsFunction = First(CompleteLeases)
	return cmd
}

// oneKey accepts one argument, a key. It refuses an empty one, which is mostly a variable
// that is not set.
func oneKey(cmd *cobra.Command, args []string) error {
	if len(args) == 1 && args[0] == "" {
		return errors.New("KEY must not be empty")
	}
	return cobra.ExactArgs(1)(cmd, args)
}
