package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/database"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/exit"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/place"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/terminal"
	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/memory"
	"github.com/leasehold/leasehold/engine/pebble"
	"github.com/leasehold/leasehold/engine/postgres"
)

// A migration has the arguments of migrate.
type migration struct {
	state      string
	db         database.Database
	partitions int // of the database that is copied to
	out        io.Writer
	err        io.Writer
}

// NewMigrateCommand copies a state from one store to another.
func NewMigrateCommand() *cobra.Command {
	var m migration
	cmd := &cobra.Command{
		Use:   "migrate {postgres | directory}",
		Short: "Copy a state into a database, or from there into a directory",
		Long: `Copy the state of a directory into a PostgreSQL database that has none, with migrate
postgres, or that of a database into a directory that has none, with migrate directory.
No daemon may serve either. Everything is copied: runs, actors, sessions, leases,
lines, stores, tasks, events and tokens, which keep rising.

With --partitions, the database spreads later runs over several partitions. The runs that
were copied stay in the first. A directory that was copied from a database has the runs of
all partitions. If these were several, it can be copied only into a database with one.

Both are read again at the end, and compared by count and checksum; until then nobody
can serve the copy. The original stays as it is: do not serve it any more.`,
		Example: `  leasehold stop
  leasehold migrate postgres --postgres-file /etc/leasehold/dsn
  leasehold serve --postgres-file /etc/leasehold/dsn

  # and back
  leasehold migrate directory --state ~/lease-state --postgres-file /etc/leasehold/dsn`,
		Args:      cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs),
		ValidArgs: []string{"postgres", "directory"},
		RunE: exit.Tidily(func(cmd *cobra.Command, args []string) (err error) {
			m.out, m.err = cmd.OutOrStdout(), cmd.ErrOrStderr()
			if m.state == "" {
				if m.state, err = place.State(); err != nil {
					return err
				}
			}
			if err := m.db.Check(false); err != nil {
				return exit.Usage(err)
			}
			if cmd.Flags().Changed("partitions") && (m.partitions < 1 || m.partitions > postgres.MaxPartitions) {
				return exit.Usagef("--partitions %d: must be from 1 to %d", m.partitions, postgres.MaxPartitions)
			}
			if m.partitions > 0 && args[0] == "directory" {
				return exit.Usagef("--partitions is about a database that is copied to: a directory has none")
			}
			if !m.db.Given() {
				return exit.Usage(exit.Hint(errors.New("say which database"), "with --postgres, --postgres-file or LEASEHOLD_POSTGRES"))
			}
			return explain(m.run(cmd.Context(), args[0] == "postgres"))
		}),
	}
	f := cmd.Flags()
	f.StringVar(&m.state, "state", "", "`directory` of the state (default the user's own)")
	m.db.AddFlags(f)
	f.IntVar(&m.partitions, "partitions", 0, fmt.Sprintf("with postgres: spread later runs over so many partitions, from 1 to %d (default %d)", postgres.MaxPartitions, postgres.DefaultPartitions))
	return cmd
}

// If a server of the database beats within silence, run refuses to migrate. silence is
// longer than the time between two beats.
const silence = 2 * time.Second

func (m *migration) run(ctx context.Context, toDatabase bool) error {
	if err := place.CheckPrivate(m.state); err != nil {
		return err
	}
	dir := filepath.Join(m.state, "db")
	if toDatabase {
		switch exists, err := pebble.Exists(dir); {
		case err != nil:
			return err
		case !exists:
			return exit.Hint(fmt.Errorf("there is no state in %s", m.state), "--state names the directory that leasehold serve has")
		}
	}
	o, err := m.db.Options()
	if err != nil {
		return err
	}
	note := func(format string, args ...any) { fmt.Fprintf(m.err, "leasehold: "+format+"\n", args...) }
	o.Logf = note
	release, err := reserve(ctx, o)
	if err != nil {
		return err
	}
	defer release()
	local := func() (memory.Union, error) {
		s, err := pebble.OpenStore(pebble.Options{Dir: dir, Logf: note})
		if err != nil {
			return nil, err
		}
		return memory.Union{s}, nil
	}
	c := copying{
		where: m.state, remove: "remove " + dir,
		from:  func() (memory.Union, error) { return postgres.OpenAll(ctx, o) },
		to:    func() (memory.Store, error) { return pebble.OpenStore(pebble.Options{Dir: dir, Logf: note}) },
		begin: func(memory.Reader) error { return nil }, finish: func(memory.Reader) error { return nil },
	}
	if toDatabase {
		c = copying{
			where: "the database", remove: "drop its tables that begin with leasehold_, or use another database", from: local,
			to:    func() (memory.Store, error) { return postgres.OpenStore(ctx, o) },
			begin: m.mayBeSpread, finish: func(from memory.Reader) error { return m.settle(ctx, o, from) },
		}
	}
	sum, err := m.copy(ctx, c)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(m.out, "copied %d rows, %s, checksum %x; both were read again and agree\nserve %s from now on, and no more what it was copied from\n",
		sum.Hot+sum.Cold, terminal.Size(sum.Bytes), sum.Checksum[:8], c.where)
	return err
}

