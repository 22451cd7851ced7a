package view

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/connection"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/terminal"
	"github.com/leasehold/leasehold/dispatch"
)

func NewKVCommand() *cobra.Command {
	var run, layer string
	var values bool
	var limit int
	l := &look{tool: "operator_kv", empty: `{"truncated":false,"entries":[]}`}
	cmd := l.flags(&cobra.Command{
		Use:   "kv [GLOB]",
		Short: "Show the store of a layer",
		Long: `Show the store of a layer, by default the root's: the entries whose path GLOB
matches, where * stops at / and ** does not. Quote it for the shell.`,
		Example: `  leasehold kv
  leasehold kv '/shared/**' --values --watch
  leasehold kv --layer S1 '/ref/*' --json --values | jq -r '.entries[].value'`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkLimit(limit); err != nil {
				return err
			}
			glob := allEntries
			if len(args) == 1 {
				glob = args[0]
			}
			layer = dispatch.PathOf(layer)
			l.title = "store of " + layer + " in run " + run + ", " + glob
			l.args = map[string]any{"run": run, "layer": layer, "glob": glob, "values": values, "limit": limit}
			l.draw = func(object json.RawMessage, _ time.Duration, p terminal.Paint) (string, error) {
				return drawEntries(object, glob, p)
			}
			return l.run(cmd)
		},
	})
	f := cmd.Flags()
	RunFlag(cmd, &run)
	f.StringVar(&layer, "layer", "root", "the layer of the lead at this `path`")
	f.BoolVar(&values, "values", false, "with their values")
	limitFlag(cmd, &limit)
	CompleteWith(cmd, "layer", CompleteLeads)
	cmd.ValidArgsFunction = cobra.FixedCompletions([]string{"/ref/**", "/shared/**", "/peer/**", "/leases/**"}, cobra.ShellCompDirectiveNoFileComp)
	return cmd
}

// allEntries matches every path.
const allEntries = "/**"

// shownEntry is an entry in the format of operator_kv.
type shownEntry struct {
	Path      string
	Value     json.RawMessage // if it was asked for
	Version   uint64
	UpdatedAt time.Time `json:"updated_at"`
	UpdatedBy string    `json:"updated_by"`
}

// maxShownValue limits the width of a value in a table. JSON shows all of it.
const maxShownValue = 120

func drawEntries(object json.RawMessage, glob string, p terminal.Paint) (string, error) {
	list, err := connection.Decode[struct {
		Entries   []shownEntry
		Truncated bool
	}](object)
	if err != nil {
		return "", err
	}
	if len(list.Entries) == 0 {
		if glob != allEntries {
			return fmt.Sprintf("no entries match %s\n", terminal.Printable(glob)), nil
		}
		return "no entries\n", nil
	}
	t := terminal.Table{Columns: []terminal.Column{
		{Head: "PATH", Want: 24, Bare: 10, Left: true},
		{Head: "VERSION", Rank: terminal.Minor + 2},
		{Head: "BY", Rank: terminal.Minor, Want: 12, Left: true},
		{Head: "AGE", Rank: terminal.Minor + 1},
		{Head: "VALUE", Want: 24, Bare: 10, Optional: true},
	}}
	for _, e := range list.Entries {
		t.AddTexts(e.Path, strconv.FormatUint(e.Version, 10), e.UpdatedBy, terminal.Brief(time.Since(e.UpdatedAt)), terminal.Clip(string(e.Value), maxShownValue))
	}
	text := t.Render(p)
	if list.Truncated {
		text += p.Dim("there are more: narrow the glob, or raise --limit") + "\n"
	}
	return text, nil
}
