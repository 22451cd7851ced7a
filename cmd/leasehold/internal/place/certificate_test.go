package place_test

import (
	"strings"
	"testing"
	"time"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/place"
)

func TestACertificateIsSaidToExpireThirtyDaysBefore(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	const day = 24 * time.Hour
	for left, want := range map[time.Duration]string{
		-time.Second: "the certificate c.pem has expired, at 2026-03-01T11:59:59Z",
		0:            "the certificate c.pem has expired, at 2026-03-01T12:00:00Z",
		day:          "the certificate c.pem expires at 2026-03-02T12:00:00Z",
		30*day - 1:   "the certificate c.pem expires at 2026-03-31T11:59:59Z",
		30 * day:     "",
	} {
		what, expired := place.Certificate{File: "c.pem", Expires: now.Add(left)}.Expiring(now)
		if what != want || expired != strings.Contains(want, "has expired") {
			t.Errorf("%v before: %q %v, want %q", left, what, expired, want)
		}
	}
}
