package pebble_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/pebble"
)

// TestTheIndexesAgreeAsRowsComeAndGo grows a state to many leaves and lets it
// shrink, by rows that come at random, in order, and leave from the front;
// reopened in between, so that loaded leaves are changed as well. Check compares
// all indexes with the rows and with the store.
func TestTheIndexesAgreeAsRowsComeAndGo(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	fs := vfs.NewMem()
	open := func() *pebble.Engine { return mustOpen(t, pebble.Options{Dir: "state", FS: fs}) }
	e := open()
	owners := []uuid.UUID{uuid.Nil, uuid.New(), uuid.New()}
	row := func(tx engine.Tx, key string) engine.Row {
		r := engine.Row{Key: key, Value: fmt.Sprint(rnd.IntN(100)), Owner: owners[rnd.IntN(3)]}
		if rnd.IntN(3) > 0 { // many at the same instant
			r.Due = tx.Now().Add(time.Duration(rnd.IntN(50)-10) * time.Hour).Truncate(time.Hour)
		}
		return r
	}
	next := 0 // of the keys in order
	for round := range 60 {
		growing := round%20 < 10
		mustUpdate(t, e, func(tx engine.Tx) {
			for range 400 {
				key := fmt.Sprintf("random/%04d", rnd.IntN(4000))
				if growing || rnd.IntN(10) == 0 {
					tx.Put(row(tx, key))
					next++
					tx.Put(row(tx, fmt.Sprintf("queue/%06d", next)))
				} else {
					tx.Delete(key)
				}
			}
			if !growing {
				n := 0
				for r := range tx.Scan("queue/") { // changes what it walks
					if tx.Delete(r.Key); n == 500 {
						break
					}
					n++
				}
				for r := range tx.Due() {
					if rnd.IntN(2) == 0 {
						tx.Delete(r.Key)
					} else {
						tx.Touch(row(tx, r.Key))
					}
				}
			}
		})
		if round%7 == 6 {
			mustClose(t, e)
			e = open()
		} else if err := e.Check(); err != nil {
			t.Fatal(err)
		}
	}
	mustClose(t, e)
}
