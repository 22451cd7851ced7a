package connection

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/terminal"
	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/client"
	"github.com/leasehold/leasehold/dispatch/spelling"
	"github.com/leasehold/leasehold/registry/filekey"
)

// A knownRun has the names in a run.
type knownRun struct {
	Run     string
	EndedAt *time.Time `json:"ended_at"`
	Actors  []knownActor
}

type runList struct{ Runs []knownRun }

type knownActor struct {
	Path    string
	EndedAt *time.Time `json:"ended_at"`
}

// meant suggests what the user may have meant if a name in args does not exist.
// It returns "" if it has no suggestion.
func meant(ctx context.Context, c *client.Client, args map[string]any) string {
	ctx, cancel := context.WithTimeout(ctx, meantTimeout)
	defer cancel()
	name := text(args, "run")
	if name == "" {
		return ""
	}
	asked, err := listOf[runList](ctx, c, "operator_tree", map[string]any{"run": name})
	if IsCode(err, "NOT_FOUND") {
		living, err := listOf[runList](ctx, c, "operator_tree", map[string]any{"actors": false, "ended": false})
		if err != nil {
			return ""
		}
		all, _ := listOf[runList](ctx, c, "operator_tree", map[string]any{"actors": false}) // at least many of them
		return meantRun(name, living.Runs, all.Runs)
	}
	if err != nil || len(asked.Runs) == 0 {
		return ""
	}
	run := asked.Runs[0]
	living, _ := listOf[runList](ctx, c, "operator_tree", map[string]any{"ended": false})
	others := slices.DeleteFunc(living.Runs, func(r knownRun) bool { return r.Run == name })
	for _, argument := range []string{"layer", "path", "parent"} {
		if path := text(args, argument); path != "" && path != dispatch.RootPath {
			return meantActor(path, run, others)
		}
	}
	if queue := text(args, "queue"); queue != "" {
		return meantQueue(ctx, c, queue, run, others)
	}
	if id := text(args, "task_id"); id != "" {
		for _, r := range others[:min(len(others), maxRunsAsked)] {
			if _, err := c.Call(ctx, "operator_task", map[string]any{"run": r.Run, "task_id": id}); err == nil {
				return fmt.Sprintf("it is a task of run %s: name that with --run %s", r.Run, r.Run)
			}
		}
		return fmt.Sprintf("leasehold queue list --run %s shows the tasks of the run that are not finished", name)
	}
	return ""
}

// MeantActor suggests what may have been meant by the path of an actor about whom there
// is nothing to show. It returns "" if there is such an actor.
func MeantActor(ctx context.Context, c *client.Client, run, actor string) string {
	ctx, cancel := context.WithTimeout(ctx, meantTimeout)
	defer cancel()
	list, err := listOf[runList](ctx, c, "operator_tree", map[string]any{"run": run})
	if err != nil || len(list.Runs) == 0 || slices.ContainsFunc(list.Runs[0].Actors, func(a knownActor) bool { return a.Path == actor }) {
		return ""
	}
	return meantActor(actor, list.Runs[0], nil)
}

// MeantLease suggests which of the leases that are held may have been meant by a key that
// nobody holds. It returns "" if somebody holds it, or nothing is similar. args selects
// the leases, as in operator_leases.
func MeantLease(ctx context.Context, c *client.Client, args map[string]any, key string) string {
	ctx, cancel := context.WithTimeout(ctx, meantTimeout)
	defer cancel()
	held, err := HeldLeases(ctx, c, args)
	if err != nil {
		return ""
	}
	var keys []string
	for _, l := range held {
		keys = append(keys, l.Key)
	}
	near := spelling.Nearest(key, keys)
	if file := filekey.Prefix + key; slices.Contains(keys, file) {
		near = file
	}
	if i := slices.IndexFunc(keys, func(k string) bool { return filekey.Overlap(k, key) }); i >= 0 && !slices.Contains(keys, key) {
		near = keys[i] // the directory of the file, or a file in the directory
	}
	if near == "" || near == key {
		return ""
	}
	return fmt.Sprintf("did you mean %s?", near)
}

