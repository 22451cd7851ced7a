package place

import (
	"cmp"
	"fmt"
	"os"

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

// NamedRun returns the run that the user has named, or "".
func NamedRun(flag string) string { return cmp.Or(flag, os.Getenv("LEASEHOLD_RUN")) }
