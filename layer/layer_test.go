package layer_test

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
	"github.com/leasehold/leasehold/layer"
	"github.com/leasehold/leasehold/registry"
)

// S1 leads a layer with W1 and W2; the root reads it from above.
var (
	s1   = layer.Member{ID: uuid.New(), Name: "S1", Path: "S1", Lead: true}
	w1   = layer.Member{ID: uuid.New(), Name: "W1", Path: "S1→W1"}
	w2   = layer.Member{ID: uuid.New(), Name: "W2", Path: "S1→W2"}
	root = layer.Member{ID: uuid.New(), Name: "root", Path: "root", ReadOnly: true}
	none layer.Member
)

// A fatal is a *testing.T or a *rapid.T.
type fatal interface {
	Helper()
	Fatalf(format string, args ...any)
}

// A scene is a layer on a real engine, with a file system in memory.
type scene struct {
	*layer.Layer
	t      fatal
	eng    *pebble.Engine
	lookup int // how often an id was resolved
}

func newScene(t fatal) *scene {
	t.Helper()
	eng, err := pebble.Open(pebble.Options{Dir: "state", FS: vfs.NewMem()})
	if err != nil {
		t.Fatalf("%v", err)
	}
	s := &scene{t: t, eng: eng}
	store := kvstore.New(eng, registry.New(eng, registry.Options{}).Registry("layer:S1"), uuid.New(), kvstore.Limits{})
	s.Layer = layer.New(eng, store, layer.Options{Name: func(_ engine.Tx, id uuid.UUID) (string, bool) {
		s.lookup++
		for _, m := range []layer.Member{s1, w1, w2} {
			if m.ID == id {
				return m.Name, true
			}
		}
		return "", false
	}})
	return s
}

// inScene runs a test in a bubble of fake time.
func inScene(t *testing.T, story func(t *testing.T, s *scene)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		defer s.close()
		story(t, s)
	})
}

func (s *scene) close() {
	s.t.Helper()
	s.must(s.eng.View(context.Background(), kvstore.Check))
	s.must(s.eng.Close())
}

func (s *scene) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatalf("%v", err)
	}
}

// put writes value at path without an access check.
func (s *scene) put(path, value string) {
	s.t.Helper()
	p, err := kvstore.ParsePath(path)
	s.must(err)
	s.must(s.eng.Update(context.Background(), func(tx engine.Tx) error {
		_, err := s.Store().In(tx).Set(kvstore.Write{Path: p, Value: json.RawMessage(value), By: "S1"})
		return err
	}))
}

// hold takes a lease of the layer.
func (s *scene) hold(name string) {
	s.t.Helper()
	h := registry.Holder{Session: uuid.New(), Actor: w1.ID, Path: w1.Path}
	_, err := s.Store().Leases().Acquire(context.Background(), registry.Request{Key: name, Holder: h})
	s.must(err)
}

// dump returns the whole contents of the store.
func (s *scene) dump() string {
	s.t.Helper()
	g, err := kvstore.ParseGlob("/**")
	s.must(err)
	var l kvstore.Listing
	err = s.eng.Snapshot(context.Background(), func(tx engine.Tx) (err error) {
		l, err = s.Store().In(tx).List(context.Background(), kvstore.Query{Glob: g, Values: true, Limit: kvstore.MaxList})
		return err
	})
	return listing(l, err)
}

func show(e *kvstore.Entry) string {
	if e == nil {
		return "none"
	}
	if e.Path.Root() == kvstore.Leases {
		return e.Path.String() + " held"
	}
	return fmt.Sprintf("%s v%d %s", e.Path, e.Version, e.Value)
}

func listing(l kvstore.Listing, err error) string {
	if err != nil {
		return err.Error()
	}
	var lines []string
	for _, e := range l.Entries {
		lines = append(lines, show(&e))
	}
	if l.Truncated {
		lines = append(lines, "…")
	}
	return strings.Join(lines, "; ")
}

// paths returns the paths of a listing.
func (s *scene) paths(m layer.Member, glob string) string {
	l, err := s.As(m).List(context.Background(), layer.Listing{Glob: glob})
	if err != nil {
		return err.Error()
	}
	var paths []string
	for _, e := range l.Entries {
		paths = append(paths, e.Path.String())
	}
	return strings.Join(paths, " ")
}

func same[T comparable](t fatal, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Fatalf("%s: got %v, want %v", what, got, want)
	}
}

func mustBe[E error](t fatal, what string, err error) (e E) {
	t.Helper()
	if !errors.As(err, &e) {
		t.Fatalf("%s: got error %v, want a %T", what, err, e)
	}
	return e
}
