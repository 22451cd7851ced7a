package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/rs/zerolog"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/exit"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/place"
	"github.com/leasehold/leasehold/dispatch/server"
)

// placePoll is the interval at which a daemon checks that its state and its socket are
// there. A client that finds no socket waits longer than this for the daemon that has
// the state.
const placePoll = 2 * time.Second

// keepPlace listens again if the socket is removed while the daemon runs. Otherwise new
// clients could neither connect nor start another daemon. If the state on the disk is
// removed or moved, keepPlace returns an error: new clients would start a daemon with
// another state, and both would grant the same leases.
func keepPlace(ctx context.Context, socket *server.SocketListener, record place.Record, log zerolog.Logger) error {
	tick := time.NewTicker(placePoll)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		if _, err := os.Stat(place.LockOf(record.State)); !record.Database && errors.Is(err, fs.ErrNotExist) {
			return exit.Hint(fmt.Errorf("the state in %s was removed or moved while the daemon ran", record.State),
				"stop the daemon before that: leasehold stop; the next client starts one with the state that is there then")
		}
		// Until the next log-in, it may be impossible to make the directory.
		if restored, _ := socket.Restore(); restored {
			log.Warn().Str("socket", record.Socket).AnErr("record", record.Write()).Msg("the socket had been removed; listens again")
		}
	}
}
