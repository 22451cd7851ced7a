package enginetest

import (
	"errors"
	"strings"
	"time"

	"github.com/leasehold/leasehold/engine"
)

var limits = []test{
	{"TheLargestRowFits", theLargestRowFits},
	{"ARowTooLargeFailsItsTransaction", aRowTooLarge},
	{"ATransactionMayBeLarge", aTransactionMayBeLarge},
	{"ALongTransactionIsSpent", aLongTransactionIsSpent},
}

func theLargestRowFits(w *world) {
	for _, first := range []string{"k", engine.Cold} {
		largest := row(first+strings.Repeat("k", engine.MaxKey-1), strings.Repeat("v", engine.MaxValue))
		w.put(largest)
		w.reopen()
		w.view(func(tx engine.Tx) {
			if r, ok := tx.Get(largest.Key); !ok || !same(r, largest) {
				w.Errorf("it has come back with %d bytes of key and %d of value", len(r.Key), len(r.Value))
			}
		})
	}
}

func aRowTooLarge(w *world) {
	rows := before(w)
	for name, c := range map[string]struct {
		row  engine.Row
		want error
	}{
		"key":   {row(strings.Repeat("k", engine.MaxKey+1), ""), engine.ErrTooLarge},
		"value": {row("k", strings.Repeat("v", engine.MaxValue+1)), engine.ErrTooLarge},
		"empty": {row("", "v"), engine.ErrNoKey},

		"cold key":   {row("~"+strings.Repeat("k", engine.MaxKey), ""), engine.ErrTooLarge},
		"cold value": {row("~k", strings.Repeat("v", engine.MaxValue+1)), engine.ErrTooLarge},
	} {
		for _, write := range []func(tx engine.Tx, r engine.Row){engine.Tx.Put, engine.Tx.Touch} {
			err := w.Update(w.Context(), func(tx engine.Tx) error {
				turmoil(tx)
				write(tx, c.row)
				tx.Put(row("after", ""))
				return nil
			})
			if !errors.Is(err, c.want) {
				w.Errorf("%s: %v", name, err)
			}
		}
	}
	w.view(func(tx engine.Tx) { // looking for an impossible key is no fault
		for _, key := range []string{"", strings.Repeat("k", engine.MaxKey+1)} {
			if _, ok := tx.Get(key); ok {
				w.Errorf("there is a row with a key of %d bytes", len(key))
			}
		}
	})
	w.want(rows...)
}

func aTransactionMayBeLarge(w *world) {
	value := strings.Repeat("v", 1<<20)
	var rows []engine.Row
	for i := range 20 {
		rows = append(rows, row(numbered(i), value))
	}
	w.put(rows...)
	w.reopen()
	w.view(func(tx engine.Tx) {
		n := 0
		for r := range tx.Scan("") {
			if r.Value != value {
				w.Errorf("%q has come back with %d bytes", r.Key, len(r.Value))
			}
			n++
		}
		count(w, "large", n, len(rows))
	})
}

func aLongTransactionIsSpent(w *world) {
	w.view(func(tx engine.Tx) {
		if w.bubble && tx.Spent() {
			w.Error("spent before it has begun")
		}
		time.Sleep(10 * time.Millisecond)
		if !tx.Spent() {
			w.Error("not spent after 10 ms")
		}
	})
}
