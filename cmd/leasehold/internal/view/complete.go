package view

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/connection"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/exit"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/place"
	"github.com/leasehold/leasehold/dispatch"
)

// RunFlag adds --run to a command, completed with the existing runs. When the command
// runs, run has the name of the run, which may be the default.
func RunFlag(cmd *cobra.Command, run *string) {
	runFlag(cmd, run, "`name` of the run")
	cmd.PreRunE = func(*cobra.Command, []string) (err error) {
		*run, err = place.Run(*run, "")
		return err
	}
}

// InRun adds to a command that makes calls about a run what all such commands have: --run,
// --server, --json and the completion of its arguments.
func InRun(cmd *cobra.Command, run *string, reply *connection.Reply, usage string, complete cobra.CompletionFunc) *cobra.Command {
	RunFlag(cmd, run)
	reply.Flag(cmd, usage)
	cmd.ValidArgsFunction = complete
	return place.WithServer(cmd)
}

// JoinFlag adds --run to a command, for the run that it joins if it has no token.
func JoinFlag(cmd *cobra.Command, run *string) {
	runFlag(cmd, run, "`name` of the run to join without a token")
}

func runFlag(cmd *cobra.Command, run *string, usage string) {
	cmd.Flags().StringVar(run, "run", "", usage+" (default $LEASEHOLD_RUN, else the run of this directory's project)")
	CompleteWith(cmd, "run", CompleteRuns)
}

// meantRun returns the run of a command line that is being completed.
func meantRun(cmd *cobra.Command) (string, error) {
	run, err := cmd.Flags().GetString("run")
	if err != nil {
		return "", err
	}
	return place.Run(run, "")
}

