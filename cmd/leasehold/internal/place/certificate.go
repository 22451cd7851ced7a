package place

import (
	"fmt"
	"time"
)

// A Certificate is one that a daemon presents.
type Certificate struct {
	File    string    `json:"file"` // that it was read from
	Expires time.Time `json:"expires"`
}

// warnBefore is how long before its end a certificate is said to expire.
const warnBefore = 30 * 24 * time.Hour

// Expiring describes a certificate that has expired or soon will. what is "" if it lasts
// longer.
func (c Certificate) Expiring(now time.Time) (what string, expired bool) {
	at := c.Expires.UTC().Format(time.RFC3339)
	switch left := c.Expires.Sub(now); {
	case left <= 0:
		return fmt.Sprintf("the certificate %s has expired, at %s", c.File, at), true
	case left < warnBefore:
		return fmt.Sprintf("the certificate %s expires at %s", c.File, at), false
	}
	return "", false
}

// RenewCertificate is what to do about a certificate that expires.
const RenewCertificate = "put a new one in its place, and restart the daemon, which reads it then; no session ends by that"
