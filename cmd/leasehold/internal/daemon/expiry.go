package daemon

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"time"

	"github.com/rs/zerolog"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/place"
)

// certificates returns those that the daemon presents to clients, which secure has, and to
// other servers.
func (cfg *serveConfig) certificates(secure *tls.Config) (list []place.Certificate) {
	if d := cfg.Door; d.ln != nil && d.Identity.given() {
		list = append(list, place.Certificate{File: d.Identity.Cert, Expires: expiryOf(d.tls)})
	}
	if secure != nil {
		list = append(list, place.Certificate{File: cfg.TLS.Cert, Expires: expiryOf(secure)})
	}
	return list
}

// expiryOf returns when the certificate of a configuration, or one that it depends on,
// expires. Of several authorities that have signed it, the one counts that lasts longest.
func expiryOf(c *tls.Config) (expires time.Time) {
	pair := c.Certificates[0]
	chains, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: c.RootCAs, Intermediates: intermediates(pair), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
	if err != nil { // its authority is not known here, but to the clients
		return pair.Leaf.NotAfter
	}
	for _, chain := range chains {
		first := pair.Leaf.NotAfter
		for _, cert := range chain {
			if cert.NotAfter.Before(first) {
				first = cert.NotAfter
			}
		}
		if first.After(expires) {
			expires = first
		}
	}
	return expires
}

// warnOfExpiry logs each day which certificates have expired or soon will, until ctx ends.
func warnOfExpiry(ctx context.Context, log zerolog.Logger, certificates []place.Certificate) error {
	for {
		for _, c := range certificates {
			if what, _ := c.Expiring(time.Now()); what != "" {
				log.Warn().Str("certificate", c.File).Time("expires", c.Expires).Msg(what + ": " + place.RenewCertificate)
			}
		}
		select {
		case <-time.After(24 * time.Hour):
		case <-ctx.Done():
			return nil
		}
	}
}
