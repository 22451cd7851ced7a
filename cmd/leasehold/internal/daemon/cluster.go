package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/connection"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/database"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/exit"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/terminal"
	"github.com/leasehold/leasehold/engine/cluster"
	"github.com/leasehold/leasehold/engine/postgres"
)

// NewClusterCommand shows the servers that share a database, and drains them.
func NewClusterCommand() *cobra.Command {
	var db database.Database
	var asObject bool
	cmd := &cobra.Command{
		Use:   "cluster",
		Short: "Show the servers that share a database, and what each leads",
		Long: `Show the servers that share a PostgreSQL database, and what each leads. A partition has
everything of its runs; one server leads it, and the others pass their clients on to
that one.

It asks the database, so it also answers while no server does.`,
		Example: `  leasehold cluster --postgres-file /etc/leasehold/dsn

  # before a server is stopped for long; a plain stop does this, too
  leasehold cluster drain 10.0.0.7:7712 --postgres-file /etc/leasehold/dsn`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withCluster(cmd.Context(), &db, func(ctx context.Context, c *postgres.Cluster) error {
				v, err := viewCluster(ctx, c)
				if err != nil {
					return err
				}
				if asObject {
					return json.NewEncoder(cmd.OutOrStdout()).Encode(v)
				}
				_, err = io.WriteString(cmd.OutOrStdout(), v.draw(terminal.PaintFor(cmd.OutOrStdout())))
				return err
			})
		},
	}
	db.AddPlace(cmd.Flags())
	cmd.Flags().BoolVar(&asObject, "json", false, "print {servers: […], partitions: […]}")
	cmd.AddCommand(newDrainCommand(), newRestoredCommand())
	return cmd
}

func newDrainCommand() *cobra.Command {
	var db database.Database
	var undo bool
	cmd := &cobra.Command{
		Use:   "drain SERVER",
		Short: "Hand the partitions that a server leads over to other servers",
		Long: `Hand the partitions that a server leads over to other servers, and let it lead none until
it is started again. It continues to serve its clients, by passing them on. SERVER is its
address, or the beginning of its id, as leasehold cluster shows them. The command waits
until the server leads nothing.`,
		Example: `  leasehold cluster drain 10.0.0.7:7712
  leasehold cluster drain 10.0.0.7:7712 --undo`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withCluster(cmd.Context(), &db, func(ctx context.Context, c *postgres.Cluster) error {
				return drain(ctx, c, args[0], undo, cmd.OutOrStdout())
			})
		},
	}
	db.AddPlace(cmd.Flags())
	cmd.Flags().BoolVar(&undo, "undo", false, "let it lead again")
	return cmd
}

func newRestoredCommand() *cobra.Command {
	var db database.Database
	cmd := &cobra.Command{
		Use:   "restored",
		Short: "After a restore of a database, make tokens continue above all that were issued",
		Long: `Run this after a database was restored from a copy, and before the first server starts.
Tokens then continue above all that were issued since the copy was made. Otherwise the same
tokens are issued again, and a resource that checks tokens accepts a former holder. Agents
are told of the copy in their next answer. If a standby is promoted, the command is not
needed: servers notice that.`,
		Example: `  leasehold cluster restored --postgres-file /etc/leasehold/dsn`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx := cmd.Context()
			o, err := shared(&db)
			if err != nil {
				return err
			}
			release, err := reserve(ctx, o)
			if err != nil {
				return err
			}
			defer release()
			n, err := postgres.Restored(ctx, o)
			if err != nil {
				return database.Explain(err)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "the tokens of %s go on above all that were issued\n", terminal.Plural(n, "partition"))
			return err
		},
	}
	db.AddPlace(cmd.Flags())
	return cmd
}

// shared returns where the database is that servers share.
func shared(db *database.Database) (o postgres.Options, err error) {
	if err := db.Check(false); err != nil {
		return o, exit.Usage(err)
	}
	if !db.Given() {
		return o, exit.Usage(exit.Hint(errors.New("say which database the servers share"), "with --postgres, --postgres-file or LEASEHOLD_POSTGRES"))
	}
	return db.Options()
}

func withCluster(ctx context.Context, db *database.Database, do func(context.Context, *postgres.Cluster) error) error {
	o, err := shared(db)
	if err != nil {
		return err
	}
	c, err := postgres.FindCluster(ctx, o)
	if err != nil {
		return database.Explain(err)
	}
	defer c.Close()
	return do(ctx, c)
}

// A clusterView is a cluster as the command shows it.
type clusterView struct {
	Servers    []serverView    `json:"servers"`
	Partitions []partitionView `json:"partitions"`
}

type serverView struct {
	ID          uuid.UUID `json:"server_id"`
	Name        string    `json:"name"`
	Address     string    `json:"address,omitempty"`
	Version     string    `json:"version"`
	Connections int64     `json:"connections"`
	Leads       int       `json:"leads"`
	Draining    bool      `json:"draining"`
}

