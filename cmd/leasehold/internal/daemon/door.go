package daemon

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/pflag"

	"github.com/leasehold/leasehold/dispatch/server"
	"github.com/leasehold/leasehold/engine/cluster"
)

// A door is where other servers pass clients on to this server, and how this
// server passes clients on to others.
type door struct {
	Listen    string // address; "": there is none
	Advertise string // where the others find it; "": Listen
	Secret    string // the file that has it; "": Identity is given
	Identity  identity

	tls    *tls.Config
	ln     net.Listener
	member *cluster.Member

	mu   sync.Mutex
	ways map[int]wayTo // by partition
}

// A wayTo is a way and the server that it leads to.
type wayTo struct {
	*server.Way
	to uuid.UUID
}

func (d *door) addFlags(f *pflag.FlagSet) {
	f.StringVar(&d.Listen, "listen", "", "pass clients on between the servers that share --postgres: the `address` where this one is reached")
	f.StringVar(&d.Advertise, "advertise", "", "the `address` at which the other servers reach --listen, if it is another one")
	f.StringVar(&d.Secret, "cluster-secret", "", "the `file` with the secret that the servers share, 32 bytes or more")
	d.Identity.addFlags(f)
}

func (d *door) check(shared bool) error {
	switch {
	case d.Listen == "" && (d.Advertise != "" || d.Secret != "" || d.Identity.given()):
		return errors.New("--advertise, --cluster-secret and --cluster-cert are about --listen, which is not given")
	case d.Listen != "" && !shared:
		return errors.New("--listen is for servers that share a database: give --postgres")
	case d.Listen != "" && d.Secret == "" && !d.Identity.given():
		return errors.New("--listen needs --cluster-secret, or --cluster-cert, --cluster-key and --cluster-ca, by which the servers know one another")
	case d.Secret != "" && d.Identity.given():
		return errors.New("--cluster-secret and --cluster-cert both say how the servers know one another; give one, the same to all servers")
	case d.Advertise != "" && !dialable(d.Advertise):
		return fmt.Errorf("--advertise %s is no address at which others find this server: it must be as 10.0.0.7:7712", d.Advertise)
	}
	return d.Identity.check()
}

// dialable reports whether other machines may be able to dial an address.
func dialable(address string) bool {
	host, port, err := net.SplitHostPort(address)
	n, portErr := strconv.ParseUint(port, 10, 16)
	return err == nil && portErr == nil && n > 0 && host != "" && !net.ParseIP(host).IsUnspecified()
}

// peerSilence is how long the machine of another server may not answer.
const peerSilence = server.Silence(9 * time.Second)

// open listens.
func (d *door) open(ctx context.Context) error {
	if err := d.know(); err != nil {
		return err
	}
	config := net.ListenConfig{KeepAliveConfig: peerSilence.KeepAlive(), Control: peerSilence.Control}
	ln, err := config.Listen(ctx, "tcp", d.Listen)
	if err != nil {
		return err
	}
	if d.Advertise == "" {
		if ln.Addr().(*net.TCPAddr).IP.IsUnspecified() {
			ln.Close()
			return fmt.Errorf("--listen %s is no address at which others find this server: say with --advertise what is", d.Listen)
		}
		d.Advertise = ln.Addr().String()
	}
	if d.Identity.given() {
		if err := d.Identity.isFor(d.tls, d.Advertise); err != nil {
			ln.Close()
			return err
		}
	}
	d.ln = tls.NewListener(ln, d.tls)
	if d.Identity.given() {
		d.ln = welcoming{d.ln}
	}
	return nil
}

// know reads the certificates or the secret by which servers authenticate one another.
func (d *door) know() (err error) {
	if d.Identity.given() {
		d.tls, err = d.Identity.load()
		return err
	}
	secret, err := os.ReadFile(d.Secret)
	if err != nil {
		return fmt.Errorf("--cluster-secret: %w", err)
	}
	if d.tls, err = server.ClusterTLS(bytes.TrimSpace(secret)); err != nil {
		return fmt.Errorf("%s: %w", d.Secret, err)
	}
	return nil
}

// dialTimeout is how long another server may take to answer.
const dialTimeout = 3 * time.Second

func (d *door) dial(ctx context.Context, address string) (net.Conn, error) {
	dialer := tls.Dialer{NetDialer: &net.Dialer{Timeout: dialTimeout, KeepAliveConfig: peerSilence.KeepAlive(), Control: peerSilence.Control}, Config: d.tls}
	nc, err := dialer.DialContext(ctx, "tcp", address)
	if d.Identity.given() {
		return d.Identity.dialled(nc, address, err)
	}
	return nc, err
}

// tell makes another server look at the cluster.
func (d *door) tell(s cluster.Server) {
	if s.Address == "" {
		return
	}
	go func() { // ends with the attempt
		ctx, cancel := context.WithTimeout(context.Background(), dialTimeout)
		defer cancel()
		way := server.Way{Dial: func(ctx context.Context) (net.Conn, error) { return d.dial(ctx, s.Address) }}
		_ = way.Poke(ctx) // if this fails, the server looks by itself before long
	}()
}

// elsewhere returns the way to the server that leads a partition, if that is
// another server.
func (d *door) elsewhere(partition int) (*server.Way, <-chan struct{}) {
	leader, self, changed := d.member.Leader(int64(partition))
	if self || leader.Address == "" {
		return nil, changed
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	way := d.ways[partition]
	if way.Way == nil || way.to != leader.ID || way.Over.Err() != nil {
		over, end := context.WithCancel(context.Background())
		way = wayTo{&server.Way{Over: over, Dial: func(ctx context.Context) (net.Conn, error) { return d.dial(ctx, leader.Address) }}, leader.ID}
		if d.ways == nil {
			d.ways = make(map[int]wayTo)
		}
		d.ways[partition] = way
		go func() { // ends with that server's lead
			defer end()
			for now, changed := leader, changed; now.ID == leader.ID; now, _, changed = d.member.Leader(int64(partition)) {
				<-changed
			}
		}()
	}
	return way.Way, changed
}
