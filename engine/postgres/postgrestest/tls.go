package postgrestest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	mathrand "math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Address gives an address of this machine for a server that listens to more than its socket.
// Perhaps no other has it, because all of 127/8 is this machine.
func Address() string {
	return fmt.Sprintf("127.%d.%d.%d", 1+mathrand.IntN(254), mathrand.IntN(256), 1+mathrand.IntN(254))
}

// Write writes a file in the server's data directory.
func (s *Server) Write(t testing.TB, name string, text []byte) {
	t.Helper()
	name = filepath.Join(s.data(), name)
	err := os.WriteFile(name, text, 0o600)
	if s.as != nil {
		err = errors.Join(err, os.Chown(name, int(s.as.Uid), int(s.as.Gid)))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Certificate makes a certificate that signs itself, and its key. It is valid for the two
// hours before an instant.
func Certificate(t testing.TB, name string, until time.Time) (cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	is := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: until.Add(-2 * time.Hour), NotAfter: until,
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	if ip := net.ParseIP(name); ip != nil {
		is.IPAddresses = []net.IP{ip}
	}
	signed, err := x509.CreateCertificate(rand.Reader, is, is, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: signed}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})
}