// A copying says what migrate copies where.
type copying struct {
	where  string // of the copy, for people
	remove string // how people remove an incomplete copy
	from   func() (memory.Union, error)
	to     func() (memory.Store, error)
	begin  func(from memory.Reader) error // before anything is changed
	finish func(from memory.Reader) error // before the copy may be opened
}

// mayBeSpread refuses a number of partitions that a state cannot have, and chooses one
// if none was given.
func (m *migration) mayBeSpread(from memory.Reader) error {
	spread, err := memory.WasSpread(from)
	switch {
	case err != nil:
		return err
	case spread && m.partitions > 1:
		return exit.Hint(errors.New("the tokens of this state name the partitions of the database that it came from, so it cannot be spread over others"),
			"nothing was changed: copy it with --partitions 1")
	case spread:
		m.partitions = 1
	case m.partitions == 0:
		m.partitions = postgres.DefaultPartitions
	}
	return nil
}

// settle gives the database its partitions. The runs of the state stay in the first,
// because their tokens name no partition.
func (m *migration) settle(ctx context.Context, o postgres.Options, from memory.Reader) error {
	var runs []string
	if err := memory.Names(from, dispatch.RunPrefix, func(run string) { runs = append(runs, run) }); err != nil {
		return err
	}
	return postgres.Settle(ctx, o, m.partitions, runs)
}

// reserve keeps servers and other copies away from a database until release. It fails if one
// of them uses it.
func reserve(ctx context.Context, o postgres.Options) (release func(), err error) {
	if release, err = postgres.Reserve(ctx, o); err == nil {
		if err = postgres.Unserved(ctx, o, silence); err == nil {
			return release, nil
		}
		release()
	}
	if errors.Is(err, postgres.ErrServed) {
		return nil, exit.Hint(err, "stop them all; leasehold cluster shows them")
	}
	return nil, database.Explain(err)
}

// copy copies one store to another, closes it, reads both again and compares them.
func (m *migration) copy(ctx context.Context, c copying) (sum memory.Sum, err error) {
	source, err := c.from()
	if err != nil {
		return sum, err
	}
	defer func() { err = errors.Join(err, source.Close()) }()
	if err := c.begin(source); err != nil {
		return sum, err
	}
	target, err := c.to()
	if err != nil {
		return sum, err
	}
	defer func() {
		if err != nil && !errors.Is(err, memory.ErrNotEmpty) && !errors.Is(err, memory.ErrIncomplete) {
			fmt.Fprintf(m.err, "leasehold: the copy is incomplete, and is not served: before leasehold migrate runs again, %s\n", c.remove)
		}
	}()
	told := time.Now()
	sum, err = memory.Copy(ctx, source, target, func(records int64) {
		if now := time.Now(); now.Sub(told) >= time.Second {
			told = now
			fmt.Fprintf(m.err, "%d rows copied\n", records)
		}
	})
	if err = errors.Join(err, target.Close()); err != nil {
		switch {
		case errors.Is(err, memory.ErrIncomplete):
			err = exit.Hint(fmt.Errorf("%s: %w", c.where, err), "an earlier leasehold migrate left it; %s, and run this again", c.remove)
		case errors.Is(err, memory.ErrNotEmpty):
			err = exit.Hint(fmt.Errorf("%s: %w", c.where, err), "nothing was changed: copy into a database or directory without one")
		}
		return sum, err
	}
	if target, err = c.to(); err != nil {
		return sum, err
	}
	defer func() { err = errors.Join(err, target.Close()) }()
	there, err := memory.SumOf(ctx, target, func(int64) {})
	if err != nil {
		return sum, err
	}
	again, err := memory.SumOf(ctx, source, func(int64) {})
	if err != nil {
		return sum, err
	}
	if sum != there || sum != again {
		return sum, fmt.Errorf("%w: the copy has %d rows with checksum %x, and the original %d with %x", engine.ErrCorrupt,
			there.Hot+there.Cold, there.Checksum[:8], again.Hot+again.Cold, again.Checksum[:8])
	}
	if err := c.finish(source); err != nil {
		return sum, err
	}
	return sum, memory.Complete(target)
}