type partitionView struct {
	Number   int64      `json:"partition"`
	Leader   *uuid.UUID `json:"leader"` // nil: nobody
	Epoch    int64      `json:"epoch"`
	Commits  int64      `json:"commits"` // since the partition was created
	LogBytes int64      `json:"log_bytes"`
}

func viewCluster(ctx context.Context, c *postgres.Cluster) (v clusterView, err error) {
	look, err := c.Look(ctx)
	if err != nil {
		return v, err
	}
	logs, err := c.Logs(ctx)
	if err != nil {
		return v, err
	}
	v = clusterView{Servers: []serverView{}, Partitions: []partitionView{}}
	for _, s := range look.Servers {
		v.Servers = append(v.Servers, serverView{
			ID: s.ID, Name: s.Name, Address: s.Address, Version: s.Version, Connections: s.Connections,
			Leads: look.LedBy(s.ID), Draining: s.Draining,
		})
	}
	for _, p := range look.Partitions {
		pv := partitionView{Number: p.Number, Epoch: p.Epoch}
		if slices.ContainsFunc(look.Servers, func(s cluster.Server) bool { return s.ID == p.Leader }) {
			pv.Leader = &p.Leader
		}
		if i := slices.IndexFunc(logs, func(l postgres.Log) bool { return l.Partition == p.Number }); i >= 0 {
			pv.Commits, pv.LogBytes = logs[i].Commits, logs[i].Bytes
		}
		v.Partitions = append(v.Partitions, pv)
	}
	return v, nil
}

func (v clusterView) draw(p terminal.Paint) string {
	if len(v.Servers) == 0 {
		return "no servers\n"
	}
	servers := terminal.Table{Columns: []terminal.Column{
		{Head: "SERVER", Want: 24, Bare: 10},
		{Head: "ON", Rank: terminal.Minor},
		{Head: "VERSION", Rank: terminal.Minor},
		{Head: "CONNECTIONS"},
		{Head: "LEADS"},
		{Head: "STATE"},
	}}
	names := make(map[uuid.UUID]string)
	for _, s := range v.Servers {
		name, state := s.Address, "up"
		if name == "" {
			name = s.ID.String()[:8]
		}
		if s.Draining {
			state = "draining"
		}
		names[s.ID] = name
		servers.AddTexts(name, s.Name, s.Version, strconv.FormatInt(s.Connections, 10), strconv.Itoa(s.Leads), state)
	}
	partitions := terminal.Table{Columns: []terminal.Column{{Head: "PARTITION"}, {Head: "LEADER"}, {Head: "EPOCH"}, {Head: "COMMITS"}, {Head: "LOG", Rank: terminal.Minor}}}
	for _, part := range v.Partitions {
		leader := "nobody"
		if part.Leader != nil {
			leader = names[*part.Leader]
		}
		partitions.AddTexts(strconv.FormatInt(part.Number, 10), leader, strconv.FormatInt(part.Epoch, 10), strconv.FormatInt(part.Commits, 10), terminal.Size(part.LogBytes))
	}
	return servers.Render(p) + "\n" + partitions.Render(p)
}

// findServer returns the server that a name means.
func findServer(look cluster.Look, name string) (found cluster.Server, err error) {
	n := 0
	for _, s := range look.Servers {
		if s.Address == name || s.Name == name || len(name) >= 4 && strings.HasPrefix(s.ID.String(), name) {
			found, n = s, n+1
		}
	}
	switch n {
	case 0:
		return found, exit.Hint(fmt.Errorf("no server %q is registered", name), "leasehold cluster shows those that are")
	case 1:
		return found, nil
	}
	return found, exit.Hint(fmt.Errorf("%d servers are called %q", n, name), "name one by its address or its id")
}

const (
	drainTimeout = time.Minute
	drainPoll    = 100 * time.Millisecond
)

// drain makes other servers lead, and waits until they do.
func drain(ctx context.Context, c *postgres.Cluster, name string, undo bool, out io.Writer) error {
	look, err := c.Look(ctx)
	if err != nil {
		return err
	}
	s, err := findServer(look, name)
	if err != nil {
		return err
	}
	if err := c.SetDraining(ctx, s.ID, !undo); err != nil {
		return err
	}
	if undo {
		_, err := fmt.Fprintf(out, "%s may lead again\n", name)
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, drainTimeout, fmt.Errorf("%s still leads after %v; leasehold cluster shows what", name, drainTimeout))
	defer cancel()
	for began := look.LedBy(s.ID); ; {
		if look, err = c.Look(ctx); err != nil {
			return errors.Join(context.Cause(ctx), err)
		}
		if look.LedBy(s.ID) == 0 {
			_, err := fmt.Fprintf(out, "%s leads nothing; it led %d of %s\n", name, began, terminal.Plural(len(look.Partitions), "partition"))
			return err
		}
		if !slices.ContainsFunc(look.Servers, func(s cluster.Server) bool { return !s.Draining }) {
			return exit.Hint(fmt.Errorf("every server is draining, so %s goes on to lead", name), "start another server, or take one back with --undo")
		}
		if err := connection.Pause(ctx, drainPoll); err != nil {
			return err
		}
	}
}
