package enginetest

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
)

var cold = []test{
	{"AColdRowComesBackAsItWasWritten", aColdRowComesBack},
	{"AColdRowHasNoOwnerAndNoDueTime", aColdRowHasNoOwner},
	{"ATouchOfAColdRowIsAPut", aTouchOfAColdRow},
	{"AnErrorTakesColdWritesBack", anErrorTakesColdWritesBack},
	{"AColdScanBearsAnyChangeByItsBody", aColdScanBearsChange},
	{"AScanBeginsWhereItIsTold", aScanBeginsWhereItIsTold},
	{"AColdChangeWakesItsWatchers", aColdChangeWakes},
	{"ColdAndHotChangeTogether", coldAndHotChangeTogether},
	{"GetAnswersOutsideATransaction", getAnswersOutside},
}

// coldNumbered is like numbered, for cold rows in the same order.
func coldNumbered(i int) string { return engine.Cold + numbered(i) }

func aColdRowComesBack(w *world) {
	rows := []engine.Row{
		row("a", "hot"),
		row("~", "the shortest"),
		row("~\x00", "\x00"),
		row("~a", ""),
		row("~a\xff", "v"),
		row("~a\xff\xff", strings.Repeat("v", 10_000)),
		row("~b", "v"),
		row("~\xff\xff", "v"),
		row("\x7f", "hot"), // the next byte after the cold ones
	}
	slices.SortFunc(rows, byKey)
	w.put(rows...)
	w.want(rows...)
	w.reopen()
	w.want(rows...)
	w.update(func(tx engine.Tx) { tx.Delete("~"); tx.Delete("~none"); tx.Put(row("~b", "")) })
	rows = slices.DeleteFunc(rows, func(r engine.Row) bool { return r.Key == "~" })
	rows[slices.IndexFunc(rows, func(r engine.Row) bool { return r.Key == "~b" })].Value = ""
	w.want(rows...)
	w.reopen()
	w.want(rows...)
}

func aColdRowHasNoOwner(w *world) {
	w.put(row("~a", "1"))
	for name, r := range map[string]engine.Row{
		"owner": {Key: "~a", Owner: ann},
		"due":   {Key: "~a", Due: time.Now()},
		"both":  {Key: "~", Owner: ann, Due: time.Now()},
	} {
		for _, write := range []func(tx engine.Tx, r engine.Row){engine.Tx.Put, engine.Tx.Touch} {
			err := w.Update(w.Context(), func(tx engine.Tx) error {
				tx.Put(row("~b", ""))
				write(tx, r)
				return nil
			})
			if !errors.Is(err, engine.ErrCold) {
				w.Errorf("%s: %v", name, err)
			}
		}
	}
	w.view(func(tx engine.Tx) {
		for range tx.Owned(uuid.Nil, "") {
			w.Error("nobody owns a row")
		}
		for range tx.Due() {
			w.Error("a row is due")
		}
	})
	w.want(row("~a", "1"))
}

func aTouchOfAColdRow(w *world) {
	w.update(func(tx engine.Tx) {
		tx.Put(row("~a", "put"))
		tx.Touch(row("~a", "touched"))
		tx.Touch(row("~b", "touched"))
	})
	want := []engine.Row{row("~a", "touched"), row("~b", "touched")}
	w.want(want...)
	w.reopen()
	w.want(want...)
	if w.canCrash() {
		w.crash()
		w.want(want...)
	}
}

