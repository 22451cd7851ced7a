package layer_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/kvstore"
	"github.com/leasehold/leasehold/layer"
	"github.com/leasehold/leasehold/registry"
)

func TestAnswersCarryTheNameHoweverThePeerWasSpelled(t *testing.T) {
	s := newScene(t)
	defer s.close()
	ctx := context.Background()
	for _, path := range spellings(w1, "/peer/W1/x") {
		v := s.As(w1)
		version, err := v.Set(ctx, layer.Write{Path: path, Value: json.RawMessage(`1`)})
		s.must(err)
		e, err := v.Get(ctx, path)
		s.must(err)
		same(t, path, e.Path.String(), "/peer/W1/x")
		same(t, path, e.UpdatedBy, "S1→W1")
		e, _, err = v.Wait(ctx, path, version, 0)
		s.must(err)
		same(t, path, e.Path.String(), "/peer/W1/x")
		same(t, path, s.paths(w1, path), "/peer/W1/x")
		_, err = v.CAS(ctx, layer.Write{Path: path, Value: json.RawMessage(`1`)}, 0)
		same(t, path, mustBe[*kvstore.VersionError](t, path, err).Path.String(), "/peer/W1/x")
	}
}

func TestListsShowWhatTheCallerMayRead(t *testing.T) {
	s := newScene(t)
	defer s.close()
	for _, path := range []string{"/ref/x", "/shared/x", "/peer/W1/x", "/peer/W1/y/z", "/peer/W2/x", "/peer/S1/x"} {
		s.put(path, `1`)
	}
	s.hold("x")
	const refused = "may not read"
	id := w1.ID.String()
	for glob, want := range map[string][3]string{ // the lead, W1, a reader
		"/**":                  {"/leases/x /peer/S1/x /peer/W1/x /peer/W1/y/z /peer/W2/x /ref/x /shared/x", "/leases/x /peer/W1/x /peer/W1/y/z /ref/x /shared/x", "/leases/x /peer/S1/x /peer/W1/x /peer/W1/y/z /peer/W2/x /ref/x /shared/x"},
		"/peer/**":             {"/peer/S1/x /peer/W1/x /peer/W1/y/z /peer/W2/x", "/peer/W1/x /peer/W1/y/z", "/peer/S1/x /peer/W1/x /peer/W1/y/z /peer/W2/x"},
		"/peer/*/x":            {"/peer/S1/x /peer/W1/x /peer/W2/x", "/peer/W1/x", "/peer/S1/x /peer/W1/x /peer/W2/x"},
		"/peer/W?/x":           {"/peer/W1/x /peer/W2/x", "/peer/W1/x", "/peer/W1/x /peer/W2/x"},
		"/p*/*/*":              {"/peer/S1/x /peer/W1/x /peer/W2/x", "/peer/W1/x", "/peer/S1/x /peer/W1/x /peer/W2/x"},
		"/**/x":                {"/leases/x /peer/S1/x /peer/W1/x /peer/W2/x /ref/x /shared/x", "/leases/x /peer/W1/x /ref/x /shared/x", "/leases/x /peer/S1/x /peer/W1/x /peer/W2/x /ref/x /shared/x"},
		"/peer/[!S]2/*":        {"/peer/W2/x", "", "/peer/W2/x"},
		"/peer/self/*":         {"/peer/S1/x", "/peer/W1/x", "must name the peer"},
		"/{peer/self,ref}/*":   {"/peer/S1/x /ref/x", "/peer/W1/x /ref/x", "must name the peer"},
		"/peer/" + id + "/**":  {"/peer/W1/x /peer/W1/y/z", "/peer/W1/x /peer/W1/y/z", "/peer/W1/x /peer/W1/y/z"},
		"/peer/W2/*":           {"/peer/W2/x", refused, "/peer/W2/x"},
		"/peer/W9/*":           {"", refused, ""},
		"/peer/{W1,W2}/x":      {"/peer/W1/x /peer/W2/x", refused, "/peer/W1/x /peer/W2/x"},
		"/{peer,ref}/W2/x":     {"/peer/W2/x", refused, "/peer/W2/x"},
		"//peer/W2/*":          {"must be canonical", "must be canonical", "must be canonical"},
		"/peer/./W2/*":         {"must be canonical", "must be canonical", "must be canonical"},
		"/peer/{self,../W2}/x": {"must be canonical", "must be canonical", "must be canonical"},
	} {
		for i, m := range []layer.Member{s1, w1, root} {
			got := s.paths(m, glob)
			if want[i] != "" && want[i][0] != '/' && strings.Contains(got, want[i]) {
				continue // refused, for this reason
			}
			same(t, m.Path+" "+glob, got, want[i])
		}
	}
}

