package postgres

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/leasehold/leasehold/engine"
)

// Each file is one step of the schema, in the order of their names. A file that was
// released is never changed.
//
//go:embed migrations/*.sql
var migrations embed.FS

// firstSchema is the version of the schema that the first file makes. Those before it were
// never released.
const firstSchema = 6

var errUnreleased = errors.New("the schema of the database was never released; copy its state with leasehold migrate directory of the version that made it")

// migrationLock prevents two processes from migrating at the same time.
const migrationLock = 0x6c65617365686f6c // "leasehol"

// migrate migrates the schema to the version of this program. It refuses a
// later version. If ctx ends, the caller must close the connection, which may
// have the lock.
func migrate(ctx context.Context, conn *pgx.Conn) (err error) {
	files, err := fs.Glob(migrations, "migrations/*.sql")
	if err != nil {
		return err
	}
	known := firstSchema + len(files) - 1
	version, err := schemaVersion(ctx, conn)
	if err == nil && version == known {
		return nil
	}
	if _, err := conn.Exec(ctx, "SELECT pg_advisory_lock($1)", migrationLock); err != nil {
		return err
	}
	defer func() {
		_, unlocked := conn.Exec(ctx, "SELECT pg_advisory_unlock($1)", migrationLock)
		err = errors.Join(err, unlocked)
	}()
	version, err = schemaVersion(ctx, conn)
	if undefinedTable(err) {
		if err := elsewhere(ctx, conn); err != nil {
			return err
		}
		err = atOnce(ctx, conn, "CREATE TABLE leasehold_schema (version int PRIMARY KEY); INSERT INTO leasehold_schema VALUES (0)")
	}
	if err != nil {
		return err
	}
	switch {
	case version > known:
		return fmt.Errorf("%w: its schema is version %d, and this version knows those up to %d", engine.ErrNewer, version, known)
	case version > 0 && version < firstSchema:
		return errUnreleased
	}
	for i := max(version-firstSchema+1, 0); i < len(files); i++ {
		step, err := migrations.ReadFile(files[i])
		if err != nil {
			return err
		}
		if err := atOnce(ctx, conn, fmt.Sprintf("%s\n; UPDATE leasehold_schema SET version = %d", step, firstSchema+i)); err != nil {
			return fmt.Errorf("migrate the schema by %s: %w", files[i], err)
		}
	}
	return nil
}

// atOnce runs statements in one transaction and one round trip.
func atOnce(ctx context.Context, conn *pgx.Conn, statements string) error {
	_, err := conn.Exec(ctx, statements, pgx.QueryExecModeSimpleProtocol)
	return err
}

// ErrElsewhere says that the tables are in a schema that is not on the
// search_path.
var ErrElsewhere = errors.New("the tables of leasehold are not on the search_path")

// elsewhere returns [ErrElsewhere] if a schema that this user does not search has
// the tables, so that a search_path that was changed, or a right that was revoked,
// makes no second, empty state. One that the DSN itself has is meant to.
func elsewhere(ctx context.Context, conn *pgx.Conn) error {
	given := conn.Config().RuntimeParams
	if given["search_path"] != "" || strings.Contains(given["options"], "search_path") {
		return nil
	}
	var schema *string
	const sql = "SELECT min(n.nspname) FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE c.relname = 'leasehold_schema' AND c.relkind = 'r'"
	if err := conn.QueryRow(ctx, sql).Scan(&schema); err != nil || schema == nil {
		return err
	}
	return fmt.Errorf("%w of user %q: they are in schema %q", ErrElsewhere, conn.Config().User, *schema)
}

// lastMigration returns the version of the schema that this program creates.
func lastMigration() (int, error) {
	files, err := fs.Glob(migrations, "migrations/*.sql")
	return firstSchema + len(files) - 1, err
}

func schemaVersion(ctx context.Context, conn *pgx.Conn) (version int, err error) {
	err = conn.QueryRow(ctx, "SELECT version FROM leasehold_schema").Scan(&version)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, fmt.Errorf("%w: table leasehold_schema is empty", engine.ErrCorrupt)
	}
	return version, err
}

func undefinedTable(err error) bool    { return hasCode(err, "42P01") }
func undefinedFunction(err error) bool { return hasCode(err, "42883") }

func hasCode(err error, code string) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == code
}
