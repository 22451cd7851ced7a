package kvstore_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/record"
	"github.com/leasehold/leasehold/kvstore"
	"github.com/leasehold/leasehold/registry"
)

func TestVersionsStartAtOneAndRise(t *testing.T) {
	inRoom(t, kvstore.Limits{}, func(t *testing.T, r *room) {
		same(t, "before", show(r.get("/shared/a")), "none")
		same(t, "first", r.set("/shared/a", `1`), 1)
		same(t, "second", r.set("/shared/b", `2`), 2)
		same(t, "third", r.set("/shared/a", `{"x" : [1, 2]}`), 3)
		same(t, "a", show(r.get("/shared/a")), `/shared/a v3 {"x":[1,2]}`)
	})
}

func TestAnEntrySaysWhoWroteItWhen(t *testing.T) {
	inRoom(t, kvstore.Limits{}, func(t *testing.T, r *room) {
		time.Sleep(time.Minute)
		r.set("/ref/a", `null`)
		e := r.get("/ref/a")
		same(t, "by", e.UpdatedBy, "S1→W1")
		if ago := time.Since(e.UpdatedAt); ago < 0 || ago > time.Millisecond {
			t.Errorf("updated %v ago", ago)
		}
	})
}

func TestADeletedPathNeverShowsAnOldVersionAgain(t *testing.T) {
	inRoom(t, kvstore.Limits{}, func(t *testing.T, r *room) {
		old := r.set("/shared/a", `1`)
		same(t, "deleted", r.delete("/shared/a"), old)
		same(t, "deleted again", r.delete("/shared/a"), 0)
		r.crash()
		if again := r.set("/shared/a", `1`); again <= old {
			t.Errorf("written again at version %d after %d", again, old)
		}
		_, err := r.cas("/shared/a", old, `2`)
		mustBe[*kvstore.VersionError](t, err)

		mine := r.set("/peer/W1/x", `1`)
		r.update(func(tx engine.Tx) { r.In(tx).DropPeer("W1", 1000) })
		if again := r.set("/peer/W1/x", `1`); again <= mine {
			t.Errorf("the next W1 writes version %d after %d", again, mine)
		}
	})
}

func TestVersionsOfOneSpaceTellNothingOfAnother(t *testing.T) {
	inRoom(t, kvstore.Limits{}, func(t *testing.T, r *room) {
		for range 5 {
			r.set("/peer/W2/x", `1`)
		}
		for _, path := range []string{"/peer/W1/x", "/peer/W/x", "/peer/W22/x", "/ref/x", "/shared/x"} {
			same(t, path, r.set(path, `1`), 1)
		}
	})
}

func TestCompareAndSetTellsTheVersionThatIsThere(t *testing.T) {
	inRoom(t, kvstore.Limits{}, func(t *testing.T, r *room) {
		_, err := r.cas("/shared/a", 3, `1`)
		same(t, "there", mustBe[*kvstore.VersionError](t, err).Version, 0)
		v, err := r.cas("/shared/a", 0, `1`)
		r.must(err)
		_, err = r.cas("/shared/a", 0, `2`)
		mismatch := mustBe[*kvstore.VersionError](t, err)
		same(t, "there", mismatch.Version, v)
		same(t, "text", mismatch.Error(), "/shared/a is at version 1; read it again before you write")
		_, err = r.cas("/shared/a", v, `3`)
		r.must(err)
		same(t, "a", show(r.get("/shared/a")), "/shared/a v2 3")

		_, err = r.Delete(t.Context(), r.path("/shared/a"), &v)
		same(t, "there", mustBe[*kvstore.VersionError](t, err).Version, 2)
		same(t, "a", show(r.get("/shared/a")), "/shared/a v2 3")
		two := uint64(2)
		gone, err := r.Delete(t.Context(), r.path("/shared/a"), &two)
		r.must(err)
		same(t, "deleted", gone, two)
	})
}

