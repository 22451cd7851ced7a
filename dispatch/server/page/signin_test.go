package page_test

import (
	"strings"
	"testing"
	"time"

	"github.com/leasehold/leasehold/dispatch/server/page"
)

func TestACodeIsGoodOnceAndForAWhile(t *testing.T) {
	var codes page.Codes
	now := time.Now()
	code := codes.Issue("reader", false, now)
	if _, ok := codes.Redeem(code+"x", nil, now); ok {
		t.Error("another code is good")
	}
	if role, ok := codes.Redeem(code, nil, now.Add(page.CodeLasts-1)); !ok || role != "reader" {
		t.Errorf("the code: %q %v", role, ok)
	}
	if _, ok := codes.Redeem(code, nil, now); ok {
		t.Error("a code is good twice")
	}
	code = codes.Issue("operator", false, now)
	if _, ok := codes.Redeem(code, nil, now.Add(page.CodeLasts)); ok {
		t.Error("a code is good for ever")
	}
	// Whoever asks for many has the last of them.
	first := codes.Issue("operator", false, now)
	for range 100 {
		code = codes.Issue("operator", false, now)
	}
	if _, ok := codes.Redeem(first, nil, now); ok {
		t.Error("codes are kept without bound")
	}
	if _, ok := codes.Redeem(code, nil, now); !ok {
		t.Error("the last code is not good")
	}
}

// Whoever sees the code of another user can neither use it nor use it up.
func TestACodeMayBeOnlyForItsUser(t *testing.T) {
	var codes page.Codes
	now := time.Now()
	code := codes.Issue("operator", true, now)
	if _, ok := codes.Redeem(code, func() bool { return true }, now); ok {
		t.Error("the code is good for another user")
	}
	if _, ok := codes.Redeem(code, func() bool { return false }, now); !ok {
		t.Error("the code is not good for its user")
	}
}

func TestHalvesOfATokenTellNothing(t *testing.T) {
	const token = "lha_0123456789abcdefghijklmnopqrstuvwxyz"
	seen := make(map[string]bool)
	for range 10 {
		name, cookie, key := page.Split(token)
		if joined, err := page.Join(cookie, key); err != nil || joined != token || page.CookieOf(key) != name {
			t.Fatalf("joined to %q, %v, of cookie %q", joined, err, page.CookieOf(key))
		}
		if seen[cookie] || seen[key] || strings.Contains(cookie+key, "lha_") {
			t.Errorf("halves %q and %q", cookie, key)
		}
		seen[cookie], seen[key] = true, true
		_, other, _ := page.Split(token)
		if joined, err := page.Join(other, key); err == nil && joined == token {
			t.Error("halves of different cuts go together")
		}
	}
	for _, key := range []string{"", ".", "x.y", "12345678", "zzzzzzzz.AAAA", strings.Repeat("a", 9) + ".AAAA"} {
		if name := page.CookieOf(key); name != "" {
			t.Errorf("key %q has the cookie %q", key, name)
		}
	}
}
