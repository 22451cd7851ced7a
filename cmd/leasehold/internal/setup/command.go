// Package setup implements leasehold setup. It writes what MCP clients need into their
// configurations, shows the changes first, and can undo them.
//
// It edits texts in place and leaves everything else in them as it is. A record in the
// state's directory lists what it has written; see record. If it cannot read a file, it
// reports the position of the error and leaves the file unchanged.
//
// Each client has a file in this package. The clients differ only in data: which files
// they read, and what must be in each; see config.
package setup

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/exit"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/place"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/terminal"
	"github.com/leasehold/leasehold/dispatch/project"
)

type options struct {
	check, uninstall, project, user, yes, json bool
}

func NewCommand() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "setup [CLIENT ...]",
		Short: "Write the configurations of MCP clients, check or remove them",
		Long: `Write what MCP clients need to use leasehold: the server in their configuration,
the permission to call it, the hooks of the guard, and a marked block in a file that
their models read, such as CLAUDE.md or AGENTS.md, that tells them how to work.

CLIENT is claude, codex, gemini, opencode, kilo, copilot, qwen, kimi, crush, cursor,
vscode or git; without any, setup does all that it finds on this machine. It does not
write the hooks of kimi. The configurations of cursor and vscode were not tried with these
editors. For git it installs the hooks of the repository that this directory is in, as
leasehold guard install git does, or adds a line to those of husky.

setup shows what it would write, and asks. It shows only the lines that it writes,
since other lines may hold secrets. Without a terminal it writes nothing unless --yes
is given. Comments, order and settings that work already stay as they are. A file that
setup cannot read is refused, with line and column, and not touched. With --project it
writes the files of this project, which can be committed.

--check writes nothing, and exits with 1 if something is missing. --uninstall restores
the files that setup has changed on this machine, byte for byte. From a file that has
been changed since, it removes only what setup wrote.`,
		Example: `  leasehold setup
  leasehold setup claude codex --yes
  leasehold setup --project --check
  leasehold setup --uninstall`,
		RunE: func(cmd *cobra.Command, args []string) error { return run(cmd, o, args) },
	}
	f := cmd.Flags()
	f.BoolVar(&o.check, "check", false, "only check whether everything is there; exit code 1 if not")
	f.BoolVar(&o.uninstall, "uninstall", false, "remove what setup wrote, and restore what it changed")
	f.BoolVar(&o.user, "user", false, "write the files of this user, for all projects (the default)")
	f.BoolVar(&o.project, "project", false, "write the files of the project that this directory is in")
	f.BoolVar(&o.yes, "yes", false, "write without asking")
	f.BoolVar(&o.json, "json", false, "print {ok, files: [{file, clients, state, edits, problem}], notes}")
	cmd.MarkFlagsMutuallyExclusive("check", "uninstall")
	cmd.MarkFlagsMutuallyExclusive("user", "project")
	cmd.ValidArgsFunction = func(_ *cobra.Command, given []string, _ string) (words []string, _ cobra.ShellCompDirective) {
		for _, c := range clients {
			if !slices.Contains(given, c.name) {
				words = append(words, cobra.CompletionWithDesc(c.name, c.title))
			}
		}
		return words, cobra.ShellCompDirectiveNoFileComp
	}
	return cmd
}

func run(cmd *cobra.Command, o options, names []string) error {
	named, err := byName(names)
	if err != nil {
		return err
	}
	here, err := project.Of(".")
	if err != nil {
		return err
	}
	scope := "user"
	if o.project {
		scope = here.Top
	}
	m, err := thisMachine(here.Top, o.project)
	if err != nil {
		return err
	}
	state, err := place.State()
	if err != nil {
		return err
	}
	if o.uninstall {
		return uninstall(cmd, o, state, named, scope)
	}
	chosen := named
	if len(chosen) == 0 {
		if chosen = installed(m); len(chosen) == 0 {
			return exit.Hint(errors.New("no client that setup knows is on this machine"), "name one: leasehold setup claude")
		}
	}
	if strings.Contains(m.command, string(filepath.Separator)+"go-build") {
		return exit.Hint(errors.New("this program is a temporary one of go run, which clients could not start later"),
			"go install ./cmd/leasehold, put its directory into the PATH, and run leasehold setup")
	}
	plans := planSetup(m, chosen, o.project)
	s := summary{plans: plans, notes: notesOf(chosen, o.project)}
	if len(named) == 0 && len(chosen) == 1 && chosen[0].name == "git" {
		s.notes = append(s.notes, "no MCP client was found on this machine; leasehold setup claude writes for one that is not here yet")
	}
	if o.check {
		return s.report(cmd, o, false)
	}
	return s.confirm(cmd, o, state, func(r *record) error { return carryOut(r, plans, scope) })
}

