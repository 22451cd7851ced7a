// Package doctor is leasehold doctor: it examines the daemon, the state, the
// clock and the configurations of MCP clients, and recommends what to do.
package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/connection"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/database"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/exit"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/place"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/terminal"
	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/server"
)

func NewCommand() *cobra.Command {
	var dir string
	var asObject bool
	var db database.Database
	cmd := place.WithServer(&cobra.Command{
		Use:   "doctor",
		Short: "Find out what is wrong, and what to do about it",
		Long: `Check the socket and the daemon behind it, its certificates, the directory of the state,
the clocks, the settings of the project in .leasehold.toml, and the configurations of
MCP clients that name leasehold: those of this directory, of the project that it is in,
and of the user, wherever the clients' own variables put them. While a daemon runs,
doctor starts each of these servers as its client starts it, with the environment that
the client gives it, and says whether the server reaches this daemon, and which run it
joins. A file of the project may have come with the repository, so doctor starts a server
of such a file only if it is nothing but leasehold mcp. It also checks the tool
time-outs, and names the files that leasehold setup has written and that are not as
this version would write them.

The clocks are compared with the daemon's: doctor says if the wall clock was set since
the daemon started, if the daemon's wall clock is another, and if the daemon runs on
another machine or in a container with clocks of its own.

With --server, or where LEASEHOLD_SERVER is set, doctor looks at the servers elsewhere
instead: it connects to each of them with the token, and says which of them answer, as
whom this machine is known there, and what is wrong with the others. It checks that the
clients' servers reach one of these.

With --state, doctor reads a state that no daemon has open, and proves that its records
and indexes agree. It changes nothing, except that it rotates the logs of the store as
every start of a daemon does.

With --postgres, or where LEASEHOLD_POSTGRES is set, doctor also looks at the database
that has the state: its version, settings, standbys and tables, how long a commit takes,
and who leads. --single-node says that a database without a synchronous standby will do.

A fault is something to repair; the exit code is then 1. Notes are informational.`,
		Example: `  leasehold doctor

  # prove that a state is sound, with the daemon stopped
  leasehold doctor --state ~/.local/state/leasehold

  # does each server of a cluster let this machine in?
  LEASEHOLD_TOKEN_FILE=~/token leasehold doctor --server https://a.example.org:7711,https://b.example.org:7711

  leasehold doctor --json | jq -r '.checks[] | select(.level == "fault").do'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			out, told := cmd.OutOrStdout(), time.Now() // when progress was last printed
			if !cmd.Flags().Changed("state") {
				given, err := databaseGiven(&db)
				if err != nil {
					return err
				}
				found := examine(cmd, given)
				if given {
					found = append(found, examineDatabase(cmd.Context(), &db)...)
				}
				return tellFindings(out, asObject, found)
			}
			for _, flag := range []string{"socket", "server", "postgres", "postgres-file", "single-node"} {
				if cmd.Flags().Changed(flag) {
					return exit.Usagef("--state looks only at the state in a directory: leave out --%s", flag)
				}
			}
			found, err := examineState(cmd.Context(), dir, func(records int) {
				if now := time.Now(); now.Sub(told) >= time.Second {
					told = now
					fmt.Fprintf(cmd.ErrOrStderr(), "%d records read\n", records)
				}
			})
			if err != nil && asObject {
				found, err = []finding{faultOf("state", err)}, nil
			}
			if err != nil {
				return err
			}
			return tellFindings(out, asObject, found)
		},
	})
	f := cmd.Flags()
	f.StringVar(&dir, "state", "", "prove that the state in this `directory` is sound: the one that serve --state names")
	db.AddPlace(f)
	f.BoolVar(&db.SingleNode, "single-node", false, "accept a database without a synchronous standby")
	f.BoolVar(&asObject, "json", false, "print {ok, checks: [{check, level, what, do}]}")
	return cmd
}

// A finding is the result of one check.
type finding struct {
	Check string `json:"check"`
	Level level  `json:"level"`
	What  string `json:"what"`
	Do    string `json:"do,omitempty"`
}

// A level is the importance of a finding.
type level string

const (
	fine  level = "ok"
	note  level = "note"  // information
	fault level = "fault" // should be repaired
)

// examine runs all checks except that of the contents of the state, which is on the disk
// or in a database.
func examine(cmd *cobra.Command, inDatabase bool) []finding {
	target, err := place.TargetOf(cmd)
	if err != nil {
		return []finding{faultOf("server", err)}
	}
	if target.Servers != nil {
		found, answering := examineServers(cmd.Context(), target.Servers)
		found = append(append(found, examineClock()...), examineProject()...)
		if advice := place.OfThisPath("", ""); advice != "" && dispatch.IsAccess(target.Servers.Token) {
			found = append(found, finding{"project", note, advice, place.NameRun})
		}
		return append(append(found, examineClients(cmd.Context(), answering)...), unlessStuck(examineSetup)...)
	}
	stuck := unlessStuck(func() []finding { daemonOf(cmd); return nil }) // as what follows reads there
	if stuck != nil {
		found := append(append(stuck, examineClock()...), examineProject()...)
		return append(found, examineClients(cmd.Context(), nil)...)
	}
	found := append(append(examineDaemon(cmd, inDatabase), examineClock()...), examineProject()...)
	return append(append(found, examineClients(cmd.Context(), daemonAt(cmd))...), unlessStuck(examineSetup)...)
}

// examineDaemon checks the daemon of this machine and the place of its state.
func examineDaemon(cmd *cobra.Command, inDatabase bool) []finding {
	found, clocks := examineSocket(cmd)
	daemon := daemonOf(cmd)
	found = append(found, examineCertificates(daemon)...)
	found = append(found, unlessStuck(func() []finding { return examinePlace(daemon.State, inDatabase || daemon.Database) })...)
	return append(found, clocks...)
}

// examineServers connects to each of the servers elsewhere, and gives those that answer.
func examineServers(ctx context.Context, servers *place.Servers) (found []finding, answering []string) {
	hello := server.Hello{Token: servers.Token}
	if dispatch.IsAccess(servers.Token) {
		hello = server.Hello{Operator: true}
	}
	for _, u := range servers.URLs {
		one := *servers
		one.URLs = []*url.URL{u}
		began := time.Now()
		c, err := connection.NewDialer(place.Target{Servers: &one}).Open(ctx, hello, false)
		if err != nil {
			f := faultOf("server", err)
			if f.Do == "" {
				f.Do = connection.WhereServer
			}
			found = append(found, f)
			continue
		}
		took, as := time.Since(began).Round(100*time.Microsecond), string(c.Actor.Role)
		c.Close()
		answering = append(answering, u.String())
		if c.Actor.Run != "" {
			as = fmt.Sprintf("%s of run %s", c.Actor.Path, c.Actor.Run)
		}
		f := finding{Check: "server", Level: fine, What: fmt.Sprintf("%s, version %s, answers in %v and knows this token as %s", u, c.Version, took, as)}
		if what, do, other := strings.Cut(connection.VersionAdvice(c.Version), ": "); other {
			f.Level, f.What, f.Do = note, fmt.Sprintf("%s: %s", u, what), do
		}
		found = append(found, f)
	}
	return found, answering
}

// tellFindings prints the findings. If there are faults, it returns
// exit.ErrReported.
func tellFindings(out io.Writer, asObject bool, found []finding) error {
	ok := true
	for _, f := range found {
		ok = ok && f.Level != fault
	}
	if asObject {
		err := json.NewEncoder(out).Encode(struct {
			OK     bool      `json:"ok"`
			Checks []finding `json:"checks"`
		}{ok, found})
		if err != nil {
			return err
		}
	} else if err := drawFindings(out, found); err != nil {
		return err
	}
	if !ok {
		return exit.ErrReported
	}
	return nil
}

func drawFindings(out io.Writer, found []finding) error {
	p := terminal.PaintFor(out)
	for _, f := range found {
		word := fmt.Sprintf("%-5s", f.Level)
		if f.Level == fault {
			word = p.Red(word)
		}
		text := fmt.Sprintf("%s  %-7s  %s\n", word, f.Check, terminal.Printable(f.What))
		if f.Do != "" {
			text += fmt.Sprintf("%16s%s %s\n", "", p.Bold("do:"), terminal.Printable(f.Do))
		}
		if _, err := io.WriteString(out, text); err != nil {
			return err
		}
	}
	return nil
}

// faultOf turns an error and its hint into a finding.
func faultOf(check string, err error) finding {
	var advice exit.Hinted
	if errors.As(err, &advice); advice.Hint == connection.AskDoctor {
		advice.Hint = "" // that is done
	}
	return finding{Check: check, Level: fault, What: oneLine.Replace(err.Error()), Do: advice.Hint}
}

// oneLine writes an error with several causes on one line.
var oneLine = strings.NewReplacer(":\n\t", ": ", "\n\t", "; ", "\n", "; ")
