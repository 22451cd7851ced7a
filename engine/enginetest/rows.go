package enginetest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
)

var rows = []test{
	{"ARowComesBackAsItWasWritten", aRowComesBack},
	{"KeysAndValuesAreBinary", keysAndValuesAreBinary},
	{"AScanYieldsThePrefixInOrder", aScanYieldsThePrefix},
	{"ARowIsOwnedByItsOwnerAlone", aRowIsOwnedByItsOwnerAlone},
	{"DueIsStrictAndOrdered", dueIsStrictAndOrdered},
	{"DeletingAMissingRowIsNoFault", deletingAMissingRow},
	{"AStringGivenIsNotAliased", aStringIsNotAliased},
}

func aRowComesBack(w *world) {
	due := time.Now().Add(time.Hour).Add(7 * time.Nanosecond)
	rows := []engine.Row{
		{Key: "all", Value: "v", Owner: ann, Due: due},
		{Key: "due", Due: due},
		{Key: "late", Due: time.Date(2200, 1, 2, 3, 4, 5, 6000, time.UTC)},
		{Key: "long ago", Due: time.Unix(0, 0)},
		{Key: "none"},
		{Key: "owner", Owner: bob},
	}
	w.put(rows...)
	w.want(rows...)
	w.reopen()
	w.want(rows...)
	w.view(func(tx engine.Tx) {
		if r, _ := tx.Get("none"); !r.Due.IsZero() {
			w.Errorf("a row due never is due at %v", r.Due)
		}
	})
	for i := range rows { // remove all attributes, or add them
		rows[i] = engine.Row{Key: rows[i].Key, Value: rows[i].Value + "'"}
	}
	rows[4].Owner, rows[4].Due = ann, due
	w.put(rows...)
	w.want(rows...)
	w.reopen()
	w.want(rows...)
}

func keysAndValuesAreBinary(w *world) {
	var rows []engine.Row
	for _, key := range []string{"\x00", "\x00\x00", "\x00\xff", "a", "a\x00", "a\x00b", "a\xff", "\xc3\x28", "\xff", "\xff\x00", "\xff\xff", "\xff\xff\xff"} {
		rows = append(rows, row(key, "value of "+key+"\x00\xff"))
	}
	slices.SortFunc(rows, byKey)
	w.put(rows...)
	w.want(rows...)
	w.reopen()
	w.want(rows...)
	for _, prefix := range []string{"\x00", "a", "a\x00", "\xff", "\xff\xff", "\xff\xff\xff\xff", "b"} {
		var want []string
		for _, r := range rows {
			if strings.HasPrefix(r.Key, prefix) {
				want = append(want, r.Key)
			}
		}
		w.view(func(tx engine.Tx) {
			if got := keys(slices.Collect(tx.Scan(prefix))); !slices.Equal(got, want) {
				w.Errorf("scan %q:\n got %q\nwant %q", prefix, got, want)
			}
		})
	}
}

func aScanYieldsThePrefix(w *world) {
	w.update(func(tx engine.Tx) {
		for i := range 300 {
			tx.Put(row(fmt.Sprintf("%c/%03d", 'a'+i%3, i), ""))
		}
	})
	w.view(func(tx engine.Tx) {
		got := keys(slices.Collect(tx.Scan("b/")))
		if len(got) != 100 || !slices.IsSorted(got) || got[0] != "b/001" || got[99] != "b/298" {
			w.Errorf("scan: %q", got)
		}
		for range tx.Scan("b/") { // leaving a loop early does no harm
			break
		}
		seq := tx.Scan("b/") // a sequence starts again each time
		if a, b := len(slices.Collect(seq)), len(slices.Collect(seq)); a != 100 || b != 100 {
			w.Errorf("the same scan yields %d rows, then %d", a, b)
		}
	})
}

func aRowIsOwnedByItsOwnerAlone(w *world) {
	w.put(engine.Row{Key: "a", Owner: ann}, engine.Row{Key: "b", Owner: bob}, row("c", ""))
	within := func(id uuid.UUID, prefix string) (got []string) {
		w.view(func(tx engine.Tx) { got = keys(slices.Collect(tx.Owned(id, prefix))) })
		return got
	}
	owned := func(id uuid.UUID) []string { return within(id, "") }
	if got := owned(uuid.Nil); len(got) != 0 {
		w.Errorf("nobody owns %q", got)
	}
	w.put(engine.Row{Key: "a", Owner: bob})
	if a, b := owned(ann), owned(bob); len(a) != 0 || !slices.Equal(b, []string{"a", "b"}) {
		w.Errorf("after a was given away, ann owns %q and bob %q", a, b)
	}
	w.put(engine.Row{Key: "a/2", Owner: bob}, engine.Row{Key: "a/1", Owner: bob}, engine.Row{Key: "a/3", Owner: ann})
	if got := within(bob, "a/"); !slices.Equal(got, []string{"a/1", "a/2"}) {
		w.Errorf("below a/ bob owns %q", got)
	}
	w.update(func(tx engine.Tx) { tx.Delete("a/1"); tx.Delete("a/2"); tx.Delete("a/3") })
	w.update(func(tx engine.Tx) { tx.Delete("b") })
	if got := owned(bob); !slices.Equal(got, []string{"a"}) {
		w.Errorf("after b was deleted bob owns %q", got)
	}
}

func dueIsStrictAndOrdered(w *world) {
	w.update(func(tx engine.Tx) {
		now := tx.Now()
		tx.Put(engine.Row{Key: "at", Due: now})
		tx.Put(engine.Row{Key: "before", Due: now.Add(-time.Microsecond)})
		tx.Put(engine.Row{Key: "after", Due: now.Add(time.Hour)})
		tx.Put(engine.Row{Key: "long before", Due: now.Add(-time.Hour)})
		tx.Put(engine.Row{Key: "also before", Due: now.Add(-time.Microsecond)})
		tx.Put(row("never", ""))
		got := keys(slices.Collect(tx.Due()))
		if len(got) == 3 {
			slices.Sort(got[1:]) // the order of equal times is not defined
		}
		if !slices.Equal(got, []string{"long before", "also before", "before"}) {
			w.Errorf("due: %q", got)
		}
	})
}

func deletingAMissingRow(w *world) {
	w.update(func(tx engine.Tx) { tx.Delete("missing"); tx.Delete("") })
	w.put(row("a", ""))
	w.update(func(tx engine.Tx) { tx.Delete("a"); tx.Delete("a") })
	w.want()
}

// aStringIsNotAliased: rules also build keys in buffers, and a string that
// shares a buffer changes with it.
func aStringIsNotAliased(w *world) {
	long := strings.Repeat("a long request ", 1000)
	w.put(row(long[2:6], long[7:14]))
	w.want(row("long", "request"))
}
