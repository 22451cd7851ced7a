package registry

import (
	"testing"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/pebble"
)

// BenchmarkRules tells what an acquire and a release take of the time that
// nobody else has: the rules alone, a hundred of each in one transaction.
func BenchmarkRules(b *testing.B) {
	eng, err := pebble.Open(pebble.Options{Dir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	defer eng.Close()
	const each = 100
	core := New(eng, Options{})
	calls := make([]ask, each)
	for i := range calls {
		calls[i] = ask{
			Request: Request{Key: "file-" + uuid.NewString(), TTL: DefaultTTL, Holder: Holder{Session: uuid.New(), Actor: uuid.New(), Path: "S1→W1"}},
			scope:   "run:" + uuid.NewString(), id: uuid.New(),
		}
	}
	ids := make([]uuid.UUID, each)
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		i := n % each
		if i != 0 {
			continue
		}
		err := eng.Update(b.Context(), func(tx engine.Tx) error {
			for i := range calls {
				g, err := core.look(tx, &calls[i], true)
				if err != nil {
					return err
				}
				ids[i] = g.ID
			}
			for i := range calls {
				if ok, _, err := core.release(tx, calls[i].Holder, ids[i]); !ok {
					return err
				}
			}
			return nil
		})
		if err != nil {
			b.Fatal(err)
		}
	}
}
