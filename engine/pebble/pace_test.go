package pebble_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/pebble"
)

// TestAStreamOfDueRowsIsToldOfTogether has a row fall due each millisecond for
// ten seconds, and sees to at most batch of them in a transaction.
func TestAStreamOfDueRowsIsToldOfTogether(t *testing.T) {
	for _, batch := range []int{1 << 20, 7} {
		t.Run(fmt.Sprintf("batch=%d", batch), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const rows = 10_000
				e := mustOpen(t, pebble.Options{Dir: "state", FS: vfs.NewMem()})
				defer mustClose(t, e)
				mustUpdate(t, e, func(tx engine.Tx) {
					for i := range rows {
						tx.Touch(engine.Row{Key: fmt.Sprint(i), Due: tx.Now().Add(time.Duration(1+i) * time.Millisecond)})
					}
				})
				answers := 0
				for seen := 0; seen < rows; answers++ {
					if err := e.WaitDue(t.Context()); err != nil {
						t.Fatal(err)
					}
					mustUpdate(t, e, func(tx engine.Tx) {
						n := 0
						for row := range tx.Due() {
							if late := tx.Now().Sub(row.Due); late > 101*time.Millisecond {
								t.Fatalf("row %s is told of %v late", row.Key, late)
							}
							tx.Delete(row.Key)
							if n++; n == batch {
								break
							}
						}
						seen += n
					})
				}
				if batch > rows && (answers > 140 || answers < 100) {
					t.Errorf("%d answers in ten seconds", answers)
				}
			})
		})
	}
}
