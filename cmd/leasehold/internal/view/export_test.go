package view

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/connection"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/exit"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/terminal"
	"github.com/leasehold/leasehold/dispatch/client"
)

// Events is what leasehold events --since says of a run, or with --json, and its exit code.
func Events(ctx context.Context, c *client.Client, run string, since uint64, asJSON bool) (out, said string, code int) {
	var stdout, stderr strings.Builder
	cmd := &cobra.Command{}
	cmd.SetOut(&stdout)
	s := stream{args: map[string]any{"run": run}, since: since, Reply: connection.Reply{JSON: asJSON}}
	code = exit.Report(ctx, &stderr, "", s.Refused(cmd, explained(s.copy(ctx, c, &stdout, &stderr))))
	return stdout.String(), stderr.String(), code
}

// Leases is what leasehold leases --json says of a run.
func Leases(ctx context.Context, c *client.Client, run string) (string, error) {
	var out strings.Builder
	cmd := &cobra.Command{}
	cmd.SetContext(ctx)
	l := leasesLook()
	l.args, l.JSON = map[string]any{"run": run}, true
	err := l.once(cmd, c, &out)
	return out.String(), err
}

// Drawn is what a view shows of a run at a width, asked of a daemon.
func Drawn(ctx context.Context, c *client.Client, name, run string, width int) (string, error) {
	of := map[string]any{"run": run}
	looks := map[string]*look{
		"leases":     {tool: "operator_leases", args: of, draw: drawLeases("")},
		"tree":       TreeLook(run, true),
		"queue":      {tool: "operator_queue_stats", args: of, draw: drawQueues},
		"queue-list": {tool: "operator_queue_list", args: of, draw: drawTasks(100, liveTasks)},
		"queue-dead": {tool: "operator_queue_list", args: map[string]any{"run": run, "state": "dead"}, draw: drawDead(100)},
		"runs":       {tool: "operator_tree", args: map[string]any{"run": run, "actors": false}, draw: drawRunList},
	}
	l := looks[name]
	answer, err := connection.Call(ctx, c, l.tool, l.args)
	if err != nil {
		return "", err
	}
	return l.text(state{Answer: answer}, 0, terminal.Paint{Width: width})
}
