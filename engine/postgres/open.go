package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/clock"
	"github.com/leasehold/leasehold/engine/memory"
)

// Options say which state to open, and where.
type Options struct {
	// DSN names the database, as a URL or as keywords and values. What it omits
	// comes from libpq's environment variables and files.
	DSN string
	// Current returns the DSN as it is now. Each new connection is made with its
	// user, password and certificates, because they may have been replaced. While it
	// fails, they are those that were last known. If it is nil, the DSN is DSN, which
	// may name files that have them.
	Current func() (dsn string, err error)
	// Partition is the number of the state within the database.
	Partition int64
	// SingleNode accepts a database without a synchronous standby. If its
	// machine is lost, so are acknowledged commits.
	SingleNode bool
	// Leader takes the lead within a cluster, in which others may take it: only
	// if the partition still has Epoch and no other server leads it. Confirm
	// returns nil if this process led at some instant since Confirm was called.
	// If Leader is zero, the lead is taken from its present holder.
	Leader uuid.UUID
	Epoch  int64
	// Seen is the greatest epoch that the partition is known to have had. If the
	// database has a lower one, it went back in time, and tokens leap.
	Seen    int64
	Confirm func() error
	// Connections are shared by the partitions that a process leads. If it is
	// nil, the partition has its own.
	Connections *Connections
	// Patience is how long to wait for a database that was lost. The zero value
	// is [DefaultPatience].
	Patience time.Duration
	// FoldSize is about how many bytes of the log are kept in memory before
	// they are written to the records. The zero value is [DefaultFoldSize].
	FoldSize int
	// Logf receives messages for an operator. It may be called from any
	// goroutine. If it is nil, they are discarded.
	Logf func(format string, args ...any)
	// Clock is the source of time. The zero value is the machine's.
	Clock clock.Clock
}

const (
	DefaultPatience = 10 * time.Second
	DefaultFoldSize = 16 << 20
)

// ErrSuperseded says that another process has opened the state since. It can be
// the cause of an [engine.ErrFailed].
var ErrSuperseded = errors.New("another process leads this partition now")

// An Engine is an open state.
type Engine struct {
	*memory.Engine
	store *store
}

var _ engine.Engine = (*Engine)(nil)

func (o Options) withDefaults() Options {
	if o.Patience == 0 {
		o.Patience = DefaultPatience
	}
	if o.FoldSize == 0 {
		o.FoldSize = DefaultFoldSize
	}
	if o.Logf == nil {
		o.Logf = func(string, ...any) {}
	}
	if o.Clock.Running == nil {
		o.Clock = clock.Machine()
	}
	return o
}

// quoted is what an error quotes, from the first mark to the last: a part of a DSN can have
// marks itself.
var quoted = regexp.MustCompile(`(?s)".*"`)

// misread reports whether a DSN is a URL that has a password with an @ or a /, which ends
// the password there. The rest would be taken for a host or a database, and be shown.
func misread(dsn string) bool {
	scheme, rest, _ := strings.Cut(dsn, "://")
	if scheme != "postgres" && scheme != "postgresql" {
		return false
	}
	user := strings.IndexAny(rest, "@/")
	beyond, _, _ := strings.Cut(rest[user+1:], "?")
	return strings.Contains(beyond, "@") && user >= 0
}

var errMisread = errors.New("the DSN cannot be parsed: it has an @ where none can be: in a user or a password, write %40 for @ and %2F for /")

// unparsed returns what is wrong with a DSN. The driver's error quotes the DSN and parts
// of it, which may be of a password.
func unparsed(err error) error {
	text := err.Error()
	text = strings.TrimLeft(text[strings.LastIndex(text, "`")+1:], ": ")
	if strings.HasPrefix(text, "failed to parse as ") {
		text = quoted.ReplaceAllLiteralString(text, "…")
	}
	return fmt.Errorf("the DSN cannot be parsed: %s", text)
}

