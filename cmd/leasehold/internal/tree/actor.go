package tree

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/connection"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/place"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/view"
	"github.com/leasehold/leasehold/dispatch"
)

func NewActorCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "actor",
		Short: "Make and end actors and issue their tokens, for other orchestrators",
		Long: `Make and end actors, for orchestrators that launch agents themselves, and issue a
new token for an actor whose token was lost.

A run is a tree: its root makes the run, sub-leads and workers are added below.
Whoever connects with an actor's token acts as that actor.`,
		Example: `  leasehold actor add --run build --name lead --role root
  leasehold actor add --run build --name S1 --role sublead
  leasehold actor add --run build --name W1 --role worker --parent S1
  leasehold actor token --run build S1
  leasehold actor end --run build S1/W1`,
	}
	cmd.AddCommand(newActorAddCommand(), newActorEndCommand(), newActorTokenCommand())
	return cmd
}

func newActorAddCommand() *cobra.Command {
	var run, name, role, parent string
	var readDown bool
	var reply connection.Reply
	var maxDepth int
	cmd := place.WithServer(&cobra.Command{
		Use:   "add",
		Short: "Make an actor, and print its path and its token",
		Long: `Make an actor, without launching it, and print its path and its token in two lines.
The token is a secret and is shown only once: give it to the agent in its environment,
as LEASEHOLD_TOKEN. It is void once the actor has ended.

After --expires the token opens no connection, and is refused over HTTP. A connection
of leasehold mcp that is open by then lasts, with its leases: leasehold actor end ends
it, with the actor.`,
		Example: `  leasehold actor add --run build --name lead --role root
  leasehold actor add --run build --name W1 --role worker --parent S1

  # straight into the agent's environment
  LEASEHOLD_TOKEN=$(leasehold actor add --run build --name W2 --role worker --json | jq -r .token) my-agent`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			args := map[string]any{"run": run, "name": name, "role": role}
			if parent != "" {
				args["parent"] = dispatch.PathOf(parent)
			}
			if readDown {
				args["read_down"] = true
			}
			if cmd.Flags().Changed("max-depth") {
				args["max_depth"] = maxDepth
			}
			if err := view.Expires(cmd, args, "token_ttl_secs"); err != nil {
				return err
			}
			answer, err := connection.AsOperator(cmd, true, "operator_actor_add", args)
			if err != nil {
				return reply.Refused(cmd, err)
			}
			made, err := connection.Decode[struct {
				ActorID string `json:"actor_id"`
				Path    string `json:"path"`
				Token   string `json:"token"`
			}](answer.Object)
			if err != nil {
				return err
			}
			object, err := json.Marshal(made)
			if err != nil {
				return err
			}
			reply.Lost = fmt.Sprintf("the actor was made, and its token was not shown: leasehold actor token --run %s %s issues another", run, dispatch.TypedPath(made.Path))
			return reply.Print(cmd, object, made.Path+"\n"+made.Token)
		},
	})
	f := cmd.Flags()
	view.RunFlag(cmd, &run)
	f.StringVar(&name, "name", "", "the `name` of the actor, unique in its layer (required)")
	view.OneOf(cmd, &role, "role", "root, sublead or worker (required)", "root", "sublead", "worker")
	f.StringVar(&parent, "parent", "", "`path` of its lead, as S1/S2 or S1→S2 (default root)")
	f.BoolVar(&readDown, "read-down", false, "the parent may read this sub-lead's layer")
	f.IntVar(&maxDepth, "max-depth", 0, "with --role root: how many names a path in this run may have (default the daemon's)")
	f.Duration("expires", 0, "the token opens no connection after this long, from 1s (default: until the actor has ended)")
	reply.Flag(cmd, "print {actor_id, path, token}")
	for _, required := range []string{"name", "role"} {
		_ = cmd.MarkFlagRequired(required)
	}
	view.CompleteWith(cmd, "parent", view.CompleteLeads)
	return cmd
}

// newActorTokenCommand issues a token that replaces a lost one.
func newActorTokenCommand() *cobra.Command {
	var run string
	reply := connection.Reply{Lost: connection.OldIsVoid}
	cmd := view.InRun(&cobra.Command{
		Use:   "token PATH",
		Short: "Issue a new token for an actor; the old one is void",
		Long: `Issue a new token for an actor, in place of one that was lost or has become known,
and print it. From then on the old one opens no connection, and is refused over HTTP.
So is the new one after --expires. A connection of leasehold mcp that is open by then
lasts: leasehold actor end ends it, with the actor.`,
		Example: `  leasehold actor token --run build S1/W1
  LEASEHOLD_TOKEN=$(leasehold actor token --run build S1/W1) my-agent`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			request := map[string]any{"run": run, "path": dispatch.PathOf(args[0])}
			if err := view.Expires(cmd, request, "token_ttl_secs"); err != nil {
				return err
			}
			return reply.Call(cmd, true, "operator_actor_token", request, connection.IssuedToken)
		},
	}, &run, &reply, "print {actor_id, run, path, token}", view.First(view.CompleteActors))
	cmd.Flags().Duration("expires", 0, "the new one opens no connection after this long, from 1s (default: until the actor has ended)")
	return cmd
}

func newActorEndCommand() *cobra.Command {
	var run, reason string
	var reply connection.Reply
	cmd := view.InRun(&cobra.Command{
		Use:   "end PATH",
		Short: "End an actor and all below it",
		Long: `End an actor and all below it: their tokens are void, their sessions end, and their
leases go to those who wait. Ending root ends the run.`,
		Example: `  leasehold actor end --run build S1/W1 --reason 'went in circles'
  leasehold actor end --run build root`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			request := map[string]any{"run": run, "path": dispatch.PathOf(args[0])}
			if reason != "" {
				request["reason"] = reason
			}
			return reply.Call(cmd, true, "operator_actor_end", request, connection.Line)
		},
	}, &run, &reply, "print {run, path}", view.First(view.CompleteActors))
	cmd.Flags().StringVar(&reason, "reason", "", "`text` for those whom it concerns")
	return cmd
}