func uninstall(cmd *cobra.Command, o options, state string, named []client, scope string) error {
	r, err := readRecord(state)
	if err != nil {
		return err
	}
	if len(named) == 0 {
		named = clients
	}
	var chosen []string
	for _, c := range named {
		chosen = append(chosen, c.name)
	}
	plans := planUninstall(r, chosen, scope)
	s := summary{plans: plans}
	if !slices.ContainsFunc(plans, func(p plan) bool { return p.state != same }) {
		s.notes = []string{"setup has written nothing here that is still there; what was added by hand is left"}
	}
	return s.confirm(cmd, o, state, func(r *record) error { return takeBack(r, plans) })
}

func byName(names []string) (list []client, err error) {
	for _, name := range names {
		i := slices.IndexFunc(clients, func(c client) bool { return c.name == name })
		if i < 0 {
			var known []string
			for _, c := range clients {
				known = append(known, c.name)
			}
			return nil, exit.Usagef("no client is called %q; setup knows %s", name, strings.Join(known, ", "))
		}
		if !slices.ContainsFunc(list, func(c client) bool { return c.name == name }) {
			list = append(list, clients[i])
		}
	}
	return list, nil
}

func installed(m machine) (list []client) {
	for _, c := range clients {
		if c.found(m) {
			list = append(list, c)
		}
	}
	return list
}

func notesOf(chosen []client, project bool) (notes []string) {
	for _, c := range chosen {
		if note := c.note(project); note != "" {
			notes = append(notes, note)
		}
	}
	return notes
}

// A summary is what setup reports.
type summary struct {
	plans []plan
	notes []string
}

// confirm shows the plans, asks the user, and calls do.
func (s summary) confirm(cmd *cobra.Command, o options, state string, do func(*record) error) error {
	writes := slices.ContainsFunc(s.plans, plan.writes)
	if writes && !o.yes {
		if o.json || !terminal.CanAsk(cmd.InOrStdin()) {
			if err := s.report(cmd, o, false); err != nil && !errors.Is(err, exit.ErrReported) {
				return err
			}
			return exit.Hint(errors.New("nothing was written: there is no terminal to ask at"), "leasehold setup with --yes writes it")
		}
		s.draw(cmd.OutOrStdout())
		switch yes, err := terminal.Ask(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout(), "Write this?"); {
		case err != nil:
			return err
		case !yes:
			return errors.New("nothing was written")
		}
		s = summary{plans: s.plans} // the notes have been shown
	}
	r, err := openRecord(state)
	if err != nil {
		return err
	}
	defer r.close()
	if err := do(r); err != nil {
		return err
	}
	if len(s.notes) == 0 && writes && !o.yes {
		if _, err := fmt.Fprintln(cmd.OutOrStdout(), "done"); err != nil {
			return err
		}
		return s.fault()
	}
	return s.report(cmd, o, true)
}

// report prints the plans and notes. written says that the plans have been carried out.
func (s summary) report(cmd *cobra.Command, o options, written bool) error {
	out := cmd.OutOrStdout()
	if !o.json {
		s.draw(out)
		if written {
			return s.fault()
		}
		return cmp.Or(s.fault(), s.drift())
	}
	type shownEdit struct {
		Line    int    `json:"line"`
		Removed string `json:"removed,omitempty"`
		Added   string `json:"added,omitempty"`
	}
	type shownFile struct {
		File    string      `json:"file"`
		Clients []string    `json:"clients"`
		State   state       `json:"state"`
		Edits   []shownEdit `json:"edits"`
		Problem string      `json:"problem,omitempty"`
	}
	files := []shownFile{}
	for _, p := range s.plans {
		f := shownFile{File: p.shown, Clients: p.clients, State: p.state, Edits: []shownEdit{}, Problem: p.problemAt()}
		if p.writes() {
			for line, e := range p.steps() {
				f.Edits = append(f.Edits, shownEdit{line, e.Del, e.Ins})
			}
		}
		files = append(files, f)
	}
	fault := s.fault()
	if !written {
		fault = cmp.Or(fault, s.drift())
	}
	err := json.NewEncoder(out).Encode(struct {
		OK    bool        `json:"ok"`
		Files []shownFile `json:"files"`
		Notes []string    `json:"notes"`
	}{fault == nil, files, append([]string{}, s.notes...)})
	return cmp.Or(err, fault)
}

