package layer

import (
	"context"
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/call"
	"github.com/leasehold/leasehold/kvstore"
	"github.com/leasehold/leasehold/registry"
)

// Options of a [Layer].
type Options struct {
	// Name returns the name of the member of this layer with that id. Nil: an
	// id is resolved only for the member itself.
	Name func(tx engine.Tx, id uuid.UUID) (name string, ok bool)
}

// A Layer is the store of one layer behind the access table. Like the store, it
// has no state of its own.
type Layer struct {
	eng   engine.Engine
	store *kvstore.Store
	opts  Options
}

// New returns the Layer over a store that eng keeps.
func New(eng engine.Engine, store *kvstore.Store, opts Options) *Layer {
	if opts.Name == nil {
		opts.Name = func(engine.Tx, uuid.UUID) (string, bool) { return "", false }
	}
	return &Layer{eng: eng, store: store, opts: opts}
}

// Store is the underlying store, which checks no access.
func (l *Layer) Store() *kvstore.Store { return l.store }

// As returns the Layer for m. The caller must have authenticated m.
func (l *Layer) As(m Member) *View { return &View{layer: l, member: m} }

// A View is a Layer for one member. Each of its methods may also return a
// [registry.ArgumentError] for an invalid path or glob, and a [ForbiddenError].
type View struct {
	layer  *Layer
	member Member
}

// A Write is one change of an entry.
type Write struct {
	Path     string
	Value    json.RawMessage // not used by Delete
	Override bool            // the lead writes to the /peer of another member
	Fence    registry.Fence  // if it is not satisfied, the error is a [registry.StaleError]
}

// Get returns the entry at path, or nil.
func (v *View) Get(ctx context.Context, path string) (e *kvstore.Entry, err error) {
	return kvstore.Load(ctx, v.layer.eng, func(tx engine.Tx) (kvstore.Txn, kvstore.Path, error) {
		p, err := v.reading(tx, path)
		return v.layer.store.In(tx), p, err
	})
}

// Set writes an entry whatever its current version is, and returns the new
// version. The error may be a [registry.LimitError].
func (v *View) Set(ctx context.Context, w Write) (version uint64, err error) {
	return v.write(ctx, w, nil, kvstore.Txn.Set)
}

// CAS writes an entry if its current version is expected (0: there is no
// entry), and returns the new version. The error may be a
// [kvstore.VersionError] or a [registry.LimitError].
func (v *View) CAS(ctx context.Context, w Write, expected uint64) (version uint64, err error) {
	return v.write(ctx, w, &expected, kvstore.Txn.Set)
}

// Delete removes an entry. If expected is not nil and the entry has another
// version, it returns a [kvstore.VersionError]. It returns the version that was
// removed, or 0 if there was no entry.
func (v *View) Delete(ctx context.Context, w Write, expected *uint64) (version uint64, err error) {
	return v.write(ctx, w, expected, kvstore.Txn.Delete)
}

// A Listing asks for the entries that match a glob.
type Listing struct {
	Glob   string
	After  string // Next of the previous listing; "": from the start
	Limit  int    // 0: [kvstore.DefaultList]
	Values bool
}

// List returns the entries that match the glob and that the caller may read.
func (v *View) List(ctx context.Context, q Listing) (l kvstore.Listing, err error) {
	err = v.layer.eng.Snapshot(ctx, func(tx engine.Tx) error {
		g, err := v.glob(tx, q.Glob)
		if err != nil {
			return err
		}
		l, err = v.layer.store.In(tx).List(ctx, kvstore.Query{
			Glob: g, After: q.After, Limit: q.Limit, Values: q.Values, Visible: v.member.sees,
		})
		return err
	})
	if err != nil {
		return kvstore.Listing{}, err
	}
	return l, nil
}

// Wait is [kvstore.Store.Wait] for entries that the caller may read.
func (v *View) Wait(ctx context.Context, path string, minVersion uint64, wait time.Duration) (e *kvstore.Entry, reached bool, err error) {
	var p kvstore.Path
	err = v.layer.eng.View(ctx, func(tx engine.Tx) (err error) {
		p, err = v.reading(tx, path)
		return err
	})
	if err != nil {
		return nil, false, err
	}
	return v.layer.store.Wait(ctx, p, minVersion, wait)
}

func (v *View) write(ctx context.Context, w Write, expected *uint64, rule func(kvstore.Txn, kvstore.Write) (uint64, error)) (version uint64, err error) {
	write := kvstore.Write{Value: w.Value, Expected: expected, By: v.member.Path, Call: call.Of(ctx), Fence: w.Fence}
	if w.Value != nil {
		if write, err = write.Compact(); err != nil {
			return 0, err
		}
	}
	err = v.layer.eng.Update(ctx, func(tx engine.Tx) (err error) {
		if write.Path, err = v.writing(tx, w); err != nil {
			return err
		}
		version, err = rule(v.layer.store.In(tx), write)
		return err
	})
	if err != nil {
		return 0, err
	}
	return version, nil
}

// reading resolves s to a path that the caller may read.
func (v *View) reading(tx engine.Tx, s string) (kvstore.Path, error) {
	p, err := v.path(tx, s)
	if err != nil {
		return kvstore.Path{}, err
	}
	return p, v.member.may(read, p)
}

// writing resolves w.Path to a path that the caller may write.
func (v *View) writing(tx engine.Tx, w Write) (kvstore.Path, error) {
	p, err := v.path(tx, w.Path)
	if err != nil {
		return kvstore.Path{}, err
	}
	need := write
	if w.Override {
		need = overridable
	}
	return p, v.member.may(need, p)
}
