package postgres

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/cluster"
	"github.com/leasehold/leasehold/engine/memory"
)

// A store is a [memory.Store] in a partition of a database.
type store struct {
	memory.Failure
	partition, epoch int64
	singleNode       bool
	patience         time.Duration
	foldSize         int
	logf             func(format string, args ...any)
	cfg              *pgxpool.Config
	conns            *Connections
	closes           bool // conns belong to this store alone

	ctx     context.Context // of all work in the background; its cause says why it ended
	cancel  context.CancelCauseFunc
	running sync.WaitGroup
	toFold  chan fold
	full    atomic.Bool
	conn    *pgx.Conn // by which the lead was taken, or nil
	leapt   bool      // the epoch leapt when the lead was taken

	// Used only by the writer.
	logged  int64     // the last sequence known to be in the log
	checked *pgx.Conn // whose database has the log up to there

	mu      sync.Mutex
	active  *overlay
	frozen  *overlay               // being written to the records, or nil
	open    *round                 // the round that accepts batches
	durable uint64                 // the number of the last batch in the log
	taken   *round                 // the last round that the writer took, or nil
	waiting map[*snapshot]struct{} // snapshots that have no transaction yet
}

// Full implements [memory.Store]. The last fold has found no space.
func (s *store) Full() (full bool, growth int) { return s.full.Load(), 2 << 20 }

var errClosed = errors.New("the store is closed")

// Close implements [memory.Store]. When it returns, everything appended is in
// the log.
func (s *store) Close() error {
	if s.open != nil {
		_ = s.Wait(s.last(), true) // whoever appended it gets the error
	}
	s.cancel(errClosed)
	s.running.Wait()
	if s.closes {
		s.conns.Close()
	}
	s.disconnect()
	return nil
}

// last returns the number of the last batch.
func (s *store) last() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open.through
}

// longLimits are the settings that would end long statements, or a transaction that waits
// for its next one. PostgreSQL before 17 has no transaction_timeout.
const longLimits = "FROM pg_settings WHERE name IN ('statement_timeout', 'transaction_timeout', 'idle_in_transaction_session_timeout')"

// connect makes the connection that takes the lead. How long it takes to read the
// log depends on the log.
func (s *store) connect(ctx context.Context) (err error) {
	if s.conn, err = connect(ctx, s.cfg, s.singleNode); err != nil {
		return err
	}
	if _, err = s.conn.Exec(ctx, "SELECT set_config(name, '0', false) "+longLimits); err != nil {
		s.disconnect()
	}
	return err
}

func (s *store) disconnect() {
	disconnect(s.conn)
	s.conn = nil
}

const (
	firstPause = 10 * time.Millisecond
	longPause  = 500 * time.Millisecond
)

// patiently repeats try until it succeeds, fails for a permanent reason, or
// patience is over. It tells the operator of the first failure, and of the success
// after it.
func (s *store) patiently(ctx context.Context, try func(context.Context) error) error {
	return patiently(ctx, s.patience, s.logf, try)
}

func patiently(ctx context.Context, patience time.Duration, logf func(string, ...any), try func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	began := time.Now()
	var last error
	for pause := firstPause; ; pause = min(2*pause, longPause) {
		tried := time.Now()
		err := try(ctx)
		if last != nil && errors.Is(err, context.DeadlineExceeded) && ctx.Err() != nil && time.Since(tried) < patience/3 {
			err = last // patience ended this attempt early, and the one before says why
		}
		last = err
		if err == nil && pause > firstPause {
			logf("engine: the database can be used again, after %v", time.Since(began).Round(time.Millisecond))
		}
		if err == nil || !passes(err) {
			return err
		}
		if errors.Is(ctx.Err(), context.Canceled) {
			return context.Cause(ctx)
		}
		if pause == firstPause {
			logf("engine: the database cannot be used, trying again for %v: %v", patience, err)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			why := ""
			if _, unreached := errors.AsType[*pgconn.ConnectError](err); !unreached && errors.Is(err, context.DeadlineExceeded) {
				why = perhapsLocked
			}
			return fmt.Errorf("the database did not come back within %v%s: %w", patience, why, err)
		}
	}
}

// readOnly is what a database says that was demoted, perhaps only by
// default_transaction_read_only, while there are connections to it.
const readOnly = "25006"

// passes reports whether the cause of an error may pass without intervention:
// the database is gone, is starting or stopping, is (still) a standby, has no
// connection, memory or space on its disk left, ended an established connection,
// canceled a statement, or rolled back a transaction in favour of another.
func passes(err error) bool {
	var pg *pgconn.PgError
	if insecure(err) {
		return false
	}
	if !errors.As(err, &pg) {
		return !slices.ContainsFunc([]error{ErrSuperseded, ErrCopying, ErrElsewhere, ErrPooled, ErrNotReplicated, ErrNotDurable, ErrLost, errUnreleased, engine.ErrCorrupt, engine.ErrNewer}, func(lasts error) bool { return errors.Is(err, lasts) })
	}
	if _, refused := errors.AsType[*pgconn.ConnectError](err); !refused && pg.SeverityUnlocalized == "FATAL" {
		return true // whatever the reason: a new connection meets it, too, if it lasts
	}
	switch pg.Code {
	case "40001", "40P01", "53100", "53200", "53300", "55P03", "57014", "57P01", "57P02", "57P03", readOnly:
		return true
	}
	return pg.Code[:2] == "08"
}

