package place

import (
	"cmp"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/exit"
	"github.com/leasehold/leasehold/dispatch/project"
)

// Run returns the run that a command uses: named, or else LEASEHOLD_RUN, or
// else the run of the project that dir belongs to.
func Run(named, dir string) (string, error) {
	if run := NamedRun(named); run != "" {
		return run, nil
	}
	p, err := project.Of(cmp.Or(dir, "."))
	if err != nil {
		return "", exit.Hint(fmt.Errorf("no project here: %w", err), "name the run with --run or LEASEHOLD_RUN")
	}
	run, err := p.Run()
	if err != nil {
		return "", exit.Hint(err, "correct that file, or name the run with --run or LEASEHOLD_RUN")
	}
	return run, nil
}

// JoinedRun returns the run that a command joins, as [Run] does. If a path on this machine
// is all that names it, and the command uses a server elsewhere, a note on stderr says so.
func JoinedRun(cmd *cobra.Command, named, dir string) (string, error) {
	run, err := Run(named, dir)
	if servers, _ := serversOf(cmd); servers != nil && err == nil {
		if advice := OfThisPath(named, dir); advice != "" {
			fmt.Fprintf(cmd.ErrOrStderr(), "leasehold: %s; %s\n", advice, NameRun)
		}
	}
	return run, err
}

// OfThisPath says which run is named after nothing but a path on this machine, so that
// other machines can have another one for the same project; "" if it is named otherwise.
func OfThisPath(named, dir string) string {
	if NamedRun(named) != "" {
		return ""
	}
	p, err := project.Of(cmp.Or(dir, "."))
	if err != nil {
		return ""
	}
	s, err := p.Settings()
	if err != nil || s.Run != "" {
		return ""
	}
	run, err := p.Run()
	if err != nil {
		return ""
	}
	return fmt.Sprintf("run %s is named after the path %s: a checkout at another path, or on another machine, may join another run", run, p.Root)
}

// NameRun is what to do about [OfThisPath].
const NameRun = `give all checkouts one name with a line such as run = "shop" in a file .leasehold.toml that is committed`

// OtherRun refuses a --run beside a session or a token, with which a command acts as an
// actor in that actor's own run. LEASEHOLD_RUN is not refused, because agents inherit it.
func OtherRun(cmd *cobra.Command) error {
	f := cmd.Flags().Lookup("run")
	if !f.Changed || f.Value.String() == os.Getenv("LEASEHOLD_RUN") {
		return nil
	}
	return exit.Usage(exit.Hint(fmt.Errorf("--run %s: a session or a token is set, so this acts as that actor, in its own run", f.Value),
		"leave --run out, or unset LEASEHOLD_SESSION, LEASEHOLD_TOKEN and LEASEHOLD_TOKEN_FILE"))
}

// NamedRun returns the run that the user has named, or "".
func NamedRun(flag string) string { return cmp.Or(flag, os.Getenv("LEASEHOLD_RUN")) }
