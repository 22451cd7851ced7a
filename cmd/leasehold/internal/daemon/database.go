package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/rs/zerolog"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/build"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/database"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/exit"
	"github.com/leasehold/leasehold/dispatch/process"
	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/cluster"
	"github.com/leasehold/leasehold/engine/postgres"
)

// A seat is this daemon's membership among the servers that share a database.
type seat struct {
	options postgres.Options
	where   *postgres.Cluster
	member  *cluster.Member
}

// takeSeat prepares the database; a new one gets that many partitions. The
// caller calls takePart and closes the seat.
func takeSeat(ctx context.Context, d *database.Database, partitions int, log zerolog.Logger) (*seat, error) {
	o, err := d.Options()
	if err != nil {
		return nil, err
	}
	o.Logf = logf(log)
	s := &seat{options: o}
	if s.where, err = postgres.OpenCluster(ctx, o, partitions); err != nil {
		return nil, err
	}
	if s.options.Connections, err = postgres.Connect(ctx, o); err != nil {
		s.where.Close()
		return nil, err
	}
	return s, nil
}

// close closes the connections. The member must have stopped.
func (s *seat) close() {
	s.options.Connections.Close()
	s.where.Close()
}

// takePart makes the member, which the caller runs.
func (s *seat) takePart(door *door, connections func() int64, log zerolog.Logger, lead func(context.Context, int, *postgres.Engine) error) {
	var tell func(cluster.Server)
	if door.ln != nil {
		tell = door.tell
	}
	s.member = cluster.NewMember(cluster.Options{
		Database: s.where, Process: ownProcess(), Name: hostName(), Version: build.Version(), Connections: connections, Gone: gone, Address: door.Advertise, Tell: tell,
		Lead: func(ctx context.Context, p cluster.Partition, t *cluster.Term) error {
			err := s.lead(ctx, p, t, log, lead)
			if errors.Is(err, engine.ErrNewer) {
				// Otherwise nobody would lead it: the others leave this server its share.
				err = errors.Join(fmt.Errorf("%w; upgrade this server, which leaves all to the others until then", err), s.where.Drain(ctx, t.ID))
			}
			return err
		},
		Logf: logf(log),
	})
	door.member = s.member
}

// lead takes the lead of a partition, and serves it until ctx ends or the engine fails.
func (s *seat) lead(ctx context.Context, p cluster.Partition, t *cluster.Term, log zerolog.Logger, serve func(context.Context, int, *postgres.Engine) error) error {
	o := s.options
	o.Partition, o.Epoch, o.Seen, o.Leader, o.Confirm = p.Number, p.Epoch, p.Seen, t.ID, t.Confirm
	eng, err := postgres.Open(ctx, o)
	if errors.Is(err, postgres.ErrSuperseded) {
		return nil // another was faster
	}
	if err != nil {
		return err
	}
	log.Info().Int64("partition", p.Number).Int64("epoch", eng.Epoch()).Msg("leads")
	s.member.Announce()
	err = serve(ctx, int(p.Number), eng)
	log.Info().Int64("partition", p.Number).Int64("epoch", eng.Epoch()).Msg("leads no more")
	return cmp.Or(err, eng.Close()) // after a failure both have the same reason
}

// ownProcess returns a name by which other servers on this machine recognize
// this process.
func ownProcess() string {
	return fmt.Sprintf("%s %d %s", process.Machine(), os.Getpid(), process.Find(os.Getpid()).Start)
}

// hostName returns the name of this machine for people, or "" if it has none.
func hostName() string {
	name, _ := os.Hostname()
	return name
}

// gone reports whether a server ran here and has ended.
func gone(s cluster.Server) bool {
	rest, here := strings.CutPrefix(s.Process, process.Machine()+" ")
	pid, start, whole := strings.Cut(rest, " ")
	n, err := strconv.Atoi(pid)
	return here && whole && err == nil && !process.Peer{PID: n, Start: start}.Alive()
}

// logf logs a warning, and what to do about an error in it.
func logf(log zerolog.Logger) func(string, ...any) {
	return func(format string, args ...any) {
		e := log.Warn()
		for _, arg := range args {
			if err, is := arg.(error); is {
				if advice, has := errors.AsType[exit.Hinted](database.Explain(err)); has {
					e.Str("do", advice.Hint)
				}
			}
		}
		e.Msgf(format, args...)
	}
}

// lockPlace prevents two daemons with a database from using the same directory
// for their own files. A daemon with its state there is already kept out by
// that state's lock.
func lockPlace(dir string) (unlock func() error, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(dir, "server.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	locked, err := process.TryLock(f)
	if err == nil && !locked {
		err = fmt.Errorf("%w: %s", engine.ErrLocked, dir)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f.Close, nil
}
