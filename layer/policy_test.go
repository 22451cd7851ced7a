package layer_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/leasehold/leasehold/layer"
	"github.com/leasehold/leasehold/registry"
)

// The accesses in the cells of the table.
const (
	no      = "nothing"
	reads   = "read"
	insists = "read, and write with override"
	writes  = "write"
)

// callers are the columns of the table, and targets its rows. The table is
// spelled out here a second time, as in the contract.
var callers = []struct {
	name string
	layer.Member
}{{"the lead", s1}, {"W1", w1}, {"W2", w2}, {"a reader", root}, {"nobody", none}}

var targets = []struct {
	path  string
	cells [5]string // as callers
}{
	//               the lead  W1      W2      a reader  nobody
	{"/ref/x", [5]string{writes, reads, reads, reads, no}},
	{"/shared/x", [5]string{writes, writes, writes, reads, no}},
	{"/peer/W1/x", [5]string{insists, writes, no, reads, no}},
	{"/peer/W2/x/y", [5]string{insists, no, writes, reads, no}},
	{"/peer/S1/x", [5]string{writes, no, no, reads, no}},
	{"/peer/root/x", [5]string{insists, no, no, reads, no}}, // nobody here has that name
	{"/leases/x", [5]string{reads, reads, reads, reads, no}},
}

// spellings returns all ways in which m can write path.
func spellings(m layer.Member, path string) []string {
	all := []string{path}
	for _, peer := range []layer.Member{s1, w1, w2} {
		prefix := "/peer/" + peer.Name
		if len(path) < len(prefix) || path[:len(prefix)] != prefix {
			continue
		}
		all = append(all, "/peer/"+peer.ID.String()+path[len(prefix):])
		if m.ID == peer.ID {
			all = append(all, "/peer/self"+path[len(prefix):])
		}
	}
	return all
}

// An operation is one way to use a path, and the access it needs.
type operation struct {
	name string
	need []string // the cells that allow it
	run  func(v *layer.View, path string) error
}

var (
	canRead  = []string{reads, insists, writes}
	canForce = []string{insists, writes}
	canWrite = []string{writes}
)

var operations = []operation{
	{"get", canRead, func(v *layer.View, path string) error {
		_, err := v.Get(context.Background(), path)
		return err
	}},
	{"list", canRead, func(v *layer.View, path string) error {
		_, err := v.List(context.Background(), layer.Listing{Glob: path, Values: true})
		return err
	}},
	{"wait", canRead, func(v *layer.View, path string) error {
		_, _, err := v.Wait(context.Background(), path, 0, 0)
		return err
	}},
	{"set", canWrite, func(v *layer.View, path string) error {
		_, err := v.Set(context.Background(), layer.Write{Path: path, Value: json.RawMessage(`"set"`)})
		return err
	}},
	{"set with override", canForce, func(v *layer.View, path string) error {
		_, err := v.Set(context.Background(), layer.Write{Path: path, Value: json.RawMessage(`"forced"`), Override: true})
		return err
	}},
	{"cas", canWrite, func(v *layer.View, path string) error {
		_, err := v.CAS(context.Background(), layer.Write{Path: path, Value: json.RawMessage(`"cas"`)}, 1)
		return err
	}},
	{"cas with override", canForce, func(v *layer.View, path string) error {
		_, err := v.CAS(context.Background(), layer.Write{Path: path, Value: json.RawMessage(`"cas"`), Override: true}, 1)
		return err
	}},
	{"delete", canWrite, func(v *layer.View, path string) error {
		_, err := v.Delete(context.Background(), layer.Write{Path: path}, nil)
		return err
	}},
	{"delete with override", canForce, func(v *layer.View, path string) error {
		_, err := v.Delete(context.Background(), layer.Write{Path: path, Override: true}, nil)
		return err
	}},
}

