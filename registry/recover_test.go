package registry_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/registry"
)

// TestACorruptRecordIsNamed damages every kind of record that outlives a
// restart, in turn.
func TestACorruptRecordIsNamed(t *testing.T) {
	for _, prefix := range []string{"lease/", "lost/", "wait/", "!mark/token"} {
		for name, damage := range map[string]func(value string) string{
			"cut":            func(v string) string { return v[:len(v)-1] },
			"grown":          func(v string) string { return v + "x" },
			"empty":          func(string) string { return "" },
			"another format": func(v string) string { return "\x7f" + v[1:] },
		} {
			if prefix == "!mark/token" && name == "another format" {
				continue // any sixteen bytes are a token
			}
			t.Run(prefix+" "+name, func(t *testing.T) {
				inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
					w := h.party("W1")
					w.acquire(registry.Request{Key: "x", RequestID: "once"})
					w.acquire(registry.Request{Key: "long", TTL: time.Hour})
					g := w.acquire(registry.Request{Key: "y", TTL: time.Second})
					time.Sleep(2 * time.Second) // y is lost
					h.party("W2").acquire(registry.Request{Key: "y"})
					if _, err := w.renew(g, 0); err == nil {
						t.Fatal("y is not lost")
					}
					h.party("W3").wait(registry.Request{Key: "x", Wait: time.Second})
					time.Sleep(2 * time.Second)
					var key, was string
					plant := func(value func(string) string) {
						err := h.eng.Update(t.Context(), func(tx engine.Tx) error {
							for row := range tx.Scan(prefix) {
								key, was = row.Key, row.Value
								row.Value = value(was)
								tx.Put(row)
								break
							}
							return nil
						})
						if err != nil || key == "" {
							t.Fatalf("no record %q: %v", prefix, err)
						}
					}
					plant(damage)
					right := was
					err := registry.New(h.eng, registry.Options{}).Recover(t.Context())
					if !errors.Is(err, engine.ErrCorrupt) || !strings.Contains(err.Error(), strings.TrimSuffix(prefix, "/")) {
						t.Errorf("recover: %v", err)
					}
					plant(func(string) string { return right })
					if err := h.Recover(t.Context()); err != nil {
						t.Errorf("recover of the right record: %v", err)
					}
				})
			})
		}
	}
}

// TestARestartGivesClaimsTheirTTL is the rule of a restart for leases without
// an id, of every length and kind, also when another restart follows.
func TestARestartGivesClaimsTheirTTL(t *testing.T) {
	inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
		ttls := []time.Duration{2 * time.Minute, 5 * time.Minute, time.Hour}
		p := h.party("W1")
		r := h.Registry("queue")
		err := h.eng.Update(t.Context(), func(tx engine.Tx) error {
			for _, ttl := range ttls {
				r.Grant(tx, ttl.String(), p.Holder, ttl)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		held := func(want func(ttl time.Duration) time.Duration) {
			t.Helper()
			h.view(func(tx registry.Tx) {
				for _, ttl := range ttls {
					l, ok := r.Get(tx, ttl.String())
					if left := l.Told(tx).ExpiresIn; !ok || l.Holder.Session != p.Session || l.TTL != ttl || left.Round(10*time.Second) != want(ttl) {
						t.Errorf("claim of %v: %v left, %+v", ttl, left, l)
					}
				}
			})
		}
		for range 3 {
			held(func(ttl time.Duration) time.Duration { return ttl })
			time.Sleep(time.Minute)
			held(func(ttl time.Duration) time.Duration { return ttl - time.Minute })
			h.crash()
		}
		// Of the long one, what is left counts, and what renewals may not have
		// written.
		ttls = ttls[2:]
		time.Sleep(30*time.Minute + 30*time.Second)
		h.crash()
		held(func(ttl time.Duration) time.Duration { return ttl - 28*time.Minute - 30*time.Second })
	})
}

// TestALongLeaseThatLivesIsNotWritten watches its row.
func TestALongLeaseThatLivesIsNotWritten(t *testing.T) {
	inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
		h.party("W1").acquire(registry.Request{Key: "x", TTL: 2 * time.Hour})
		var row string
		h.view(func(tx registry.Tx) {
			for r := range tx.Scan("lease/") {
				row = r.Key
			}
		})
		watch := h.eng.Watch(row)
		defer watch.Stop()
		time.Sleep(2 * time.Hour)
		select {
		case <-watch.C:
			t.Error("its row has changed")
		default:
		}
	})
}

