package kvstore_test

import (
	"path"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"github.com/leasehold/leasehold/kvstore"
	"github.com/leasehold/leasehold/registry"
)

func TestCanonicalPathsAreTaken(t *testing.T) {
	for _, s := range []string{
		"/ref/a", "/shared/a/b/c", "/peer/W1/x", "/leases/output-file", "/leases/output.json",
		"/shared/a b", "/shared/.hidden", "/shared/...", "/shared/ünï→x", "/shared/a:b@c,d(e)!^",
		"/shared/" + strings.Repeat("x", kvstore.MaxPath-len("/shared/")),
	} {
		p, err := kvstore.ParsePath(s)
		if err != nil || p.String() != s {
			t.Errorf("%s: %v %v", s, p, err)
		}
	}
}

func TestEveryAliasIsRefusedWithTheCanonicalForm(t *testing.T) {
	for s, want := range map[string]string{
		"//shared/x":        "/shared/x",
		"/shared//x":        "/shared/x",
		"/./shared/x":       "/shared/x",
		"/shared/./x":       "/shared/x",
		"/shared/x/.":       "/shared/x",
		"/shared/x/":        "/shared/x",
		"/ref/../shared/x":  "/shared/x",
		"/../shared/x":      "/shared/x",
		"shared/x":          "/shared/x",
		"./shared/x":        "/shared/x",
		" /shared/x":        "/shared/x",
		"/shared/x ":        "/shared/x",
		"/shared/ x":        "/shared/x",
		"/shared/. /x":      "/shared/x",
		"/peer/W1//x":       "/peer/W1/x",
		"/peer/W2/../W1/x":  "/peer/W1/x",
		"/leases/./x":       "/leases/x",
		"/shared/e\u0301":   "/shared/é",
		"/shared/\ufb01x/ ": "", // a ligature is in NFC: it is another letter, not another spelling
	} {
		if want == "" {
			want = "/shared/\ufb01x"
		}
		_, err := kvstore.ParsePath(s)
		e := mustBe[*registry.ArgumentError](t, err)
		same(t, s, e.Error(), "path must be canonical: "+want)
		_, err = kvstore.ParsePath(want)
		if err != nil {
			t.Errorf("the canonical form: %v", err)
		}
	}
}

func TestWhatHasNoCanonicalFormIsRefusedWithTheReason(t *testing.T) {
	const roots = "must be under /ref/, /peer/, /shared/ or /leases/"
	for s, want := range map[string]string{
		"":                "must not be empty",
		"/":               roots,
		"..":              roots,
		"x":               roots,
		"/tmp/x":          roots,
		"/Shared/x":       roots,
		"/sharedx/y":      roots,
		"/shared/../../x": roots,
		"/shared":         "must go on below /shared/",
		"/shared/":        "must go on below /shared/",
		"/leases/..":      roots,
		"/peer":           "must go on below /peer/",
		"/peer/W1":        "must go on below /peer/W1/",
		"/peer/W1/":       "must go on below /peer/W1/",
		"/shared/\x00":    "must be printable, and holds U+0000",
		"/shared/a\nb":    "must be printable, and holds U+000A",
		"/shared/a\u200b": "must be printable, and holds U+200B",
		"/shared/a\u00a0": "must be printable, and holds U+00A0",
		"/shared/\u202ea": "must be printable, and holds U+202E",
		"/shared/a\u3164": "must be printable, and holds U+3164",
		"/shared/\xff":    "must be valid UTF-8",
		"/shared/*":       "must not hold '*', which has a meaning in globs",
		"/shared/a?":      "must not hold '?', which has a meaning in globs",
		"/shared/[a]":     "must not hold '[', which has a meaning in globs",
		"/shared/{a":      "must not hold '{', which has a meaning in globs",
		`/shared/a\b`:     `must not hold '\\', which has a meaning in globs`,
		"/shared/" + strings.Repeat("x", kvstore.MaxPath): "must be at most 512 bytes",
	} {
		_, err := kvstore.ParsePath(s)
		same(t, s, mustBe[*registry.ArgumentError](t, err).Error(), "path "+want)
	}
}

