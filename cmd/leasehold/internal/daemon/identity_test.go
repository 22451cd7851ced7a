package daemon

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/exit"
)

// An authority signs certificates of servers.
type authority struct {
	t    *testing.T
	dir  string
	key  *ecdsa.PrivateKey
	cert *x509.Certificate

	lasts time.Duration // what it signs
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t, dir: t.TempDir(), lasts: time.Hour}
	a.key, _ = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	a.cert = &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, a.cert, a.cert, a.key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	a.write("ca", "CERTIFICATE", der)
	return a
}

func (a *authority) write(name, kind string, der []byte) (file string) {
	a.t.Helper()
	file = filepath.Join(a.dir, name)
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		a.t.Fatal(err)
	}
	return file
}

// sign makes the identity of a server at ip.
func (a *authority) sign(name string, ip net.IP, usages ...x509.ExtKeyUsage) identity {
	a.t.Helper()
	key, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(2), NotAfter: time.Now().Add(a.lasts), IPAddresses: []net.IP{ip}, ExtKeyUsage: usages,
	}, a.cert, key.Public(), a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	return identity{a.write(name+".pem", "CERTIFICATE", der), a.write(name+".key", "PRIVATE KEY", private), filepath.Join(a.dir, "ca")}
}

var (
	here = net.IPv4(127, 0, 0, 1)
	both = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
)

// opened is the door of a server; heard has what each connection to it says first, or
// why that was not read.
func opened(t *testing.T, id identity, advertise string) (d *door, heard chan string) {
	t.Helper()
	d = &door{Listen: "127.0.0.1:0", Advertise: advertise, Identity: id}
	if err := d.open(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.ln.Close() })
	heard = make(chan string, 8)
	go func() { // ends with the listener
		for {
			nc, err := d.ln.Accept()
			if err != nil {
				return
			}
			line, err := bufio.NewReader(nc).ReadString('\n')
			if err != nil {
				line = "error: " + err.Error()
			}
			heard <- line
			nc.Close()
		}
	}()
	return d, heard
}

func TestServersKnowOneAnotherByCertificates(t *testing.T) {
	ours, theirs := newAuthority(t), newAuthority(t)
	one, heard := opened(t, ours.sign("one", here, both...), "")
	two, _ := opened(t, ours.sign("two", here, both...), "")
	nc, err := two.dial(t.Context(), one.Advertise)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(nc, "hello\n"); err != nil {
		t.Fatal(err)
	}
	if line := <-heard; line != "hello\n" {
		t.Errorf("it heard %q", line)
	}
	nc.Close()

	// One of another authority neither trusts this one nor is trusted.
	stranger, strangers := opened(t, theirs.sign("stranger", here, both...), "")
	if _, err := stranger.dial(t.Context(), one.Advertise); err == nil || !strings.Contains(err.Error(), "is not one that "+stranger.Identity.CA+" vouches for there") {
		t.Errorf("the stranger dials: %v", err)
	}
	if line := <-heard; !strings.HasPrefix(line, "error: the other server has no certificate that --cluster-ca vouches for, or does not trust this one's: ") {
		t.Errorf("the one that it dials heard %q", line)
	}
	// One that trusts more than it is trusted is told so, before it says anything.
	gullible := stranger.Identity
	gullible.CA = ours.write("both", "CERTIFICATE", nil)
	text, _ := os.ReadFile(one.Identity.CA)
	more, _ := os.ReadFile(stranger.Identity.CA)
	if err := os.WriteFile(gullible.CA, append(text, more...), 0o600); err != nil {
		t.Fatal(err)
	}
	g, _ := opened(t, gullible, "")
	if _, err := g.dial(t.Context(), one.Advertise); err == nil || !strings.Contains(err.Error(), "does not take the certificate "+gullible.Cert+" of this one") {
		t.Errorf("one that it does not trust dials: %v", err)
	}
	if line := <-heard; !strings.Contains(line, "has no certificate that --cluster-ca vouches for") {
		t.Errorf("the one that it dials heard %q", line)
	}
	if _, err := one.dial(t.Context(), stranger.Advertise); err == nil || !strings.Contains(err.Error(), "vouches for there") {
		t.Errorf("to dial the stranger: %v", err)
	}
	<-strangers

	// A certificate is for an address.
	moved, _ := opened(t, ours.sign("moved", net.IPv4(127, 0, 0, 2), both...), "127.0.0.2:7712")
	if _, err := one.dial(t.Context(), moved.ln.Addr().String()); err == nil || !strings.Contains(err.Error(), "127.0.0.2") {
		t.Errorf("to dial one at another address than its certificate has: %v", err)
	}
}

// A certificate lasts no longer than that of the authority without which nobody trusts it.
func TestACertificateLastsAsLongAsAllThatItNeeds(t *testing.T) {
	ours := newAuthority(t)
	for _, lasts := range []time.Duration{time.Minute, 1000 * time.Hour} {
		ours.lasts = lasts
		d, _ := opened(t, ours.sign("one", here, both...), "")
		cfg := serveConfig{Door: d}
		want := d.tls.Certificates[0].Leaf.NotAfter
		if authority := ours.cert.NotAfter.Truncate(time.Second); authority.Before(want) {
			want = authority
		}
		if list := cfg.certificates(nil); len(list) != 1 || list[0].File != d.Identity.Cert || !list[0].Expires.Equal(want) {
			t.Errorf("one for %v: %+v, want %v", lasts, list, want)
		}
	}
	ours.lasts = -time.Minute
	_, err := ours.sign("old", here, both...).load()
	if hinted, ok := errors.AsType[exit.Hinted](err); !ok || !strings.HasPrefix(hinted.Hint, "renew whichever has expired") {
		t.Errorf("one that has expired: %v", err)
	}
}

// What the other servers would refuse is refused at the start.
func TestAnIdentityThatNobodyWouldTrustIsRefused(t *testing.T) {
	ours, theirs := newAuthority(t), newAuthority(t)
	mixed := ours.sign("mixed", here, both...)
	mixed.CA = theirs.sign("x", here).CA
	none := ours.sign("none", here, both...)
	none.CA = none.Key
	for name, c := range map[string]struct {
		id   identity
		want string
	}{
		"another authority": {mixed, "would not trust"},
		"not for clients":   {ours.sign("server", here, x509.ExtKeyUsageServerAuth), "would not trust"},
		"no authority":      {none, "has no certificate"},
		"no files":          {identity{"a", "b", "c"}, "open a"},
	} {
		if _, err := c.id.load(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	elsewhere := &door{Listen: "127.0.0.1:0", Identity: ours.sign("elsewhere", net.IPv4(127, 0, 0, 2), both...)}
	if err := elsewhere.open(t.Context()); err == nil || !strings.Contains(err.Error(), "would not trust "+elsewhere.Identity.Cert+" for the server at "+elsewhere.Advertise) {
		t.Errorf("a certificate for another address: %v", err)
	}
	for _, d := range []*door{
		{Listen: "x", Identity: identity{Cert: "a"}},
		{Listen: "x", Identity: mixed, Secret: "s"},
		{Identity: mixed},
		{Listen: "x"},
		{Listen: "x", Secret: "s", Advertise: "host"},
		{Listen: "x", Secret: "s", Advertise: ":7712"},
		{Listen: "x", Secret: "s", Advertise: "0.0.0.0:7712"},
		{Listen: "x", Secret: "s", Advertise: "host:99999"},
	} {
		if err := d.check(true); err == nil {
			t.Errorf("%+v %q is taken", d.Identity, d.Advertise)
		}
	}
}
