// Package daemon implements leasehold serve, and the commands that control the daemon.
package daemon

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/build"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/database"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/exit"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/logs"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/place"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/view"
	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/metrics"
	"github.com/leasehold/leasehold/dispatch/process"
	"github.com/leasehold/leasehold/dispatch/server"
	"github.com/leasehold/leasehold/dispatch/server/tools"
	"github.com/leasehold/leasehold/dispatch/traces"
	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/event"
	"github.com/leasehold/leasehold/engine/memory"
	"github.com/leasehold/leasehold/engine/pebble"
	"github.com/leasehold/leasehold/engine/postgres"
)

// serveConfig has the options of a daemon.
type serveConfig struct {
	State      string
	Database   database.Database
	Partitions int // of a new database; 0: the default
	partitions int // the partitions of the database
	settled    dispatch.Settled
	Door       *door
	Socket     string
	HTTP       string // address; "": no HTTP
	HTTPHosts  []string
	Metrics    string // address of a listener for metrics alone; "": none
	Remote     bool   // HTTP may listen beyond the loopback
	TLS        certificate
	MaxDepth   int
	OnDemand   bool          // a client started the daemon
	Keep       time.Duration // how long ended runs are kept
	IdleExit   time.Duration // the daemon ends after this time without a connection; 0: never
	Log        logConfig

	traces traces.Tracer
}

func NewCommand() *cobra.Command {
	cfg := serveConfig{Door: new(door)}
	cmd := place.WithSocket(&cobra.Command{
		Use:   "serve",
		Short: "Run the daemon, in the foreground",
		Long: `Run the daemon, in the foreground, until SIGINT or SIGTERM, or until its terminal is
closed (SIGHUP, unless nohup started it). SIGINT (Ctrl-C) after that ends it at once, as
kill -9 does.

A restart ends no session: clients reconnect and keep their leases. Everything that a
reply has confirmed survives kill -9. A power cut ends the sessions and leases of this
machine, and nothing else.

Runs that have ended are kept for --keep, then deleted with their actors, stores
and tasks; ended actors of a live run are kept for a day, or for --keep if that is
less. leasehold runs rm deletes a run at once.

The state is in a directory on a local disk, or with --postgres in a database, which
may be on another machine. Put a password into LEASEHOLD_POSTGRES, --postgres-file or
a place where libpq looks for it. The database must have a synchronous standby. With
--single-node you accept that its loss may lose what was acknowledged. Any number of
daemons may share a database. Its runs are spread over --partitions by name, which the
daemons share evenly: one leads a partition, and another takes over when that one stops,
or seconds after it was lost. With --listen and --cluster-secret, clients may come to
any of them: the others pass them on to the one that leads their partition, over TLS.

HTTP is off unless --http says where. It is streamable HTTP at /mcp, each request
with an actor's token as its bearer, and the API for programs below /api/v1. The
socket takes both, too. Without --tls-cert and --tls-key HTTP listens on the loopback
alone, unless --http-allow-remote says that something guards the way: a TLS proxy
before it, or the network of a container. A new certificate is read at the next start;
leasehold restart ends no session.

Metrics for Prometheus are at /metrics of --http, for the token of a reader or operator,
and of --metrics, where whoever reaches the address may read them.

OpenTelemetry spans of tasks, from the enqueue to the submit, go to the collector that
OTEL_EXPORTER_OTLP_ENDPOINT names, by OTLP over HTTP. Without it none are made.`,
		Example: `  leasehold serve

  # with HTTP for clients on this machine
  leasehold serve --http 127.0.0.1:7711

  # behind a TLS proxy that keeps the Host header
  leasehold serve --http 127.0.0.1:7711 --http-host leases.example.org

  # a daemon separate from all others
  leasehold serve --state ~/try/state --socket ~/try/sock`,
		Args: cobra.NoArgs,
		RunE: exit.Tidily(func(cmd *cobra.Command, _ []string) error {
			target, err := place.TargetOf(cmd)
			if err != nil {
				return err
			}
			cfg.Socket = target.Socket
			if cfg.State == "" {
				if cfg.State, err = place.State(); err != nil {
					return err
				}
			}
			if cmd.Flags().Changed("partitions") && (cfg.Partitions < 1 || cfg.Partitions > postgres.MaxPartitions) {
				return exit.Usagef("--partitions %d: must be from 1 to %d", cfg.Partitions, postgres.MaxPartitions)
			}
			if err := cfg.check(); err != nil {
				return exit.Usage(err)
			}
			return serve(cmd.Context(), cfg, cmd.OutOrStdout(), cmd.ErrOrStderr())
		}),
	})
	f := cmd.Flags()
	f.StringVar(&cfg.State, "state", "", "`directory` of the state (default the user's own)")
	cfg.Database.AddFlags(f)
	f.IntVar(&cfg.Partitions, "partitions", 0, fmt.Sprintf("spread the runs of a new --postgres over so many partitions, from 1 to %d (default %d); it cannot be changed later", postgres.MaxPartitions, postgres.DefaultPartitions))
	cfg.Door.addFlags(f)
	f.StringVar(&cfg.HTTP, "http", "", "serve HTTP too, at this `address`")
	f.StringSliceVar(&cfg.HTTPHosts, "http-host", nil, "a `name`, besides the loopback's, by which clients of --http and --metrics may reach it (repeatable)")
	f.StringVar(&cfg.Metrics, "metrics", "", "serve metrics for Prometheus at this loopback `address`, without a token")
	f.StringVar(&cfg.TLS.Cert, "tls-cert", "", "serve --http over TLS: the `file` of the certificate, and of those that it was signed with")
	f.StringVar(&cfg.TLS.Key, "tls-key", "", "the `file` of its key")
	f.BoolVar(&cfg.Remote, "http-allow-remote", false, "let --http listen beyond the loopback, without TLS")
	f.IntVar(&cfg.MaxDepth, "max-depth", 4, "how many names a path in the tree may have, unless the run says otherwise")
	f.DurationVar(&cfg.Keep, "keep", dispatch.KeepRuns, "keep runs that have ended for this long, from 1m to 87600h")
	view.OneOf(cmd, &cfg.Log.Format, "log-format", "json or console (default console on a terminal, else json)", "json", "console")
	cfg.Log.Level = "info"
	view.OneOf(cmd, &cfg.Log.Level, "log-level", "trace, debug, info, warn or error", "trace", "debug", "info", "warn", "error")
	f.DurationVar(&cfg.IdleExit, "idle-exit", 0, "end once nobody has been connected for this long; clients start it again (default never)")
	f.BoolVar(&cfg.OnDemand, "on-demand", false, "a client starts it")
	_ = f.MarkHidden("on-demand")
	return cmd
}

