// Package database has the options that name the database of a state, and explains
// what that database refuses.
package database

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/spf13/pflag"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/exit"
	"github.com/leasehold/leasehold/engine/cluster"
	"github.com/leasehold/leasehold/engine/postgres"
)

// A Database is where a daemon keeps its state that does not keep it on a disk of
// its own.
type Database struct {
	Name       string // its DSN; "": none is meant, or File has it
	File       string
	SingleNode bool
}

// AddFlags gives a command the flags that say where the database is.
func (d *Database) AddFlags(f *pflag.FlagSet) {
	f.StringVar(&d.Name, "postgres", "", "keep the state in the PostgreSQL database of this `DSN` (default $LEASEHOLD_POSTGRES)")
	f.StringVar(&d.File, "postgres-file", "", "the `file` that has the DSN")
	f.BoolVar(&d.SingleNode, "single-node", false, "accept a database without a synchronous standby, whose loss loses what was acknowledged")
}

// AddPlace gives a command the flags that say where a database is that servers use.
func (d *Database) AddPlace(f *pflag.FlagSet) {
	f.StringVar(&d.Name, "postgres", "", "the PostgreSQL database of this `DSN` (default $LEASEHOLD_POSTGRES)")
	f.StringVar(&d.File, "postgres-file", "", "the `file` that has the DSN")
}

// Given reports whether a database is meant. It is known after Check.
func (d *Database) Given() bool { return d.Name != "" || d.File != "" }

// Check reads the environment, but for a daemon that a client starts: the client's
// environment is not meant for it.
func (d *Database) Check(onDemand bool) error {
	own := os.Getenv("LEASEHOLD_POSTGRES")
	if !onDemand && d.File == "" {
		d.Name = cmp.Or(d.Name, own)
	}
	switch {
	case d.Name != "" && d.File != "":
		return errors.New("--postgres and --postgres-file both say where the database is; give one")
	case d.SingleNode && !d.Given():
		return errors.New("--single-node is about --postgres, which is not given")
	case d.Name != own && hasPassword(d.Name):
		return errors.New("--postgres has a password, which everybody on this machine can read there: put the DSN into LEASEHOLD_POSTGRES or --postgres-file, or the password into ~/.pgpass")
	}
	return nil
}

// Options are those of an engine in the database.
func (d *Database) Options() (o postgres.Options, err error) {
	o.SingleNode, o.Current = d.SingleNode, d.DSN
	o.DSN, err = d.DSN()
	return o, err
}

func hasPassword(dsn string) bool {
	if _, rest, ok := strings.Cut(dsn, "://"); ok { // no URL of package url, if the password is not encoded
		if end := strings.IndexAny(rest, "@/"); end >= 0 && rest[end] == '@' && strings.Contains(rest[:end], ":") {
			return true
		}
	}
	return strings.Contains(strings.ToLower(strings.ReplaceAll(dsn, " ", "")), "password=")
}

// DSN reads the DSN.
func (d *Database) DSN() (string, error) {
	if d.File == "" {
		return d.Name, nil
	}
	text, err := os.ReadFile(d.File)
	if err != nil {
		return "", fmt.Errorf("--postgres-file: %w", err)
	}
	if dsn := strings.TrimSpace(string(text)); dsn != "" {
		return dsn, nil
	}
	return "", fmt.Errorf("--postgres-file: %s has no DSN", d.File)
}

