package enginetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/leasehold/leasehold/engine"
)

var iteration = []test{
	{"AScanBearsAnyChangeByItsBody", aScanBearsChange},
	{"OwnedBearsAnyChangeByItsBody", ownedBearsChange},
	{"DueBearsAnyChangeByItsBody", dueBearsChange},
	{"IteratorsNest", iteratorsNest},
}

const many = 200

func numbered(i int) string { return fmt.Sprintf("k%03d", i) }

// eachMany runs body in a transaction over many new rows. All of them are owned
// by ann and due, the first one earliest.
func (w *world) eachMany(body func(tx engine.Tx)) {
	w.Helper()
	w.update(func(tx engine.Tx) {
		for r := range tx.Scan("") {
			tx.Delete(r.Key)
		}
		for i := range many {
			tx.Put(engine.Row{Key: numbered(i), Value: "old", Owner: ann, Due: tx.Now().Add(time.Duration(i-many) * time.Second)})
		}
	})
	w.update(body)
	w.check()
}

func count(w *world, what string, got, want int) {
	w.Helper()
	if got != want {
		w.Errorf("%s: %d rows, not %d", what, got, want)
	}
}

func aScanBearsChange(w *world) { w.scanBearsChange("", w.eachMany) }

// scanBearsChange scans rows whose keys are numbered behind a prefix. eachMany runs
// a body in a transaction over many of them.
func (w *world) scanBearsChange(prefix string, eachMany func(body func(tx engine.Tx))) {
	key := func(i int) string { return prefix + numbered(i) }
	eachMany(func(tx engine.Tx) {
		n := 0
		for r := range tx.Scan(prefix + "k") {
			tx.Delete(r.Key)
			n++
		}
		count(w, "deleting each", n, many)
		count(w, "left", len(slices.Collect(tx.Scan(prefix))), 0)
	})
	eachMany(func(tx engine.Tx) {
		n := 0
		for range tx.Scan(prefix + "k") {
			tx.Delete(key(2*n + 1)) // the next
			n++
		}
		count(w, "deleting every other", n, many/2)
	})
	eachMany(func(tx engine.Tx) {
		n := 0
		for r := range tx.Scan(prefix + "k") {
			if n++; n == 1 {
				for i := 1; i < many; i++ {
					tx.Put(row(key(i), "new"))
				}
			} else if r.Value != "new" {
				w.Errorf("%q is seen as it was", r.Key)
			}
		}
		count(w, "changing those ahead", n, many)
	})
	eachMany(func(tx engine.Tx) {
		n := 0
		for r := range tx.Scan(prefix + "k") {
			tx.Put(row(prefix+"j"+r.Key, "")) // behind
			if len(r.Key) == len(key(0)) {
				tx.Put(row(r.Key+"+", "")) // just ahead
			}
			n++
		}
		count(w, "adding one ahead of each", n, 2*many)
	})
	eachMany(func(tx engine.Tx) {
		n := 0
		for r := range tx.Scan(prefix + "k") {
			tx.Delete(r.Key)
			tx.Touch(r)
			n++
		}
		count(w, "replacing each", n, many)
	})
	eachMany(func(tx engine.Tx) {
		n := 0
		for r := range tx.Scan(prefix + "k") {
			n++
			for s := range tx.Scan(r.Key) {
				n++
				tx.Delete(s.Key)
			}
			for range tx.ScanFrom(prefix+"k", r.Key) {
				n++
			}
		}
		count(w, "nested", n, 2*many+many*(many-1)/2)
	})
}

func ownedBearsChange(w *world) {
	w.eachMany(func(tx engine.Tx) {
		n := 0
		for r := range tx.Owned(ann, "") {
			tx.Delete(r.Key)
			n++
		}
		count(w, "deleting each", n, many)
	})
	w.eachMany(func(tx engine.Tx) {
		n := 0
		for r := range tx.Owned(ann, "") {
			r.Owner = bob
			tx.Touch(r)
			n++
		}
		count(w, "giving each away", n, many)
		count(w, "given", len(slices.Collect(tx.Owned(bob, ""))), many)
	})
	w.eachMany(func(tx engine.Tx) {
		n := 0
		for r := range tx.Owned(ann, "") {
			r.Value = "new"
			tx.Put(r)
			n++
		}
		count(w, "writing each", n, many)
	})
	w.eachMany(func(tx engine.Tx) {
		n := 0
		for r := range tx.Owned(ann, "") {
			for i := range many {
				if key := numbered(i); key != r.Key {
					tx.Delete(key)
				}
			}
			n++
		}
		count(w, "deleting all others", n, 1)
	})
	w.eachMany(func(tx engine.Tx) {
		seen := make(map[string]int)
		for r := range tx.Owned(ann, "") {
			if seen[r.Key]++; len(r.Key) == 4 {
				tx.Put(engine.Row{Key: r.Key + "+", Owner: ann})
			}
		}
		for i := range many { // each of the original rows exactly once; new ones may or may not be yielded
			count(w, "adding one to each: "+numbered(i), seen[numbered(i)], 1)
		}
	})
}

func dueBearsChange(w *world) {
	w.eachMany(func(tx engine.Tx) {
		n := 0
		for r := range tx.Due() {
			tx.Delete(r.Key)
			n++
		}
		count(w, "deleting each", n, many)
	})
	w.eachMany(func(tx engine.Tx) {
		n := 0
		for r := range tx.Due() {
			r.Due = tx.Now().Add(time.Hour)
			tx.Touch(r)
			n++
		}
		count(w, "putting each off", n, many)
		count(w, "due", len(slices.Collect(tx.Due())), 0)
	})
	w.eachMany(func(tx engine.Tx) {
		n := 0
		for r := range tx.Due() {
			r.Value = "new"
			tx.Touch(r)
			n++
		}
		count(w, "leaving each due", n, many)
	})
	w.eachMany(func(tx engine.Tx) {
		n := 0
		for r := range tx.Due() {
			if n%2 == 0 {
				tx.Delete(r.Key)
			}
			n++
		}
		count(w, "deleting every other one met", n, many)
		count(w, "due", len(slices.Collect(tx.Due())), many/2)
	})
	w.eachMany(func(tx engine.Tx) {
		n := 0
		for range tx.Due() {
			tx.Delete(numbered(2*n + 1)) // the next
			n++
		}
		count(w, "deleting those ahead", n, many/2)
	})
	w.eachMany(func(tx engine.Tx) {
		n := 0
		for r := range tx.Due() {
			if n++; n == many/4 {
				break
			}
			tx.Delete(r.Key)
		}
		count(w, "due after leaving early", len(slices.Collect(tx.Due())), many-many/4+1)
	})
}

func iteratorsNest(w *world) {
	w.eachMany(func(tx engine.Tx) {
		n := 0
		for r := range tx.Due() {
			n++
			for range tx.Due() {
				n++
			}
			for o := range tx.Owned(ann, "") {
				if n++; o.Key != r.Key {
					continue
				}
				for s := range tx.Scan(o.Key) {
					n++
					tx.Delete(s.Key)
				}
			}
		}
		// The k-th of m rows finds m-k+1 due and as many owned rows; each is
		// yielded once directly and once by a scan.
		count(w, "nested", n, many+2*many*(many+1)/2+many)
	})
	w.want()
}
