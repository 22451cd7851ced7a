// Package postgrestest starts PostgreSQL servers for tests, from the programs that
// Debian's package "postgresql" installs. A server listens on a unix socket in its
// own directory only, and ends with the test that started it.
package postgrestest

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// find gives a program of the newest version that is installed.
func find(program string) (string, error) {
	if path, err := exec.LookPath(program); err == nil {
		return path, nil
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + program) // a constant: cannot fail
	if len(found) == 0 {
		return "", fmt.Errorf("%s is not here: apt-get install postgresql", program)
	}
	slices.SortFunc(found, func(a, b string) int { return version(a) - version(b) })
	return found[len(found)-1], nil
}

// Program returns a command that runs a program of PostgreSQL for one test. A test that is
// not skipped has them all.
func Program(name string, args ...string) *exec.Cmd {
	path, err := find(name)
	return &exec.Cmd{Path: path, Args: append([]string{name}, args...), Err: err}
}

func version(path string) int {
	n, _ := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(path)))) // 0 for an odd name
	return n
}

// A Server is a PostgreSQL of its own.
type Server struct {
	dir  string // of data, sockets and log
	as   *syscall.Credential
	cmd  *exec.Cmd
	done chan struct{}

	mu        sync.Mutex
	databases int
}

// Start makes a server for one test, and starts it. The test is skipped, with the
// reason, where PostgreSQL is not installed.
func Start(t testing.TB, settings ...string) *Server {
	t.Helper()
	skipWithout(t)
	s, err := start(settings...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.remove(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func skipWithout(t testing.TB) {
	t.Helper()
	if err := Installed(); err != nil {
		t.Skip(err)
	}
}

// Installed says what is missing, if anything is.
func Installed() error {
	_, err := find("postgres")
	return err
}

var shared struct {
	sync.Mutex
	server *Server
}

// Main runs the tests of a package, and then stops the server that they shared. Such
// tests wait more than they work, so more run in parallel than there are processors,
// unless -parallel says how many.
func Main(m interface{ Run() int }) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		if err := flag.Set("test.parallel", strconv.Itoa(4*runtime.GOMAXPROCS(0))); err != nil {
			panic(err) // the flag is missing
		}
	}
	code := m.Run()
	shared.Lock()
	defer shared.Unlock()
	if shared.server != nil {
		if err := shared.server.remove(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// Database gives the DSN of a new database of a server that all tests of a package
// share. The package's TestMain calls Main.
func Database(t testing.TB) (dsn string) {
	t.Helper()
	skipWithout(t)
	shared.Lock()
	defer shared.Unlock()
	if shared.server == nil {
		s, err := start()
		if err != nil {
			t.Fatal(err)
		}
		shared.server = s
	}
	return shared.server.Database(t)
}

func start(settings ...string) (_ *Server, err error) {
	dir, err := os.MkdirTemp("", "postgres-") // short: it is in the socket's path
	if err != nil {
		return nil, err
	}
	s := &Server{dir: dir}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.remove())
		}
	}()
	if os.Geteuid() == 0 { // it refuses to run as root
		if s.as, err = postgresUser(); err != nil {
			return nil, err
		}
		if err := os.Chown(dir, int(s.as.Uid), int(s.as.Gid)); err != nil {
			return nil, err
		}
	}
	initdb, err := find("initdb")
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(initdb, "-D", s.data(), "-U", "test", "-A", "trust", "-E", "UTF8", "--no-locale", "-N")
	cmd.SysProcAttr, cmd.Dir = &syscall.SysProcAttr{Credential: s.as}, dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("initdb: %w: %s", err, out)
	}
	conf := append([]string{"listen_addresses = ''", "unix_socket_directories = '" + dir + "'", "max_connections = 200", "shared_buffers = 64MB"}, settings...)
	f, err := os.OpenFile(filepath.Join(s.data(), "postgresql.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return nil, err
	}
	_, err = f.WriteString(strings.Join(conf, "\n") + "\n")
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	return s, s.up()
}

func postgresUser() (*syscall.Credential, error) {
	u, err := user.Lookup("postgres")
	if err != nil {
		return nil, fmt.Errorf("PostgreSQL does not run as root, and Debian's package has made no user for it: %w", err)
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, errors.Join(err, err2)
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

func (s *Server) remove() error {
	s.Kill()
	return os.RemoveAll(s.dir)
}

func (s *Server) dsn(database string) string {
	return "host=" + s.dir + " user=test dbname=" + database
}

// DSN names the server's first database.
func (s *Server) DSN() string { return s.dsn("postgres") }

// PID is of the server's first process. The others are its children.
func (s *Server) PID() int { return s.cmd.Process.Pid }

// Database makes another database and gives its DSN.
func (s *Server) Database(t testing.TB) (dsn string) {
	t.Helper()
	s.mu.Lock()
	s.databases++
	name := fmt.Sprintf("test%d", s.databases)
	s.mu.Unlock()
	Exec(t, s.DSN(), "CREATE DATABASE "+name)
	return s.dsn(name)
}

// Restart starts the server, which Kill has ended, and waits until it answers.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	if err := s.up(); err != nil {
		t.Fatal(err)
	}
}

var errInUse = errors.New("processes of the server before have not ended yet")

// up starts the server, once the children of the one before have noticed that it
// has gone.
func (s *Server) up() error {
	for {
		err := s.start()
		if !errors.Is(err, errInUse) {
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func (s *Server) start() error {
	path, err := find("postgres")
	if err != nil {
		return err
	}
	said, err := os.Create(filepath.Join(s.dir, "log"))
	if err != nil {
		return err
	}
	defer said.Close()
	cmd, done, started := exec.Command(path, "-D", s.data()), make(chan struct{}), make(chan error)
	cmd.SysProcAttr, cmd.Dir, cmd.Stdout, cmd.Stderr = &syscall.SysProcAttr{Setpgid: true, Credential: s.as}, s.dir, said, said
	dieWithParent(cmd.SysProcAttr)
	go func() {
		// The server ends with the thread that started it.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // it is killed
			close(done)
		}
	}()
	if err := <-started; err != nil {
		return err
	}
	s.cmd, s.done = cmd, done
	for {
		conn, err := pgx.Connect(context.Background(), s.DSN())
		if err == nil {
			return conn.Close(context.Background())
		}
		select {
		case <-done:
			text, _ := os.ReadFile(said.Name())
			if strings.Contains(string(text), "still in use") {
				return errInUse
			}
			return fmt.Errorf("postgres ended: %s", text)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// Kill ends the server as a crash would: the first process by SIGKILL, and its
// children when they notice.
func (s *Server) Kill() {
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Kill() // it may have ended
	<-s.done
	s.cmd = nil
}

// Exec runs SQL.
func Exec(t testing.TB, dsn, sql string, args ...any) {
	t.Helper()
	conn, err := pgx.Connect(context.Background(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	_, err = conn.Exec(context.Background(), sql, args...)
	if err = errors.Join(err, conn.Close(context.Background())); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}
