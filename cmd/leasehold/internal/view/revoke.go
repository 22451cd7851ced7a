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
	"github.com/leasehold/leasehold/dispatch/project"
)

// NewRevokeCommand takes a lease away.
func NewRevokeCommand() *cobra.Command {
	var run, layer, holder, reason string
	var which leaseKey
	var reply connection.Reply
	cmd := place.WithServer(&cobra.Command{
		Use:   "revoke [KEY | --path PATH] --reason TEXT",
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
  leasehold revoke --path src/app.ts --reason 'its client is gone'
  leasehold revoke output.json --layer S1 --reason 'W2 hangs'
  leasehold revoke schema --run build --holder S1/W2 --reason 'it reads no more' --json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if reason == "" {
				return exit.Usagef("--reason is missing: the holder is told why")
			}
			key, err := which.of(args, layer)
			if err != nil {
				return err
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
			request := leasesOf(run, scope, layer)
			request["key"], request["holder"], request["reason"] = key, dispatch.PathOf(holder), reason
			answer, err := connection.Call(cmd.Context(), c, "operator_lease_revoke", request)
			if err != nil {
				return reply.Refused(cmd, err)
			}
			done, err := connection.Decode[struct{ Revoked bool }](answer.Object)
			if err != nil {
				return err
			}
			line := terminal.Line(cmd.OutOrStdout(), answer.Line())
			if !done.Revoked && !reply.JSON {
				advice := connection.MeantLease(cmd.Context(), c, leasesOf(run, scope, layer), key)
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
	which.flag(cmd)
	f.StringVar(&layer, "layer", "", "a lease of the layer of the lead at this `path`")
	f.StringVar(&holder, "holder", "", "if several share it, take it only from the actor at this `path`")
	f.StringVar(&reason, "reason", "", "`text` for the holder")
	reply.Flag(cmd, "print JSON, one object per line")
	CompleteWith(cmd, "layer", CompleteLeads)
	CompleteWith(cmd, "holder", CompleteActors)
	cmd.ValidArgsFunction = First(CompleteLeases)
	return cmd
}

// A leaseKey is the key of a lease, given as the only argument or by --path.
type leaseKey struct{ path string }

func (k *leaseKey) flag(cmd *cobra.Command) {
	pathFlag(cmd, &k.path, "KEY")
	cmd.Args = k.args
}

// args accepts one argument, a key. It refuses an empty one, which is mostly a variable
// that is not set.
func (k *leaseKey) args(cmd *cobra.Command, args []string) error {
	switch {
	case cmd.Flags().Changed("path") && len(args) > 0:
		return errors.New("give KEY or --path, and not both")
	case cmd.Flags().Changed("path"):
		return nil
	case len(args) == 1 && args[0] == "":
		return errors.New("KEY must not be empty")
	}
	return cobra.ExactArgs(1)(cmd, args)
}

// of returns the key. That of a file comes from its project, so its lease is one of the run.
func (k *leaseKey) of(args []string, layer string) (string, error) {
	if len(args) > 0 {
		return args[0], nil
	}
	return fileKey(k.path, layer != "")
}

// pathFlag adds a flag in place of the key of a lease.
func pathFlag(cmd *cobra.Command, path *string, key string) {
	cmd.Flags().StringVar(path, "path", "", "in place of "+key+": the lease of the file at this `path`, or with DIR/** of everything below a directory")
}

// fileKey returns the key of the lease of a file. ofLayer says that the command is about a
// layer's lease.
func fileKey(path string, ofLayer bool) (string, error) {
	if ofLayer {
		return "", exit.Usagef("--path %s: a file's lease is one of the run, and not of a layer", path)
	}
	if err := project.CheckOne(path); err != nil {
		return "", exit.Usagef("--path %s: %v", path, err)
	}
	key, err := project.Path(connection.Here(), path)
	if err != nil {
		return "", exit.Usagef("--path %s: %v", path, err)
	}
	return key, nil
}
