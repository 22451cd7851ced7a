package dispatch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/dispatch/rows"
	"github.com/leasehold/leasehold/dispatch/work"
	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/call"
	"github.com/leasehold/leasehold/engine/event"
	"github.com/leasehold/leasehold/kvstore"
	"github.com/leasehold/leasehold/layer"
	"github.com/leasehold/leasehold/registry"
)

// Separator joins the names of a path.
const Separator = "→"

var arrows = strings.NewReplacer("/", Separator, "->", Separator)

// PathOf returns a path as it was typed. Not every keyboard has the arrow, and no name
// has a slash or "->", so S1/W2 and S1->W2 can be written for S1→W2.
func PathOf(typed string) string { return arrows.Replace(typed) }

// TypedPath returns a path as people type it, with slashes.
func TypedPath(path string) string { return strings.ReplaceAll(path, Separator, "/") }

// RootPath is the path of every run's root.
const RootPath = "root"

// NewActor describes an actor to be created.
type NewActor struct {
	Run      string
	Name     string
	Role     Role   // root, sublead or worker
	Parent   string // path of the lead; "": the root
	ReadDown bool   // the sub-lead's parent may read its layer
	Caps     Caps   // of the run, with role root

	TokenTTL time.Duration // of its token; 0: until the actor has ended
}

// AddActor creates an actor and its token. The token is returned only here. If
// the call is sent again, the actor gets another token, in place of the first,
// unless it has ended or got one from another call. A root creates its run, or
// takes the place of the root in a run that workers joined before it had a named
// root.
func (s *State) AddActor(ctx context.Context, n NewActor) (a Actor, token string, err error) {
	if err := CheckRun(n.Run); err != nil {
		return Actor{}, "", err
	}
	if err := cmp.Or(CheckName(n.Name), s.opts.Partition.check(n.Run)); err != nil {
		return Actor{}, "", err
	}
	return s.issueToken(ctx, adding, n.TokenTTL, func(tx engine.Tx) (Actor, error) { return s.addActor(tx, n) })
}

// issueToken gives the actor that find returns a token, in place of the one that it
// had. If the call is sent again, it is the same actor.
func (s *State) issueToken(ctx context.Context, kind call.Kind, ttl time.Duration, find func(engine.Tx) (Actor, error)) (a Actor, token string, err error) {
	c := call.Of(ctx)
	err = rows.Update(ctx, s.eng, func(tx engine.Tx) error {
		if a, err = ownerOf(tx, c, kind, actorIssued, find); err != nil {
			return err
		}
		token, a.TokenHash = s.opts.Partition.newSecret(tokenMark, a.ID)
		a.TokenExpires = time.Time{}
		if ttl > 0 {
			a.TokenExpires = tx.Wall().Add(ttl)
		}
		putActor(tx, a)
		c.Record(tx, kind, issued(a.ID, a.TokenHash), 0)
		return nil
	})
	if err != nil {
		return Actor{}, "", err
	}
	return a, token, nil
}

// Kinds of the recorded answers of an operator's calls. That of a call that issues a
// token is made by issued; the others have none.
const (
	adding      call.Kind = "add"
	reissuing   call.Kind = "reissue"
	endingActor call.Kind = "end"
	removing    call.Kind = "remove"
	issuing     call.Kind = "issue"
	rotating    call.Kind = "rotate"
	revoking    call.Kind = "void"
)

// issued returns the answer of a call that has issued a token: for what, and the
// hash of the token.
func issued(id uuid.UUID, hash []byte) string { return string(id[:]) + string(hash) }

// isCurrent reports whether the token of an answer is the one that id has now, and
// so whether nobody has another. An answer of an older version has no hash.
func isCurrent(answer string, hash []byte) bool {
	return len(answer) == 16 || len(answer) > 16 && answer[16:] == string(hash)
}

// issuedFor returns for what a call has issued a token, by its answer.
func issuedFor(answer string) (id uuid.UUID) {
	copy(id[:], answer)
	return id
}

// errTokenVoid refuses a call that is sent again after the token that it issued
// has become void. It must not take the place of a token that another call issued.
var errTokenVoid = say(ErrNotFound, "the token that this call issued is void by now: it was replaced or revoked, or its actor has ended; if you need another token, make another call")

// ownerOf returns for what a call issues a token: what first returns, or, if the
// call is sent again, what again finds by its answer.
func ownerOf[T any](tx engine.Tx, c call.Call, kind call.Kind, again func(tx engine.Tx, answer string) (T, error), first func(engine.Tx) (T, error)) (owner T, err error) {
	answer, answered, err := c.Answered(tx, kind)
	switch {
	case err != nil:
		return owner, err
	case answered:
		return again(tx, answer)
	default:
		return first(tx)
	}
}

// actorIssued finds the actor for which a call has issued a token, which it must
// still have.
func actorIssued(tx engine.Tx, answer string) (Actor, error) {
	if a, ok := getActor(tx, issuedFor(answer)); ok && !a.Ended() && isCurrent(answer, a.TokenHash) {
		return a, nil
	}
	return Actor{}, errTokenVoid
}