// config returns the configuration for connections that can write to the
// database.
func (o Options) config() (*pgxpool.Config, error) {
	if misread(o.DSN) {
		return nil, errMisread
	}
	cfg, err := pgxpool.ParseConfig(o.DSN)
	if err != nil {
		return nil, unparsed(err)
	}
	cfg.ConnConfig.RuntimeParams["client_encoding"] = "UTF8"           // else that of the database, or of its user
	cfg.ConnConfig.RuntimeParams["standard_conforming_strings"] = "on" // else pgx refuses to migrate
	// A standby, or a primary that was demoted, cannot be written to.
	cfg.ConnConfig.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	cfg.PingTimeout = max(o.Patience/10, time.Second) // of a connection that was idle, which may lead nowhere
	// For each host, because a lost one does not answer. Patience must last until the last one.
	cfg.ConnConfig.ConnectTimeout = max(o.Patience/time.Duration(max(3, 1+len(hosts(&cfg.ConnConfig.Config)))), time.Second)
	// A pool would replace each connection after an hour. While others have taken all
	// connections of the database, a leader goes on with those it has.
	cfg.MaxConnLifetime = 0
	dial := cfg.ConnConfig.DialFunc
	cfg.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		nc, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return lostConn{nc}, nil
	}
	cfg.ConnConfig.OnNotice = noticed
	fatal := cfg.ConnConfig.OnPgError
	cfg.ConnConfig.OnPgError = func(c *pgconn.PgConn, e *pgconn.PgError) bool {
		return e.Code != readOnly && fatal(c, e) // the next connection is made to a host that can be written
	}
	var told atomic.Pointer[string]
	var known atomic.Pointer[pgconn.Config]
	cfg.BeforeConnect = func(_ context.Context, c *pgx.ConnConfig) error {
		text := ""
		now, err := o.now()
		if err != nil {
			text = err.Error()
		} else if slices.Equal(hosts(now), hosts(&c.Config)) {
			known.Store(now)
		}
		if before := told.Swap(&text); err != nil && (before == nil || *before != text) {
			o.Logf("engine: the DSN, or a file that it names, cannot be used as it is now; connections are made as before: %v", err)
		}
		if now := known.Load(); now != nil {
			renew(&c.Config, *now)
		}
		favour(&c.Config)
		return nil
	}
	return cfg, nil
}

// now returns the configuration of the present DSN.
func (o Options) now() (_ *pgconn.Config, err error) {
	dsn := o.DSN
	if o.Current != nil {
		if dsn, err = o.Current(); err != nil {
			return nil, err
		}
	}
	if misread(dsn) {
		return nil, errMisread
	}
	now, err := pgconn.ParseConfig(dsn)
	if err != nil {
		return nil, unparsed(err)
	}
	return now, nil
}

// renew gives the configuration for one connection the user, the password and all that
// belongs to TLS of another DSN, whose hosts are the same: another database may have
// another state.
func renew(c *pgconn.Config, now pgconn.Config) {
	now.Database, now.RuntimeParams, now.ConnectTimeout, now.DialFunc = c.Database, c.RuntimeParams, c.ConnectTimeout, c.DialFunc
	now.ValidateConnect, now.OnNotice, now.OnPgError = c.ValidateConnect, c.OnNotice, c.OnPgError
	*c = now
}

// hosts returns where a configuration leads. Another sslmode can make a host appear
// in it once more.
func hosts(c *pgconn.Config) []string {
	all := []string{fmt.Sprint(c.Host, " ", c.Port)}
	for _, f := range c.Fallbacks {
		all = append(all, fmt.Sprint(f.Host, " ", f.Port))
	}
	return slices.Compact(all)
}

// An answer says which host of a DSN has answered, and which address of it.
type answer struct {
	host string
	port uint16
	ip   string // or again the host
}

// answers has the last answer for the hosts of each DSN, for all connections of this process.
var answers sync.Map

// favour makes a connection first ask the host that answered last, and notes which one
// answers. Otherwise each new connection waits for the lost hosts before it.
func favour(c *pgconn.Config) {
	names := strings.Join(hosts(c), ",")
	known, _ := answers.Load(names)
	last, _ := known.(answer)
	each := append([]*pgconn.FallbackConfig{{Host: c.Host, Port: c.Port, TLSConfig: c.TLSConfig}}, c.Fallbacks...)
	slices.SortStableFunc(each, first(func(f *pgconn.FallbackConfig) bool { return f.Host == last.host && f.Port == last.port }))
	c.Host, c.Port, c.TLSConfig, c.Fallbacks = each[0].Host, each[0].Port, each[0].TLSConfig, each[1:]

	lookup, found := c.LookupFunc, make(map[string][]string)
	c.LookupFunc = func(ctx context.Context, host string) (ips []string, err error) {
		ips, err = lookup(ctx, host)
		slices.SortStableFunc(ips, first(func(ip string) bool { return ip == last.ip }))
		found[host] = ips
		return ips, err
	}
	validate := c.ValidateConnect
	c.ValidateConnect = func(ctx context.Context, conn *pgconn.PgConn) error {
		if err := validate(ctx, conn); err != nil {
			return err
		}
		for _, f := range each {
			for _, at := range append(found[f.Host], f.Host) {
				if _, address := pgconn.NetworkAddress(at, f.Port); address == conn.Conn().RemoteAddr().String() {
					answers.Store(names, answer{f.Host, f.Port, at})
				}
			}
		}
		return nil
	}
}

