package kvstore_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/leasehold/leasehold/kvstore"
	"github.com/leasehold/leasehold/registry"
)

func TestGlobsMatch(t *testing.T) {
	paths := []string{"/leases/src/a.go", "/peer/W1/x", "/peer/W2/x/y", "/ref/a", "/ref/ab", "/shared/a", "/shared/a/b", "/shared/a/b/c", "/shared/é"}
	for glob, want := range map[string]string{
		"/**":                 strings.Join(paths, " "),
		"/*/*":                "/ref/a /ref/ab /shared/a /shared/é",
		"/*/**":               strings.Join(paths, " "),
		"/shared/a":           "/shared/a",
		"/shared/*":           "/shared/a /shared/é",
		"/shared/**":          "/shared/a /shared/a/b /shared/a/b/c /shared/é",
		"/shared/a/**":        "/shared/a /shared/a/b /shared/a/b/c",
		"/shared/**/c":        "/shared/a/b/c",
		"/shared/?":           "/shared/a /shared/é",
		"/ref/a?":             "/ref/ab",
		"/ref/[a-c]":          "/ref/a",
		"/shared/[!a]":        "/shared/é",
		"/ref/[^b]*":          "/ref/a /ref/ab",
		"/{ref,shared}/a":     "/ref/a /shared/a",
		"/{ref/a,shared/a/b}": "/ref/a /shared/a/b",
		"/ref/a{,b,{c,d}}":    "/ref/a /ref/ab",
		"/[rs]*/a":            "/ref/a /shared/a",
		"/**/x":               "/peer/W1/x",
		"/peer/*/x":           "/peer/W1/x",
		"/peer/W[2-9]/**":     "/peer/W2/x/y",
		"/leases/**":          "/leases/src/a.go",
		"/leases/**/*.go":     "/leases/src/a.go",
		"/ref/z":              "",
	} {
		g, err := kvstore.ParseGlob(glob)
		if err != nil {
			t.Errorf("%s: %v", glob, err)
			continue
		}
		var got []string
		for _, s := range paths {
			p, err := kvstore.ParsePath(s)
			if err != nil {
				t.Fatal(err)
			}
			if g.Match(p) {
				got = append(got, s)
			}
		}
		same(t, glob, strings.Join(got, " "), want)
	}
}

func TestGlobsThatCouldMatchNothingAreRefused(t *testing.T) {
	const roots = "must be under /ref/, /peer/, /shared/ or /leases/"
	for s, want := range map[string]string{
		"":                                      "must not be empty",
		"shared/*":                              "must be canonical: /shared/*",
		"*":                                     "must be canonical: /*",
		"**":                                    "must be canonical: /**",
		"//shared/*":                            "must be canonical: /shared/*",
		"/shared//*":                            "must be canonical: /shared/*",
		"/shared/./*":                           "must be canonical: /shared/*",
		"/shared/**/../x":                       "must be canonical: /shared/x",
		"/shared/*/":                            "must be canonical: /shared/*",
		"/shared/e\u0301*":                      "must be canonical: /shared/é*",
		"/shared/{a,./b}":                       `must be canonical: /shared/b (in "/shared/./b")`,
		"/shared/{,a}":                          `must be canonical: /shared (in "/shared/")`,
		"/tmp/*":                                roots,
		"/x*/a":                                 roots,
		"/{ref,tmp}/*":                          roots + ` (in "/tmp/*")`,
		"/*":                                    "matches no path; to list all below, use /**",
		"/shared":                               "matches no path; to list all below, use /shared/**",
		"/peer/*":                               "matches no path; to list all below, use /peer/**",
		"/peer/W1":                              "matches no path; to list all below, use /peer/W1/**",
		"/shared/[a":                            "must have every [ and { closed, and no empty []",
		"/shared/[]":                            "must have every [ and { closed, and no empty []",
		"/shared/{a":                            "must have every [ and { closed, and no empty []",
		"/shared/a}":                            "must have every [ and { closed, and no empty []",
		"/shared/[a/b]":                         "must not have a / inside []",
		`/shared/\*`:                            `must not hold '\': no path has a character that needs it`,
		"/shared/\x00*":                         "must be printable, and holds U+0000",
		"/shared/\xff*":                         "must be valid UTF-8",
		"/shared/" + strings.Repeat("{a,b}", 7): "must not expand to more than 64 patterns by its braces",
		"/shared/" + strings.Repeat("*", 512):   "must be at most 512 bytes",
	} {
		_, err := kvstore.ParseGlob(s)
		same(t, s, mustBe[*registry.ArgumentError](t, err).Error(), "glob "+want)
	}
}

func TestPeersAreRenamedWhereTheyAreSpelledOut(t *testing.T) {
	rename := func(s string) (string, error) {
		if s == "W9" {
			return "", errors.New("no such peer")
		}
		return strings.ReplaceAll(s, "self", "W1"), nil
	}
	for glob, want := range map[string]bool{
		"/peer/self/*": true, "/peer/{self,W2}/x": true, "/{peer/self,ref}/x": true, "/{peer,ref}/self/x": true, "/peer/{se,sh}lf/**": true,
		"/peer/s*/x": false, "/peer/sel[f]/x": false, "/shared/self/x": false, "/*/self/x": false,
	} {
		g, err := kvstore.ParseGlob(glob)
		if err != nil {
			t.Fatal(err)
		}
		renamed, err := g.WithPeers(rename)
		if err != nil {
			t.Fatal(err)
		}
		p, _ := kvstore.ParsePath("/peer/W1/x")
		same(t, glob, renamed.Match(p), want)
		same(t, glob+" itself", g.Match(p), false)
	}
	g, _ := kvstore.ParseGlob("/peer/{W1,W9}/x")
	if _, err := g.WithPeers(rename); err == nil {
		t.Error("a peer that cannot be renamed is passed over")
	}
}

// FuzzParseGlob compares a glob with doublestar's interpretation of the whole
// pattern, with its braces: expanding the braces must not change the meaning.
func FuzzParseGlob(f *testing.F) {
	for _, glob := range append(spellings, "/**", "/{ref,shared}/{a,b{c,d}}", "/shared/[{,}]", "/shared/{[,],[}]}", "/shared/[!a-c]?**", "/{a{,}") {
		f.Add(glob, "/shared/a")
	}
	f.Fuzz(func(t *testing.T, glob, path string) {
		p, err := kvstore.ParsePath(path)
		if err != nil {
			return
		}
		g, err := kvstore.ParseGlob(glob)
		if err != nil {
			return
		}
		want, err := doublestar.Match(glob, path)
		if err != nil {
			t.Fatalf("%q is taken, and is no pattern: %v", glob, err)
		}
		same(t, glob+" on "+path, g.Match(p), want)
		if !want {
			return
		}
		r := newRoom(t, kvstore.Limits{})
		defer r.close()
		if p.Root() != kvstore.Leases {
			r.set(path, `1`)
			same(t, "listed", r.list(glob), path+" v1 1")
		}
	})
}
