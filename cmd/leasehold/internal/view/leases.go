package view

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/connection"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/exit"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/terminal"
)

func NewLeasesCommand() *cobra.Command {
	var run, layer, scope, prefix string
	l := &look{tool: "operator_leases", empty: `{"leases":[]}`, draw: drawLeases}
	cmd := l.flags(&cobra.Command{
		Use:   "leases",
		Short: "Show who holds what, and who waits for it",
		Long: `Show who holds what, and who waits for it: the leases across a run, then those of
each layer. The token is the fencing token of the grant.`,
		Example: `  leasehold leases --watch
  leasehold leases --run release-42 --scope run
  leasehold leases --layer S1 --json | jq -r '.leases[].holder.path'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch scope {
			case "all", "run", "layer":
			default:
				return exit.Usagef("--scope %q: must be run, layer or all", scope)
			}
			if layer != "" && scope == "run" {
				return exit.Usagef("--layer %s: a layer's leases are not of --scope run", layer)
			}
			l.title = "leases of run " + run
			l.args = map[string]any{"run": run, "layer": connection.ActorPath(layer), "scope": scope, "prefix": prefix}
			return l.run(cmd)
		},
	})
	f := cmd.Flags()
	RunFlag(cmd, &run)
	f.StringVar(&layer, "layer", "", "only the layer of the lead at this `path`")
	f.StringVar(&scope, "scope", "all", "run, layer or all")
	f.StringVar(&prefix, "prefix", "", "only keys and names that start with this")
	Complete(cmd, "scope", "run", "layer", "all")
	CompleteWith(cmd, "layer", CompleteLeads)
	return cmd
}

// shownLease is a lease as operator_leases tells it.
type shownLease struct {
	Name   string
	Key    string
	Scope  string
	Layer  string
	Token  uint64
	Mode   string
	Reason string
	Holder struct {
		Path string
	}
	ExpiresIn terminal.Millis `json:"expires_in_ms"`
	Waiters   []struct {
		Path    string
		Waiting terminal.Millis `json:"waiting_ms"`
	}
}

func drawLeases(object json.RawMessage, since time.Duration, p terminal.Paint) (string, error) {
	list, err := connection.Decode[struct{ Leases []shownLease }](object)
	if err != nil {
		return "", err
	}
	if len(list.Leases) == 0 {
		return "no leases\n", nil
	}
	t := terminal.Table{Head: []string{"LEASE", "SCOPE", "HOLDER", "EXPIRES", "TOKEN", "WAITING"}}
	reasons := slices.ContainsFunc(list.Leases, func(l shownLease) bool { return l.Reason != "" })
	if reasons {
		t.Head = append(t.Head, "REASON")
	}
	for _, l := range list.Leases {
		scope := l.Scope
		if l.Layer != "" {
			scope += " " + l.Layer
		}
		var waiting []string
		for _, w := range l.Waiters {
			waiting = append(waiting, fmt.Sprintf("%s (%s)", w.Path, terminal.Brief(w.Waiting.Duration()+since)))
		}
		holder := l.Holder.Path
		if l.Mode == "shared" {
			holder += " (shared)"
		}
		cells := []string{l.Name + l.Key, scope, holder, terminal.Remaining(l.ExpiresIn, since), strconv.FormatUint(l.Token, 10), strings.Join(waiting, ", ")}
		if reasons {
			cells = append(cells, l.Reason)
		}
		t.Add(cells...)
	}
	return t.Render(p), nil
}