// ReissueToken gives the living actor at path a new token. The old token is
// void. Sessions that were opened with it stay open. The new token expires after ttl,
// or with 0 when the actor ends. If the call is sent again, the actor gets another
// token, in place of the first, unless it got one from another call.
func (s *State) ReissueToken(ctx context.Context, name, path string, ttl time.Duration) (a Actor, token string, err error) {
	return s.issueToken(ctx, reissuing, ttl, func(tx engine.Tx) (Actor, error) { return livingAt(tx, name, path) })
}

// livingAt finds the living actor at a path of a living run.
func livingAt(tx engine.Tx, name, path string) (Actor, error) {
	run, ok := getRun(tx, name)
	if !ok || !run.EndedAt.IsZero() {
		return Actor{}, notFound("run %q", name)
	}
	a, err := actorAt(tx, run, path)
	if err == nil && a.Ended() {
		err = a.endedError()
	}
	return a, err
}

func (s *State) addActor(tx engine.Tx, n NewActor) (Actor, error) {
	run, exists := getRun(tx, n.Run)
	exists = exists && run.EndedAt.IsZero()
	if n.ReadDown && n.Role != Sublead {
		return Actor{}, &registry.ArgumentError{Argument: "read_down", Problem: fmt.Sprintf("must be left out for a %s", n.Role)}
	}
	switch n.Role {
	case Root:
		if n.Parent != "" {
			return Actor{}, &registry.ArgumentError{Argument: "parent", Problem: "must be left out for a root"}
		}
		if !exists {
			return s.makeRun(tx, n), nil
		}
		return claimRoot(tx, run, n)
	case Sublead, Worker:
		if n.Caps.Depth != 0 {
			return Actor{}, &registry.ArgumentError{Argument: "max_depth", Problem: fmt.Sprintf("must be left out for a %s; the root sets it for its run", n.Role)}
		}
		if !exists {
			return Actor{}, say(ErrNotFound, "no run %q: make its root first: leasehold actor add --run %s --name lead --role root", n.Run, n.Run)
		}
		lead, err := actorAt(tx, run, cmp.Or(n.Parent, RootPath))
		if err != nil {
			return Actor{}, err
		}
		if !lead.Role.Leads() {
			return Actor{}, &registry.ArgumentError{Argument: "parent", Problem: fmt.Sprintf("must be a lead, and %s is a worker", lead.Path)}
		}
		a, err := addMember(tx, run, lead, n)
		if limit, ok := errors.AsType[*registry.LimitError](err); ok && limit.Which == depthLimit {
			limit.Next = "choose a parent nearer to the root; max_depth is set with the root of a run"
		}
		return a, err
	default:
		return Actor{}, &registry.ArgumentError{Argument: "role", Problem: "must be root, sublead or worker"}
	}
}

// makeRun creates a run and its root. It replaces an ended run of the same
// name.
func (s *State) makeRun(tx engine.Tx, n NewActor) Actor {
	if old, ok := getRun(tx, n.Run); ok {
		s.removeRun(tx, old)
	}
	now := tx.Wall()
	a := Actor{ID: uuid.New(), Run: n.Run, Name: n.Name, Role: Root, Path: RootPath, CreatedAt: now}
	run := Run{
		Name: n.Run, ID: uuid.New(), Root: a.ID, Layer: uuid.New(), CreatedAt: now, Actors: 1,
		Caps: n.Caps.or(s.opts.Caps).or(defaultCaps),
	}
	a.Layer, a.Leads = run.Layer, run.Layer
	putRun(tx, run)
	putLayer(tx, layerRecord{ID: run.Layer, Run: n.Run, RunID: run.ID, Lead: a.ID, Path: RootPath})
	putActor(tx, a)
	note(tx, run, a, event.Event{Kind: event.ActorBegan, Cause: string(Root)})
	return a
}

// claimRoot names the root of a run that workers joined before an operator
// added its root.
func claimRoot(tx engine.Tx, run Run, n NewActor) (Actor, error) {
	root, _ := getActor(tx, run.Root)
	if _, launched := work.RunOf(tx, run.Name); launched || root.TokenHash != nil {
		return Actor{}, say(ErrExists, "run %q already has a root; end it (leasehold actor end --run %s root) or choose another name for the run", run.Name, run.Name)
	}
	if m, taken := memberNamed(tx, run.Layer, n.Name); taken && !m.Ended() {
		return Actor{}, say(ErrExists, "the layer of root already has an actor named %q; choose another name", n.Name)
	}
	root.Name = n.Name
	run.Caps = n.Caps.or(run.Caps)
	putRun(tx, run)
	return root, nil
}

const depthLimit = "depth of the tree"

