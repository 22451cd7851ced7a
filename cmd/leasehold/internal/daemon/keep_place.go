package daemon

import (
	"context"
	"fmt"
	"time"

	"github.com/rs/zerolog"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/place"
	"github.com/leasehold/leasehold/dispatch/server"
)

// placePoll is the interval at which a daemon checks that its state and its socket are
// there. A client that finds no socket waits longer than this for the daemon that has
// the state.
const placePoll = 2 * time.Second

// keepPlace listens again if the socket is removed while the daemon runs. Otherwise new
// clients could neither connect nor start another daemon. If checkState fails, because
// the state on the disk was removed, moved or replaced, keepPlace returns an error: new
// clients would start a daemon with another state, and both would grant the same leases.
func keepPlace(ctx context.Context, checkState func() error, socket *server.SocketListener, record place.Record, log zerolog.Logger) error {
	tick := time.NewTicker(placePoll)
	defer tick.Stop()
	for gone := false; ; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		if err := checkState(); err != nil {
			return fmt.Errorf("%s: %w", record.State, err)
		}
		switch restored, err := socket.Restore(); {
		case err != nil && !gone: // until the next log-in, it may be impossible to make the directory
			gone = true
			log.Warn().Err(err).Str("socket", record.Socket).Msg("the socket has been removed and cannot be made again yet; no new client can connect")
		case restored:
			gone = false
			log.Warn().Str("socket", record.Socket).AnErr("record", record.Write()).Msg("the socket had been removed; listens again")
		}
	}
}
