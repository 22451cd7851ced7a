package page

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"
	"sync"
	"time"
)

// How long a code is valid, and how long it signs a browser in.
const (
	CodeLasts = 2 * time.Minute
	SignedIn  = 12 * time.Hour
)

// maxCodes is the largest number of unused codes.
const maxCodes = 64

// Codes are one-time codes. The zero value has none.
type Codes struct {
	mu     sync.Mutex
	issued []issued // the oldest first
}

type issued struct {
	hash  [sha256.Size]byte
	role  string
	until time.Time
	own   bool // only for this user
}

// Issue creates a code for a role, which may be only for this user's processes.
// If there are too many, the oldest becomes void.
func (c *Codes) Issue(role string, own bool, now time.Time) string {
	code := rand.Text()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forgetLocked(now)
	if len(c.issued) == maxCodes {
		c.issued = c.issued[1:]
	}
	c.issued = append(c.issued, issued{sha256.Sum256([]byte(code)), role, now.Add(CodeLasts), own})
	return code
}

// Redeem uses up a code. The time it takes reveals nothing about the valid
// codes. A code that is only for this user stays valid if foreign says that
// another user shows it.
func (c *Codes) Redeem(code string, foreign func() bool, now time.Time) (role string, ok bool) {
	hash := sha256.Sum256([]byte(code))
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forgetLocked(now)
	found := -1
	for i := range c.issued {
		if subtle.ConstantTimeCompare(hash[:], c.issued[i].hash[:]) == 1 {
			found = i
		}
	}
	if found < 0 || c.issued[found].own && foreign() {
		return "", false
	}
	role = c.issued[found].role
	c.issued = append(c.issued[:found], c.issued[found+1:]...)
	return role, true
}

func (c *Codes) forgetLocked(now time.Time) {
	for len(c.issued) > 0 && !now.Before(c.issued[0].until) {
		c.issued = c.issued[1:]
	}
}

// cookiePrefix begins the names of the page's cookies. Each sign-in has its own
// name, because all ports of a host, and so several daemons, share their
// cookies.
const cookiePrefix = "leasehold-"

// maxSecret is the longest cookie or key that is accepted.
const maxSecret = 512

// Split splits a token into a cookie, with its name and value, and a key. Each
// part is a one-time pad for the other.
func Split(token string) (name, cookie, key string) {
	pad := make([]byte, 4+len(token))
	rand.Read(pad) // never fails
	id, pad := hex.EncodeToString(pad[:4]), pad[4:]
	mixed := make([]byte, len(token))
	subtle.XORBytes(mixed, []byte(token), pad)
	return cookiePrefix + id, encode(mixed), id + "." + encode(pad)
}

// CookieOf returns the name of the cookie that belongs to a key, or "" if the
// key is not valid.
func CookieOf(key string) string {
	id, _, ok := strings.Cut(key, ".")
	if _, err := hex.DecodeString(id); !ok || err != nil || len(id) != 8 || len(key) > maxSecret {
		return ""
	}
	return cookiePrefix + id
}

// Join returns the token that was split into a cookie and a key.
func Join(cookie, key string) (string, error) {
	_, half, _ := strings.Cut(key, ".")
	mixed, err1 := decode(cookie)
	pad, err2 := decode(half)
	if err1 != nil || err2 != nil || len(mixed) != len(pad) || len(cookie) > maxSecret {
		return "", fmt.Errorf("the cookie and the key do not belong together")
	}
	token := make([]byte, len(mixed))
	subtle.XORBytes(token, mixed, pad)
	return string(token), nil
}

func encode(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

func decode(s string) ([]byte, error) { return base64.RawURLEncoding.DecodeString(s) }
