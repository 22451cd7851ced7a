package dispatch

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"strconv"
	"strings"

	"github.com/google/uuid"
)

// A secret is handed out once, as a text that contains its partition and the id
// it belongs to. Only a hash of the secret is stored.
const (
	tokenMark  = "lht_" // an actor's token
	accessMark = "lha_" // the token of an operator or reader
	handleMark = "lhs_" // a session's handle

	markSize    = 4
	secretBytes = 32
)

// newSecret creates a secret for id in this partition and returns it with its hash.
func (p Partition) newSecret(mark string, id uuid.UUID) (text string, hash []byte) {
	b := make([]byte, 16+secretBytes)
	copy(b, id[:])
	rand.Read(b[16:]) // never fails: crypto/rand aborts the program instead
	if p.Number > 0 {
		mark += strconv.Itoa(p.Number) + "."
	}
	return mark + base64.RawURLEncoding.EncodeToString(b), hashSecret(b[16:])
}

// openSecret decodes the result of newSecret. ok is false if text has another
// form.
func openSecret(mark, text string) (id uuid.UUID, secret []byte, ok bool) {
	rest, ok := strings.CutPrefix(text, mark)
	if !ok {
		return uuid.Nil, nil, false
	}
	_, rest = cutNumber(rest)
	b, err := base64.RawURLEncoding.DecodeString(rest)
	if err != nil || len(b) != 16+secretBytes {
		return uuid.Nil, nil, false
	}
	return uuid.UUID(b[:16]), b[16:], true
}

// IsAccess reports whether a token has the form of an operator's or reader's
// token.
func IsAccess(token string) bool { return strings.HasPrefix(token, accessMark) }

func hashSecret(secret []byte) []byte {
	sum := sha256.Sum256(secret)
	return sum[:]
}

// matches compares in constant time. An empty hash matches nothing.
func matches(hash, secret []byte) bool {
	return len(hash) > 0 && subtle.ConstantTimeCompare(hash, hashSecret(secret)) == 1
}