// codes are what the database says that stands for an error of this package.
var codes = map[string]error{
	"26000": ErrPooled, "42P05": ErrPooled, // a prepared statement is missing, or is there already
	"42P01": ErrElsewhere, // undefined table
}

// Means reports whether err is a known error of this package, or what the database says
// of it.
func Means(err, known error) bool {
	pg, refused := errors.AsType[*pgconn.PgError](err)
	return errors.Is(err, known) || refused && codes[pg.Code] == known
}

// Untrusted reports whether the certificate of the database was refused.
func Untrusted(err error) bool {
	_, untrusted := errors.AsType[*tls.CertificateVerificationError](err)
	_, unknown := errors.AsType[x509.UnknownAuthorityError](err) // by itself for sslmode=verify-ca
	_, invalid := errors.AsType[x509.CertificateInvalidError](err)
	return untrusted || unknown || invalid
}

const refusedTLS = "server refused TLS connection" // as the driver says it

// Unencrypted reports whether the database, or the pooler before it, has no TLS
// although the DSN requires it. The driver has only a text for that. Where the DSN does
// not require TLS, it tries without TLS next, so only the last attempt counts.
func Unencrypted(err error) bool {
	_, answered := errors.AsType[*pgconn.PgError](err)
	each := attempts(err)
	return !answered && len(each) > 0 && strings.Contains(each[len(each)-1].Error(), refusedTLS)
}

// certificateAlert is what the driver says when the other side of TLS has refused a
// certificate.
var certificateAlert = regexp.MustCompile(`remote error: tls: .*certificate`)

// Distrusted reports whether the database refused the certificate of this process, or
// misses one.
func Distrusted(err error) bool { return err != nil && certificateAlert.MatchString(err.Error()) }

// attempts returns why each attempt to make a connection failed.
func attempts(err error) []error {
	if unreached, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		if each, ok := unreached.Unwrap().(interface{ Unwrap() []error }); ok {
			return each.Unwrap()
		}
	}
	return nil
}

// insecure reports whether TLS is why none of the hosts in the DSN can be used. Another
// host may only be starting, and with sslmode=prefer a host is tried without TLS next.
func insecure(err error) bool {
	each := attempts(err)
	return len(each) > 0 && !slices.ContainsFunc(each, func(err error) bool {
		return !Untrusted(err) && !Distrusted(err) && !strings.Contains(err.Error(), refusedTLS)
	})
}

// Silent reports whether the other side closes connections without an answer. A program
// other than PostgreSQL does that. So does PostgreSQL before 17 if the DSN has
// sslnegotiation=direct.
func Silent(err error) bool {
	_, unreached := errors.AsType[*pgconn.ConnectError](err)
	_, answered := errors.AsType[*pgconn.PgError](err)
	return unreached && !answered && (errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET))
}

// Reason says in a few words, without the names of machines and users, why the
// database cannot be used. It returns "" for an error that is not about that.
func Reason(err error) string {
	for _, known := range []error{ErrElsewhere, ErrPooled, ErrNotReplicated, ErrNotDurable, ErrLost, engine.ErrNewer, cluster.ErrGone, cluster.ErrTwice} {
		if Means(err, known) {
			return known.Error()
		}
	}
	pg, refused := errors.AsType[*pgconn.PgError](err)
	_, unreached := errors.AsType[*pgconn.ConnectError](err)
	_, broken := errors.AsType[net.Error](err)
	switch {
	case errors.Is(err, pgconn.ErrReadOnlyConnection):
		return "its database is read-only"
	case Untrusted(err):
		return "it does not trust the certificate of its database"
	case Unencrypted(err):
		return "its database does not use TLS"
	case Distrusted(err):
		return "its database does not accept its certificate"
	case !errors.Is(err, errSilent) && !refused && !unreached && !broken && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF):
		return ""
	case !refused:
		return "its database does not answer"
	case pg.Code == "53100":
		return "its database has no space left on its disk"
	case pg.Code == "53200":
		return "its database has no memory left"
	case pg.Code == "53300":
		return "its database accepts no more connections"
	case pg.Code == readOnly:
		return "its database is read-only"
	case pg.Code == "3D000":
		return "there is no database of that name"
	case pg.Code == "42501":
		return "its user has too few rights in its database"
	case pg.Code == "57014":
		return "its database cancels its statements: see statement_timeout"
	case pg.Code[:2] == "08": // PgBouncer has this for all that it refuses
		return "its database, or the pooler before it, refuses connections"
	case pg.Code[:2] == "28":
		return "its database does not accept its user"
	case pg.Code[:2] == "57":
		return "its database is starting or stopping"
	case pg.Code[:2] == "58", pg.Code[:2] == "XX": // of its files, or internal; on a full disk it cannot always say that
		return "its database fails; its disk may be full"
	default:
		return "its database refuses what it does"
	}
}

var _ memory.Store = (*store)(nil)
