package server

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"time"
)

// minSecret is how many bytes a secret has at least: whoever sees a connection begin
// can try all that are short.
const minSecret = 32

// ClusterTLS makes the configuration of connections between servers that know the same
// secret. From it each makes the same key, shows it, and accepts nobody without it.
func ClusterTLS(secret []byte) (*tls.Config, error) {
	if len(secret) < minSecret {
		return nil, fmt.Errorf("the secret has %d bytes; it needs %d or more, as from: openssl rand -base64 32", len(secret), minSecret)
	}
	seed := sha256.Sum256(append([]byte("leasehold cluster key 1\x00"), secret...))
	key := ed25519.NewKeyFromSeed(seed[:])
	public := key.Public().(ed25519.PublicKey)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "leasehold"},
		// Nobody compares clocks: what counts is the key.
		NotBefore: time.Unix(0, 0), NotAfter: time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC),
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, public, key)
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion:   tls.VersionTLS13,
		Certificates: []tls.Certificate{{Certificate: [][]byte{cert}, PrivateKey: key}},
		ClientAuth:   tls.RequireAnyClientCert,
		// No name and no authority is verified, but the key is, on both sides.
		InsecureSkipVerify: true, //nolint:gosec // VerifyConnection does it
		VerifyConnection: func(state tls.ConnectionState) error {
			if len(state.PeerCertificates) > 0 && public.Equal(state.PeerCertificates[0].PublicKey) {
				return nil
			}
			return errors.New("the other end does not know the secret of this cluster")
		},
	}, nil
}
