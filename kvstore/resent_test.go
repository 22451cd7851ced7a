package kvstore_test

import (
	"encoding/json"
	"testing"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/kvstore"
)

// A client whose daemon went away under a write sends it again, with the mark
// that it may have been carried out.
func TestAResentWriteIsCarriedOutOnce(t *testing.T) {
	inRoom(t, kvstore.Limits{}, func(t *testing.T, r *room) {
		a, none := r.path("/shared/a"), uint64(0)
		call := kvstore.Call{ID: uuid.New()}
		again := kvstore.Call{ID: call.ID, Resent: true}
		set := func(by kvstore.Call, value string, expected *uint64) (version uint64, err error) {
			r.update(func(tx engine.Tx) {
				version, err = r.In(tx).Set(kvstore.Write{Path: a, Value: json.RawMessage(value), Expected: expected, By: "W1", Call: by})
			})
			return version, err
		}

		// It was not carried out: it is now.
		v, err := set(again, `1`, &none)
		r.must(err)
		same(t, "first", v, uint64(1))
		// It was: the answer is the same, and so is the entry.
		v, err = set(again, `1`, &none)
		r.must(err)
		same(t, "again", v, uint64(1))
		same(t, "a", show(r.get("/shared/a")), "/shared/a v1 1")
		// Without the mark it is another request, whatever its id.
		_, err = set(call, `1`, &none)
		mustBe[*kvstore.VersionError](t, err)
		// Somebody else has written since: that is not overwritten unseen.
		_, err = set(kvstore.Call{ID: uuid.New()}, `2`, nil)
		r.must(err)
		_, err = set(again, `1`, &none)
		mustBe[*kvstore.VersionError](t, err)
		same(t, "a", show(r.get("/shared/a")), "/shared/a v2 2")

		two := uint64(2)
		for range 2 {
			r.update(func(tx engine.Tx) {
				v, err = r.In(tx).Delete(kvstore.Write{Path: a, Expected: &two, Call: again})
			})
			r.must(err)
			same(t, "deleted", v, two)
		}
	})
}
