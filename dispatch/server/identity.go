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

// minSecret is the shortest secret, in bytes: an eavesdropper on the beginning
// of a connection could try all shorter ones.
const minSecret = 32

// ClusterTLS returns the configuration for connections between servers with the
// same secret. Each derives the same key from it, presents that key, and
// accepts only peers with it.
func ClusterTLS(secret []byte) (*tls.Config, error) {
	if len(secret) < minSecret {
		return nil, fmt.Errorf("the secret has %d bytes; it needs %d or more, as from: openssl rand -base64 32", len(secret), minSecret)
	}
	seed := sha256.Sum256(append([]byte("leasehold cluster key 1\x00"), secret...))
	key := ed25519.NewKeyFromSeed(seed[:])
	public := key.Public().(ed25519.PublicKey)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "leasehold"},
		// Clocks are not compared; only the key matters.
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
		// Neither a name nor an authority is verified, but the key is, on both
		// sides.
		InsecureSkipVerify: true, // VerifyConnection does it
		VerifyConnection: func(state tls.ConnectionState) error {
			if len(state.PeerCertificates) > 0 && public.Equal(state.PeerCertificates[0].PublicKey) {
				return nil
			}
			return errors.New("the other end does not know the secret of this cluster")
		},
	}, nil
}

// ClusterCertificates makes the configuration of connections between servers that know
// one another by certificates: each shows pair, and accepts those that an authority in
// authorities has signed, for a server and a client, and for the name or address at
// which the other is reached.
func ClusterCertificates(pair tls.Certificate, authorities *x509.CertPool) *tls.Config {
	return &tls.Config{
		MinVersion:   tls.VersionTLS13,
		Certificates: []tls.Certificate{pair},
		ClientAuth:   tls.RequireAndVerifyClientCert,
		ClientCAs:    authorities,
		RootCAs:      authorities,
	}
}
