package registry_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/leasehold/leasehold/registry"
)

// A grant names what is held under another spelling of its key, for as long as it is.
func TestAGrantNamesKeysThatAreSpeltAlike(t *testing.T) {
	inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
		a, b := h.party("A"), h.party("B")
		similar := func(key string, want ...string) {
			t.Helper()
			g := b.acquire(registry.Request{Key: key})
			if !slices.Equal(g.Similar, want) {
				t.Errorf("%q is like %q, want %q", key, g.Similar, want)
			}
			b.release(g)
			h.check()
		}
		held := []string{"Src/My_File.ts", "deploy prod", "file:lib/a.go", "caf\u00e9", "Port:8080", "dir/"}
		var grants []registry.Grant
		for _, key := range held {
			grants = append(grants, a.acquire(registry.Request{Key: key, Shared: true, TTL: time.Hour}))
		}
		for range 2 {
			similar("src/my-file.ts", "Src/My_File.ts")
			similar("file:src/my-file.ts", "Src/My_File.ts")
			similar("./src/my_file.ts", "Src/My_File.ts")
			similar(`src\my file.ts`, "Src/My_File.ts")
			similar("src/myfile.ts")
			similar("deploy-prod", "deploy prod")
			similar("DEPLOY_PROD", "deploy prod")
			similar("lib/a.go", "file:lib/a.go")
			similar("lib/A.go", "file:lib/a.go")
			similar("Cafe\u0301", "caf\u00e9")
			similar("port:8080", "Port:8080")
			similar("file:dir", "dir/")
			similar("lib/a.go2")
			h.crash()
		}
		// Of those that share it, one is enough; of many that are alike, a few.
		more := b.acquire(registry.Request{Key: held[0], Shared: true})
		a.release(grants[0])
		other := h.party("C").acquire(registry.Request{Key: "src/my-file.ts"})
		if !slices.Equal(other.Similar, held[:1]) {
			t.Errorf("%q is held, and named is %q", held[0], other.Similar)
		}
		b.release(more)
		h.check()
		for i := range 31 {
			key := []byte("abcde")
			for bit := range key {
				key[bit] -= byte(i>>bit&1) * ('a' - 'A')
			}
			a.acquire(registry.Request{Key: string(key) + "!", TTL: time.Second})
		}
		if g := b.acquire(registry.Request{Key: "ABCDE!", Shared: true}); len(g.Similar) != registry.MaxSimilar {
			t.Error(g.Similar)
		}
		time.Sleep(2 * time.Minute) // what has lapsed is not held
		similar("abCDE!")
		h.check()
		list, err := b.all(0, "deploy_prod", "x")
		if err != nil || fmt.Sprint(list[0].Similar) != "[deploy prod]" {
			t.Error(list, err)
		}
	})
}
