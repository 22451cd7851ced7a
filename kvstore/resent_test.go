package kvstore_test

import (
	"encoding/json"
	"testing"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/call"
	"github.com/leasehold/leasehold/kvstore"
)

// A client whose daemon went away during a write sends the write again under
// the same name.
func TestAResentWriteIsCarriedOutOnce(t *testing.T) {
	inRoom(t, kvstore.Limits{}, func(t *testing.T, r *room) {
		a, none := r.path("/shared/a"), uint64(0)
		session := uuid.New()
		first, other := call.Call{Session: session, Name: "1"}, call.Call{Session: session, Name: "2"}
		set := func(by call.Call, value string, expected *uint64) (version uint64, err error) {
			r.update(func(tx engine.Tx) {
				version, err = r.In(tx).Set(kvstore.Write{Path: a, Value: json.RawMessage(value), Expected: expected, By: "W1", Call: by})
			})
			return version, err
		}
		for range 2 {
			v, err := set(first, `1`, &none)
			r.must(err)
			same(t, "version", v, uint64(1))
			same(t, "a", show(r.get("/shared/a")), "/shared/a v1 1")
		}
		_, err := set(other, `1`, &none)
		mustBe[*kvstore.VersionError](t, err)
		_, err = set(other, `2`, nil)
		r.must(err)
		// Another client has written since. Its value stays, and the answer is
		// the first one.
		v, err := set(first, `1`, &none)
		r.must(err)
		same(t, "version", v, uint64(1))
		same(t, "a", show(r.get("/shared/a")), "/shared/a v2 2")

		two := uint64(2)
		for range 2 {
			r.update(func(tx engine.Tx) {
				v, err = r.In(tx).Delete(kvstore.Write{Path: a, Expected: &two, Call: call.Call{Session: session, Name: "3"}})
			})
			r.must(err)
			same(t, "deleted", v, two)
		}
	})
}
