package pebble_test

import (
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/pebble"
)

// Rows that come and go under a few keys, in any order and in transactions of
// any size, some of which are undone, are what the store has too, wherever
// tables are made and merged between, or the state is opened anew: a row that
// was stored once is deleted in another way than one that was stored again.
func TestDeletedRowsStayDeleted(t *testing.T) {
	const keys, rounds = 6, 4000
	for range 5 {
		seed := rand.Uint64()
		r := rand.New(rand.NewPCG(seed, 0))
		o := pebble.Options{Dir: "state", FS: vfs.NewMem()}
		e := mustOpen(t, o)
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
		}
		for range rounds {
			switch n := r.IntN(100); {
			case n < 90:
				undone := r.IntN(5) == 0
				err := e.Update(t.Context(), func(tx engine.Tx) error {
					for range 1 + r.IntN(4) {
						key := string(rune('a' + r.IntN(keys)))
						switch row, ok := tx.Get(key); {
						case ok && r.IntN(2) == 0:
							tx.Delete(key)
						case ok && r.IntN(2) == 0:
							tx.Touch(engine.Row{Key: key, Value: row.Value + "t"})
						default:
							tx.Put(engine.Row{Key: key, Value: key})
						}
					}
					if undone {
						return engine.ErrReadOnly
					}
					return nil
				})
				if !undone {
					must(err)
				}
			case n < 94:
				must(e.Flush())
			case n < 97:
				must(e.Compact())
			default:
				must(e.Close())
				e = mustOpen(t, o)
			}
			must(e.Check())
		}
		mustClose(t, e)
	}
}
