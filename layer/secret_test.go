package layer_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/kvstore"
	"github.com/leasehold/leasehold/layer"
)

// TestAMemberCannotTellWhatAnotherKeeps runs W1 in two worlds that differ only
// in what happens below /peer/W2 and /peer/S1. Whatever W1 asks, both must give
// the same answer: entries, versions, listings, where listings end, and
// refusals.
func TestAMemberCannotTellWhatAnotherKeeps(t *testing.T) {
	paths := rapid.SampledFrom([]string{
		"/ref/a", "/shared/a", "/shared/b", "/peer/self/a", "/peer/W1/b", "/peer/" + w1.ID.String() + "/c",
		"/peer/W2/a", "/peer/S1/a", "/peer/W9/a", "/peer/" + w2.ID.String() + "/a", "/leases/a",
	})
	globs := rapid.SampledFrom([]string{
		"/**", "/*/*/*", "/peer/**", "/peer/*/a", "/peer/self/*", "/peer/W2/*", "/peer/{self,W2}/a", "/peer/W[0-9]/**", "/shared/*", "/{ref,peer/W1}/*",
	})
	secrets := rapid.SampledFrom([]string{"/peer/W2/a", "/peer/W2/b/c", "/peer/S1/a"})

	rapid.Check(t, func(t *rapid.T) {
		plain, secret := newScene(t), newScene(t)
		defer plain.close()
		defer secret.close()
		both := func(t *rapid.T, m layer.Member, ask func(v *layer.View) string) {
			same(t, "with what it may not know", ask(secret.As(m)), ask(plain.As(m)))
		}
		value := func(t *rapid.T) json.RawMessage {
			return json.RawMessage(fmt.Sprint(rapid.IntRange(0, 99).Draw(t, "value")))
		}
		t.Repeat(map[string]func(*rapid.T){
			"a secret": func(t *rapid.T) {
				path, value := secrets.Draw(t, "path"), value(t)
				owner := w2
				if rapid.Bool().Draw(t, "by the lead") || path == "/peer/S1/a" {
					owner = s1
				}
				v, w := secret.As(owner), layer.Write{Path: path, Value: value, Override: true}
				var err error
				if rapid.Bool().Draw(t, "delete") {
					_, err = v.Delete(context.Background(), w, nil)
				} else {
					_, err = v.Set(context.Background(), w)
				}
				secret.must(err)
			},
			"W2 goes": func(*rapid.T) {
				secret.must(secret.eng.Update(context.Background(), func(tx engine.Tx) error {
					secret.Store().In(tx).DropPeer(w2.Name, 1000)
					return nil
				}))
			},
			"the lead writes": func(t *rapid.T) {
				w := layer.Write{Path: "/ref/a", Value: value(t)}
				both(t, s1, func(v *layer.View) string { return answer(v.Set(context.Background(), w)) })
			},
			"get": func(t *rapid.T) {
				path := paths.Draw(t, "path")
				both(t, w1, func(v *layer.View) string {
					e, err := v.Get(context.Background(), path)
					return answer(show(e), err)
				})
			},
			"wait": func(t *rapid.T) {
				path := paths.Draw(t, "path")
				both(t, w1, func(v *layer.View) string {
					e, reached, err := v.Wait(context.Background(), path, 2, 0)
					return answer(fmt.Sprint(show(e), reached), err)
				})
			},
			"write": func(t *rapid.T) {
				w := layer.Write{Path: paths.Draw(t, "path"), Value: value(t), Override: rapid.Bool().Draw(t, "override")}
				both(t, w1, func(v *layer.View) string { return answer(v.Set(context.Background(), w)) })
			},
			"cas": func(t *rapid.T) {
				w := layer.Write{Path: paths.Draw(t, "path"), Value: value(t)}
				expected := rapid.Uint64Range(0, 3).Draw(t, "expected")
				both(t, w1, func(v *layer.View) string { return answer(v.CAS(context.Background(), w, expected)) })
			},
			"delete": func(t *rapid.T) {
				w := layer.Write{Path: paths.Draw(t, "path")}
				both(t, w1, func(v *layer.View) string { return answer(v.Delete(context.Background(), w, nil)) })
			},
			"list": func(t *rapid.T) {
				glob, limit := globs.Draw(t, "glob"), rapid.IntRange(0, 4).Draw(t, "limit")
				both(t, w1, func(v *layer.View) string {
					return listing(v.List(context.Background(), layer.Listing{Glob: glob, Limit: limit, Values: true}))
				})
			},
		})
	})
}

// answer describes an answer or a refusal, with the version of a mismatch.
func answer(what any, err error) string {
	var mismatch *kvstore.VersionError
	if errors.As(err, &mismatch) {
		return fmt.Sprint(err, mismatch.Version)
	}
	return fmt.Sprint(what, err)
}
