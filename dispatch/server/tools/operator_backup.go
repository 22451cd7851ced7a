package tools

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/registry"
)

// A Backup copies the state of the daemon into a directory on its machine that
// does not exist yet. Its error says what to do.
type Backup func(ctx context.Context, dir string) error

// Backups returns the tool that makes a backup. It is for clients on the machine
// of the daemon, since that is where it writes.
func Backups(backup Backup) []Tool {
	return []Tool{
		tool("operator_backup", "Back up the state", "Copy the state into a new directory on the machine of this daemon, which goes on meanwhile.", Effect{},
			func(ctx context.Context, se *dispatch.Session, a backupArgs) (backedUp, error) {
				switch peer := se.Peer(); {
				case backup == nil:
					return backedUp{}, &dispatch.ForbiddenError{What: "the state of this daemon is in a database: back up the database with its own tools, as pg_dump"}
				case peer.PID == 0 || peer.Elsewhere():
					return backedUp{}, &dispatch.ForbiddenError{What: "a backup is made on the machine of the daemon: run leasehold backup there, over its socket"}
				case !filepath.IsAbs(a.Path):
					return backedUp{}, &registry.ArgumentError{Argument: "path", Problem: "must be absolute"}
				}
				ctx, stop := se.Within(ctx)
				defer stop()
				err := backup(ctx, a.Path)
				if err != nil && ctx.Err() != nil {
					err = errors.Join(context.Cause(ctx), err)
				}
				return backedUp(a), err
			}),
	}
}

type backupArgs struct {
	Path string `json:"path" doc:"of the directory, which must not exist, in one that does" min:"1" max:"4096"`
}

type backedUp struct {
	Path string `json:"path"`
}

func (b backedUp) Text() string { return "the state is copied to " + b.Path }