func anErrorTakesColdWritesBack(w *world) {
	rows := []engine.Row{row("~a", "1"), row("~b", "2"), row("~c", "3")}
	for _, settled := range []bool{false, true} {
		w.put(rows...)
		if settled {
			w.reopen()
		}
		turmoil := func(tx engine.Tx) {
			tx.Delete("~a")
			tx.Put(row("~a", "anew"))
			tx.Put(row("~b", "x"))
			tx.Delete("~b")
			tx.Touch(row("~c", "x"))
			tx.Put(row("~d", "new"))
			tx.Put(row("~e", "new"))
			tx.Delete("~e")
			compare(w, tx, []engine.Row{row("~a", "anew"), row("~c", "x"), row("~d", "new")})
		}
		err := w.Update(w.Context(), func(tx engine.Tx) error { turmoil(tx); return errRefused })
		if !errors.Is(err, errRefused) {
			w.Errorf("update: %v", err)
		}
		w.want(rows...)
		err = w.Update(w.Context(), func(tx engine.Tx) error { turmoil(tx); tx.Put(row("", "")); return nil })
		if !errors.Is(err, engine.ErrNoKey) {
			w.Errorf("update: %v", err)
		}
		w.want(rows...)
		func() {
			defer func() { _ = recover() }()
			_ = w.Update(w.Context(), func(tx engine.Tx) error {
				for range tx.Scan("~") {
					turmoil(tx)
					panic("within a walk")
				}
				return nil
			})
		}()
		w.want(rows...)
		for name, write := range map[string]func(engine.Tx){
			"put":    func(tx engine.Tx) { tx.Put(row("~a", "x")) },
			"touch":  func(tx engine.Tx) { tx.Touch(row("~z", "x")) },
			"delete": func(tx engine.Tx) { tx.Delete("~a") },
		} {
			err := w.View(w.Context(), func(tx engine.Tx) error { write(tx); return nil })
			if !errors.Is(err, engine.ErrReadOnly) {
				w.Errorf("%s: %v", name, err)
			}
		}
		w.reopen()
		w.want(rows...)
	}
}

// aColdScanBearsChange runs each body over rows some of which are already
// stored and some of which have just been written.
func aColdScanBearsChange(w *world) {
	w.scanBearsChange(engine.Cold, func(body func(tx engine.Tx)) {
		w.Helper()
		w.update(func(tx engine.Tx) {
			for r := range tx.Scan("~") {
				tx.Delete(r.Key)
			}
			for i := range many {
				if i%3 != 0 {
					tx.Put(row(coldNumbered(i), "old"))
				}
			}
		})
		w.reopen()
		w.update(func(tx engine.Tx) {
			for i := range many {
				if i%3 != 1 {
					tx.Put(row(coldNumbered(i), "old"))
				}
			}
			body(tx)
		})
		w.check()
	})
}

func aScanBeginsWhereItIsTold(w *world) {
	for _, cold := range []string{"", engine.Cold} {
		var want []string
		for i := range 10 {
			key := fmt.Sprintf("%sk%d", cold, i)
			want = append(want, key)
			w.put(row(key, ""), row(cold+"j", ""), row(cold+"l", ""))
		}
		for from, first := range map[string]int{
			"": 0, cold + "j": 0, cold + "k": 0, cold + "k0": 0, cold + "k0\x00": 1, cold + "k5": 5, cold + "k9": 9,
			cold + "k9\x00": 10, cold + "l": 10, "\xff": 10,
		} {
			w.view(func(tx engine.Tx) {
				got := keys(slices.Collect(tx.ScanFrom(cold+"k", from)))
				if !slices.Equal(got, want[first:]) {
					w.Errorf("from %q: %q", from, got)
				}
				r, ok := tx.First(cold+"k", from)
				if ok != (first < len(want)) || ok && r.Key != want[first] {
					w.Errorf("from %q: the first is %q, %v", from, r.Key, ok)
				}
				for r := range tx.ScanFrom(cold+"k", from) { // and it may be left
					if r.Key != want[first] {
						w.Errorf("from %q: first %q", from, r.Key)
					}
					break
				}
			})
		}
	}
}

func aColdChangeWakes(w *world) {
	one, every := w.Watch("~k"), w.Watch("")
	defer one.Stop()
	defer every.Stop()
	for _, change := range []func(tx engine.Tx){
		func(tx engine.Tx) { tx.Put(row("~k", "1")) },
		func(tx engine.Tx) { tx.Touch(row("~k", "2")) },
		func(tx engine.Tx) { tx.Delete("~k") },
		func(tx engine.Tx) { tx.Put(row("j", "")); tx.Put(row("~k", "")) },
	} {
		w.update(change)
		<-one.C
		<-every.C
	}
}