func TestValuesAreJSON(t *testing.T) {
	inRoom(t, kvstore.Limits{}, func(t *testing.T, r *room) {
		for _, bad := range []string{"", " ", "{", "nul", "1 2", `{"a":1,}`, "\"\xff\"", "\xef\xbb\xbf1"} {
			_, err := r.Set(t.Context(), r.path("/shared/a"), json.RawMessage(bad), "W1")
			same(t, bad, mustBe[*registry.ArgumentError](t, err).Argument, "value")
		}
		same(t, "a", show(r.get("/shared/a")), "none")
		for _, good := range []string{"null", `"x"`, "0", "-1e400", "true", "[]", "{}", `{"a":1,"a":2}`, `"\ud800"`, "12345678901234567890"} {
			r.set("/shared/a", "\n "+good+"\t")
			same(t, good, string(r.get("/shared/a").Value), good)
		}
	})
}

func TestEachLimitIsNamedAndChangesNothing(t *testing.T) {
	limits := kvstore.Limits{ValueBytes: 10, Bytes: 45, Entries: 3}
	inRoom(t, limits, func(t *testing.T, r *room) {
		refused := func(path, value, which string, most int64) {
			t.Helper()
			was, use := show(r.get(path)), r.usage()
			_, err := r.Set(t.Context(), r.path(path), json.RawMessage(value), "W1")
			limit := mustBe[*registry.LimitError](t, err)
			if !strings.Contains(limit.Which, which) || limit.Max != most {
				t.Errorf("%s: refused by %v, want %s, %d", path, err, which, most)
			}
			same(t, path, show(r.get(path)), was)
			same(t, "usage", r.usage(), use)
			r.check()
		}
		refused("/shared/a", `"123456789"`, "bytes in a value", 10)
		r.set("/shared/a", ` "12345678" `) // the compact value counts
		r.set("/shared/b", `"12345678"`)   // 38 bytes so far
		refused("/shared/c", `1`, "bytes in the store", 45)
		r.set("/ref/c", `1`) // all 45 bytes
		refused("/ref/c", `12`, "bytes in the store", 45)
		refused("/ref/d", `1`, "entries in the store", 3)
		r.set("/shared/a", `1`)
		refused("/ref/d", `1`, "entries in the store", 3)
		r.delete("/ref/c")
		r.set("/ref/d", `1`)
	})
}

func TestAStoreOverItsLimitCanBeMadeSmaller(t *testing.T) {
	inRoom(t, kvstore.Limits{}, func(t *testing.T, r *room) {
		r.set("/shared/a", `"123456789"`)
		r.set("/shared/b", `"123456789"`)
		r.limits = kvstore.Limits{Entries: 1, Bytes: 5}
		r.crash()
		r.set("/shared/a", `"12345678"`)
		_, err := r.cas("/shared/a", 3, `"123456789"`)
		mustBe[*registry.LimitError](t, err)
		r.delete("/shared/b")
	})
}

func TestDefaultsAreThoseOfTheContract(t *testing.T) {
	inRoom(t, kvstore.Limits{}, func(t *testing.T, r *room) {
		same(t, "limits", r.Limits(), kvstore.Limits{ValueBytes: 1 << 20, Bytes: 64 << 20, Entries: 10_000})
		r.set("/shared/a", `"`+strings.Repeat("x", 1<<20-2)+`"`)
		_, err := r.Set(t.Context(), r.path("/shared/a"), json.RawMessage(`"`+strings.Repeat("x", 1<<20-1)+`"`), "W1")
		same(t, "limit", mustBe[*registry.LimitError](t, err).Max, 1<<20)
	})
}

