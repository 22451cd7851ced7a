package build

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"
)

func NewCommand() *cobra.Command {
	var asObject bool
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Show the version of this binary",
		Long: `Show the version of this binary, the commit it was built from, and the compiler.

The daemon that runs may be of another version: leasehold status shows which. Clients
and daemons of different versions work together as long as neither needs what only the
other has. If one does, the refusal says which of them to replace. leasehold restart
starts the installed version, and no session ends by that.

A state opens in the version that wrote it and in every later one.`,
		Example: `  leasehold version
  leasehold version --json | jq -r .version`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			out, of := cmd.OutOrStdout(), Read()
			if asObject {
				return json.NewEncoder(out).Encode(of)
			}
			_, err := fmt.Fprintf(out, "leasehold %s\n%s  go      %s for %s\n", Version(), of.commit(), of.Go, of.Platform)
			return err
		},
	}
	cmd.Flags().BoolVar(&asObject, "json", false, "print {version, commit, time, modified, go, platform}")
	return cmd
}

// commit returns the line with the commit; "" if it is unknown.
func (of Info) commit() string {
	if of.Commit == "" {
		return ""
	}
	changed := ""
	if of.Modified {
		changed = ", with changes"
	}
	return fmt.Sprintf("  commit  %s of %s%s\n", of.Commit, of.Time.Format(time.DateOnly), changed)
}
