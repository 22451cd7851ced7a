package daemon

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/spf13/pflag"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/exit"
	"github.com/leasehold/leasehold/dispatch/server"
)

// An identity names the files of the certificates by which servers authenticate one
// another, if they do not use a secret.
type identity struct{ Cert, Key, CA string }

func (i *identity) addFlags(f *pflag.FlagSet) {
	f.StringVar(&i.Cert, "cluster-cert", "", "in place of --cluster-secret: the `file` of this server's certificate, for servers and clients and the address at which others find it")
	f.StringVar(&i.Key, "cluster-key", "", "the `file` of its key")
	f.StringVar(&i.CA, "cluster-ca", "", "the `file` of the authority that has signed the certificates of all servers")
}

func (i identity) given() bool { return i != identity{} }

func (i identity) check() error {
	if i.given() && (i.Cert == "" || i.Key == "" || i.CA == "") {
		return errors.New("--cluster-cert, --cluster-key and --cluster-ca belong together; give all three")
	}
	return nil
}

func (i identity) load() (*tls.Config, error) {
	pair, err := loadPair(i.Cert, i.Key, "cluster")
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(i.CA)
	if err != nil {
		return nil, fmt.Errorf("--cluster-ca: %w", err)
	}
	authorities := x509.NewCertPool()
	if !authorities.AppendCertsFromPEM(text) {
		return nil, exit.Hint(fmt.Errorf("%s has no certificate", i.CA), "--cluster-ca takes a file in PEM")
	}
	// Check now what every other server would check, so that the error appears here.
	_, err = pair.Leaf.Verify(x509.VerifyOptions{Roots: authorities, Intermediates: intermediates(pair), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	if err == nil {
		_, err = pair.Leaf.Verify(x509.VerifyOptions{Roots: authorities, Intermediates: intermediates(pair), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	}
	if err != nil {
		do := "have that authority sign it, with the extended key usages serverAuth and clientAuth"
		if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok && invalid.Reason == x509.Expired {
			do = "renew whichever has expired, and see that the clock of this machine is right"
		}
		return nil, exit.Hint(fmt.Errorf("the servers that trust %s would not trust %s: %w", i.CA, i.Cert, err), "%s", do)
	}
	return server.ClusterCertificates(pair, authorities), nil
}

// isFor refuses a certificate that does not name the address at which the other servers
// reach this one: none of them would pass a client on to it.
func (i identity) isFor(c *tls.Config, address string) error {
	host, _, err := net.SplitHostPort(address)
	if err == nil {
		err = c.Certificates[0].Leaf.VerifyHostname(host)
	}
	if err != nil {
		return exit.Hint(fmt.Errorf("the other servers would not trust %s for the server at %s: %w", i.Cert, address, err),
			"have it signed for that address, or name one that it has with --advertise")
	}
	return nil
}

func intermediates(pair tls.Certificate) *x509.CertPool {
	pool := x509.NewCertPool()
	for _, der := range pair.Certificate[1:] {
		if cert, err := x509.ParseCertificate(der); err == nil {
			pool.AddCert(cert)
		}
	}
	return pool
}

// A server that accepts a connection first sends this byte. In TLS 1.3 the handshake does
// not tell a client that its certificate was refused. Without the byte the client would
// find out only while it passes data on.
var taken = []byte("\n")

// dialled waits until the other server accepts the connection. If it does not, the error
// explains why.
func (i identity) dialled(nc net.Conn, address string, err error) (net.Conn, error) {
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return nil, fmt.Errorf("the certificate of the server at %s is not one that %s vouches for there: %w", address, i.CA, err)
	}
	if err != nil {
		return nil, err
	}
	_ = nc.SetReadDeadline(time.Now().Add(dialTimeout))
	if _, err := io.ReadFull(nc, make([]byte, len(taken))); err != nil {
		nc.Close()
		return nil, fmt.Errorf("the server at %s does not take the certificate %s of this one: its --cluster-ca must be that of the authority that has signed it: %w", address, i.Cert, err)
	}
	_ = nc.SetReadDeadline(time.Time{})
	return nc, nil
}

// welcoming is a listener that tells each client that its connection is accepted.
type welcoming struct{ net.Listener }

func (l welcoming) Accept() (net.Conn, error) {
	nc, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &welcomed{Conn: nc.(*tls.Conn)}, nil
}

// A welcomed connection does so at its first Read.
type welcomed struct {
	*tls.Conn
	once sync.Once
	err  error
}

func (c *welcomed) Read(p []byte) (int, error) {
	c.once.Do(func() {
		if err := c.Handshake(); err != nil {
			c.err = fmt.Errorf("the other server has no certificate that --cluster-ca vouches for, or does not trust this one's: %w", err)
			return
		}
		_, c.err = c.Write(taken)
	})
	if c.err != nil {
		return 0, c.err
	}
	return c.Conn.Read(p)
}
