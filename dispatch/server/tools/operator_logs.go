package tools

import (
	"context"
	"fmt"

	"github.com/leasehold/leasehold/dispatch"
)

// An AgentLog is the end of a launched agent's output.
type AgentLog struct {
	Stdout, Stderr []string // the last lines
	Running        bool
}

// A LogReader returns the last lines of the output of an agent of a run, made
// safe for display. If there is none, its error says what to do.
type LogReader func(ctx context.Context, run, path string, lines int) (AgentLog, error)

// Logs returns the tool that shows the output of launched agents. The output is
// in files on the machine that launched them, and not in the state, which says
// which machine that is.
func Logs(state *dispatch.State, read LogReader) []Tool {
	return []Tool{
		tool("operator_logs", "See what an agent writes", "The last lines of what a launched agent has written to stdout and stderr, on the machine of this daemon.", Effect{ReadOnly: true, Idempotent: true},
			func(ctx context.Context, _ *dispatch.Session, a showLogsArgs) (agentLog, error) {
				if read == nil {
					return agentLog{}, fmt.Errorf("%w: this daemon does not know where launched agents write; leasehold logs does", dispatch.ErrNotFound)
				}
				a.Path = dispatch.PathOf(a.Path)
				log, err := read(ctx, a.Run, a.Path, a.Lines)
				if err != nil {
					return agentLog{}, whereLogsAre(ctx, state, a, err)
				}
				return agentLog{orEmpty(log.Stdout), orEmpty(log.Stderr), log.Running}, nil
			}),
	}
}

// whereLogsAre returns the error for an output that is not on this machine.
func whereLogsAre(ctx context.Context, state *dispatch.State, a showLogsArgs, err error) error {
	runs, failed := state.Runs(ctx, a.Run)
	if failed != nil || len(runs) == 0 {
		return fmt.Errorf("%w: %w", dispatch.ErrNotFound, err)
	}
	for _, actor := range runs[0].Actors {
		if w := actor.Work; actor.Path == a.Path && w != nil && w.Machine != "" && w.Logs != "" {
			typed := dispatch.TypedPath(a.Path)
			return fmt.Errorf("%w: %s runs, or ran, on machine %s, and what it writes is there, in %s; run this on that machine: leasehold logs %s %s",
				dispatch.ErrNotFound, typed, w.Machine, w.Logs, a.Run, typed)
		}
	}
	return fmt.Errorf("%w: %w", dispatch.ErrNotFound, err)
}

type showLogsArgs struct {
	runArg
	Path  string `json:"path" doc:"of the actor" min:"1" max:"512"`
	Lines int    `json:"lines,omitempty" doc:"the last so many of each stream" min:"1" max:"1000" default:"200"`
}

type agentLog struct {
	Stdout  []string `json:"stdout" jsonschema:"lines"`
	Stderr  []string `json:"stderr" jsonschema:"lines"`
	Running bool     `json:"running"`
}

func (l agentLog) Text() string {
	return fmt.Sprintf("%d lines of stdout, %d of stderr", len(l.Stdout), len(l.Stderr))
}

func orEmpty(lines []string) []string {
	if lines == nil {
		return []string{}
	}
	return lines
}
