package kvstore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/kvstore"
)

// A glob whose wildcards can match in very many ways takes at most as many
// steps as its length times that of the path.
func TestAGlobIsMatchedInBoundedTime(t *testing.T) {
	inRoom(t, kvstore.Limits{}, func(t *testing.T, r *room) {
		r.set("/shared/"+strings.Repeat("a", 480), `1`)
		r.set("/shared/"+strings.Repeat("a/", 240)+"a", `1`)
		for _, glob := range []string{
			"/shared/" + strings.Repeat("*a", 200) + "b",
			"/shared/" + strings.Repeat("**/a/", 90) + "b",
			"/shared/" + strings.Repeat("**/*a*/", 60) + "b",
		} {
			same(t, glob[:20], r.list(glob), "") // otherwise it would take years
		}
	})
}

// A listing that would examine too much returns what it has, and the next one
// continues. Together they return everything once, in order.
func TestAListingGoesOnWhereItEnded(t *testing.T) {
	inRoom(t, kvstore.Limits{Entries: 50_000}, func(t *testing.T, r *room) {
		const n = 45_000
		for from := 0; from < n; from += 1000 {
			r.must(r.eng.Update(t.Context(), func(tx engine.Tx) error {
				for i := from; i < from+1000; i++ {
					value := `1`
					if i%5000 == 0 {
						value = `2`
					}
					if _, err := r.In(tx).Set(kvstore.Write{Path: r.path(fmt.Sprintf("/shared/%05d", i)), Value: []byte(value)}); err != nil {
						return err
					}
				}
				return nil
			}))
		}
		var got []string
		calls, q := 0, kvstore.Query{Glob: r.glob("/shared/{*000,*500}"), Limit: 7}
		for {
			l, err := r.List(t.Context(), q)
			r.must(err)
			calls++
			for _, e := range l.Entries {
				got = append(got, e.Path.String())
			}
			if !l.Truncated {
				break
			}
			if l.Next <= q.After {
				t.Fatalf("after %q comes %q", q.After, l.Next)
			}
			q.After = l.Next
		}
		same(t, "entries", len(got), 90)
		for i, path := range got {
			same(t, "entry", path, fmt.Sprintf("/shared/%05d", i*500))
		}

		q = kvstore.Query{Glob: r.glob("/shared/none*")}
		l, err := r.List(t.Context(), kvstore.Query{Glob: r.glob("/shared/*none")})
		r.must(err)
		if !l.Truncated || len(l.Entries) != 0 || l.Next == "" {
			t.Errorf("a listing of 45 000 entries that match nothing: %d entries, truncated %v, next %q", len(l.Entries), l.Truncated, l.Next)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		gone := errors.New("the caller is gone")
		cancel(gone)
		if _, err := r.List(ctx, q); !errors.Is(err, gone) {
			t.Errorf("a listing for nobody: %v", err)
		}
	})
}

// A cursor reveals nothing that its caller may not see, and hidden entries cost
// the listing nothing.
func TestACursorIsNothingHidden(t *testing.T) {
	inRoom(t, kvstore.Limits{}, func(t *testing.T, r *room) {
		for i := range 300 {
			r.set(fmt.Sprintf("/peer/secret%d/x", i), `1`)
		}
		for i := range 5 {
			r.set(fmt.Sprintf("/shared/%d", i), `1`)
		}
		q := kvstore.Query{Glob: r.glob("/**"), Limit: 2, Visible: func(p kvstore.Path) bool { return p.Root() != kvstore.Peer }}
		for {
			l, err := r.List(t.Context(), q)
			r.must(err)
			if strings.Contains(l.Next, "secret") {
				t.Fatalf("next is %q", l.Next)
			}
			if !l.Truncated {
				return
			}
			q.After = l.Next
		}
	})
}

// A large value is only on disk: the rows in memory stay small. It is read,
// listed, counted, replaced and deleted like any other.
func TestALargeValueIsCold(t *testing.T) {
	inRoom(t, kvstore.Limits{}, func(t *testing.T, r *room) {
		large := `"` + strings.Repeat("x", 100<<10) + `"`
		r.set("/shared/a", large)
		held := 0
		r.must(r.eng.View(t.Context(), func(tx engine.Tx) error {
			for row := range tx.Scan("kv/") {
				held += len(row.Value)
			}
			return nil
		}))
		if held > 200 {
			t.Errorf("a value of 100 KiB keeps %d bytes in memory", held)
		}
		same(t, "value", string(r.get("/shared/a").Value), large)
		same(t, "usage", r.usage(), kvstore.Usage{Entries: 1, Bytes: int64(len("/shared/a") + len(large))})
		l, err := r.List(t.Context(), kvstore.Query{Glob: r.glob("/**"), Values: true})
		r.must(err)
		same(t, "listed", string(l.Entries[0].Value), large)
		r.close()
		r.open()
		same(t, "after a restart", string(r.get("/shared/a").Value), large)
		r.set("/shared/a", `1`)
		same(t, "small again", show(r.get("/shared/a")), "/shared/a v2 1")
		same(t, "cold rows", r.rows(engine.Cold+"kv"), 0)
		r.set("/shared/a", large)
		_, err = r.Delete(t.Context(), r.path("/shared/a"), nil)
		r.must(err)
		same(t, "cold rows", r.rows(engine.Cold+"kv"), 0)
		r.set("/peer/W1/a", large)
		r.update(func(tx engine.Tx) { r.In(tx).DropPeer("W1", 1000) })
		r.set("/shared/b", large)
		r.update(func(tx engine.Tx) { r.In(tx).Drop(1000) })
		same(t, "cold rows", r.rows(engine.Cold+"kv"), 0)
	})
}
