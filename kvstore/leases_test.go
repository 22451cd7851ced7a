package kvstore_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/kvstore"
	"github.com/leasehold/leasehold/registry"
)

func TestALeaseReadsAsAnEntryWithoutItsSecret(t *testing.T) {
	inRoom(t, kvstore.Limits{}, func(t *testing.T, r *room) {
		same(t, "before", show(r.get("/leases/out")), "none")
		w1 := registry.Holder{Session: uuid.New(), Actor: uuid.New(), Path: "S1→W1", Party: "first"}
		w2 := registry.Holder{Session: uuid.New(), Actor: uuid.New(), Path: "S1→W2", Party: "second"}
		g, err := r.Leases().Acquire(t.Context(), registry.Request{Key: "out", Holder: w1, TTL: 30 * time.Second, KeepAlive: true})
		r.must(err)
		_, err = r.Leases().Acquire(t.Context(), registry.Request{Key: "out.log", Holder: w1, TTL: 30 * time.Second})
		r.must(err)
		go func() {
			_, _ = r.Leases().Acquire(t.Context(), registry.Request{Key: "out", Holder: w2, Wait: 20 * time.Second})
		}()
		synctest.Wait()
		time.Sleep(2 * time.Second)

		e := r.get("/leases/out")
		want := fmt.Sprintf(`/leases/out v%d {"holder":{"actor_id":%q,"path":"S1→W1","as":"first"},"token":%d,"mode":"exclusive","keep_alive":true,"expires_in_ms":28000,"waiters":[{"actor_id":%q,"path":"S1→W2","as":"second","waiting_ms":2000}]}`,
			g.Token, w1.Actor, g.Token, w2.Actor)
		same(t, "entry", show(e), want)
		same(t, "by", e.UpdatedBy, "S1→W1")
		if !e.UpdatedAt.Equal(g.AcquiredAt) {
			t.Errorf("updated at %v, acquired at %v", e.UpdatedAt, g.AcquiredAt)
		}

		r.set("/shared/a", `1`)
		q := kvstore.Query{Glob: r.glob("/**")}
		list := r.listing(q)
		if !strings.HasPrefix(list, "/leases/out v") || !strings.HasSuffix(list, "/shared/a v1 ") || strings.Count(list, ";") != 2 {
			t.Errorf("listed: %s", list)
		}
		q.Limit = 1
		same(t, "cut short", r.listing(q), fmt.Sprintf("/leases/out v%d ; …", g.Token))
		for glob, want := range map[string]int{"/leases/**": 2, "/leases/out": 1, "/leases/out.*": 1, "/l*/*": 2, "/shared/*": 1, "/ref/*": 0} {
			q := kvstore.Query{Glob: r.glob(glob)}
			l, err := r.List(t.Context(), q)
			r.must(err)
			same(t, glob, len(l.Entries), want)
		}
		same(t, "usage counts no lease", r.usage().Entries, 1)

		for _, key := range []string{"out.bak", "owl", "zoo"} {
			_, err := r.Leases().Acquire(t.Context(), registry.Request{Key: key, Holder: w1, TTL: 30 * time.Second})
			r.must(err)
		}
		var pages []string
		for q := (kvstore.Query{Glob: r.glob("/leases/{out*,z*}"), Limit: 1}); len(pages) < 9; {
			l, err := r.List(t.Context(), q)
			r.must(err)
			pages = append(pages, l.Entries[0].Path.String())
			if q.After = l.Next; !l.Truncated {
				break
			}
		}
		same(t, "pages", fmt.Sprint(pages), "[/leases/out /leases/out.bak /leases/out.log /leases/zoo]")
		time.Sleep(30 * time.Second)
	})
}

func TestLeasesAreWrittenByLeasesAlone(t *testing.T) {
	inRoom(t, kvstore.Limits{}, func(t *testing.T, r *room) {
		_, set := r.Set(t.Context(), r.path("/leases/a"), json.RawMessage(`1`), "W1")
		_, cas := r.CAS(t.Context(), r.path("/leases/a"), 0, json.RawMessage(`1`), "W1")
		_, del := r.Delete(t.Context(), r.path("/leases/a"), nil)
		for _, err := range []error{set, cas, del} {
			if e := mustBe[*registry.ArgumentError](t, err); !strings.Contains(e.Error(), "lease_acquire") {
				t.Errorf("the refusal %q does not say how", e)
			}
		}
	})
}

func TestDropTakesTheLeasesAlong(t *testing.T) {
	inRoom(t, kvstore.Limits{}, func(t *testing.T, r *room) {
		h := registry.Holder{Session: uuid.New(), Actor: uuid.New(), Path: "W1"}
		_, err := r.Leases().Acquire(t.Context(), registry.Request{Key: "a", Holder: h})
		r.must(err)
		r.update(func(tx engine.Tx) { r.In(tx).Drop(1000) })
		same(t, "after", show(r.get("/leases/a")), "none")
	})
}