func TestListIsInOrderAndSaysWhenThereIsMore(t *testing.T) {
	inRoom(t, kvstore.Limits{}, func(t *testing.T, r *room) {
		for _, path := range []string{"/shared/b", "/ref/a", "/shared/a", "/peer/W1/x"} {
			r.set(path, `1`)
		}
		same(t, "all", r.list("/**"), "/peer/W1/x v1 1; /ref/a v1 1; /shared/a v2 1; /shared/b v1 1")
		q := kvstore.Query{Glob: r.glob("/{shared,ref}/*"), Limit: 2}
		same(t, "two", r.listing(q), "/ref/a v1 ; /shared/a v2 ; …")
		q.Limit = 3
		same(t, "three", r.listing(q), "/ref/a v1 ; /shared/a v2 ; /shared/b v1 ")
		q.Limit = 2
		q.Visible = func(p kvstore.Path) bool { return p.Root() != kvstore.Ref }
		same(t, "the hidden does not count", r.listing(q), "/shared/a v2 ; /shared/b v1 ")

		for _, limit := range []int{-1, kvstore.MaxList + 1} {
			_, err := r.List(t.Context(), kvstore.Query{Glob: q.Glob, Limit: limit})
			same(t, "argument", mustBe[*registry.ArgumentError](t, err).Argument, "limit")
		}
	})
}

func TestAListingIsBoundedInBytes(t *testing.T) {
	inRoom(t, kvstore.Limits{}, func(t *testing.T, r *room) {
		big := `"` + strings.Repeat("x", 600<<10) + `"`
		for i := range 3 {
			r.set(fmt.Sprintf("/shared/%d", i), big)
		}
		q := kvstore.Query{Glob: r.glob("/shared/*"), Values: true}
		l, err := r.List(t.Context(), q)
		r.must(err)
		if len(l.Entries) != 1 || !l.Truncated {
			t.Errorf("with values: %d entries, truncated %v", len(l.Entries), l.Truncated)
		}
		q.Values = false
		l, err = r.List(t.Context(), q)
		r.must(err)
		if len(l.Entries) != 3 || l.Truncated {
			t.Errorf("without values: %d entries, truncated %v", len(l.Entries), l.Truncated)
		}
	})
}

func TestLayersAreApart(t *testing.T) {
	inRoom(t, kvstore.Limits{}, func(t *testing.T, r *room) {
		other := desk{kvstore.New(r.eng, r.core.Registry("layer:2"), uuid.New(), kvstore.Limits{}), r.eng}
		r.set("/shared/a", `1`)
		r.set("/shared/a", `2`)
		v, err := other.Set(t.Context(), r.path("/shared/a"), json.RawMessage(`3`), "S2")
		r.must(err)
		same(t, "version", v, 1)
		same(t, "a", show(r.get("/shared/a")), "/shared/a v2 2")
		r.update(func(tx engine.Tx) { r.In(tx).Drop(1000) })
		same(t, "a", show(r.get("/shared/a")), "none")
		e, err := other.Get(t.Context(), r.path("/shared/a"))
		r.must(err)
		same(t, "the other's", show(e), "/shared/a v1 3")
	})
}

func TestDropLeavesNoRow(t *testing.T) {
	inRoom(t, kvstore.Limits{}, func(t *testing.T, r *room) {
		before := r.rows("kv")
		r.set("/shared/a", `1`)
		r.set("/peer/W1/a", `1`)
		r.set("/peer/W10/a", `1`)
		r.update(func(tx engine.Tx) { r.In(tx).DropPeer("W1", 1000) })
		same(t, "the rest", r.list("/**"), "/peer/W10/a v1 1; /shared/a v1 1")
		same(t, "usage", r.usage(), kvstore.Usage{Entries: 2, Bytes: int64(len("/peer/W10/a1/shared/a1"))})
		r.update(func(tx engine.Tx) { r.In(tx).Drop(1000) })
		same(t, "rows", r.rows("kv"), before)
	})
}

// rows counts the engine's rows under prefix.
func (r *room) rows(prefix string) (n int) {
	r.t.Helper()
	r.must(r.eng.View(context.Background(), func(tx engine.Tx) error {
		for range tx.Scan(prefix) {
			n++
		}
		return nil
	}))
	return n
}