func (cfg *serveConfig) check() (err error) {
	if cfg.State, err = filepath.Abs(cfg.State); err != nil {
		return err
	}
	if cfg.MaxDepth < 1 || cfg.MaxDepth > 32 {
		return fmt.Errorf("--max-depth %d: must be from 1 to 32", cfg.MaxDepth)
	}
	switch {
	case cfg.HTTP == "" && (cfg.Remote || cfg.TLS.given()):
		return errors.New("--http-allow-remote, --tls-cert and --tls-key say how to serve --http, which is not given")
	case cfg.HTTP == "" && cfg.Metrics == "" && len(cfg.HTTPHosts) > 0:
		return errors.New("--http-host names this server for --http and --metrics, and neither is given")
	case (cfg.TLS.Cert == "") != (cfg.TLS.Key == ""):
		return errors.New("--tls-cert and --tls-key must be given together")
	}
	if cfg.Keep < minKeep || cfg.Keep > maxKeep {
		return fmt.Errorf("--keep %v: must be from %v to %v (ten years)", cfg.Keep, minKeep, maxKeep)
	}
	if cfg.Partitions != 0 && cfg.Database.Name == "" && cfg.Database.File == "" && os.Getenv("LEASEHOLD_POSTGRES") == "" {
		return errors.New("--partitions is about --postgres, which is not given")
	}
	if cfg.IdleExit != 0 && (cfg.IdleExit < time.Second || cfg.HTTP != "") {
		return errors.New("--idle-exit must be 1s or more, and is not for a daemon that serves HTTP")
	}
	return errors.Join(cfg.Database.Check(cfg.OnDemand), cfg.Door.check(cfg.Database.Given()), server.CheckSocketPath(cfg.Socket))
}

// Bounds of --keep.
const (
	minKeep = time.Minute
	maxKeep = 87600 * time.Hour
)

