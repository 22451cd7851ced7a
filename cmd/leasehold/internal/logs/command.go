// Package logs shows the output of launched agents.
package logs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/connection"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/exit"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/place"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/terminal"
	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/launcher"
	"github.com/leasehold/leasehold/dispatch/spelling"
)

// poll is the interval at which the files of an agent are read. The agent
// writes directly into them.
const poll = 100 * time.Millisecond

// pollsToAsk is how many times the files are read for each check of the state
// of the run.
const pollsToAsk = 5

// allLines is the value of --tail for all lines.
const allLines = -1

func NewCommand() *cobra.Command {
	var base string
	var follow bool
	var tail int
	cmd := place.WithServer(&cobra.Command{
		Use:   "logs RUN ACTOR",
		Short: "Show what a launched agent has written",
		Long: `Show what an agent of a dispatched run has written, as far as it is kept: its stdout
on stdout, its stderr on stderr. RUN is a run directory, or the name of a run, which
means the latest run of that name. ACTOR is a path, such as root or S1/W1.

--follow keeps showing new output, until the agent ends or you press Ctrl-C. No daemon
is needed.`,
		Example: `  leasehold logs release root
  leasehold logs release S1/W1 --follow --tail 20
  leasehold logs release S1/W1 2>/dev/null | jq .`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if tail < 0 && cmd.Flags().Changed("tail") {
				return exit.Usagef("--tail %d: must be at least 0", tail)
			}
			path := dispatch.PathOf(args[1])
			dir, err := find(cmd, base, args[0], path)
			if err != nil {
				return elsewhere(cmd, args[0], path, err)
			}
			if _, err := logsOf(dir, path); err != nil {
				return elsewhere(cmd, args[0], path, err)
			}
			return show(cmd, dir, path, tail, follow)
		},
	})
	f := cmd.Flags()
	f.BoolVarP(&follow, "follow", "f", false, "keep showing new output, until Ctrl-C")
	f.IntVar(&tail, "tail", allLines, "only the last `N` lines of each of stdout and stderr (default all)")
	f.StringVar(&base, "dir", "", "`directory` that has the run directories (default <state>/runs)")
	f.Lookup("tail").DefValue = "0" // hides the default in the help text
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, _ string) (words []string, _ cobra.ShellCompDirective) {
		base, err := baseOr(base)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		switch len(args) {
		case 0:
			words = launcher.RunNames(base)
		case 1:
			if dir, err := launcher.FindStarted(base, args[0], ""); err == nil {
				words = actorsOf(dir)
			}
		}
		return words, cobra.ShellCompDirectiveNoFileComp
	}
	return cmd
}

// elsewhere says where the output of an actor is that ran on another machine; else err.
func elsewhere(cmd *cobra.Command, run, path string, err error) error {
	answer, asked := connection.AsOperator(cmd, false, "operator_tree", map[string]any{"run": run})
	if asked != nil {
		return err
	}
	tree, bad := connection.Decode[struct {
		Runs []struct {
			Actors []struct{ Path, Machine, Logs string }
		}
	}](answer.Object)
	if bad != nil {
		return err
	}
	for _, r := range tree.Runs {
		for _, a := range r.Actors {
			if a.Path == path && a.Machine != "" && a.Logs != "" {
				typed := dispatch.TypedPath(path)
				return exit.Hint(fmt.Errorf("%s runs, or ran, on machine %s, and what it writes is there, in %s", typed, a.Machine, a.Logs),
					"run this on that machine: leasehold logs %s %s", run, typed)
			}
		}
	}
	return err
}

// baseOr returns the directory of the run directories.
func baseOr(base string) (string, error) {
	if base != "" {
		return base, nil
	}
	return place.Runs()
}

// find finds the run directory of an actor, or suggests another one in its error.
func find(cmd *cobra.Command, base, run, path string) (*launcher.Directory, error) {
	base, err := baseOr(base)
	if err != nil {
		return nil, err
	}
	dir, err := launcher.FindStarted(base, run, path)
	if err == nil {
		return dir, nil
	}
	runs := launcher.RunNames(base)
	if near := spelling.Nearest(run, runs); near != "" {
		return nil, exit.Hint(err, "did you mean run %s?", near)
	}
	if _, asked := connection.AsOperator(cmd, false, "operator_tree", map[string]any{"run": run}); asked == nil {
		return nil, exit.Hint(err, "the daemon knows run %s: unless leasehold dispatch --dir put its directory elsewhere (name that with --dir), whoever started its agents has their output", run)
	}
	if len(runs) == 0 {
		return nil, exit.Hint(err, "leasehold dispatch makes a directory for each run that it starts, and there is none")
	}
	return nil, exit.Hint(err, "the runs are %s", terminal.Some(runs))
}