func TestAMembersIdIsLookedUpForThoseAloneWhoReadEveryPeer(t *testing.T) {
	s := newScene(t)
	defer s.close()
	s.put("/peer/W2/x", `1`)
	for _, id := range []uuid.UUID{w2.ID, uuid.New()} {
		path := "/peer/" + id.String() + "/x"
		for _, op := range operations {
			err := op.run(s.As(w1), path)
			e := mustBe[*layer.ForbiddenError](t, path, err)
			same(t, "the path in the refusal", e.Path, path)
		}
	}
	same(t, "looked up", s.lookup, 0)
	e, err := s.As(s1).Get(t.Context(), "/peer/"+w2.ID.String()+"/x")
	s.must(err)
	same(t, "the lead reads", show(e), "/peer/W2/x v1 1")

	stranger := uuid.New()
	for _, m := range []layer.Member{s1, root} {
		_, err := s.As(m).Get(t.Context(), "/peer/"+stranger.String()+"/x")
		same(t, "unknown", mustBe[*layer.UnknownPeerError](t, m.Path, err).ID, stranger)
	}
}

func TestAWaitOfTheLeadEndsWithThePeersWrite(t *testing.T) {
	inScene(t, func(t *testing.T, s *scene) {
		got := make(chan string, 1)
		go func() {
			e, reached, err := s.As(s1).Wait(t.Context(), "/peer/"+w1.ID.String()+"/result", 0, 50*time.Second)
			if err != nil || !reached {
				t.Errorf("waited: %v %v", reached, err)
			}
			got <- show(e)
		}()
		synctest.Wait()
		time.Sleep(time.Second)
		_, err := s.As(w1).Set(t.Context(), layer.Write{Path: "/peer/self/result", Value: json.RawMessage(`"done"`)})
		s.must(err)
		same(t, "the lead got", <-got, `/peer/W1/result v1 "done"`)
	})
}

func TestAForbiddenWaitDoesNotWait(t *testing.T) {
	inScene(t, func(t *testing.T, s *scene) {
		start := time.Now()
		_, _, err := s.As(w1).Wait(t.Context(), "/peer/W2/x", 0, 50*time.Second)
		mustBe[*layer.ForbiddenError](t, "wait", err)
		same(t, "after", time.Since(start), 0)
	})
}

func TestANameCannotBeTakenForAnythingElse(t *testing.T) {
	for _, name := range []string{"W1", "root", "claude-code", "Ünï", "a b", "w.1", "a-b>c", "selfish", strings.Repeat("x", layer.MaxName)} {
		if err := layer.CheckName(name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, name := range []string{
		"", "self", ".", "..", "a/b", "/", "a/", " a", "a ", "S1→W1", "S1->W1", "*", "W?", "[a]", "{a}", `a\`, "a\n", "a\u200b", "a\u3164", "❤\ufe00", "e\u0301", "\xff",
		strings.Repeat("x", layer.MaxName+1), uuid.NewString(), strings.ToUpper(uuid.NewString()), strings.ReplaceAll(uuid.NewString(), "-", ""),
		"urn:uuid:" + uuid.NewString(),
	} {
		e := mustBe[*registry.ArgumentError](t, name, layer.CheckName(name))
		same(t, name, e.Argument, "name")
	}
}