// serve runs the daemon until it ends.
func serve(ctx context.Context, cfg serveConfig, stdout, stderr io.Writer) (err error) {
	if err := place.CheckPrivate(cfg.State); err != nil {
		return err
	}
	if err := place.CheckSudo(filepath.Dir(cfg.Socket)); err != nil {
		return err
	}
	if cfg.OnDemand {
		rotated, err := openRotated(place.Log(cfg.State))
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, rotated.Close()) }()
		stderr = rotated
	}
	log := cfg.Log.open(stderr)
	told := newTeller(log)
	measured := metrics.New(metrics.Options{Version: build.Version(), Event: told.note})
	spareProcessor()
	limitMemory(log)
	defer runtime.KeepAlive(ballast())
	var flush func()
	cfg.traces, flush = openTraces(log)
	defer flush()

	open := cfg.openDirectory
	if cfg.Database.Given() {
		open = cfg.openDatabase
	}
	daemon := new(served)
	defer func() { err = errors.Join(err, daemon.close()) }()
	err = open(ctx, daemon, measured, log, server.Options{
		Version: build.Version(), Log: log, Logs: lastOf, Transport: server.Transport{HTTPHosts: cfg.HTTPHosts},
		Metrics: measured.Handler(), Called: measured.Called,
	})
	if err != nil {
		return err
	}

	secure, err := cfg.TLS.load()
	if err != nil {
		return err
	}
	socket, web, err := listen(cfg, secure)
	if err != nil {
		return err
	}
	scraped, err := listenMetrics(cfg.Metrics)
	if err != nil {
		return errors.Join(err, socket.Close(), closeWeb(web))
	}
	certificates := cfg.certificates(secure)
	record := place.Record{
		State: cfg.State, Socket: cfg.Socket, HTTP: urlOf(web, cfg.TLS), Database: cfg.Database.Given(), Certificates: certificates,
		Version: build.Version(), OnDemand: cfg.OnDemand, Format: dispatch.Format,
	}.ThisProcess()
	if !record.Database {
		record.Files = pebble.Format
	}
	defer func() { err = errors.Join(err, record.Remove()) }()
	if err := record.Write(); err != nil {
		err = fmt.Errorf("record where the daemon listens: %w", err)
		return errors.Join(err, socket.Close(), closeWeb(web), closeWeb(scraped))
	}
	process.TellReady()

	// If a service fails, or ctx ends, the other services end. Each closes its
	// listener; that also removes the socket's file.
	services, ctx := errgroup.WithContext(ctx)
	services.Go(func() error { return daemon.tend(ctx) })
	services.Go(func() error { return daemon.ServeSocket(ctx, socket) })
	services.Go(func() error { return keepPlace(ctx, daemon.checkState, socket, record, log) })
	services.Go(func() error { return daemon.ServePages(ctx) })
	if cfg.Door.ln != nil {
		services.Go(func() error { return daemon.ServePassages(ctx, cfg.Door.ln) })
	}
	if web != nil {
		services.Go(func() error { return daemon.ServeEndpoint(ctx, web) })
	}
	services.Go(func() error { return told.run(ctx) })
	services.Go(func() error { return warnOfExpiry(ctx, log, certificates) })
	if scraped != nil {
		log.Info().Stringer("address", scraped.Addr()).Msg("serves metrics")
		services.Go(func() error { return serveMetrics(ctx, scraped, cfg.HTTPHosts, measured.Handler()) })
	}
	if cfg.IdleExit > 0 {
		services.Go(func() error {
			if daemon.AwaitIdle(ctx, cfg.IdleExit) != nil {
				return nil
			}
			log.Info().Dur("idle", cfg.IdleExit).Msg("nobody is connected")
			return errIdle
		})
	}
	announce(stdout, log, record)
	services.Go(func() error {
		<-ctx.Done()
		log.Info().Msg("stopping")
		return nil
	})
	if err := services.Wait(); err != nil && !errors.Is(err, errIdle) {
		return explain(err)
	}
	log.Info().Msg("stopped")
	return nil
}

// A served daemon has a state, or takes part in those of a database.
type served struct {
	*server.Server
	tend       func(context.Context) error // handles what falls due
	checkState func() error
	ends       []func() error // what close does, the last first
}

func (o *served) atEnd(end func() error) { o.ends = append(o.ends, end) }

func (o *served) close() (err error) {
	for _, end := range slices.Backward(o.ends) {
		err = errors.Join(err, end())
	}
	return err
}