// TestTheTable performs every operation of every caller on every kind of path,
// in every spelling. A refused operation changes nothing. An allowed one acts
// on the one entry that all spellings mean.
func TestTheTable(t *testing.T) {
	for i, caller := range callers {
		for _, target := range targets {
			for _, path := range spellings(caller.Member, target.path) {
				for _, op := range operations {
					what := caller.name + " " + op.name + " " + path
					s := newScene(t)
					if target.path == "/leases/x" {
						s.hold("x")
					} else {
						s.put(target.path, `"old"`)
					}
					before := s.dump()
					err := op.run(s.As(caller.Member), path)
					allowed := false
					for _, cell := range op.need {
						allowed = allowed || cell == target.cells[i]
					}
					switch writing := len(op.need) < len(canRead); {
					case !allowed:
						mustBe[*layer.ForbiddenError](t, what, err)
						same(t, what, s.dump(), before)
					case op.name == "wait" && target.path == "/leases/x":
						mustBe[*registry.ArgumentError](t, what, err)
					case err != nil:
						t.Fatalf("%s: %v", what, err)
					case writing == (s.dump() == before):
						t.Fatalf("%s: the store holds %s, and held %s", what, s.dump(), before)
					}
					s.close()
				}
			}
		}
	}
}

// A path that is not canonical is refused for that reason, for every caller and
// every meaning that it could have.
func TestNoAliasReachesAnything(t *testing.T) {
	s := newScene(t)
	defer s.close()
	s.put("/peer/W1/x", `1`)
	s.put("/shared/x", `1`)
	before := s.dump()
	id := w1.ID.String()
	for _, alias := range []string{
		"//peer/W1/x", "/peer//W1/x", "/peer/./W1/x", "/peer/W2/../W1/x", "/peer/W1/x/", "peer/W1/x", "/./peer/W1/x", "/peer/W1/./x",
		"/peer/ W1/x", "/peer/W1 /x", "/peer/W1/x\x00", "/peer/W\u200b1/x", "/shared/../peer/W1/x", "//shared/x", "/shared/x/", "/shared/./x",
		"/peer/urn:uuid:" + id + "/x", "/peer/" + id[:8] + id[9:13] + id[14:18] + id[19:23] + id[24:] + "/x", "/peer/W1", "/peer", "/", "",
		"/peer/ABCDEF00-0000-4000-8000-000000000000/x",
	} {
		for _, caller := range callers {
			for _, op := range operations {
				what := caller.name + " " + op.name + " " + alias
				err := op.run(s.As(caller.Member), alias)
				if caller.Member == none && op.name == "list" {
					if err == nil {
						t.Fatalf("%s is answered", what)
					}
					continue
				}
				mustBe[*registry.ArgumentError](t, what, err)
				same(t, what, s.dump(), before)
			}
		}
	}
}

func TestRefusalsSayWhatWhoAndWhatNext(t *testing.T) {
	s := newScene(t)
	defer s.close()
	for _, c := range []struct {
		layer.Member
		op   int
		path string
		want string
	}{
		{w1, 0, "/peer/W2/x", "S1→W1 may not read /peer/W2/x: it is not yours, use /peer/self/ for your own and /shared/ for what others are to see"},
		{w1, 1, "/peer/W2/*", "S1→W1 may not read /peer/W2/*: it is not yours, use /peer/self/ for your own and /shared/ for what others are to see"},
		{w1, 3, "/ref/x", "S1→W1 may not write /ref/x: only the lead of the layer writes there, use /shared/ or /peer/self/"},
		{w1, 3, "/leases/x", "S1→W1 may not write /leases/x: take a lease with lease_acquire, give it back with lease_release"},
		{s1, 4, "/leases/x", "S1 may not write /leases/x: take a lease with lease_acquire, give it back with lease_release"},
		{s1, 3, "/peer/" + w1.ID.String() + "/x", "S1 may not write /peer/W1/x: it belongs to W1, a lead writes there with override: true"},
		{root, 4, "/shared/x", "root may not write /shared/x: you only read this layer, ask its lead to write"},
		{none, 0, "/shared/x", "an unknown caller may not read /shared/x: connect as an actor of this layer"},
		{none, 1, "/**", "an unknown caller may not read /**: connect as an actor of this layer"},
	} {
		err := operations[c.op].run(s.As(c.Member), c.path)
		same(t, c.path, mustBe[*layer.ForbiddenError](t, c.path, err).Error(), c.want)
	}
	_, err := s.As(root).Get(t.Context(), "/peer/self/x")
	same(t, "self", mustBe[*registry.ArgumentError](t, "self", err).Error(), "path must name the peer: you are not a member of this layer")
}
