package kvstore_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/pebble"
	"github.com/leasehold/leasehold/kvstore"
	"github.com/leasehold/leasehold/registry"
)

var layerID = uuid.MustParse("6ba7b810-9dad-11d1-80b4-00c04fd430c8")

// A fatal is a *testing.T or a *rapid.T.
type fatal interface {
	Helper()
	Fatalf(format string, args ...any)
}

// A desk is a store whose rules are each called in a transaction of their own.
type desk struct {
	*kvstore.Store
	eng engine.Engine
}

func (d desk) Set(ctx context.Context, p kvstore.Path, value json.RawMessage, by string) (uint64, error) {
	return d.write(ctx, kvstore.Txn.Set, kvstore.Write{Path: p, Value: value, By: by})
}

func (d desk) CAS(ctx context.Context, p kvstore.Path, expected uint64, value json.RawMessage, by string) (uint64, error) {
	return d.write(ctx, kvstore.Txn.Set, kvstore.Write{Path: p, Value: value, Expected: &expected, By: by})
}

func (d desk) Delete(ctx context.Context, p kvstore.Path, expected *uint64) (uint64, error) {
	return d.write(ctx, kvstore.Txn.Delete, kvstore.Write{Path: p, Expected: expected})
}

func (d desk) write(ctx context.Context, rule func(kvstore.Txn, kvstore.Write) (uint64, error), w kvstore.Write) (version uint64, err error) {
	return version, d.eng.Update(ctx, func(tx engine.Tx) (err error) { version, err = rule(d.In(tx), w); return err })
}

func (d desk) Get(ctx context.Context, p kvstore.Path) (e *kvstore.Entry, err error) {
	return e, d.eng.View(ctx, func(tx engine.Tx) error { e = d.In(tx).Get(p); return nil })
}

func (d desk) List(ctx context.Context, q kvstore.Query) (l kvstore.Listing, err error) {
	return l, d.eng.Snapshot(ctx, func(tx engine.Tx) (err error) { l, err = d.In(tx).List(ctx, q); return err })
}

// A room is a store on a real engine, with a file system in memory. Every
// change through it is followed by a Check.
type room struct {
	desk
	t      fatal
	fs     *vfs.MemFS
	eng    *pebble.Engine
	core   *registry.Core
	limits kvstore.Limits
}

func newRoom(t fatal, limits kvstore.Limits) *room {
	t.Helper()
	r := &room{t: t, fs: vfs.NewCrashableMem(), limits: limits}
	r.open()
	return r
}

// inRoom runs a test in a bubble of fake time.
func inRoom(t *testing.T, limits kvstore.Limits, story func(t *testing.T, r *room)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := newRoom(t, limits)
		defer r.close()
		story(t, r)
	})
}

func (r *room) open() {
	r.t.Helper()
	eng, err := pebble.Open(pebble.Options{Dir: "state", FS: r.fs})
	r.must(err)
	r.eng, r.core = eng, registry.New(eng, registry.Options{})
	r.must(r.core.Recover(context.Background()))
	r.must(kvstore.Recover(context.Background(), eng))
	r.desk = desk{kvstore.New(eng, r.core.Registry("layer:"+layerID.String()), layerID, r.limits), eng}
}

func (r *room) close() {
	r.t.Helper()
	r.check()
	r.must(r.eng.Check())
	r.must(r.eng.Close())
}

// crash drops what was not synced and reopens the rest.
func (r *room) crash() {
	r.t.Helper()
	left := r.fs.CrashClone(vfs.CrashCloneCfg{})
	r.close()
	r.fs = left
	r.open()
}

func (r *room) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatalf("%v", err)
	}
}

func (r *room) check() {
	r.t.Helper()
	r.must(r.eng.View(context.Background(), kvstore.Check))
}

func (r *room) usage() (u kvstore.Usage) {
	r.t.Helper()
	r.must(r.eng.View(context.Background(), func(tx engine.Tx) error { u = r.In(tx).Usage(); return nil }))
	return u
}

func (r *room) update(fn func(tx engine.Tx)) {
	r.t.Helper()
	r.must(r.eng.Update(context.Background(), func(tx engine.Tx) error { fn(tx); return nil }))
	r.check()
}

func (r *room) path(s string) kvstore.Path {
	r.t.Helper()
	p, err := kvstore.ParsePath(s)
	r.must(err)
	return p
}

// set writes value and returns its version.
func (r *room) set(path, value string) uint64 {
	r.t.Helper()
	version, err := r.Set(context.Background(), r.path(path), json.RawMessage(value), "S1→W1")
	r.must(err)
	r.check()
	return version
}

func (r *room) cas(path string, expected uint64, value string) (uint64, error) {
	r.t.Helper()
	version, err := r.CAS(context.Background(), r.path(path), expected, json.RawMessage(value), "S1→W1")
	r.check()
	return version, err
}

func (r *room) delete(path string) uint64 {
	r.t.Helper()
	version, err := r.Delete(context.Background(), r.path(path), nil)
	r.must(err)
	r.check()
	return version
}

func (r *room) get(path string) *kvstore.Entry {
	r.t.Helper()
	e, err := r.Get(context.Background(), r.path(path))
	r.must(err)
	return e
}

// show describes an entry in one line.
func show(e *kvstore.Entry) string {
	if e == nil {
		return "none"
	}
	return fmt.Sprintf("%s v%d %s", e.Path, e.Version, e.Value)
}

func (r *room) list(glob string) string {
	r.t.Helper()
	return r.listing(kvstore.Query{Glob: r.glob(glob), Values: true})
}

func (r *room) glob(s string) kvstore.Glob {
	r.t.Helper()
	g, err := kvstore.ParseGlob(s)
	r.must(err)
	return g
}

// listing describes the answer to q in one line.
func (r *room) listing(q kvstore.Query) string {
	r.t.Helper()
	l, err := r.List(context.Background(), q)
	r.must(err)
	var b strings.Builder
	for _, e := range l.Entries {
		fmt.Fprintf(&b, "%s; ", show(&e))
	}
	if l.Truncated {
		b.WriteString("…")
	}
	return strings.TrimSuffix(b.String(), "; ")
}

func same[T comparable](t fatal, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Fatalf("%s: got %v, want %v", what, got, want)
	}
}

func mustBe[E error](t fatal, err error) (e E) {
	t.Helper()
	if !errors.As(err, &e) {
		t.Fatalf("got error %v, want a %T", err, e)
	}
	return e
}