// coldAndHotChangeTogether moves a number from row to row while other
// transactions read: the number is always in exactly one place. Transactions
// that fail leave no trace.
func coldAndHotChangeTogether(w *world) {
	const moves, movers = 50, 4
	w.put(row("~at/0", "0"))
	places := func(tx engine.Tx) []engine.Row {
		return slices.Concat(slices.Collect(tx.Scan("at/")), slices.Collect(tx.Scan("~at/")))
	}
	var wg sync.WaitGroup
	for range movers {
		wg.Go(func() {
			for range moves {
				w.update(func(tx engine.Tx) {
					now := places(tx)
					if len(now) != 1 {
						w.Errorf("it is at %v", now)
						return
					}
					n, _ := strconv.Atoi(now[0].Value)
					n++
					tx.Delete(now[0].Key)
					tx.Put(row([]string{"~at/", "at/", "~at/"}[n%3]+strconv.Itoa(n%7), strconv.Itoa(n)))
				})
			}
		})
		wg.Go(func() {
			for n := range moves {
				err := w.Update(w.Context(), func(tx engine.Tx) error {
					for _, r := range places(tx) {
						tx.Delete(r.Key)
					}
					for i := range 7 {
						tx.Put(row("~at/"+strconv.Itoa(i), "undone"))
					}
					tx.Delete("~at/" + strconv.Itoa(n%7))
					return errRefused
				})
				if !errors.Is(err, errRefused) {
					w.Errorf("what fails answers %v", err)
				}
			}
		})
		wg.Go(func() {
			for range moves {
				w.view(func(tx engine.Tx) {
					if now := places(tx); len(now) != 1 {
						w.Errorf("it is seen at %v", now)
					}
				})
			}
		})
	}
	wg.Wait()
	w.view(func(tx engine.Tx) {
		if now := places(tx); len(now) != 1 || now[0].Value != strconv.Itoa(moves*movers) {
			w.Errorf("it has come to %v", now)
		}
	})
}

func getAnswersOutside(w *world) {
	hot := engine.Row{Key: "a", Value: "1", Owner: ann, Due: time.Now().Add(time.Hour)}
	rows := []engine.Row{hot, row("~a", "2"), row("~b", strings.Repeat("payload", 100_000))}
	w.put(rows...)
	for range 2 {
		for _, r := range rows {
			if got, ok, err := w.Get(w.Context(), r.Key); err != nil || !ok || !same(got, r) {
				w.Errorf("get %q: %q with %d bytes, %t, %v", r.Key, got.Key, len(got.Value), ok, err)
			}
		}
		for _, key := range []string{"b", "~", "~c", "", "~" + strings.Repeat("k", engine.MaxKey)} {
			if got, ok, err := w.Get(w.Context(), key); err != nil || ok || !same(got, engine.Row{}) {
				w.Errorf("get %q: %v, %t, %v", key, got, ok, err)
			}
		}
		w.reopen()
	}
	w.update(func(tx engine.Tx) { tx.Delete("a"); tx.Delete("~a") })
	for _, key := range []string{"a", "~a"} {
		if got, ok, err := w.Get(w.Context(), key); err != nil || ok {
			w.Errorf("get %q: %v, %t, %v", key, got, ok, err)
		}
	}
	w.updateAs(true, func(tx engine.Tx) { tx.Put(hot) }) // which need not be on the disk yet
	w.updateAs(true, func(tx engine.Tx) { tx.Delete("~b") })
	if got, ok, err := w.Get(engine.Peek(w.Context()), "~b"); err != nil || ok {
		w.Errorf("a local commit has deleted ~b, and it is still read: %q, %v", got.Key, err)
	}
	if _, _, err := w.Get(cancelled(w, errRefused), "~b"); !errors.Is(err, errRefused) {
		w.Errorf("get: %v", err)
	}
	if err := w.Close(); err != nil {
		w.Fatalf("close: %v", err)
	}
	for _, key := range []string{"a", "~b"} {
		if _, _, err := w.Get(w.Context(), key); !errors.Is(err, engine.ErrClosed) {
			w.Errorf("get %q: %v", key, err)
		}
	}
}
