package hook

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/text/unicode/norm"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/connection"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/place"
	"github.com/leasehold/leasehold/dispatch/project"
	"github.com/leasehold/leasehold/dispatch/server/wire"
	"github.com/leasehold/leasehold/registry/filekey"
)

// A shell command cannot be checked before it runs. So the hook compares the files
// that others have leased before and after the command, and reports those that changed.

// A look is the state of the files of a lease, without their content.
type look struct {
	Key  string `json:"key"`
	Look string `json:"look"`
}

// maxLooks limits how many leases are checked, and maxBelow how many files below a
// leased directory. The command must not have to wait long.
const maxLooks, maxBelow = 1000, 1000

// commandBegins stores the state of the files that others have leased in the daemon.
func (g *guard) commandBegins(ctx context.Context) error {
	of, run, ok := g.here()
	if !ok {
		return nil
	}
	answer, err := g.daemon.Call(ctx, "hook_check", g.callers(map[string]any{"run": run}))
	if err != nil {
		return err
	}
	held, err := connection.Decode[struct{ Held []struct{ Key string } }](answer.Object)
	if err != nil {
		return err
	}
	var keys []string
	for _, lease := range held.Held[:min(len(held.Held), maxLooks)] {
		keys = append(keys, lease.Key)
	}
	files := append([]look{}, looks(ctx, of.Top, keys)...) // if there are none, the daemon forgets those of the command before
	_, err = g.call(ctx, "hook_command", map[string]any{"party": g.event.party, "tool_use_id": g.event.use, "files": files})
	return err
}

// callers adds the client's process to the arguments of a call.
func (g *guard) callers(args map[string]any) map[string]any {
	if g.mark != "" {
		args["marks"] = []string{g.mark}
	} else {
		args["pids"] = []string{strconv.Itoa(g.pid)}
	}
	return args
}

// commandEnded reports the files that have changed since commandBegins to the daemon,
// and returns a note about them for the client.
func (g *guard) commandEnded(ctx context.Context) (note string, err error) {
	of, run, ok := g.here()
	if !ok {
		return "", nil
	}
	args := map[string]any{"party": g.event.party, "tool_use_id": g.event.use}
	answer, err := g.call(ctx, "hook_command", args)
	if err != nil {
		return "", err
	}
	before, err := connection.Decode[struct{ Files []look }](answer.Object)
	if err != nil {
		return "", err
	}
	was := make(map[string]string)
	var keys []string
	for _, file := range before.Files {
		was[file.Key], keys = file.Look, append(keys, file.Key)
	}
	files := slices.DeleteFunc(looks(ctx, of.Top, keys), func(now look) bool { return now.Look == was[now.Key] })
	if len(files) == 0 {
		return "", nil
	}
	args["files"], args["run"], args["directory"], args["name"] = files, run, wire.Informative(g.event.dir), guestName(g.client, g.event.dir)
	if answer, err = g.call(ctx, "hook_changed", args); err != nil {
		return "", err
	}
	changed, err := connection.Decode[struct {
		Changed []struct{ Key, Text string }
	}](answer.Object)
	if err != nil || len(changed.Changed) == 0 {
		return "", err
	}
	var texts []string
	for _, file := range changed.Changed {
		texts = append(texts, file.Text)
	}
	return "leasehold: while this command ran, files changed that others have leased: " + listed(texts, "; ") +
		". They have been told. If the command changed them, tell them what you did, with actor_message, and change such files only while you hold their lease", nil
}

// here returns the project that the client works in and its run. ok is false if one of
// them is not known.
func (g *guard) here() (of project.Project, run string, ok bool) {
	dir := existing(g.event.home)
	of, err := project.Of(dir)
	if err != nil {
		return of, "", false
	}
	run, err = place.Run("", dir)
	return of, run, err == nil
}

// lookTime limits how long looks takes. It leaves time to tell the daemon.
const lookTime = patience / 2

// looks returns the state of the files of keys. A file may be on a file system that does
// not answer, such as one of a server that is away. The command would then wait as long,
// so looks does not wait for more than lookTime, and leaves out that file and those after
// it.
func looks(ctx context.Context, top string, keys []string) (files []look) {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	found := make(chan look)
	go func() { // ends with the process, if a file system does not answer
		defer close(found)
		for _, key := range keys {
			select {
			case found <- look{key, lookAt(top, key)}:
			case <-ctx.Done():
				return
			}
		}
	}()
	for {
		select {
		case file, ok := <-found:
			if !ok {
				return files
			}
			files = append(files, file)
		case <-ctx.Done():
			return files
		}
	}
}

// lookAt returns a text that changes when the file of a key changes, or a file below its
// directory. It reads mode, size and time of a file, and never its content.
func lookAt(top, key string) string {
	name := strings.TrimPrefix(key, filekey.Prefix)
	dir, tree := strings.CutSuffix(name, "/**")
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(top, filepath.FromSlash(dir))
	}
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) { // a key has composed accents, and the file may have others
		rest := strings.TrimPrefix(dir, top)
		dir = dir[:len(dir)-len(rest)] + norm.NFD.String(rest)
	}
	if !tree && name != "**" {
		return lookOf(os.Lstat(dir))
	}
	if name == "**" {
		dir = top
	}
	sum, below := sha256.New(), 0
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if below++; below > maxBelow {
			return fs.SkipAll
		}
		switch {
		case err != nil:
			fmt.Fprintln(sum, path, "cannot be read")
		case d.Name() == ".git":
			return fs.SkipDir
		case !d.IsDir():
			fmt.Fprintln(sum, path, lookOf(d.Info()))
		}
		return nil
	})
	if err != nil {
		return err.Error()
	}
	return hex.EncodeToString(sum.Sum(nil)[:16])
}

// fingerprint returns a hash of a text, for use as an id.
func fingerprint(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:16])
}

func lookOf(info fs.FileInfo, err error) string {
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%s %d %d", info.Mode(), info.Size(), info.ModTime().UnixNano())
}