func TestALeaseHasOneName(t *testing.T) {
	for s, want := range map[string]string{
		"output-file":            "output-file",
		"/leases/output-file":    "output-file",
		"src/main.go":            "src/main.go",
		"/leases/src/main.go":    "src/main.go",
		"leases":                 "leases",
		"leasesx/y":              "leasesx/y",
		"..x":                    "..x",
		"app/[id]/*.tsx":         "app/[id]/*.tsx",
		strings.Repeat("x", 504): strings.Repeat("x", 504),
	} {
		got, err := kvstore.LeaseName(s)
		if err != nil {
			t.Errorf("%s: %v", s, err)
		}
		same(t, s, got, want)
	}
	for s, want := range map[string]string{
		"":                                    "must not be empty",
		"//leases/x":                          "must be canonical: /leases/x",
		"/leases//x":                          "must be canonical: /leases/x",
		"/leases/./x":                         "must be canonical: /leases/x",
		"/leases/x/":                          "must be canonical: /leases/x",
		"/leases/leases/x":                    "must be canonical: /leases/x",
		"/leases/../leases/x":                 "must be canonical: /leases/x",
		"leases/x":                            "must be canonical: x",
		"leases/leases/x":                     "must be canonical: x",
		"./x":                                 "must be canonical: x",
		"./leases/x":                          "must be canonical: x",
		"x/":                                  "must be canonical: x",
		"x//y":                                "must be canonical: x/y",
		"x/../y":                              "must be canonical: y",
		" x":                                  "must be canonical: x",
		"e\u0301":                             "must be canonical: é",
		"/output-file":                        "must be a name such as output-file, or its path /leases/output-file",
		"/shared/x":                           "must be a name such as output-file, or its path /leases/output-file",
		"../shared/x":                         "must be canonical: /shared/x",
		".":                                   "must go on below /leases/",
		"/leases":                             "must be a name such as output-file, or its path /leases/output-file",
		`a\*.go`:                              "must not hold '\\\\', which has a meaning in globs",
		"a\x00":                               "must be printable, and holds U+0000",
		strings.Repeat("x", 505):              "must be at most 504 bytes",
		"/leases/" + strings.Repeat("x", 505): "must be at most 512 bytes",
	} {
		key, err := kvstore.LeaseName(s)
		same(t, s, mustBe[*registry.ArgumentError](t, err).Error(), "name "+want)
		same(t, s, key, "")
	}
}

func TestAPathKnowsItsRootAndItsPeer(t *testing.T) {
	for s, want := range map[string][2]string{
		"/ref/a": {"ref", ""}, "/shared/peer/x": {"shared", ""}, "/leases/a/b": {"leases", ""}, "/peer/W1/a/b": {"peer", "W1"},
	} {
		p, err := kvstore.ParsePath(s)
		if err != nil {
			t.Fatal(err)
		}
		same(t, s, [2]string{p.Root(), p.Peer()}, want)
	}
	p, _ := kvstore.ParsePath("/peer/self/self/self")
	q, err := p.WithPeer("W1")
	if err != nil {
		t.Fatal(err)
	}
	same(t, "renamed", q.String(), "/peer/W1/self/self")
}

var spellings = []string{
	"/shared/x", "//shared/x", "/shared/./x", "/shared/../ref/x", "/shared/x/", "shared/x", "", "/", ".", "..", "/peer/self/x",
	"/peer/W1", "/leases/output-file", "output-file", "leases/x", "/shared/e\u0301", "/shared/\u1e9b\u0323", "/shared/ \u0338x", "/shared/\x00",
	"/shared/\xff", "/shared/*", "/shared/a\\", "/shared/ . /x", "/shared/\u200d", "/peer/6ba7b810-9dad-11d1-80b4-00c04fd430c8/x",
}

// isCanonical is an independent second definition.
func isCanonical(s string) bool {
	if len(s) > kvstore.MaxPath || !utf8.ValidString(s) || !norm.NFC.IsNormalString(s) || path.Clean(s) != s {
		return false
	}
	segments := strings.Split(s, "/")
	refused := `*?[]{}\`
	if len(segments) > 1 && segments[1] == "leases" {
		refused = `\`
	}
	for i, segment := range segments {
		if (segment == "") != (i == 0) || strings.TrimSpace(segment) != segment || strings.ContainsAny(segment, refused) ||
			strings.ContainsFunc(segment, func(c rune) bool { return !unicode.IsPrint(c) }) {
			return false
		}
	}
	switch {
	case len(segments) < 3:
		return false
	case segments[1] == "peer":
		return len(segments) > 3
	default:
		return segments[1] == "ref" || segments[1] == "shared" || segments[1] == "leases"
	}
}

// suggested returns the canonical form that a refusal suggests, if any.
func suggested(err error) (s string, ok bool) {
	_, s, ok = strings.Cut(err.Error(), "must be canonical: ")
	return s, ok
}

func FuzzParsePath(f *testing.F) {
	for _, s := range spellings {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p, err := kvstore.ParsePath(s)
		if taken := err == nil; taken != isCanonical(s) {
			t.Fatalf("%q: %v", s, err)
		}
		if err == nil {
			same(t, "the path", p.String(), s)
			return
		}
		if c, ok := suggested(err); ok {
			if _, err := kvstore.ParsePath(c); err != nil {
				t.Fatalf("%q is refused for %q, which is refused: %v", s, c, err)
			}
		}
	})
}

func FuzzLeaseName(f *testing.F) {
	for _, s := range spellings {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		key, err := kvstore.LeaseName(s)
		if err != nil {
			if c, ok := suggested(err); ok {
				if _, err := kvstore.LeaseName(c); err != nil {
					t.Fatalf("%q is refused for %q, which is refused: %v", s, c, err)
				}
			}
			return
		}
		if s != key && s != "/leases/"+key || !isCanonical("/leases/"+key) {
			t.Fatalf("%q is %q", s, key)
		}
		for _, spelling := range []string{key, "/leases/" + key} {
			again, err := kvstore.LeaseName(spelling)
			if err != nil || again != key {
				t.Fatalf("%q is %q, but %q is %q %v", s, key, spelling, again, err)
			}
		}
	})
}