func actorsOf(dir *launcher.Directory) (paths []string) {
	list, _ := dir.Logs()
	for _, l := range list {
		paths = append(paths, dispatch.TypedPath(l.Path))
	}
	return paths
}

// logsOf returns the logs of one actor.
func logsOf(dir *launcher.Directory, path string) (launcher.Logs, error) {
	list, err := dir.Logs()
	if err != nil {
		return launcher.Logs{}, err
	}
	for _, l := range list {
		if l.Path == path {
			return l, nil
		}
	}
	typed := dispatch.TypedPath(path)
	err = fmt.Errorf("no agent was started as %s in the run of %s", typed, dir.Path)
	paths := actorsOf(dir)
	if question := spelling.Path(typed, paths); question != "" {
		return launcher.Logs{}, exit.Hint(err, "%s", question)
	}
	if len(paths) == 0 {
		return launcher.Logs{}, exit.Hint(err, "none has been started yet")
	}
	return launcher.Logs{}, exit.Hint(err, "those that were started are %s", terminal.Some(paths))
}

// show prints the output of an actor and, with follow, new output as it
// appears. An actor that is started again writes into new files.
func show(cmd *cobra.Command, dir *launcher.Directory, path string, tail int, follow bool) error {
	streams := []*stream{newStream(cmd.OutOrStdout(), tail), newStream(cmd.ErrOrStderr(), tail)}
	defer func() {
		for _, s := range streams {
			s.close()
		}
	}()
	if follow {
		terminal.EndUnread(cmd.OutOrStdout())
		terminal.EndUnread(cmd.ErrOrStderr())
	}
	tick := time.NewTicker(poll)
	defer tick.Stop()
	var l launcher.Logs
	for n := 0; ; n++ {
		// Check whether the actor runs before reading its files, so that the
		// end of its output is read.
		if n%pollsToAsk == 0 {
			var err error
			if l, err = logsOf(dir, path); err != nil {
				return err
			}
		}
		for i, files := range [][]string{l.Stdout, l.Stderr} {
			if err := streams[i].read(files); err != nil {
				return err
			}
		}
		if !follow || !l.Running {
			return errors.Join(streams[0].end(), streams[1].end())
		}
		select {
		case <-tick.C:
		case <-cmd.Context().Done():
			return nil // Ctrl-C is the normal end
		}
	}
}

// Last returns the last lines that an actor has written to both streams, and
// whether it still runs.
func Last(ctx context.Context, run, path string, lines int) (stdout, stderr []string, running bool, err error) {
	base, err := baseOr("")
	if err != nil {
		return nil, nil, false, err
	}
	dir, err := launcher.FindStarted(base, run, path)
	if err != nil {
		return nil, nil, false, err
	}
	l, err := logsOf(dir, path)
	if err != nil {
		return nil, nil, false, err
	}
	for i, files := range [][]string{l.Stdout, l.Stderr} {
		var kept []string
		for _, name := range files {
			for _, part := range []string{name + launcher.Earlier, name} {
				if ctx.Err() != nil {
					return nil, nil, false, context.Cause(ctx)
				}
				some, err := lastLines(part, lines)
				if err != nil && !errors.Is(err, fs.ErrNotExist) {
					return nil, nil, false, err
				}
				kept = append(kept, some...)
			}
		}
		kept = kept[max(0, len(kept)-lines):]
		if i == 0 {
			stdout = kept
		} else {
			stderr = kept
		}
	}
	return stdout, stderr, l.Running, nil
}

// maxLast is how many bytes of a file are read for its last lines.
const maxLast = 1 << 20

func lastLines(name string, n int) ([]string, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	text := make([]byte, min(info.Size(), maxLast))
	got, err := f.ReadAt(text, info.Size()-int64(len(text)))
	if err != nil && got < len(text) {
		text = text[:got] // the file was truncated meanwhile
	}
	lines := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	if len(text) == 0 {
		lines = nil
	}
	return lines[max(0, len(lines)-n):], nil
}