// first orders what it is true of before the rest.
func first[T any](is func(T) bool) func(a, b T) int {
	order := map[bool]int{true: -1}
	return func(a, b T) int { return order[is(a)] - order[is(b)] }
}

// dial makes a connection that is in no pool.
func dial(ctx context.Context, cfg *pgxpool.Config) (*pgx.Conn, error) {
	c := cfg.ConnConfig.Copy()
	if err := cfg.BeforeConnect(ctx, c); err != nil {
		return nil, err
	}
	return pgx.ConnectConfig(ctx, c)
}

// Open takes the lead of a partition, or creates it, and reads its state. It
// returns [engine.ErrCorrupt] if a record cannot be read. It tries to reach the
// database for as long as o.Patience.
func Open(ctx context.Context, o Options) (*Engine, error) {
	o = o.withDefaults()
	e := new(Engine)
	confirm := o.Confirm
	if confirm != nil {
		confirm = func() error {
			err := o.Confirm()
			if err != nil {
				err = fmt.Errorf("%w: %w", ErrSuperseded, err)
				e.store.Fail(err)
			}
			return err
		}
	}
	var err error
	e.Engine, err = memory.Open(memory.Options{
		Confirm:    confirm,
		Clock:      o.Clock,
		Logf:       o.Logf,
		AnyMachine: true,
		Store: func(fail func(error)) (memory.Store, error) {
			s, err := openStore(ctx, o, fail)
			if err != nil {
				return nil, err
			}
			s.disconnect() // it has the lead
			e.store = s
			return s, nil
		},
	})
	if err != nil {
		return nil, fmt.Errorf("engine: open partition %d: %w", o.Partition, err)
	}
	return e, nil
}

// Epoch returns how often the partition has been opened, including this time.
func (e *Engine) Epoch() int64 { return e.store.epoch }

func openStore(ctx context.Context, o Options, fail func(error)) (_ *store, err error) {
	cfg, err := o.config()
	if err != nil {
		return nil, err
	}
	cfg.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec // the lead is taken by statements that are needed once
	s := &store{
		partition: o.Partition, singleNode: o.SingleNode, patience: o.Patience, foldSize: o.FoldSize, logf: o.Logf, Failure: memory.Failure{Tell: fail},
		cfg: cfg, active: new(overlay),
		toFold: make(chan fold, 1),
	}
	s.ctx, s.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	defer func() {
		if err != nil {
			_ = s.Close() // never fails
		}
	}()
	if s.conns = o.Connections; s.conns == nil {
		if s.conns, err = Connect(ctx, o); err != nil {
			return nil, err
		}
		s.closes = true
	}
	if err = s.lead(ctx, o); err != nil {
		return nil, err
	}
	s.running.Go(s.foldAll)
	return s, nil
}

// errSilent ends the taking of a lead, or a look, that hears nothing more.
var errSilent = errors.New("the database has not answered")

const perhapsLocked = "; perhaps somebody has a lock there, see pg_stat_activity"

func silentFor(d time.Duration, err error) error {
	return fmt.Errorf("%w for %v%s: %w", errSilent, d, perhapsLocked, err)
}

// within calls do, and says so if it does not end within patience.
func within(ctx context.Context, patience time.Duration, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, errSilent)
	defer cancel()
	err := do(ctx)
	if err != nil && context.Cause(ctx) == errSilent {
		err = silentFor(patience, err)
	}
	return err
}