func TestARefusedWriteLeavesWhatElseItsTransactionDid(t *testing.T) {
	inRoom(t, kvstore.Limits{}, func(t *testing.T, r *room) {
		r.update(func(tx engine.Tx) {
			txn, none := r.In(tx), uint64(0)
			_, err := txn.Set(kvstore.Write{Path: r.path("/shared/a"), Value: json.RawMessage(`1`), By: "W1"})
			r.must(err)
			_, err = txn.Set(kvstore.Write{Path: r.path("/shared/a"), Value: json.RawMessage(`2`), Expected: &none, By: "W1"})
			mustBe[*kvstore.VersionError](t, err)
			same(t, "seen inside", show(txn.Get(r.path("/shared/a"))), "/shared/a v1 1")
		})
		same(t, "a", show(r.get("/shared/a")), "/shared/a v1 1")
	})
}

func TestWhatWasAcknowledgedSurvivesACrash(t *testing.T) {
	inRoom(t, kvstore.Limits{}, func(t *testing.T, r *room) {
		for i := range 10 {
			r.set("/shared/a", fmt.Sprint(i))
			r.set("/ref/b", fmt.Sprint(i))
			if i%2 == 0 {
				r.delete("/ref/b")
			}
			want, use := r.list("/**"), r.usage()
			r.crash()
			same(t, "after the crash", r.list("/**"), want)
			same(t, "usage after the crash", r.usage(), use)
		}
	})
}

func TestACorruptRowIsNamedWhenTheStateIsOpened(t *testing.T) {
	layer := layerID.String()
	// format 2, not cold, version 1, no instant, by "1x", a value of one byte
	w := record.New(0)
	w.Byte(2)
	w.Flags(false)
	w.Uint(1)
	w.Time(time.Time{})
	w.Text("1x")
	w.Uint(1)
	entry := w.String() + "1"
	for name, row := range map[string]engine.Row{
		"no record":                 {Key: "kv/" + layer + "/shared/a", Value: "garbage"},
		"an empty record":           {Key: "kv/" + layer + "/shared/a"},
		"half a record":             {Key: "kv/" + layer + "/shared/a", Value: entry[:5]},
		"a value that is not JSON":  {Key: "kv/" + layer + "/shared/a", Value: strings.TrimSuffix(entry, "1") + "}"},
		"a version never given":     {Key: "kv/" + layer + "/shared/a", Value: entry[:2] + "\x09" + entry[3:]},
		"no version":                {Key: "kv/" + layer + "/shared/a", Value: entry[:2] + "\x00" + entry[3:]},
		"a space without versions":  {Key: "kv/" + layer + "/ref/a", Value: entry},
		"an entry nobody counted":   {Key: "kv/" + layer + "/shared/b", Value: entry},
		"an alias":                  {Key: "kv/" + layer + "/shared//a", Value: entry},
		"a lease":                   {Key: "kv/" + layer + "/leases/a", Value: entry},
		"no layer":                  {Key: "kv/shared/a", Value: entry},
		"a usage that is not":       {Key: "kvuse/" + layer, Value: strings.Repeat("\x00", 16)},
		"a usage of nothing":        {Key: "kvuse/" + layer, Value: ""},
		"a usage of an empty layer": {Key: "kvuse/" + uuid.Max.String(), Value: strings.Repeat("\x00", 15) + "\x01"},
		"a counter that is not":     {Key: "kvver/" + layer + "/peer/W1", Value: "1"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRoom(t, kvstore.Limits{})
			r.set("/shared/a", `1`)
			r.must(r.eng.Update(t.Context(), func(tx engine.Tx) error { tx.Put(row); return nil }))
			err := kvstore.Recover(t.Context(), r.eng)
			if !errors.Is(err, engine.ErrCorrupt) {
				t.Fatalf("opened with %v, want it refused as corrupt", err)
			}
			want := fmt.Sprintf("%q", row.Key)
			if name == "an entry nobody counted" {
				want = fmt.Sprintf("%q", "kvuse/"+layer)
			}
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%v does not name %s", err, want)
			}
			r.must(r.eng.Close())
		})
	}
}
