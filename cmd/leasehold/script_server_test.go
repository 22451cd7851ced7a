package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// certify makes an authority and a certificate for this machine: ca.pem, cert.pem and
// key.pem.
func certify(ts *testscript.TestScript, _ bool, _ []string) {
	authority := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	own := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "server"}, NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	signer, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	ts.Check(err)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	ts.Check(err)
	ca, err := x509.CreateCertificate(rand.Reader, authority, authority, signer.Public(), signer)
	ts.Check(err)
	cert, err := x509.CreateCertificate(rand.Reader, own, authority, key.Public(), signer)
	ts.Check(err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	ts.Check(err)
	for file, block := range map[string]*pem.Block{
		"ca.pem": {Type: "CERTIFICATE", Bytes: ca}, "cert.pem": {Type: "CERTIFICATE", Bytes: cert}, "key.pem": {Type: "PRIVATE KEY", Bytes: private},
	} {
		ts.Check(os.WriteFile(ts.MkAbs(file), pem.EncodeToMemory(block), 0o600))
	}
}

// capture sets a variable to what the last program has printed, or to what a group of an
// expression matches in that or, with a name, in what a process has printed.
func capture(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) == 1 {
		ts.Setenv(args[0], strings.TrimSpace(ts.ReadFile("stdout")))
		return
	}
	out := []byte(ts.ReadFile("stdout"))
	if args[1] != "-" {
		untilPrinted(ts, false, args[1:])
		out, _ = scriptOf(ts).processes[args[1]].output()
	}
	ts.Setenv(args[0], string(regexp.MustCompile("(?m)" + args[2]).FindSubmatch(out)[1]))
}

// say writes a file to the standard input of a process, which stays open.
func say(ts *testscript.TestScript, _ bool, args []string) {
	_, err := io.WriteString(scriptOf(ts).processes[args[0]].stdin, ts.ReadFile(args[1]))
	ts.Check(err)
}
