// Package daemon is leasehold serve: the daemon from its flags to its end.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/build"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/exit"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/place"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/view"
	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/process"
	"github.com/leasehold/leasehold/dispatch/server"
	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/event"
	"github.com/leasehold/leasehold/engine/pebble"
)

// serveConfig is what a daemon is told by its command line.
type serveConfig struct {
	State     string
	Socket    string
	HTTP      string // address; "": no HTTP
	HTTPHosts []string
	Remote    bool // HTTP may listen beyond the loopback
	MaxDepth  int
	OnDemand  bool          // a client starts it
	Keep      time.Duration // what has ended is kept for so long
	IdleExit  time.Duration // end when nobody has been connected for so long; 0: never
	Log       logConfig
}

func NewCommand() *cobra.Command {
	var cfg serveConfig
	cmd := place.WithSocket(&cobra.Command{
		Use:   "serve",
		Short: "Run the daemon, in the foreground",
		Long: `Run the daemon, in the foreground, until SIGINT or SIGTERM; a second signal ends it
at once.

A restart ends no session: clients come back to the leases they held. What an
answer has told survives also kill -9 and a power cut.

Runs that have ended are kept for --keep, then forgotten with their actors, stores
and tasks; ended actors of a live run are kept for a day, or for --keep if that is
less. leasehold runs rm forgets a run at once.

HTTP is off unless --http says where. It is streamable HTTP at /mcp, each request
with an actor's token as its bearer. It has no TLS of its own, so it listens on the
loopback alone unless --http-allow-remote says that something guards the way: a TLS
proxy before it, or the network of a container.`,
		Example: `  leasehold serve

  # with HTTP for clients on this machine
  leasehold serve --http 127.0.0.1:7711

  # behind a TLS proxy that keeps the Host header
  leasehold serve --http 127.0.0.1:7711 --http-host leases.example.org

  # one apart from all others
  leasehold serve --state ~/try/state --socket ~/try/sock`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
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
			if err := cfg.check(); err != nil {
				return exit.Usage(err)
			}
			return serve(cmd.Context(), cfg, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	})
	f := cmd.Flags()
	f.StringVar(&cfg.State, "state", "", "`directory` of the state (default the user's own)")
	f.StringVar(&cfg.HTTP, "http", "", "serve HTTP too, at this `address`")
	f.StringSliceVar(&cfg.HTTPHosts, "http-host", nil, "a `name`, besides the loopback's, by which HTTP clients may reach it (repeatable)")
	f.BoolVar(&cfg.Remote, "http-allow-remote", false, "let --http listen beyond the loopback, in the clear")
	f.IntVar(&cfg.MaxDepth, "max-depth", 4, "names in a path of the tree, where a run does not say otherwise")
	f.DurationVar(&cfg.Keep, "keep", dispatch.KeepRuns, "keep runs that have ended for this long, from 1m to 87600h")
	f.StringVar(&cfg.Log.Format, "log-format", "", "json or console (default console on a terminal, else json)")
	f.StringVar(&cfg.Log.Level, "log-level", "info", "trace, debug, info, warn or error")
	f.DurationVar(&cfg.IdleExit, "idle-exit", 0, "end once nobody has been connected for this long; clients start it again (default never)")
	view.Complete(cmd, "log-format", "json", "console")
	view.Complete(cmd, "log-level", "trace", "debug", "info", "warn", "error")
	_ = cmd.MarkFlagDirname("state")
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
	if cfg.HTTP == "" && (cfg.Remote || len(cfg.HTTPHosts) > 0) {
		return errors.New("--http-host and --http-allow-remote say how to serve --http, which is not given")
	}
	if cfg.Keep < minKeep || cfg.Keep > maxKeep {
		return fmt.Errorf("--keep %v: must be from %v to %v (ten years)", cfg.Keep, minKeep, maxKeep)
	}
	if cfg.IdleExit != 0 && (cfg.IdleExit < time.Second || cfg.HTTP != "") {
		return errors.New("--idle-exit must be 1s or more, and is not for a daemon that serves HTTP")
	}
	return errors.Join(cfg.Log.check(), server.CheckSocketPath(cfg.Socket))
}

// Bounds of --keep.
const (
	minKeep = time.Minute
	maxKeep = 87600 * time.Hour
)

// serve is the daemon's life.
func serve(ctx context.Context, cfg serveConfig, stdout, stderr io.Writer) (err error) {
	if err := place.CheckPrivate(cfg.State); err != nil {
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
	spareProcessor()

	eng, err := pebble.Open(pebble.Options{
		Dir:  filepath.Join(cfg.State, "db"),
		Logf: func(format string, args ...any) { log.Warn().Msgf(format, args...) },
	})
	if err != nil {
		return explain(err)
	}
	defer func() { err = errors.Join(err, eng.Close()) }()

	state, err := dispatch.Open(ctx, eng, dispatch.Options{
		Caps: dispatch.Caps{Depth: cfg.MaxDepth},
		Keep: dispatch.Retention{Runs: cfg.Keep, Actors: min(cfg.Keep, dispatch.KeepActors), Events: event.Retention{Age: min(cfg.Keep, dispatch.KeepEvents)}},
	})
	if err != nil {
		return explain(err)
	}

	socket, web, err := listen(cfg)
	if err != nil {
		return err
	}
	process.TellReady()
	record := place.Record{State: cfg.State, Socket: cfg.Socket, HTTP: urlOf(web), Version: build.Version(), OnDemand: cfg.OnDemand}.ThisProcess()
	if err := record.Write(); err != nil {
		err = fmt.Errorf("record where the daemon listens: %w", err)
		return errors.Join(err, socket.Close(), closeWeb(web))
	}
	defer func() { err = errors.Join(err, record.Remove()) }()
	daemon := server.New(state, server.Options{
		Version: build.Version(), Log: log, Transport: server.Transport{HTTPHosts: cfg.HTTPHosts},
	})

	// A service that fails ends the others, and so does ctx. Each closes what
	// it listens at; the socket's file goes with that.
	services, ctx := errgroup.WithContext(ctx)
	services.Go(func() error { return state.Tend(ctx) })
	services.Go(func() error { return daemon.ServeSocket(ctx, socket) })
	if web != nil {
		services.Go(func() error { return daemon.ServeEndpoint(ctx, web) })
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
	stop := context.AfterFunc(ctx, func() { log.Info().Msg("stopping") })
	defer stop()
	if err := services.Wait(); err != nil && !errors.Is(err, errIdle) {
		return explain(err)
	}
	log.Info().Msg("stopped")
	return nil
}

// errIdle ends a daemon that nobody uses.
var errIdle = errors.New("nobody is connected")

// spareProcessor makes up for the one that waits for the disk: Go takes it back
// from a system call only after a while. With 64 clients on two cores durable
// calls came out a tenth more, others the same. GOMAXPROCS in the environment
// still decides.
func spareProcessor() {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + 1)
	}
}

// listen opens the socket and, if there is to be HTTP, its port.
func listen(cfg serveConfig) (socket, web net.Listener, err error) {
	socket, err = server.ListenSocket(cfg.Socket)
	if err != nil {
		return nil, nil, explain(err)
	}
	if cfg.HTTP == "" {
		return socket, nil, nil
	}
	web, err = server.ListenHTTP(cfg.HTTP, cfg.Remote)
	if err != nil {
		var system *net.OpError
		if !errors.As(err, &system) {
			err = exit.Hint(err, "--http-allow-remote says that something guards the way; see leasehold serve --help")
		}
		return nil, nil, errors.Join(err, socket.Close())
	}
	return socket, web, nil
}

// urlOf is where HTTP is served; "" if it is not.
func urlOf(web net.Listener) string {
	if web == nil {
		return ""
	}
	return fmt.Sprintf("http://%s/mcp", web.Addr())
}

func closeWeb(web net.Listener) error {
	if web == nil {
		return nil
	}
	return web.Close()
}

// announce says, in one line for whoever started the daemon, that it is ready.
func announce(stdout io.Writer, log zerolog.Logger, r place.Record) {
	ready := log.Info().Str("version", r.Version).Str("socket", r.Socket).Str("state", r.State)
	where := r.Socket
	if r.HTTP != "" {
		ready, where = ready.Str("http", r.HTTP), where+" and "+r.HTTP
	}
	ready.Msg("ready")
	fmt.Fprintln(stdout, "leasehold: listening on", where)
}

// explain adds what to do about what keeps a daemon from running.
func explain(err error) error {
	switch {
	case errors.Is(err, engine.ErrLocked):
		return exit.Hint(err, "a daemon serves that state already: leasehold status shows it; use it, stop it with leasehold stop, or give this one another --state")
	case errors.Is(err, server.ErrSocketInUse):
		return exit.Hint(err, "use the daemon that is there, or give this one another --socket")
	case errors.Is(err, engine.ErrCorrupt):
		return exit.Hint(err, "nothing was changed: restore the state from a copy, or move it away to begin anew without its runs and leases")
	case errors.Is(err, engine.ErrFailed):
		return exit.Hint(err, "what was acknowledged is safe: see to the disk, then start the daemon again")
	default:
		return err
	}
}
