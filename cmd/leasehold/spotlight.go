package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/leasehold/leasehold/spotlights"
)

func newSpotlightCommand() *cobra.Command {
	var list bool
	cmd := &cobra.Command{
		Use:   "spotlight [NAME]",
		Short: "List the stories of what leasehold promises, or run one",
		Long: `List the stories of what leasehold promises, or run one, narrated.

A story is told to a daemon of its own, a process with a state that goes with it:
it touches neither your daemon nor your runs.`,
		Example: `  leasehold spotlight
  leasehold spotlight crashed-holder`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			out := cmd.OutOrStdout()
			switch {
			case list && len(args) > 0:
				return usagef("--list stands alone")
			case len(args) == 0:
				_, err := io.WriteString(out, listStories(paintFor(out)))
				return err
			}
			i := slices.IndexFunc(spotlights.Stories(), func(s spotlights.Story) bool { return s.Name == args[0] })
			if i < 0 {
				return hint(usagef("unknown story %q", args[0]), "leasehold spotlight lists them")
			}
			return tellStory(cmd.Context(), spotlights.Stories()[i], out)
		},
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) (names []string, _ cobra.ShellCompDirective) {
			if len(args) == 0 {
				for _, s := range spotlights.Stories() {
					names = append(names, cobra.CompletionWithDesc(s.Name, s.Title))
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
	}
	cmd.Flags().BoolVar(&list, "list", false, "list the stories, as without a name")
	return cmd
}

func listStories(p paint) string {
	t := table{head: []string{"STORY", "PROMISE"}}
	for _, s := range spotlights.Stories() {
		t.add(s.Name, s.Promise)
	}
	return t.render(p)
}

func tellStory(ctx context.Context, s spotlights.Story, out io.Writer) (err error) {
	dir, err := os.MkdirTemp("", "leasehold-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	d := &storyDaemon{dir: dir}
	if err := d.start(ctx); err != nil {
		return err
	}
	defer d.kill()
	fmt.Fprintf(out, "%s\n\n", paintFor(out).bold(s.Title))
	if err := s.Tell(ctx, d, out); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return err
	}
	fmt.Fprintf(out, "\nSo it is: %s.\n", s.Promise)
	return nil
}

// A storyDaemon is a daemon process that a story is told to.
type storyDaemon struct {
	dir string
	cmd *exec.Cmd
}

func (d *storyDaemon) socket() string { return filepath.Join(d.dir, "s") }

// start returns once the daemon is ready, which it says in a line on its
// standard output.
func (d *storyDaemon) start(ctx context.Context) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(d.dir, "log"))
	if err != nil {
		return err
	}
	defer log.Close()
	d.cmd = exec.Command(self, "serve", "--state", d.dir, "--socket", d.socket(), "--log-format", "json")
	d.cmd.Stderr = log
	d.cmd.Env = withoutSecrets(os.Environ())
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for the story, which then ends its daemon
	ready, err := d.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := d.cmd.Start(); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = d.cmd.Process.Kill() })
	defer stop()
	if _, err := bufio.NewReader(ready).ReadString('\n'); err != nil {
		d.kill()
		said, _ := os.ReadFile(log.Name())
		return errors.Join(ctx.Err(), fmt.Errorf("the story's daemon did not start: %s", said))
	}
	return nil
}

func (d *storyDaemon) kill() {
	_ = d.cmd.Process.Kill() // it may have ended by itself
	_ = d.cmd.Wait()
}

// Dial opens a connection to its socket.
func (d *storyDaemon) Dial(ctx context.Context) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, "unix", d.socket())
}

// Restart kills it and starts it again over what it had stored.
func (d *storyDaemon) Restart(ctx context.Context) error {
	d.kill()
	return d.start(ctx)
}