// admit returns the path that an actor would have below lead, or an error if it
// may not be there.
func admit(tx engine.Tx, run Run, lead Actor, name string) (path string, err error) {
	if name == RootPath {
		return "", &registry.ArgumentError{Argument: "name", Problem: "must not be \"root\", which is the path of the root"}
	}
	if lead.Ended() {
		return "", say(ErrNotFound, "actor %s of run %q has ended", lead.Path, run.Name)
	}
	path = name
	if lead.Role != Root {
		path = lead.Path + Separator + name
	}
	l, _ := getLayer(tx, lead.Leads)
	most := run.Caps.LayerActors
	if w, ok := work.Get(tx, lead.ID); ok && w.MaxWorkers > 0 {
		most = min(most, w.MaxWorkers)
	}
	switch depth := strings.Count(path, Separator) + 1; {
	case depth > run.Caps.Depth:
		return "", &registry.LimitError{Which: depthLimit, Max: int64(run.Caps.Depth)}
	case l.Members >= most:
		return "", &registry.LimitError{Which: "actors of one layer", Max: int64(most)}
	case run.Actors >= run.Caps.RunActors:
		return "", &registry.LimitError{Which: "actors of one run", Max: int64(run.Caps.RunActors)}
	}
	return path, nil
}

func addMember(tx engine.Tx, run Run, lead Actor, n NewActor) (Actor, error) {
	l, _ := getLayer(tx, lead.Leads)
	if m, taken := memberNamed(tx, l.ID, n.Name); taken && !reusable(tx, m) || n.Name == lead.Name {
		return Actor{}, say(ErrExists, "the layer of %s already has an actor named %q; choose another name", lead.Path, n.Name)
	}
	path, err := admit(tx, run, lead, n.Name)
	if err != nil {
		return Actor{}, err
	}
	return makeMember(tx, run, lead, n, path), nil
}

// makeMember creates an actor that admit has accepted.
func makeMember(tx engine.Tx, run Run, lead Actor, n NewActor, path string) Actor {
	l, _ := getLayer(tx, lead.Leads)
	a := Actor{
		ID: uuid.New(), Run: run.Name, Name: n.Name, Role: n.Role, Path: path,
		Layer: l.ID, ReadDown: n.ReadDown && n.Role == Sublead, CreatedAt: tx.Wall(),
	}
	if a.Role == Sublead {
		own := layerRecord{ID: uuid.New(), Run: run.Name, RunID: run.ID, Lead: a.ID, Path: path}
		a.Leads = own.ID
		putLayer(tx, own)
	}
	l.Members++
	run.Actors++
	putLayer(tx, l)
	putRun(tx, run)
	if m, taken := memberNamed(tx, l.ID, n.Name); taken {
		tx.Put(engine.Row{Key: formerKey(l.ID, m.ID), Value: string(m.ID[:])})
	}
	putMember(tx, a)
	putActor(tx, a)
	note(tx, run, a, event.Event{Kind: event.ActorBegan, By: lead.Path, Cause: string(a.Role)})
	return a
}

// reusable reports whether another actor can take the name of a: a has ended,
// and so have all actors below it. From then on a can only be found by its id.
func reusable(tx engine.Tx, a Actor) bool {
	if !a.Ended() || a.Leaving {
		return false
	}
	l, _ := getLayer(tx, a.Leads)
	return l.Members == 0
}

// actorAt finds the living actor at a path.
func actorAt(tx engine.Tx, run Run, path string) (Actor, error) {
	path = PathOf(path)
	a, _ := getActor(tx, run.Root)
	if path == RootPath {
		return a, nil
	}
	for name := range strings.SplitSeq(path, Separator) {
		m, ok := memberNamed(tx, a.Leads, name)
		if !ok || m.Ended() {
			return Actor{}, notFound("living actor %s in run %q", path, run.Name)
		}
		a = m
	}
	return a, nil
}

var runPattern = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// CheckRun returns a [registry.ArgumentError] if name cannot be the name of a
// run. Run names are also used for directories.
func CheckRun(name string) error {
	if !runPattern.MatchString(name) || name == "." || name == ".." {
		return &registry.ArgumentError{Argument: "run", Problem: "must be 1 to 64 of A-Z a-z 0-9 . _ - and neither . nor .."}
	}
	return nil
}

// CheckName returns a [registry.ArgumentError] if name could be confused with
// another party or its path.
func CheckName(name string) error {
	switch name {
	case ParentLayer, operatorPath:
		return &registry.ArgumentError{Argument: "name", Problem: fmt.Sprintf("must not be %q, which has a meaning of its own", name)}
	}
	return layer.CheckName(name)
}

var defaultCaps = Caps{Depth: 4, LayerActors: 1000, RunActors: 10_000}

// or replaces the zero fields of c by those of d.
func (c Caps) or(d Caps) Caps {
	return Caps{
		Depth:       cmp.Or(c.Depth, d.Depth),
		LayerActors: cmp.Or(c.LayerActors, d.LayerActors),
		RunActors:   cmp.Or(c.RunActors, d.RunActors),
		Store: kvstore.Limits{
			ValueBytes: cmp.Or(c.Store.ValueBytes, d.Store.ValueBytes),
			Bytes:      cmp.Or(c.Store.Bytes, d.Store.Bytes),
			Entries:    cmp.Or(c.Store.Entries, d.Store.Entries),
		},
	}
}
