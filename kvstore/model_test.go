package kvstore_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/kvstore"
	"github.com/leasehold/leasehold/registry"
)

// A model is the expected contents of a store: a map. It cannot predict the
// number of a version, only that versions rise.
type model struct {
	entries map[string]entry
	highest map[string]uint64 // the greatest version ever seen at a path
}

type entry struct {
	value   string
	version uint64
}

func (m *model) usage() (u kvstore.Usage) {
	for path, e := range m.entries {
		u.Entries++
		u.Bytes += int64(len(path) + len(e.value))
	}
	return u
}

// list describes every entry whose path matches.
func (m *model) list(matches func(string) bool) string {
	var lines []string
	for _, path := range slices.Sorted(maps.Keys(m.entries)) {
		if matches(path) {
			lines = append(lines, fmt.Sprintf("%s v%d %s", path, m.entries[path].version, m.entries[path].value))
		}
	}
	return strings.Join(lines, "; ")
}

// refusal returns the error that a write must return, or nil if it must
// succeed.
func (m *model) refusal(limits kvstore.Limits, path, value string, expected *uint64) error {
	was, there := m.entries[path]
	use := m.usage()
	grows := len(value) - len(was.value)
	if !there {
		grows += len(path)
	}
	switch {
	case len(value) > limits.ValueBytes:
		return &registry.LimitError{}
	case expected != nil && *expected != was.version:
		return &kvstore.VersionError{Version: was.version}
	case !there && use.Entries >= int64(limits.Entries):
		return &registry.LimitError{}
	case grows > 0 && use.Bytes+int64(grows) > limits.Bytes:
		return &registry.LimitError{}
	}
	return nil
}

// TestAnyOperationsAgainstAMap compares the store with the map, including
// crashes.
func TestAnyOperationsAgainstAMap(t *testing.T) {
	limits := kvstore.Limits{ValueBytes: 24, Bytes: 120, Entries: 6}
	paths := rapid.SampledFrom([]string{
		"/ref/a", "/ref/a/b", "/shared/a", "/shared/ab", "/shared/c", "/peer/W1/a", "/peer/W1/b/c", "/peer/W10/a", "/peer/W2/a",
	})
	globs := map[string]func(string) bool{
		"/**":                   func(string) bool { return true },
		"/shared/*":             func(s string) bool { return strings.HasPrefix(s, "/shared/") },
		"/peer/W1/**":           func(s string) bool { return strings.HasPrefix(s, "/peer/W1/") },
		"/{ref,peer/W10}/a":     func(s string) bool { return s == "/ref/a" || s == "/peer/W10/a" },
		"/ref/a/**":             func(s string) bool { return strings.HasPrefix(s, "/ref/a") },
		"/{ref/**,shared/a}":    func(s string) bool { return strings.HasPrefix(s, "/ref/") || s == "/shared/a" },
		"/{shared/a,shared/ab}": func(s string) bool { return s == "/shared/a" || s == "/shared/ab" },
	}
	rapid.Check(t, func(t *rapid.T) {
		r := newRoom(t, limits)
		defer func() { r.close() }()
		m := &model{entries: make(map[string]entry), highest: make(map[string]uint64)}

		write := func(t *rapid.T, expected *uint64) {
			path := paths.Draw(t, "path")
			value := fmt.Sprintf("%q", strings.Repeat("x", rapid.IntRange(0, 26).Draw(t, "length")))
			if expected != nil && rapid.Bool().Draw(t, "right") {
				*expected = m.entries[path].version
			}
			want := m.refusal(limits, path, value, expected)
			w := kvstore.Write{Path: r.path(path), Value: json.RawMessage(value), Expected: expected, By: "W1"}
			var version uint64
			err := r.eng.Update(context.Background(), func(tx engine.Tx) (err error) {
				version, err = r.In(tx).Set(w)
				return err
			})
			sameRefusal(t, err, want)
			if err != nil {
				return
			}
			if version <= m.highest[path] {
				t.Fatalf("%s written at version %d after %d", path, version, m.highest[path])
			}
			m.entries[path] = entry{value, version}
			m.highest[path] = version
		}

		t.Repeat(map[string]func(*rapid.T){
			"set": func(t *rapid.T) { write(t, nil) },
			"cas": func(t *rapid.T) {
				expected := rapid.Uint64Range(0, 5).Draw(t, "expected")
				write(t, &expected)
			},
			"delete": func(t *rapid.T) {
				path := paths.Draw(t, "path")
				same(t, "deleted", r.delete(path), m.entries[path].version)
				delete(m.entries, path)
			},
			"delete if": func(t *rapid.T) {
				path, expected := paths.Draw(t, "path"), rapid.Uint64Range(0, 5).Draw(t, "expected")
				var want error
				if there := m.entries[path].version; there != expected {
					want = &kvstore.VersionError{Version: there}
				}
				_, err := r.Delete(context.Background(), r.path(path), &expected)
				sameRefusal(t, err, want)
				if err == nil {
					delete(m.entries, path)
				}
			},
			"drop peer": func(t *rapid.T) {
				r.update(func(tx engine.Tx) { r.In(tx).DropPeer("W1", 1000) })
				maps.DeleteFunc(m.entries, func(path string, _ entry) bool { return strings.HasPrefix(path, "/peer/W1/") })
			},
			"crash": func(*rapid.T) { r.crash() },
			"": func(t *rapid.T) {
				r.t = t
				r.check()
				same(t, "usage", r.usage(), m.usage())
				for glob, matches := range globs {
					same(t, glob, r.list(glob), m.list(matches))
				}
				for path := range m.highest {
					want := m.list(func(s string) bool { return s == path })
					same(t, path, strings.Replace(show(r.get(path)), "none", "", 1), want)
				}
			},
		})
	})
}

func sameRefusal(t fatal, got, want error) {
	t.Helper()
	var limit *registry.LimitError
	var version *kvstore.VersionError
	switch w := want.(type) {
	case nil:
		if got != nil {
			t.Fatalf("refused: %v", got)
		}
	case *registry.LimitError:
		if !errors.As(got, &limit) {
			t.Fatalf("got %v, want a limit met", got)
		}
	case *kvstore.VersionError:
		if !errors.As(got, &version) || version.Version != w.Version {
			t.Fatalf("got %v, want version %d to be there", got, w.Version)
		}
	}
}