// A holder on another machine survives a power cut. Whoever gets its lease on this machine
// does not, but had the key in between: the holder must not go on as if nobody had.
func TestAPowerCutGivesNoLeaseBackToAHolderElsewhere(t *testing.T) {
	for name, take := range map[string]func(a, here party, g registry.Grant){
		"another takes a lapsed lease": func(a, here party, g registry.Grant) {
			time.Sleep(2 * time.Second)
			here.acquire(registry.Request{Key: "x"})
		},
		"another session adopts it": func(a, here party, g registry.Grant) {
			here.Actor = a.Actor
			if _, err := here.renew(g, 0); err != nil {
				a.h.t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
				a, here := h.party("A"), h.party("B")
				here.Local = true
				g := a.acquire(registry.Request{Key: "x", TTL: time.Second})
				take(a, here, g)
				h.crash()
				if l, err := a.renew(g, 0); err == nil {
					t.Errorf("its holder goes on with token %d", l.Token)
				}
			})
		})
	}
}

// What parties on this machine do to each other waits for no disk. What they take from a
// holder elsewhere does.
func TestOnlyWhatIsTakenFromAHolderElsewhereWaitsForTheDisk(t *testing.T) {
	inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
		a, here := h.party("A"), h.party("B")
		here.Local = true
		took := func(do func()) time.Duration {
			h.sync.Store(int64(time.Second))
			defer h.sync.Store(0)
			began := time.Now()
			do()
			return time.Since(began)
		}
		amongThem := func() {
			g := here.acquire(registry.Request{Key: "x"})
			other := here.again()
			if _, err := other.renew(g, 0); err != nil {
				t.Error(err)
			}
			other.release(g)
		}
		amongThem() // reserves a block of tokens on the disk
		if d := took(amongThem); d != 0 {
			t.Errorf("among parties here: %v", d)
		}
		a.acquire(registry.Request{Key: "x", TTL: time.Second})
		time.Sleep(2 * time.Second)
		if d := took(func() { here.acquire(registry.Request{Key: "x"}) }); d == 0 {
			t.Error("from a holder elsewhere it waits for nothing")
		}
	})
}

// TestARestartReservesALapsedLease has a place that used up its reservation
// before the lease lapsed: a restart reserves the key for it once more.
func TestARestartReservesALapsedLease(t *testing.T) {
	inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
		a, b := h.party("A"), h.party("B")
		g := a.acquire(registry.Request{Key: "x", TTL: time.Hour})
		_, err := b.try(registry.Request{Key: "x", Wait: time.Second})
		mustBe[*registry.WaitError](t, err)
		a.release(g)
		time.Sleep(registry.ReserveTime + 1)
		a.acquire(registry.Request{Key: "x", TTL: 2 * time.Second})
		time.Sleep(3 * time.Second)
		if err := h.Recover(t.Context()); err != nil {
			t.Fatal(err)
		}
		h.view(func(tx registry.Tx) {
			if err := h.Check(tx); err != nil {
				t.Error(err)
			}
		})
		_, err = a.try(registry.Request{Key: "x"})
		if held := mustBe[*registry.HeldError](t, err); !held.Reserved || held.Holder.Path != "B" {
			t.Errorf("after the restart A is told %+v", held)
		}
	})
}

// TestARestartGivesALongLeaseFiveMinutesOnce: the deadline on the disk has passed, as renewals
// are not all written. The holder has time to come back, and restarts cannot keep the lease
// for ever.
func TestARestartGivesALongLeaseFiveMinutesOnce(t *testing.T) {
	inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
		w := h.party("W1")
		g := w.acquire(registry.Request{Key: "x", TTL: 10 * time.Minute})
		left := func(want time.Duration) {
			t.Helper()
			h.view(func(tx registry.Tx) {
				if list := held(h, tx); len(list) != 1 || list[0].ID != g.ID || list[0].ExpiresIn.Round(10*time.Second) != want {
					t.Errorf("%+v, want one lease with %v left", list, want)
				}
			})
		}
		time.Sleep(4 * time.Minute)
		if _, err := w.renew(g, 0); err != nil { // nothing is written
			t.Fatal(err)
		}
		time.Sleep(7 * time.Minute)
		h.crash()
		left(5 * time.Minute)
		time.Sleep(time.Minute)
		h.crash()
		left(4 * time.Minute)
	})
}
