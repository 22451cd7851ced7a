package main

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/exit"
	"github.com/leasehold/leasehold/dispatch/spelling"
)

// flagError says in this command's words what cobra says in those of its library: which
// flag is wrong, and what it must be.
func flagError(c *cobra.Command, err error) error {
	if missing, ok := errors.AsType[*pflag.ValueRequiredError](err); ok {
		if missing.GetSpecifiedShortnames() != "" {
			return fmt.Errorf("-%s needs a value", missing.GetSpecifiedName())
		}
		return fmt.Errorf("--%s needs a value", missing.GetSpecifiedName())
	}
	if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok && unknown.GetSpecifiedShortnames() == "" {
		var names []string
		c.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
		if near := spelling.Nearest(unknown.GetSpecifiedName(), names); near != "" {
			return exit.Hint(err, "did you mean --%s? %s --help lists the flags", near, c.CommandPath())
		}
	}
	if wrong, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		f := wrong.GetFlag()
		return fmt.Errorf("--%s %q: %s", f.Name, wrong.GetValue(), mustBe(f.Value.Type(), errors.Unwrap(wrong)))
	}
	return err
}

// mustBe says what the value of a flag must be. cause is why a value is refused.
func mustBe(kind string, cause error) string {
	switch {
	case errors.Is(cause, strconv.ErrRange):
		return "is too large"
	case kind == "bool":
		return "must be true or false"
	case strings.HasPrefix(kind, "uint"):
		return "must be a whole number, from 0 on"
	case strings.HasPrefix(kind, "int"):
		return "must be a whole number"
	case strings.HasPrefix(kind, "float"):
		return "must be a number of seconds" // no flag has another unit
	case kind == "duration":
		return "must be a duration such as 90s, 15m or 1h30m"
	}
	return cause.Error()
}

// missingFlag says what the first of the flags is for that must be given and were not. It
// returns nil if none is missing.
func missingFlag(c *cobra.Command) (err error) {
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if required := f.Annotations[cobra.BashCompOneRequiredFlag]; err == nil && len(required) > 0 && !f.Changed {
			_, usage := pflag.UnquoteUsage(f)
			err = fmt.Errorf("--%s is missing: %s", f.Name, strings.TrimSuffix(usage, " (required)"))
		}
	})
	return err
}

// mayBeEmpty has the flags whose empty value means something: the current directory, as
// in an editor that has no folder open; the whole answer; and every key.
var mayBeEmpty = []string{"directory", "field", "prefix"}

// emptyFlag refuses a flag with an empty value. That is mostly a variable that is not set.
// If the command took it for a flag that was left out, it would do something else: end
// another run, revoke another lease, or serve another state.
func emptyFlag(c *cobra.Command) (err error) {
	c.Flags().Visit(func(f *pflag.Flag) {
		empty := f.Value.Type() == "string" && f.Value.String() == ""
		if list, ok := f.Value.(pflag.SliceValue); ok {
			empty = len(list.GetSlice()) == 0 || slices.Contains(list.GetSlice(), "")
		}
		if err == nil && empty && !slices.Contains(mayBeEmpty, f.Name) {
			err = fmt.Errorf("--%s \"\": must not be empty", f.Name)
		}
	})
	return err
}

// apart finds the flags in cobra's error for flags that exclude each other.
var apart = regexp.MustCompile(`^if any flags in the group .*; \[(.*)\] were all set$`)

// groupError says in this command's words that flags were given that exclude each other.
// It returns err if it is another error.
func groupError(err error) error {
	found := apart.FindStringSubmatch(err.Error())
	if found == nil {
		return err
	}
	return fmt.Errorf("--%s cannot be given together", strings.Join(strings.Fields(found[1]), " and --"))
}

// countOfArgs finds the number of arguments in cobra's errors: at least or at most so
// many, and how many were given.
var countOfArgs = regexp.MustCompile(`^(?:accepts (at most )?|requires (at least ))(\d+) arg\(s\), (?:only )?received (\d+)$`)

// argsError says in this command's words that a command was given the wrong arguments.
func argsError(c *cobra.Command, args []string, err error) error {
	if c.HasSubCommands() {
		return suggested(c, args[0], err)
	}
	name := strings.TrimPrefix(c.CommandPath(), "leasehold ")
	if strings.HasPrefix(err.Error(), "unknown command") { // of cobra.NoArgs
		return fmt.Errorf("%s takes no argument, and %q was given", name, args[0])
	}
	if strings.HasPrefix(err.Error(), "invalid argument") { // of cobra.OnlyValidArgs
		wrong := slices.IndexFunc(args, func(arg string) bool { return !slices.Contains(c.ValidArgs, arg) })
		return fmt.Errorf("%s takes %s, and %q was given", name, strings.Join(c.ValidArgs, " or "), args[wrong])
	}
	found := countOfArgs.FindStringSubmatch(err.Error())
	if found == nil {
		return err
	}
	takes, given := found[1]+found[2]+found[3]+" arguments", found[4]+" were given"
	if found[3] == "1" {
		takes = strings.TrimSuffix(takes, "s")
	}
	switch len(args) {
	case 0:
		given = "none was given"
	case 1:
		given = "1 was given"
	}
	return fmt.Errorf("%s takes %s, and %s", name, takes, given)
}

// refuseUnknown makes the groups of commands refuse what is not in them. cobra shows
// their help instead and reports success, whatever the arguments are, and so does its
// command help.
func refuseUnknown(c *cobra.Command) {
	for _, sub := range c.Commands() {
		refuseUnknown(sub)
	}
	switch {
	case c.HasParent() && c.HasSubCommands() && !c.Runnable():
		c.Args = cobra.ArbitraryArgs
		c.RunE = func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return exit.Usagef("say what to do: %s", choices(c))
			}
			return suggested(c, args[0], exit.Usagef("unknown command %q: it is %s", args[0], choices(c)))
		}
	case c.Name() == "help":
		help := c.Run
		c.Run = nil
		c.RunE = func(c *cobra.Command, args []string) error {
			if _, rest, err := c.Root().Find(args); err != nil {
				return exit.Usage(exit.Hint(err, "leasehold --help lists the commands"))
			} else if len(rest) > 0 {
				return exit.Usagef("unknown command %q", strings.Join(args, " "))
			}
			help(c, args)
			return nil
		}
	}
}

// suggested adds to err, which says that a group has no such command, the one that was
// probably meant.
func suggested(c *cobra.Command, word string, err error) error {
	near := spelling.Nearest(word, subcommands(c))
	if near == "" {
		return err
	}
	return exit.Hint(err, "did you mean %s %s? %s --help lists the commands", c.CommandPath(), near, c.CommandPath())
}

// choices lists the commands of a group: leasehold actor add, end or token.
func choices(c *cobra.Command) string {
	names := subcommands(c)
	last := len(names) - 1
	if last == 0 {
		return c.CommandPath() + " " + names[0]
	}
	return c.CommandPath() + " " + strings.Join(names[:last], ", ") + " or " + names[last]
}

// subcommands returns the names of the commands of a group.
func subcommands(c *cobra.Command) (names []string) {
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			names = append(names, sub.Name())
		}
	}
	return names
}
