package view

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/connection"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/exit"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/terminal"
	"github.com/leasehold/leasehold/dispatch"
)

func NewLeasesCommand() *cobra.Command {
	var run, layer, prefix string
	scope := "all"
	l := leasesLook()
	cmd := l.flags(&cobra.Command{
		Use:   "leases",
		Short: "Show who holds what, and who waits for it",
		Long: `Show who holds what, and who waits for it: the leases across a run, then those of
each layer. The token is the fencing token of the grant. WHERE is the holder's
directory, its branch and the pid of its client, as far as they are known.`,
		Example: `  leasehold leases --watch
  leasehold leases --run release-42 --scope run
  leasehold leases --layer S1 --json | jq -r '.leases[].holder.path'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if layer != "" && scope == "run" {
				return exit.Usagef("--layer %s: a layer's leases are not of --scope run", layer)
			}
			l.title = "leases of run " + run
			l.draw = drawLeases(prefix)
			l.args = map[string]any{"run": run, "layer": dispatch.PathOf(layer), "scope": scope, "prefix": prefix}
			return l.run(cmd)
		},
	})
	f := cmd.Flags()
	RunFlag(cmd, &run)
	f.StringVar(&layer, "layer", "", "only the layer of the lead at this `path`")
	OneOf(cmd, &scope, "scope", "run, layer or all", "run", "layer", "all")
	f.StringVar(&prefix, "prefix", "", "only keys and names that start with this `text`")
	CompleteWith(cmd, "layer", CompleteLeads)
	CompleteWith(cmd, "prefix", CompleteLeases)
	return cmd
}

func leasesLook() *look {
	return &look{tool: "operator_leases", empty: `{"leases":[]}`, paged: true}
}

// shownLease is a lease in the format of operator_leases.
type shownLease struct {
	Name      string
	Key       string
	Scope     string
	Layer     string
	Token     uint64
	Mode      string
	Reason    string
	OfferedTo string `json:"offered_to"`
	Holder    shownHolder
	KeepAlive bool            `json:"keep_alive"`
	Held      terminal.Millis `json:"held_ms"`
	ExpiresIn terminal.Millis `json:"expires_in_ms"`
	Waiters   []struct {
		shownHolder
		Waiting terminal.Millis `json:"waiting_ms"`
	}
	InLine int `json:"in_line"`

	For string // of a key that nobody holds: the first in line, for whom it is reserved
}

// who names the holder, or for whom the key is reserved.
func (l shownLease) who() string {
	if l.For != "" {
		return reservedFor + l.For
	}
	return l.Holder.String()
}

const reservedFor = "reserved for "

// shownHolder is a party that holds or waits.
type shownHolder struct {
	Path string
	As   string
	shownOrigin
}

func (h shownHolder) String() string {
	if h.As != "" {
		return h.Path + " as " + h.As
	}
	return h.Path
}

// drawLeases draws leases. prefix is the one that was asked for, or "".
func drawLeases(prefix string) drawing {
	return func(object json.RawMessage, since time.Duration, p terminal.Paint) (string, error) {
		list, err := connection.Decode[leaseList](object)
		switch {
		case err != nil:
			return "", err
		case len(list.Leases)+len(list.Reserved) == 0 && prefix != "":
			return fmt.Sprintf("no lease starts with %q\n", prefix), nil
		case len(list.Leases)+len(list.Reserved) == 0:
			return "no leases\n", nil
		}
		text := leaseTable(list.all(), since).Render(p)
		if list.Next != "" {
			text += p.Dim("there are more: narrow with --prefix, --scope or --layer") + "\n"
		}
		return text, nil
	}
}

// leaseList is the answer of operator_leases.
type leaseList struct {
	Leases   []shownLease
	Reserved []shownLease
	Next     string
}

// all returns the leases, and after them what is reserved.
func (l leaseList) all() []shownLease { return slices.Concat(l.Leases, l.Reserved) }

// leaseTable returns a table with one row per lease. since is the time since the leases
// were read.
func leaseTable(list []shownLease, since time.Duration) *terminal.Table {
	t := &terminal.Table{Columns: []terminal.Column{
		{Head: "LEASE", Want: 24, Bare: 10, Left: true},
		{Head: "SCOPE", Rank: terminal.Minor, Want: 12},
		{Head: "HOLDER", Want: 16, Bare: 8, Left: true},
		{Head: "EXPIRES"},
		{Head: "TOKEN", Rank: terminal.Minor + 1},
		{Head: "WAITING", Want: 16, Bare: 10, Left: true},
		{Head: "REASON", Rank: terminal.Minor + 2, Want: 16, Optional: true},
		{Head: "WHERE", Rank: terminal.Minor + 3, Want: 16, Left: true, Optional: true},
	}}
	for _, l := range list {
		var waiting []string
		for _, w := range l.Waiters {
			waiting = append(waiting, fmt.Sprintf("%s (%s)", w, terminal.Brief(w.Waiting.Duration()+since)))
		}
		expires := terminal.Remaining(l.ExpiresIn, since)
		if l.KeepAlive {
			expires = "kept alive"
		}
		line := terminal.Several(waiting, l.InLine)
		if len(waiting) == 0 {
			line = terminal.Text("")
		}
		holder, token := l.who(), strconv.FormatUint(l.Token, 10)
		if l.For != "" {
			token = ""
		}
		if l.Mode == "shared" {
			holder += " (shared)"
		}
		if l.OfferedTo != "" {
			holder += " (offered to " + l.OfferedTo + ")"
		}
		t.Add(
			terminal.Text(l.Name+l.Key), terminal.Text(scopeOf(l.Scope, l.Layer)), terminal.Text(holder), terminal.Text(expires),
			terminal.Text(token), line, terminal.Text(l.Reason), terminal.Text(l.Holder.shownOrigin.String()),
		)
	}
	return t
}

// scopeOf names a scope, and the layer of a layer's lease.
func scopeOf(scope, layer string) string {
	if layer == "" {
		return scope
	}
	return scope + " " + layer
}