// Explain adds what to do about a database that is of no use.
func Explain(err error) error {
	_, unreachable := errors.AsType[*pgconn.ConnectError](err)
	_, hinted := errors.AsType[exit.Hinted](err)
	failed, _ := errors.AsType[*pgconn.PgError](err)
	switch {
	case hinted:
	case errors.Is(err, pgconn.ErrReadOnlyConnection):
		return exit.Hint(err, "the DSN must name the primary, and default_transaction_read_only must be off there; see: select pg_is_in_recovery()")
	case postgres.Untrusted(err):
		return exit.Hint(err, "give the database a certificate that is valid now and for the host in the DSN, or name its authority with sslrootcert in the DSN")
	case postgres.Unencrypted(err):
		return exit.Hint(err, "turn ssl on for the database, or for the pooler before it; sslmode in the DSN requires it")
	case postgres.Distrusted(err):
		return exit.Hint(err, "name a certificate that is valid now with sslcert and sslkey in the DSN, from an authority in the database's ssl_ca_file")
	case unreachable && failed != nil && strings.HasPrefix(failed.Code, "28"):
		return exit.Hint(err, "see the user and the password in the DSN, whether that user may log in (VALID UNTIL, NOLOGIN), and the database's pg_hba.conf")
	case unreachable && failed != nil && failed.Code == "53300":
		return exit.Hint(err, "each server needs up to 20 connections: raise max_connections, or ALTER ROLE … CONNECTION LIMIT for the user of leasehold")
	case postgres.Silent(err):
		return exit.Hint(err, "see that the DSN names the host and port of PostgreSQL; sslnegotiation=direct in it needs PostgreSQL 17 or newer with ssl on")
	case unreachable && failed != nil && (strings.HasPrefix(failed.Code, "XX") || strings.HasPrefix(failed.Code, "58")): // internal, or of its files
		return exit.Hint(err, "see whether its disk is full, and the database's own log")
	case unreachable:
		return exit.Hint(err, "see that it runs, that this machine may connect to it, and that the DSN names it")
	case postgres.Means(err, postgres.ErrPooled):
		return exit.Hint(err, "set pool_mode = session for the database in PgBouncer, or let the DSN name the database itself")
	case postgres.Means(err, postgres.ErrElsewhere):
		return exit.Hint(err, "put the schema with the tables on the search_path of the user of leasehold (ALTER ROLE … SET search_path = …), and GRANT USAGE ON SCHEMA …; for another state in this database, name its schema in the DSN: search_path=…")
	case errors.Is(err, cluster.ErrBack):
		return exit.Hint(err, "if it was restored from a copy, stop all servers and run leasehold cluster restored; if the DSN names two databases that can be written, stop the older one")
	case errors.Is(err, cluster.ErrGone):
		return exit.Hint(err, "somebody has deleted from leasehold_partition: start one of the servers again, which makes the row again, or restore the database")
	case errors.Is(err, cluster.ErrTwice):
		return exit.Hint(err, "give each server an --advertise at which only it is reached, and not a balancer")
	case errors.Is(err, postgres.ErrCopying):
		return exit.Hint(err, "nothing was changed: wait until that leasehold migrate or leasehold cluster restored has ended")
	case errors.Is(err, postgres.ErrNoSchema):
		return exit.Hint(err, "leasehold serve --postgres makes what it needs there when it first starts")
	case errors.Is(err, postgres.ErrNotReplicated):
		return exit.Hint(err, "set synchronous_standby_names on it, or accept with --single-node that the loss of its machine loses what was acknowledged")
	case errors.Is(err, postgres.ErrNotDurable):
		return exit.Hint(err, "turn that setting on, for the database and for the user that leasehold connects as")
	case failed == nil:
	case failed.Code == "42501" && strings.Contains(failed.Message, "leasehold_"): // insufficient privilege on a table, which the message names in every language
		return exit.Hint(err, "the tables belong to another user: connect as that user, or GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA … to the user of leasehold; only their owner can upgrade them. If row security is on for them, ALTER TABLE … DISABLE ROW LEVEL SECURITY")
	case failed.Code == "42501", failed.Code == "3F000": // insufficient privilege, no schema
		return exit.Hint(err, "the user of leasehold needs a schema on its search_path in which it may make tables: GRANT CREATE ON SCHEMA …, or CREATE SCHEMA … AUTHORIZATION …")
	case failed.Code == "57014": // canceled
		return exit.Hint(err, "ALTER ROLE … SET statement_timeout = 0 for the user of leasehold")
	}
	return err
}
