package daemon

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// With a certificate HTTP may listen anywhere, and is served over TLS alone.
func TestCertificateServesHTTPS(t *testing.T) {
	dir := t.TempDir()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	cfg := serveConfig{HTTP: "0.0.0.0:0", Socket: filepath.Join(dir, "s"), TLS: certificate{filepath.Join(dir, "cert"), filepath.Join(dir, "key")}}
	if _, err := cfg.TLS.load(); err == nil {
		t.Fatal("it loads a certificate that is not there")
	}
	for file, block := range map[string]*pem.Block{cfg.TLS.Cert: {Type: "CERTIFICATE", Bytes: cert}, cfg.TLS.Key: {Type: "PRIVATE KEY", Bytes: encoded}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	secure, err := cfg.TLS.load()
	if err != nil {
		t.Fatal(err)
	}
	socket, web, err := listen(cfg, secure)
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	defer web.Close()
	if url := urlOf(web, cfg.TLS); url[:8] != "https://" {
		t.Errorf("it is told to be at %s", url)
	}
	go func() {
		if nc, err := web.Accept(); err == nil {
			_ = nc.(*tls.Conn).Handshake()
			nc.Close()
		}
	}()
	_, port, _ := net.SplitHostPort(web.Addr().String())
	nc, err := tls.Dial("tcp", "127.0.0.1:"+port, &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}) // what it shows is compared
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if shown := nc.ConnectionState().PeerCertificates[0]; !shown.Equal(mustParse(t, cert)) {
		t.Error("it shows another certificate")
	}
}

func mustParse(t *testing.T, der []byte) *x509.Certificate {
	t.Helper()
	c, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return c
}