// OneOf adds a flag whose value is one of some words, and is refused where it is read if
// it is not. p has the default.
func OneOf(cmd *cobra.Command, p *string, flag, usage string, words ...string) {
	cmd.Flags().Var(&oneOf{p, words}, flag, usage)
	CompleteWith(cmd, flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
}

type oneOf struct {
	p     *string
	words []string
}

func (f *oneOf) Type() string   { return "word" }
func (f *oneOf) String() string { return *f.p }

// Words are all values of the flag.
func (f *oneOf) Words() []string { return f.words }

func (f *oneOf) Set(word string) error {
	if !slices.Contains(f.words, word) {
		last := len(f.words) - 1
		return fmt.Errorf("must be %s or %s", strings.Join(f.words[:last], ", "), f.words[last])
	}
	*f.p = word
	return nil
}

// limitFlag adds --limit to a command that shows a list.
func limitFlag(cmd *cobra.Command, limit *int) {
	cmd.Flags().IntVar(limit, "limit", 100, fmt.Sprintf("how many at most, up to %d", maxLimit))
}

// maxLimit is the greatest limit that the daemon accepts.
const maxLimit = 1000

func checkLimit(limit int) error {
	if limit < 1 || limit > maxLimit {
		return exit.Usagef("--limit %d: must be from 1 to %d", limit, maxLimit)
	}
	return nil
}

// Expires adds the ttl of a token to the arguments of a call, if --expires is given.
func Expires(cmd *cobra.Command, args map[string]any, name string) error {
	if !cmd.Flags().Changed("expires") {
		return nil
	}
	ttl, err := cmd.Flags().GetDuration("expires")
	if err == nil && (ttl < time.Second || ttl > maxExpires) {
		err = exit.Usagef("--expires %v: must be from 1s to %v (ten years)", ttl, maxExpires)
	}
	args[name] = ttl.Seconds()
	return err
}

// maxExpires is the longest ttl of a token that the daemon accepts.
const maxExpires = 10 * 365 * 24 * time.Hour

func CompleteWith(cmd *cobra.Command, flag string, fn cobra.CompletionFunc) {
	if err := cmd.RegisterFlagCompletionFunc(flag, fn); err != nil {
		panic(err) // the flag is missing
	}
}

// completeTimeout is how long a completion waits for the daemon.
const completeTimeout = time.Second

// limited gives a command completeTimeout to ask the daemon, until it calls done.
func limited(cmd *cobra.Command) (done context.CancelFunc) {
	parent := cmd.Context()
	if parent == nil {
		parent = context.Background()
	}
	ctx, cancel := context.WithTimeout(parent, completeTimeout)
	cmd.SetContext(ctx)
	return cancel
}

// known asks the daemon for a completion. If none answers, it returns nothing.
func known[T any](cmd *cobra.Command, tool string, args map[string]any) (list T) {
	defer limited(cmd)()
	if answer, err := connection.AsOperator(cmd, false, tool, args); err == nil {
		list, _ = connection.Decode[T](answer.Object)
	}
	return list
}

// knownRuns asks for the runs, without their actors.
func knownRuns(cmd *cobra.Command, ended bool) []ShownRun {
	return known[struct{ Runs []ShownRun }](cmd, "operator_tree", map[string]any{"actors": false, "ended": ended}).Runs
}

func CompleteRuns(cmd *cobra.Command, _ []string, _ string) (names []string, _ cobra.ShellCompDirective) {
	for _, r := range knownRuns(cmd, false) {
		names = append(names, r.Run)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// CompleteDispatched suggests the runs that leasehold dispatch can go on with.
func CompleteDispatched(cmd *cobra.Command, _ []string, _ string) (names []string, _ cobra.ShellCompDirective) {
	for _, r := range knownRuns(cmd, false) {
		if r.Life > 0 {
			names = append(names, r.Run)
		}
	}
	return names, cobra.ShellCompDirectiveDefault // a run directory is named, too
}

// CompleteLeads suggests the leads of the command line's run.
func CompleteLeads(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	return paths(cmd, func(a ShownActor) bool { return a.EndedAt == nil && dispatch.Role(a.Role).Leads() }), cobra.ShellCompDirectiveNoFileComp
}

// CompleteActors suggests the living actors of the command line's run.
func CompleteActors(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	return paths(cmd, func(a ShownActor) bool { return a.EndedAt == nil }), cobra.ShellCompDirectiveNoFileComp
}

// completeAllActors suggests those that have ended, too.
func completeAllActors(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	return paths(cmd, func(ShownActor) bool { return true }), cobra.ShellCompDirectiveNoFileComp
}

// First completes the first argument of a command, and no other.
func First(fn cobra.CompletionFunc) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return fn(cmd, args, word)
	}
}

// paths returns the paths of the actors of the command line's run for which fits is true.
func paths(cmd *cobra.Command, fits func(ShownActor) bool) (list []string) {
	run, err := meantRun(cmd)
	if err != nil {
		return nil
	}
	for _, r := range known[struct{ Runs []ShownRun }](cmd, "operator_tree", map[string]any{"run": run}).Runs {
		for _, a := range r.Actors {
			if fits(a) {
				list = append(list, dispatch.TypedPath(a.Path))
			}
		}
	}
	return list
}

// CompleteLeases suggests the leases that are held and begin with word.
func CompleteLeases(cmd *cobra.Command, _ []string, word string) (keys []string, _ cobra.ShellCompDirective) {
	const none = cobra.ShellCompDirectiveNoFileComp
	run, err := meantRun(cmd)
	if err != nil {
		return nil, none
	}
	scope, lead := "all", ""
	layer, given := cmd.Flags().Lookup("layer"), cmd.Flags().Lookup("scope")
	switch {
	case layer == nil:
	case layer.Changed:
		scope = "layer"
		lead, _ = cmd.Flags().GetString("layer") // or --layer has no value, and the lead is not known
	case given != nil:
		if scope = given.Value.String(); scope == "layer" {
			lead = layer.Value.String() // its default
		}
	default:
		scope = "run"
	}
	defer limited(cmd)()
	c, err := connection.Operator(cmd, false)
	if err != nil {
		return nil, none
	}
	defer c.Close()
	asked := leasesOf(run, scope, lead)
	if word != "" { // the daemon lists only so many
		asked["prefix"] = word
	}
	held, _ := connection.HeldLeases(cmd.Context(), c, asked)
	for _, l := range held {
		if !strings.ContainsAny(l.Key, "\t\n") {
			keys = append(keys, cobra.CompletionWithDesc(l.Key, "held by "+l.Holder))
		}
	}
	return keys, none
}

// leasesOf selects the leases of a run, or of the layer of a lead.
func leasesOf(run, scope, lead string) map[string]any {
	return map[string]any{"run": run, "scope": scope, "layer": dispatch.PathOf(lead)}
}