// A HeldLease is a lease that somebody holds.
type HeldLease struct {
	Key    string // or the name, of a lease of a layer
	Holder string // the path of the actor
}

// HeldLeases asks for the leases that are held. args selects them, as in operator_leases.
func HeldLeases(ctx context.Context, c *client.Client, args map[string]any) (held []HeldLease, err error) {
	list, err := listOf[struct {
		Leases []struct {
			Name, Key string
			Holder    struct{ Path string }
		}
	}](ctx, c, "operator_leases", args)
	for _, l := range list.Leases {
		held = append(held, HeldLease{l.Name + l.Key, l.Holder.Path})
	}
	return held, err
}

const (
	meantTimeout = 2 * time.Second // for what is only advice
	maxRunsAsked = 20
)

func text(args map[string]any, name string) string {
	s, _ := args[name].(string)
	return s
}

func listOf[T any](ctx context.Context, c *client.Client, tool string, args map[string]any) (list T, err error) {
	answer, err := c.Call(ctx, tool, args)
	if err != nil {
		return list, err
	}
	return Decode[T](answer.Object)
}

func meantRun(name string, living, all []knownRun) string {
	var names []string
	for _, r := range living {
		names = append(names, r.Run)
	}
	for _, r := range all {
		if r.EndedAt != nil {
			names = append(names, r.Run)
		}
	}
	switch near := spelling.Nearest(name, names); {
	case len(names) == 0:
		return "there is no run yet: leasehold dispatch or leasehold actor add makes one, and so does an agent that connects"
	case near != "":
		return fmt.Sprintf("did you mean run %s?", near)
	default:
		return "the runs are " + terminal.Some(names) + "; leasehold runs shows them"
	}
}

func meantActor(path string, run knownRun, others []knownRun) string {
	var paths []string
	for _, a := range run.Actors {
		switch {
		case a.Path == path && a.EndedAt != nil:
			return fmt.Sprintf("actor %s has ended; leasehold tree --run %s --all shows why", dispatch.TypedPath(path), run.Run)
		case a.Path == path: // it is there, so it is its layer that is not
			lead := dispatch.RootPath
			if i := strings.LastIndex(path, dispatch.Separator); i >= 0 {
				lead = path[:i]
			}
			return fmt.Sprintf("a worker leads no layer; %s is in the layer of %s", dispatch.TypedPath(path), dispatch.TypedPath(lead))
		case a.EndedAt == nil:
			paths = append(paths, dispatch.TypedPath(a.Path))
		}
	}
	if question := spelling.Path(dispatch.TypedPath(path), paths); question != "" {
		return question
	}
	for _, r := range others {
		if slices.ContainsFunc(r.Actors, func(a knownActor) bool { return a.Path == path && a.EndedAt == nil }) {
			return fmt.Sprintf("run %s has an actor %s: name that run with --run %s", r.Run, dispatch.TypedPath(path), r.Run)
		}
	}
	return fmt.Sprintf("leasehold tree --run %s --all shows the actors of the run", run.Run)
}

func meantQueue(ctx context.Context, c *client.Client, name string, run knownRun, others []knownRun) string {
	queues := queuesOf(ctx, c, run.Run)
	if near := spelling.Nearest(name, queues); near != "" {
		return fmt.Sprintf("did you mean queue %s?", near)
	}
	for _, r := range others[:min(len(others), maxRunsAsked)] {
		if slices.Contains(queuesOf(ctx, c, r.Run), name) {
			return fmt.Sprintf("run %s has a queue %s: name that run with --run %s", r.Run, name, r.Run)
		}
	}
	if len(queues) == 0 {
		return fmt.Sprintf("run %s has no queues: a queue begins with its first task", run.Run)
	}
	return fmt.Sprintf("the queues of run %s are %s", run.Run, terminal.Some(queues))
}

func queuesOf(ctx context.Context, c *client.Client, run string) (names []string) {
	list, err := listOf[struct{ Queues []struct{ Queue string } }](ctx, c, "operator_queue_stats", map[string]any{"run": run, "limit": 1000})
	if err != nil {
		return nil
	}
	for _, q := range list.Queues {
		names = append(names, q.Queue)
	}
	return names
}