// openDirectory opens the state in a directory.
func (cfg *serveConfig) openDirectory(ctx context.Context, o *served, measured *metrics.Set, log zerolog.Logger, options server.Options) error {
	if err := refuseUnfinished(cfg.State); err != nil {
		return explain(err)
	}
	eng, err := pebble.Open(pebble.Options{Dir: filepath.Join(cfg.State, "db"), Logf: logf(log)})
	if err != nil {
		return explain(err)
	}
	o.atEnd(eng.Close)
	detach := measured.Attach(eng)
	o.atEnd(func() error { detach(); return nil })
	state, err := dispatch.Open(ctx, eng, cfg.dispatchOptions())
	if err != nil {
		return explain(err)
	}
	warnOfSpoilt(state, log)
	if since, ok := state.Restored(); ok {
		log.Warn().Time("since", since).Msg("this state is a backup or another copy, and lacks what has happened to the original since; its tokens go on above all that can have been issued; do not serve the original as well, because both would grant the same leases")
	}
	options.Backup = func(ctx context.Context, dir string) error { return backUp(ctx, eng, dir, log) }
	options.Machine = process.Container() // the next daemon of the state may run in another
	o.Server, o.tend, o.checkState = server.New(state, options), state.Tend, eng.CheckPlace
	return nil
}

// openDatabase makes the daemon one of the servers that share a database.
func (cfg *serveConfig) openDatabase(ctx context.Context, o *served, measured *metrics.Set, log zerolog.Logger, options server.Options) error {
	unlock, err := lockPlace(cfg.State)
	if err != nil {
		return explain(err)
	}
	o.atEnd(unlock)
	seat, err := takeSeat(ctx, &cfg.Database, cfg.Partitions, log)
	if err != nil {
		return explain(err)
	}
	o.atEnd(func() error { seat.close(); return nil })
	cfg.partitions, cfg.settled = seat.where.Partitions(), dispatch.SettledOf(seat.where.Settled())
	options.Machine, options.Partitions, options.Settled = process.Machine(), cfg.partitions, cfg.settled
	if cfg.Door.Listen != "" {
		if err := cfg.Door.open(ctx); err != nil {
			return err
		}
		o.atEnd(func() error { _ = cfg.Door.ln.Close(); return nil })
		options.Elsewhere, options.Poked = cfg.Door.elsewhere, func() { cfg.Door.member.Poke() }
	}
	options.Trouble = func() string { return postgres.Reason(seat.member.Trouble()) }
	options.Reached = func() bool { return seat.member.Reached() }
	o.Server = server.New(nil, options)
	seat.takePart(cfg.Door, o.Connections, log, func(ctx context.Context, partition int, eng *postgres.Engine) error {
		return cfg.host(ctx, partition, eng, o.Server, measured, log)
	})
	o.tend, o.checkState = seat.member.Run, func() error { return nil }
	return nil
}

func (cfg *serveConfig) dispatchOptions() dispatch.Options {
	return dispatch.Options{
		Caps: dispatch.Caps{Depth: cfg.MaxDepth}, Traces: cfg.traces,
		Keep: dispatch.Retention{Runs: cfg.Keep, Actors: min(cfg.Keep, dispatch.KeepActors), Events: event.Retention{Age: min(cfg.Keep, dispatch.KeepEvents)}},
	}
}

// warnOfSpoilt logs which records could not be read when the state was opened.
func warnOfSpoilt(state *dispatch.State, log zerolog.Logger) {
	if err := state.Spoilt(); err != nil {
		log.Warn().Err(err).Msg("records of what is ending cannot be read: what they belong to never ends, and all else goes on; look for the cause, such as a failing disk, and compare with a copy of the state")
	}
}

// host serves the partition in an engine until ctx ends or the engine fails.
func (cfg *serveConfig) host(ctx context.Context, partition int, eng *postgres.Engine, daemon *server.Server, measured *metrics.Set, log zerolog.Logger) error {
	defer measured.Attach(eng)()
	o := cfg.dispatchOptions()
	o.Above, o.Partition = eng.Floor(), dispatch.Partition{Number: partition, Of: cfg.partitions, First: cfg.settled}
	state, err := dispatch.Open(ctx, eng, o)
	if err != nil {
		return err
	}
	warnOfSpoilt(state, log)
	services, ctx := errgroup.WithContext(ctx)
	services.Go(func() error { return state.Tend(ctx) })
	services.Go(func() error { daemon.Host(ctx, partition, state, eng.Err); return nil })
	return services.Wait()
}

// lastOf reads the last lines that a launched agent has written on this machine.
func lastOf(ctx context.Context, run, path string, lines int) (l tools.AgentLog, err error) {
	l.Stdout, l.Stderr, l.Running, err = logs.Last(ctx, run, path, lines)
	for _, list := range [][]string{l.Stdout, l.Stderr} {
		for i := range list {
			list[i] = logs.Clean(list[i])
		}
	}
	return l, err
}

// errIdle ends a daemon that nobody uses.
var errIdle = errors.New("nobody is connected")