// fault returns an error if a file was refused. That error has already been printed.
func (s summary) fault() error {
	if slices.ContainsFunc(s.plans, func(p plan) bool { return p.state == refused }) {
		return exit.ErrReported
	}
	return nil
}

// drift returns such an error if a file differs from what setup would write.
func (s summary) drift() error {
	if slices.ContainsFunc(s.plans, plan.writes) {
		return exit.ErrReported
	}
	return nil
}

// steps yields the changes of a plan from the beginning of the file to its end, each with
// the line where it begins.
func (p plan) steps() func(yield func(int, edit) bool) {
	return func(yield func(int, edit) bool) {
		for _, e := range joined(p.file.text, p.edits) {
			seen := e.fromLineStart(p.file.text)
			line, _ := position(p.file.text, seen.At)
			if !yield(line, seen) {
				return
			}
		}
	}
}

// fromLineStart returns the edit in the form to show: what is removed begins at a line, or
// as early in its line as it can. Deleting "b,\n  " from "a,\n  b,\n  c" gives the same
// text as deleting "  b,\n".
func (e edit) fromLineStart(text []byte) edit {
	for e.Ins == "" && e.At > 0 && e.Del != "" && text[e.At-1] != '\n' {
		before, last := text[e.At-1], len(e.Del)-1
		if before != e.Del[last] {
			break
		}
		e.At, e.Del = e.At-1, string(before)+e.Del[:last]
	}
	return e
}

// linesOf returns the lines of a text, safe to print on a terminal.
func linesOf(text string) (lines []string) {
	if text = strings.Trim(text, "\r\n"); text == "" {
		return nil
	}
	for line := range strings.SplitSeq(text, "\n") {
		lines = append(lines, terminal.Printable(strings.ReplaceAll(strings.TrimRight(line, "\r"), "\t", "  ")))
	}
	return lines
}

// sameLines is how many equal lines are worth a reference to where they are shown first.
const sameLines = 10

// draw prints each file with the lines that are removed and added, and the notes. What
// several files have in common, such as the block for models, is shown once.
func (s summary) draw(out io.Writer) {
	p := terminal.PaintFor(out)
	first := make(map[string]string) // the file where a text is shown
	for _, plan := range s.plans {
		fmt.Fprintf(out, "%-7s  %s  (%s)\n", plan.state, p.Bold(terminal.Printable(plan.shown)), strings.Join(plan.clients, ", "))
		if plan.problem != nil {
			fmt.Fprintf(out, "         %s\n", p.Red(terminal.Printable(plan.problemAt())))
		}
		if !plan.writes() {
			continue
		}
		if plan.note != "" {
			fmt.Fprintf(out, "         %s\n", plan.note)
		}
		for line, e := range plan.steps() {
			removed, added := linesOf(e.Del), linesOf(e.Ins)
			for len(removed) > 0 && len(added) > 0 && removed[0] == added[0] {
				removed, added = removed[1:], added[1:]
				line++
			}
			for len(removed) > 0 && len(added) > 0 && removed[len(removed)-1] == added[len(added)-1] {
				removed, added = removed[:len(removed)-1], added[:len(added)-1]
			}
			fmt.Fprintf(out, "         line %d\n", line)
			for _, change := range []struct {
				sign  string
				lines []string
			}{{"-", removed}, {"+", added}} {
				text := "         " + change.sign + " " + strings.Join(change.lines, "\n         "+change.sign+" ") + "\n"
				switch file, shown := first[text]; {
				case len(change.lines) == 0:
				case shown && len(change.lines) >= sameLines:
					fmt.Fprintf(out, "         %s the same %d lines as in %s\n", change.sign, len(change.lines), file)
				default:
					first[text] = terminal.Printable(plan.shown)
					fmt.Fprint(out, text)
				}
			}
		}
	}
	for _, note := range s.notes {
		fmt.Fprintf(out, "note: %s\n", note)
	}
}
