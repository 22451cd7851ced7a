// Package manual writes the help of the commands as manual pages.
package manual

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/build"
)

// NewCommand returns the command man, which is for packagers.
func NewCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "man DIRECTORY",
		Short:  "Write the manual pages into a directory",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return err
			}
			return write(cmd.Root(), args[0])
		},
	}
}

// write writes the pages of c and of the commands below it.
func write(c *cobra.Command, dir string) error {
	if c.Hidden || c.Name() == "help" {
		return nil
	}
	if err := os.WriteFile(filepath.Join(dir, pageName(c)+".1"), []byte(page(c)), 0o644); err != nil {
		return err
	}
	for _, sub := range c.Commands() {
		if err := write(sub, dir); err != nil {
			return err
		}
	}
	return nil
}

func pageName(c *cobra.Command) string { return strings.ReplaceAll(c.CommandPath(), " ", "-") }

// page returns the page of one command. The help text is not reflowed, because
// its tables and line breaks matter.
func page(c *cobra.Command) string {
	c.InitDefaultHelpFlag()
	var b strings.Builder
	section := func(title string) { fmt.Fprintf(&b, ".SH %s\n", title) }
	text := func(s string) { fmt.Fprintf(&b, ".nf\n%s\n.fi\n", escape(s)) }
	date := ""
	if at := build.Read().Time; !at.IsZero() {
		date = at.Format(time.DateOnly)
	}
	fmt.Fprintf(&b, ".TH %q 1 %q %q\n", strings.ToUpper(pageName(c)), date, "leasehold "+build.Version())
	section("NAME")
	fmt.Fprintf(&b, "%s \\- %s\n", escape(pageName(c)), escape(c.Short))
	section("SYNOPSIS")
	use := c.UseLine()
	if c.HasAvailableSubCommands() {
		use = c.CommandPath() + " COMMAND"
	}
	fmt.Fprintf(&b, ".B %s\n", escape(use))
	section("DESCRIPTION")
	if c.Long != "" {
		text(c.Long)
	} else {
		fmt.Fprintf(&b, "%s.\n", escape(c.Short))
	}
	if subs := available(c); len(subs) > 0 {
		section("COMMANDS")
		for _, sub := range subs {
			fmt.Fprintf(&b, ".TP\n.BR %s (1)\n%s\n", escape(pageName(sub)), escape(sub.Short))
		}
	}
	section("OPTIONS")
	c.Flags().VisitAll(func(f *pflag.Flag) { option(&b, f) })
	c.InheritedFlags().VisitAll(func(f *pflag.Flag) { option(&b, f) })
	if c.Example != "" {
		section("EXAMPLES")
		text(c.Example)
	}
	if c.HasParent() {
		section("SEE ALSO")
		fmt.Fprintf(&b, ".BR %s (1)\n", escape(pageName(c.Parent())))
	}
	return b.String()
}

func available(c *cobra.Command) (subs []*cobra.Command) {
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			subs = append(subs, sub)
		}
	}
	return subs
}

func option(b *strings.Builder, f *pflag.Flag) {
	if f.Hidden {
		return
	}
	value, usage := pflag.UnquoteUsage(f)
	name := "--" + f.Name
	if f.Shorthand != "" {
		name = "-" + f.Shorthand + ", " + name
	}
	if value != "" {
		value = " " + value
	}
	fmt.Fprintf(b, ".TP\n.B %s\n%s\n", escape(name+value), escape(usage))
}

// escape makes s plain text for roff: no line of it is a request.
func escape(s string) string {
	s = strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, "`", `\(ga`, "~", `\(ti`, "^", `\(ha`, "→", `\(->`).Replace(s)
	lines := strings.Split(s, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, ".") {
			lines[i] = `\&` + line
		}
	}
	return strings.Join(lines, "\n")
}