// listen opens the socket and, if HTTP is on, its port, over TLS unless secure is
// nil.
func listen(cfg serveConfig, secure *tls.Config) (socket *server.SocketListener, web net.Listener, err error) {
	socket, err = server.ListenSocket(cfg.Socket)
	if err != nil {
		return nil, nil, explain(err)
	}
	if cfg.HTTP == "" {
		return socket, nil, nil
	}
	web, err = server.ListenHTTP(cfg.HTTP, cfg.Remote || secure != nil)
	if err != nil {
		var system *net.OpError
		if !errors.As(err, &system) {
			err = exit.Hint(err, "--tls-cert and --tls-key encrypt it, and --http-allow-remote says that something else guards the way; see leasehold serve --help")
		}
		return nil, nil, errors.Join(err, socket.Close())
	}
	if secure != nil {
		web = tls.NewListener(web, secure)
	}
	return socket, web, nil
}

// certificate names the files of the certificate for HTTP.
type certificate struct{ Cert, Key string }

func (c certificate) given() bool { return c.Cert != "" || c.Key != "" }

// load reads the files. It returns nil if none are given.
func (c certificate) load() (*tls.Config, error) {
	if !c.given() {
		return nil, nil
	}
	pair, err := loadPair(c.Cert, c.Key, "tls")
	if err != nil {
		return nil, err
	}
	// HTTP/1.1 has one request at a time on a connection. So the end of the
	// connection shows which answer was not read.
	return &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, NextProtos: []string{"http/1.1"}}, nil
}

// loadPair reads a certificate and its key. The flags that name them begin with prefix.
func loadPair(cert, key, prefix string) (tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		err = exit.Hint(fmt.Errorf("the certificate %s with the key %s: %w", cert, key, err),
			"--%[1]s-cert and --%[1]s-key take files in PEM that belong together, the key without a passphrase", prefix)
	}
	return pair, err
}

// urlOf returns the URL at which HTTP is served, or "" if HTTP is off.
func urlOf(web net.Listener, c certificate) string {
	switch {
	case web == nil:
		return ""
	case c.given():
		return fmt.Sprintf("https://%s/mcp", web.Addr())
	}
	return fmt.Sprintf("http://%s/mcp", web.Addr())
}

func closeWeb(web net.Listener) error {
	if web == nil {
		return nil
	}
	return web.Close()
}

// announce prints one line that tells the user or program that started the daemon that
// it is ready.
func announce(stdout io.Writer, log zerolog.Logger, r place.Record) {
	ready := log.Info().Str("version", r.Version).Str("socket", r.Socket).Str("state", r.State)
	where := r.Socket
	if r.HTTP != "" {
		ready, where = ready.Str("http", r.HTTP), where+" and "+r.HTTP
	}
	ready.Msg("ready")
	fmt.Fprintln(stdout, "leasehold: listening on", where)
}

// explain adds to an error that keeps a daemon from running what to do about it.
func explain(err error) error {
	err = database.Explain(err)
	var hinted exit.Hinted
	switch {
	case errors.As(err, &hinted):
		return err
	case errors.Is(err, engine.ErrNewer):
		return exit.Hint(err, "nothing was changed: install the version that wrote it, or a later one; this is %s", build.Version())
	case errors.Is(err, pebble.ErrForeign):
		return exit.Hint(err, "nothing was changed: give --state a directory that is new or has a state")
	case errors.Is(err, postgres.ErrPartitions):
		return exit.Hint(err, "nothing was changed: leave out --partitions, or begin with an empty database")
	case errors.Is(err, memory.ErrIncomplete):
		return exit.Hint(err, "remove it, or the tables of the database that begin with leasehold_, and run leasehold migrate again")
	case errors.Is(err, engine.ErrLocked):
		return exit.Hint(err, "a daemon serves that state already: leasehold status shows it; use it, stop it with leasehold stop, or give this one another --state")
	case errors.Is(err, server.ErrSocketInUse):
		return exit.Hint(err, "use the daemon that is there, or give this one another --socket")
	case errors.Is(err, engine.ErrCorrupt):
		return exit.Hint(err, "nothing was changed: restore the state from a copy, or move it away to start without its runs and leases")
	case errors.Is(err, pebble.ErrReplaced):
		return exit.Hint(err, "stop the daemon before that: leasehold stop; the next client starts one with the state that is there then")
	case errors.Is(err, engine.ErrFailed):
		return exit.Hint(err, "everything acknowledged is safe: %s; then start the daemon again", cmp.Or(exit.SystemHint(err), "repair the disk"))
	default:
		return err
	}
}