// lead migrates the schema, takes the lead and reads the log. It gives up after waiting for one
// answer for as long as s.patience: the connection may lead nowhere, and to
// the database this server may be the leader already.
func (s *store) lead(ctx context.Context, o Options) error {
	if err := s.patiently(ctx, s.connect); err != nil {
		return err
	}
	waiting, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silent := time.AfterFunc(s.patience, func() { cancel(errSilent) })
	defer silent.Stop()
	moved, lost, timeline, err := s.takeLead(waiting, o, func() { silent.Reset(s.patience) })
	switch {
	case err != nil && context.Cause(waiting) == errSilent:
		return silentFor(s.patience, err)
	case err != nil:
		return err
	case moved:
		s.leapt = true
		err = s.leap(ctx, o.Clock, o.Seen)
	default:
		err = s.lift(ctx, 0, 1)
	}
	if err == nil && lost {
		err = s.noteLost(ctx, timeline)
	}
	return cmp.Or(err, replicated(s.conn))
}

// noteLost notes in the state that commits are lost. If this leader ends before that, the
// next one finds [lostCommits], and does it.
func (s *store) noteLost(ctx context.Context, timeline int64) error {
	if err := memory.NoteCopy(s); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, s.patience)
	defer cancel()
	_, err := s.conn.Exec(ctx, timelineSQL, s.partition, s.epoch, timeline)
	return err
}

// takeLead calls heard for each answer. moved reports whether the database may have gone back
// in time since the partition was led, and lost whether commits may be lost. Nobody knows
// which commits an asynchronous standby lacked when it was promoted. timeline is that of the
// database.
func (s *store) takeLead(ctx context.Context, o Options, heard func()) (moved, lost bool, timeline int64, err error) {
	if err := migrate(ctx, s.conn); err != nil {
		return false, false, 0, err
	}
	heard()
	timeline, err = timelineOf(ctx, s.conn)
	if err != nil {
		return false, false, 0, err
	}
	if s.conns.timeline.Swap(timeline) != timeline {
		s.conns.renew() // they may lead to the primary before, which can still be read
	}
	heard()
	if _, err := s.conn.Exec(ctx, "INSERT INTO leasehold_partition (partition, epoch, timeline) VALUES ($1, 0, $2) ON CONFLICT (partition) DO NOTHING", s.partition, timeline); err != nil {
		return false, false, 0, err
	}
	heard()
	var before, known int64
	if err := s.conn.QueryRow(ctx, "SELECT epoch, timeline FROM leasehold_partition WHERE partition = $1", s.partition).Scan(&before, &known); err != nil {
		return false, false, 0, err
	}
	heard()
	marked, is, err := s.marked(ctx)
	if err != nil {
		return false, false, 0, err
	}
	heard()
	var leader *uuid.UUID
	if o.Leader != uuid.Nil {
		leader = &o.Leader
	}
	promoted, back := before > 0 && known != timeline, before < o.Seen || known == lostCommits || marked && !is
	lost = promoted && s.singleNode || back
	until := timeline
	if lost {
		until = lostCommits
	}
	err = s.conn.QueryRow(ctx, leadSQL, s.partition, timeline, leap, leader, o.Epoch, o.Seen, until).Scan(&s.epoch)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, false, 0, ErrSuperseded
	}
	if err != nil {
		return false, false, 0, err
	}
	heard()
	if !is {
		if _, err := s.conn.Exec(ctx, markSQL, s.partition); err != nil {
			return false, false, 0, err
		}
		heard()
	}
	rows, err := s.conn.Query(ctx, "SELECT sequence, batch FROM leasehold_log WHERE partition = $1 ORDER BY sequence", pgx.QueryExecModeDescribeExec, s.partition) // bytes as they are
	if err != nil {
		return false, false, 0, err
	}
	defer rows.Close()
	var sequence int64
	for rows.Next() {
		heard()
		var batch []byte
		before := sequence
		if err := rows.Scan(&sequence, &batch); err != nil {
			return false, false, 0, err
		}
		if before != 0 && sequence != before+1 {
			return false, false, 0, fmt.Errorf("%w: the log goes from %d to %d", engine.ErrCorrupt, before, sequence)
		}
		if err := s.active.replay(batch); err != nil {
			return false, false, 0, fmt.Errorf("%w: entry %d of the log: %w", engine.ErrCorrupt, sequence, err)
		}
	}
	s.open, s.logged = s.newRound(sequence+1, 0), sequence
	return promoted || back, lost, timeline, rows.Err()
}
