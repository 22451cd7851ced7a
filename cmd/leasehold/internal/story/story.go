// Package story is leasehold spotlight, which lists and runs the stories.
package story

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/exit"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/terminal"
	"github.com/leasehold/leasehold/dispatch/spelling"
	"github.com/leasehold/leasehold/spotlights"
)

func NewCommand() *cobra.Command {
	var list bool
	cmd := &cobra.Command{
		Use:   "spotlight [NAME]",
		Short: "List the stories of what leasehold promises, or run one",
		Long: `List the stories of what leasehold promises, or run one, narrated.

Each story runs against its own daemon with a temporary state, so it touches neither
your daemon nor your runs. Some stories dispatch a tree of real processes, and kill
some of them.`,
		Example: `  leasehold spotlight
  leasehold spotlight crashed-holder`,
		Args: cobra.MaximumNArgs(1),
		RunE: exit.Tidily(func(cmd *cobra.Command, args []string) error {
			out := cmd.OutOrStdout()
			switch {
			case list && len(args) > 0:
				return exit.Usagef("--list lists all stories: leave out %s", args[0])
			case len(args) == 0:
				_, err := io.WriteString(out, listStories(terminal.PaintFor(out)))
				return err
			}
			i := slices.Index(storyNames(), args[0])
			if i < 0 {
				err := exit.Usagef("unknown story %q", args[0])
				if near := spelling.Nearest(args[0], storyNames()); near != "" {
					return exit.Hint(err, "did you mean %s?", near)
				}
				return exit.Hint(err, "leasehold spotlight lists them")
			}
			return tellStory(cmd.Context(), spotlights.Stories()[i], out)
		}),
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

// minPromise is the least width of a promise, also on a narrower terminal.
const minPromise = 20

func storyNames() (names []string) {
	for _, s := range spotlights.Stories() {
		names = append(names, s.Name)
	}
	return names
}

func listStories(p terminal.Paint) string {
	t := terminal.Table{Columns: []terminal.Column{{Head: "STORY"}, {Head: "PROMISE"}}}
	room := 0 // for a promise
	if p.Width > 0 {
		for _, name := range storyNames() {
			room = max(room, terminal.Width(name))
		}
		room = max(p.Width-room-len("  "), minPromise)
	}
	for _, s := range spotlights.Stories() {
		name := s.Name
		for _, line := range terminal.Fold(s.Promise, room) { // a sentence must be shown in full
			t.AddTexts(name, line)
			name = ""
		}
	}
	p.Width = 0
	return t.Render(p)
}

// tellStory runs a story against a new machine. No process of the story
// outlives the command, even if the command is killed.
func tellStory(ctx context.Context, s spotlights.Story, out io.Writer) (err error) {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	m, err := spotlights.NewMachine(ctx, self)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	fmt.Fprintf(out, "%s\n\n", terminal.PaintFor(out).Bold(s.Title))
	if err := s.Tell(ctx, m, out); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return err
	}
	fmt.Fprintf(out, "\nThis shows: %s.\n", s.Promise)
	return nil
}
