package view

import (
	"cmp"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/connection"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/exit"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/place"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/terminal"
	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/server"
)

// NewLeaseCommand groups the commands for one lease.
func NewLeaseCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "lease",
		Short:   "Check the token of a lease",
		Example: `  leasehold lease check --key deploy --token 17`,
	}
	cmd.AddCommand(newLeaseCheckCommand())
	return cmd
}

func newLeaseCheckCommand() *cobra.Command {
	var run, layer, key, path string
	scope := "run"
	var token uint64
	var reply connection.Reply
	cmd := place.WithServer(&cobra.Command{
		Use:   "check (--key KEY | --path PATH) --token N",
		Short: "Check whether a token is still current",
		Long: `Check whether a token is that of the latest grant of a lease, for a script that guards
a resource. Exit code 0: it is current. Exit code 1: it is not, or nobody can tell,
for instance because no daemon runs; do not write.

Between the check and the write the lease may still go to somebody else. A resource
that keeps the greatest token that it has seen, and refuses smaller ones, has no
such gap.

It asks as the actor of LEASEHOLD_SESSION or LEASEHOLD_TOKEN, about that actor's run
and layer. Without them it asks as the operator.`,
		Example: `  leasehold lease check --key deploy --token "$LEASEHOLD_FENCE" && ./deploy
  leasehold lease check --path src/app.ts --token 17
  leasehold lease check --layer S1 --key output.json --token 17 --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("layer") {
				if scope == "run" && cmd.Flags().Changed("scope") {
					return exit.Usagef("--layer %s: a layer's leases are not of --scope run", layer)
				}
				scope = "layer"
			}
			switch named := cmd.Flags().Changed("path"); {
			case named == cmd.Flags().Changed("key"):
				return exit.Usagef("give either --key or --path: they name the lease")
			case named:
				var err error
				if key, err = fileKey(path, scope == "layer"); err != nil {
					return err
				}
			}
			args := map[string]any{"scope": scope, "key": key, "token": token}
			hello, tool := server.Hello{Operator: true}, "operator_lease_check"
			handle := os.Getenv("LEASEHOLD_SESSION")
			secret, err := place.ActorToken(cmd)
			if err != nil {
				return err
			}
			if handle != "" || secret != "" {
				if err := cmp.Or(place.OtherRun(cmd), ownLayer(cmd, layer)); err != nil {
					return err
				}
				hello, tool = server.Hello{Handle: handle, Token: secret}, "lease_check"
				if handle != "" {
					hello.Token = ""
				}
			} else {
				args["run"], args["layer"] = run, dispatch.PathOf(layer)
			}
			c, err := connection.Open(cmd, hello, false)
			if err != nil {
				return err
			}
			defer c.Close()
			answer, err := connection.Call(cmd.Context(), c, tool, args)
			if err != nil {
				return reply.Refused(cmd, err)
			}
			found, err := connection.Decode[struct{ Current *bool }](answer.Object)
			if err != nil || found.Current == nil {
				return errors.Join(errors.New("the daemon's answer does not say whether the token is current"), err)
			}
			if err := reply.Print(cmd, answer.Object, terminal.Line(cmd.OutOrStdout(), answer.Line())); err != nil || *found.Current {
				return err
			}
			return exit.ErrReported
		},
	})
	f := cmd.Flags()
	RunFlag(cmd, &run)
	OneOf(cmd, &scope, "scope", "run or layer", "run", "layer")
	f.StringVar(&layer, "layer", "root", "a lease of the layer of the lead at this `path`")
	f.StringVar(&key, "key", "", "the `key`, or the name of a layer's lease")
	pathFlag(cmd, &path, "--key")
	f.Uint64Var(&token, "token", 0, "the `token` that came with the write")
	reply.Flag(cmd, "print JSON, one object per line")
	_ = cmd.MarkFlagRequired("token")
	CompleteWith(cmd, "key", CompleteLeases)
	CompleteWith(cmd, "layer", CompleteLeads)
	return cmd
}

// ownLayer refuses the name of a layer, because an actor asks about its own.
func ownLayer(cmd *cobra.Command, layer string) error {
	if !cmd.Flags().Changed("layer") {
		return nil
	}
	return exit.Usage(exit.Hint(fmt.Errorf("--layer %s: a session or a token is set, so this asks as that actor, about its own layer", layer),
		"give --scope layer instead, or unset LEASEHOLD_SESSION, LEASEHOLD_TOKEN and LEASEHOLD_TOKEN_FILE to ask as the operator"))
}
