package simulation

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/leasehold/leasehold/engine/postgres/postgrestest"
)

// A house is servers of one database, each a process, with a proxy before all that
// each talks to.
type house struct {
	t       testing.TB
	dir     string
	binary  string
	dsn     string
	group   *postgrestest.Group // that the database is, or nil
	servers []*machine

	postmaster int         // the database's first process, or 0
	share      float64     // of a processor, for each server; 0: as much as there is
	confined   []string    // the control groups of processes that have a share
	direct     bool        // servers reach the database and each other without a proxy
	closed     atomic.Bool // the servers have been ended, because of a fault
}

// A machine is a place for a process of leasehold serve.
type machine struct {
	h    *house
	n    int
	cmd  *exec.Cmd
	ends chan struct{}

	mu          sync.Mutex
	listen, web string // where its process listens for other servers, and for HTTP

	toDatabase, toPeers, toWeb, toSocket *proxy
}

func newHouse(t testing.TB, servers int) *house {
	t.Helper()
	database := postgrestest.Start(t)
	h := newHouseOn(t, servers, database.DSN(), nil)
	h.postmaster = database.PID()
	return h
}

// newHouseOn is newHouse on a database that there is.
func newHouseOn(t testing.TB, servers int, dsn string, group *postgrestest.Group) *house {
	t.Helper()
	dir, err := os.MkdirTemp("", "lh") // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	h := &house{t: t, dir: dir, dsn: dsn, group: group, binary: filepath.Join(dir, "leasehold")}
	t.Cleanup(h.close)
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-ldflags=-s -w", "-o", h.binary, "../../cmd/leasehold").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	if err := os.WriteFile(filepath.Join(dir, "secret"), []byte(strings.Repeat("secret of a test ", 3)), 0o600); err != nil {
		t.Fatal(err)
	}
	for n := range servers {
		h.servers = append(h.servers, h.newMachine(n))
	}
	return h
}

func (h *house) close() {
	for _, s := range h.servers {
		if s.cmd != nil {
			s.signal(syscall.SIGKILL)
			<-s.ends
		}
		for _, p := range []*proxy{s.toDatabase, s.toPeers, s.toWeb, s.toSocket} {
			p.close()
		}
	}
	for _, group := range h.confined {
		os.Remove(group)
	}
	os.RemoveAll(h.dir)
}

func (h *house) newMachine(n int) *machine {
	s := &machine{h: h, n: n}
	if err := os.Mkdir(s.path(""), 0o700); err != nil {
		h.t.Fatal(err)
	}
	cfg, err := pgx.ParseConfig(h.dsn)
	if err != nil {
		h.t.Fatal(err)
	}
	const name = ".s.PGSQL.5432"
	s.toDatabase = h.proxyTo("unix", s.path(name), func() (net.Conn, error) {
		dir := cfg.Host
		if h.group != nil {
			dir = h.group.Directory()
		}
		return net.Dial("unix", filepath.Join(dir, name))
	})
	dial := func(network string, address *string) func() (net.Conn, error) {
		return func() (net.Conn, error) {
			s.mu.Lock()
			at := *address
			s.mu.Unlock()
			return net.Dial(network, at)
		}
	}
	socket := s.path("s")
	s.toPeers = h.proxyTo("tcp", "127.0.0.1:0", dial("tcp", &s.listen))
	s.toWeb = h.proxyTo("tcp", "127.0.0.1:0", dial("tcp", &s.web))
	s.toSocket = h.proxyTo("unix", s.path("door"), dial("unix", &socket))
	return s
}

func (s *machine) path(name string) string { return filepath.Join(s.h.dir, fmt.Sprint(s.n), name) }

func (h *house) proxyTo(network, at string, dial func() (net.Conn, error)) *proxy {
	ln, err := net.Listen(network, at)
	if err != nil {
		h.t.Fatal(err)
	}
	return startProxy(ln, dial)
}

// freePort is an address that nobody listens at.
func freePort(t testing.TB) string {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().String()
}

// start starts the process, and returns when it listens.
func (s *machine) start() {
	s.begin()
	s.ready()
}

// begin starts the process at ports that are free now.
func (s *machine) begin() {
	s.mu.Lock()
	s.listen, s.web = freePort(s.h.t), freePort(s.h.t)
	s.mu.Unlock()
	single := fmt.Sprintf("--single-node=%t", s.h.group == nil)
	database, peers := s.path(""), s.toPeers.ln.Addr().String()
	if s.h.direct {
		cfg, err := pgx.ParseConfig(s.h.dsn)
		if err != nil {
			s.h.t.Fatal(err)
		}
		database, peers = cfg.Host, s.listen
	}
	s.cmd = exec.Command(s.h.binary, "serve", single, "--partitions", fmt.Sprint(*clusterOver), "--postgres", fmt.Sprintf("host=%s user=test dbname=postgres", database),
		"--listen", s.listen, "--advertise", peers, "--cluster-secret", filepath.Join(s.h.dir, "secret"),
		"--state", s.path("state"), "--socket", s.path("s"), "--http", s.web, "--log-level", cmp.Or(os.Getenv("SIMULATION_SERVERS"), "error"))
	log, err := os.OpenFile(s.path("log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		s.h.t.Fatal(err)
	}
	defer log.Close()
	s.cmd.Stderr = log
	if err := s.cmd.Start(); err != nil {
		s.h.t.Fatal(err)
	}
	if s.h.share > 0 {
		s.h.confine(s.cmd.Process.Pid, s.h.share)
	}
	ends := make(chan struct{})
	s.ends = ends
	go func() { // ends with the process, which close kills
		defer close(ends)
		_ = s.cmd.Wait()
	}()
}

func (s *machine) ready() {
	for {
		nc, err := net.Dial("unix", s.path("s"))
		if err == nil {
			nc.Close()
			return
		}
		select {
		case <-s.ends:
			log, _ := os.ReadFile(s.path("log"))
			if again := bytes.HasSuffix(bytes.TrimSpace(log), []byte("address already in use")); again {
				s.begin() // another program took the port meanwhile
				continue
			}
			s.h.t.Errorf("server %d does not start: %s", s.n, log)
			return
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func (s *machine) signal(sig syscall.Signal) { _ = s.cmd.Process.Signal(sig) }

// kill ends the process at once.
func (s *machine) kill() {
	s.signal(syscall.SIGKILL)
	<-s.ends
}

// stop ends the process as an operator does.
func (s *machine) stop() {
	s.signal(syscall.SIGTERM)
	select {
	case <-s.ends:
		if code := s.cmd.ProcessState.ExitCode(); code != 0 {
			log, _ := os.ReadFile(s.path("log"))
			s.h.t.Errorf("server %d ended with %d: %s", s.n, code, log)
		}
	case <-time.After(time.Minute):
		s.h.t.Errorf("server %d has not stopped", s.n)
		s.kill()
	}
}

// leader gives the server that leads a partition, once there is one.
func (h *house) leader(partition int) *machine {
	conn, err := pgx.Connect(context.Background(), h.dsn)
	if err != nil {
		h.t.Fatal(err)
	}
	defer conn.Close(context.Background())
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		var process string
		if conn.QueryRow(context.Background(), "SELECT process FROM leasehold_server JOIN leasehold_partition ON leader = id WHERE partition = $1", partition).Scan(&process) != nil {
			continue
		}
		for _, s := range h.servers {
			if s.cmd != nil && strings.Contains(process, fmt.Sprintf(" %d ", s.cmd.Process.Pid)) {
				return s
			}
		}
	}
	h.t.Fatal("nobody leads")
	return nil
}
