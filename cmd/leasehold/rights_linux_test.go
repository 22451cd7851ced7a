package main

import (
	"bufio"
	"errors"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// nobody is a user who is not root.
const nobody = 65534

// callsIn returns a function that runs a binary, with all that it keeps in dir.
func callsIn(t *testing.T, dir, binary string) func(as *syscall.SysProcAttr, args ...string) (string, error) {
	return func(as *syscall.SysProcAttr, args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), binary, args...)
		cmd.Dir, cmd.Env, cmd.SysProcAttr = dir, environIn(dir), as
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
}

// mustIn is callsIn for calls that must succeed.
func mustIn(t *testing.T, dir, binary string) func(args ...string) {
	call := callsIn(t, dir, binary)
	return func(args ...string) {
		t.Helper()
		if out, err := call(nil, args...); err != nil {
			t.Errorf("%v: %v: %s", args, err, out)
		}
	}
}

// environIn is the environment of programs that keep all that they keep in dir.
func environIn(dir string, more ...string) []string {
	return append(append(os.Environ(), "HOME="+dir, "XDG_STATE_HOME="+dir+"/s", "XDG_RUNTIME_DIR="+dir+"/r"), more...)
}

// A file of the state that is another user's, as after a daemon that was started with
// sudo, is named, and no daemon is said to have the state open.
func TestAFileOfTheStateIsAnotherUsers(t *testing.T) {
	t.Parallel()
	dir := shortDir(t)
	binary := leaseholdIn(t, dir)
	call := callsIn(t, dir, binary)
	for _, args := range [][]string{{"actor", "add", "--run", "r", "--name", "lead", "--role", "root"}, {"stop"}} {
		if out, err := call(nil, args...); err != nil {
			t.Fatalf("%v: %v: %s", args, err, out)
		}
	}
	lock := filepath.Join(dir, "s", "leasehold", "db", "LOCK")
	as := new(syscall.SysProcAttr)
	var err error
	if os.Getuid() == 0 { // root may read and write everything
		as.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
		err = filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			if err == nil && path != lock && path != binary {
				err = os.Chown(path, nobody, nobody)
			}
			return err
		})
	}
	if err := errors.Join(err, os.Chmod(lock, 0)); err != nil {
		t.Fatal(err)
	}
	if out, err := call(as, "version"); err != nil {
		t.Skipf("another user cannot run %s: %v %s", binary, err, out)
	}
	if out, err := call(as, "serve"); err == nil || !strings.Contains(out, "LOCK: permission denied") || strings.Contains(out, "in use") || !strings.Contains(out, "hint: it is write-protected, or another user's") {
		t.Errorf("serve: %v: %s", err, out)
	}
	if out, err := call(as, "doctor"); err == nil || !strings.Contains(out, lock+" cannot be read and written: permission denied") || !strings.Contains(out, "do: sudo chown -R ") {
		t.Errorf("doctor: %v: %s", err, out)
	}
}

// The doctor names each file that keeps a user's daemon from starting because it is
// another user's, and not only those of the store.
func TestTheDoctorNamesEveryFileThatKeepsADaemonFromStarting(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("only root can make files of another user")
	}
	dir := shortDir(t)
	binary := leaseholdIn(t, dir)
	if err := errors.Join(os.Chown(dir, nobody, nobody), os.Mkdir(filepath.Join(dir, "r"), 0o700), os.Chown(filepath.Join(dir, "r"), nobody, nobody)); err != nil {
		t.Fatal(err)
	}
	as := &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	call := callsIn(t, dir, binary)
	if out, err := call(as, "version"); err != nil {
		t.Skipf("another user cannot run %s: %v %s", binary, err, out)
	}
	for _, args := range [][]string{{"actor", "add", "--run", "r", "--name", "lead", "--role", "root"}, {"stop"}, {"doctor"}} {
		if out, err := call(as, args...); err != nil {
			t.Fatalf("%v: %v: %s", args, err, out)
		}
	}
	for _, c := range []struct{ file, do string }{
		{"s/leasehold/daemon.log", `sudo chown -R "$(id -un)" '` + dir + `/s/leasehold'`},
		{"s/leasehold/daemon.start", `sudo chown -R "$(id -un)" '` + dir + `/s/leasehold'`},
		// Its directory may be everybody's, as /tmp.
		{"r/leasehold/leasehold.sock.lock", `sudo chown "$(id -un)" '` + dir + `/r/leasehold/leasehold.sock.lock'`},
	} {
		file := filepath.Join(dir, c.file)
		if err := errors.Join(os.Chmod(file, 0o600), os.Chown(file, 0, 0)); err != nil {
			t.Fatal(err)
		}
		if out, err := call(as, "call", "run_lease_acquire", "key=x"); err == nil || !strings.Contains(out, file+": permission denied") {
			t.Errorf("%s: a call: %v: %s", file, err, out)
		}
		if out, err := call(as, "doctor"); err == nil || !strings.Contains(out, file+" cannot be read and written: permission denied") ||
			!strings.Contains(out, "do: "+c.do) {
			t.Errorf("%s: the doctor: %v: %s", file, err, out)
		}
		if err := os.Chown(file, nobody, nobody); err != nil {
			t.Fatal(err)
		}
	}
}

// A command that sudo runs leaves nothing of root's in the home of the user who called it:
// neither a state, nor a record of setup. That user could not use them.
func TestSudoLeavesTheHomeToItsUser(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("only root can run commands as sudo does")
	}
	dir := shortDir(t)
	binary := leaseholdIn(t, t.TempDir())
	call := func(as *syscall.SysProcAttr, more []string, args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), binary, args...)
		cmd.Dir, cmd.SysProcAttr = dir, as
		cmd.Env = append([]string{"HOME=" + dir, "PATH=" + os.Getenv("PATH")}, more...)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	ofRoot := func() (found []string) {
		_ = filepath.WalkDir(dir, func(path string, _ fs.DirEntry, _ error) error {
			if info, err := os.Lstat(path); err == nil && info.Sys().(*syscall.Stat_t).Uid == 0 {
				found = append(found, path)
			}
			return nil
		})
		return found
	}
	if err := errors.Join(os.Mkdir(filepath.Join(dir, ".codex"), 0o700), os.Chown(dir, nobody, nobody), os.Chown(filepath.Join(dir, ".codex"), nobody, nobody)); err != nil {
		t.Fatal(err)
	}
	const would = "would belong to root, and user 65534, who called sudo, could not use it"
	sudo := []string{"SUDO_UID=65534"}
	for _, args := range [][]string{{"call", "run_lease_acquire", "key=x"}, {"serve"}, {"setup", "codex", "--yes"}} {
		if out, err := call(nil, sudo, args...); err == nil || !strings.Contains(out, would) {
			_, _ = call(nil, nil, "stop") // it may have started a daemon
			t.Fatalf("%v: %v: %s", args, err, out)
		}
	}
	if out, err := call(nil, append(sudo, "XDG_RUNTIME_DIR="+dir+"/r", "XDG_STATE_HOME="+t.TempDir()), "serve"); err == nil || !strings.Contains(out, would) {
		t.Errorf("serve with the user's directory for sockets: %v: %s", err, out)
	}
	if found := ofRoot(); found != nil {
		t.Fatalf("of root: %v", found)
	}

	// What the user has set up is not taken over, with sudo or without.
	const setup = `{"files": {"/gone": {"name": "/gone", "scope": "user"}}}`
	state := filepath.Join(dir, ".local", "state", "leasehold")
	if err := os.MkdirAll(state, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(state, "setup.json"), []byte(setup), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range ofRoot() {
		if err := os.Chown(path, nobody, nobody); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := call(nil, nil, "setup", "--uninstall", "--yes"); err == nil || !strings.Contains(out, "belongs to user 65534") {
		t.Errorf("setup --uninstall: %v: %s", err, out)
	}
	if found := ofRoot(); found != nil {
		t.Errorf("of root: %v", found)
	}
}

// The doctor names the directory that keeps a user from his state, which may be far above
// it, and one in which no socket can be made.
func TestTheDirectoryThatIsClosedIsNamed(t *testing.T) {
	t.Parallel()
	dir := shortDir(t)
	closed, binary := filepath.Join(dir, "closed"), leaseholdIn(t, dir)
	if err := os.Mkdir(closed, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(closed, 0o700) })
	as := new(syscall.SysProcAttr)
	if os.Getuid() == 0 { // root may use every directory
		as.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
		if err := errors.Join(os.Chown(dir, nobody, nobody), os.Chown(closed, nobody, nobody)); err != nil {
			t.Fatal(err)
		}
	}
	run := func(command string, env ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), binary, command)
		cmd.Dir, cmd.SysProcAttr = dir, as
		cmd.Env = append([]string{"HOME=" + dir}, env...)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	doctor := func(env ...string) string {
		out, _ := run("doctor", env...) // it has found a fault
		return out
	}
	if out, err := run("version"); err != nil {
		t.Skipf("another user cannot run %s: %v %s", binary, err, out)
	}
	if out := doctor("XDG_STATE_HOME=" + closed + "/state"); !strings.Contains(out, "fault  state    "+closed+" cannot be written") {
		t.Errorf("the state: %s", out)
	}
	if err := os.Chmod(closed, 0o500); err != nil {
		t.Fatal(err)
	}
	if out := doctor("XDG_RUNTIME_DIR=" + closed + "/run"); !strings.Contains(out, "and none can: "+closed+" cannot be written") {
		t.Errorf("the socket: %s", out)
	}
}

// In a directory such as /tmp another user can take the path of a socket while no daemon
// listens there. Nobody tells that user a token.
func TestNothingIsSentToAListenerOfAnotherUser(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("only root can run commands as another user")
	}
	dir, shared := shortDir(t), shortDir(t)
	if err := errors.Join(os.Chown(dir, nobody, nobody), os.Chmod(shared, 0o777|fs.ModeSticky)); err != nil {
		t.Fatal(err)
	}
	call, as := callsIn(t, dir, leaseholdIn(t, dir)), &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	if out, err := call(as, "version"); err != nil {
		t.Skipf("another user cannot run leasehold: %v %s", err, out)
	}
	socket := filepath.Join(shared, "s.sock")
	ln, err := net.Listen("unix", socket)
	if err == nil {
		err = os.Chmod(socket, 0o777)
	}
	if err != nil {
		t.Fatal(err)
	}
	heard := make(chan string, 64)
	go func() {
		defer close(heard)
		for {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			text := make([]byte, 1<<10)
			n, _ := nc.Read(text)
			_ = nc.Close()
			if n > 0 {
				heard <- string(text[:n])
			}
		}
	}()
	for _, args := range [][]string{{"call", "lease_list"}, {"exec", "--lease", "x", "--", "true"}, {"leases"}, {"status"}, {"stop"}, {"doctor"}} {
		out, err := call(as, slices.Insert(args, 1, "--socket", socket)...)
		if err == nil || !strings.Contains(out, "of user 0 listens there") {
			t.Errorf("%v: %v: %s", args, err, out)
		}
	}
	_ = ln.Close()
	for text := range heard {
		t.Errorf("the other user was told %q", text)
	}
}

// Other users of the machine see the command line of a browser, and with it the code that
// signs the browser in.
func TestALinkOnACommandLineIsOnlyForItsUser(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("only root can give a connection to another user")
	}
	dir := shortDir(t)
	binary := leaseholdIn(t, dir)
	link := filepath.Join(dir, "link") // blocks until the browser writes its link
	if err := errors.Join(syscall.Mkfifo(link, 0o600), os.WriteFile(filepath.Join(dir, "xdg-open"), []byte("#!/bin/sh\necho \"$1\" >link\n"), 0o700)); err != nil {
		t.Fatal(err)
	}
	defer mustIn(t, dir, binary)("stop")
	// signIn has a browser of a user sign in by a link.
	signIn := func(link string, user int) int {
		t.Helper()
		u, err := url.Parse(strings.TrimSpace(link))
		if err != nil {
			t.Fatal(err)
		}
		nc, err := net.Dial("tcp", u.Host)
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		file, err := nc.(*net.TCPConn).File()
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(syscall.Fchown(int(file.Fd()), user, user), file.Close()); err != nil {
			t.Fatal(err)
		}
		body := `{"code":"` + strings.TrimPrefix(u.Fragment, "code=") + `"}`
		r, err := http.NewRequest("POST", "http://"+u.Host+"/page/session", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Origin", "http://"+u.Host)
		r.Header.Set("Content-Type", "application/json")
		if err := r.Write(nc); err != nil {
			t.Fatal(err)
		}
		answer, err := http.ReadResponse(bufio.NewReader(nc), r)
		if err != nil {
			t.Fatal(err)
		}
		return answer.StatusCode
	}
	open := func(display string, args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), binary, append([]string{"open"}, args...)...)
		cmd.Dir, cmd.Env = dir, environIn(dir, "DISPLAY="+display, "WAYLAND_DISPLAY=", "WSL_DISTRO_NAME=", "PATH="+dir+":"+os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return regexp.MustCompile(`http:\S+`).FindString(string(out))
	}
	open(":9")
	text, err := os.ReadFile(link)
	if err != nil {
		t.Fatal(err)
	}
	if status := signIn(string(text), nobody); status != http.StatusUnauthorized {
		t.Errorf("another user signs in: status %d", status)
	}
	if status := signIn(string(text), os.Getuid()); status != http.StatusCreated {
		t.Errorf("its user does not sign in: status %d", status)
	}
	for what, printed := range map[string]string{"is asked for": open(":9", "--print"), "a browser of another machine must open": open("")} {
		if status := signIn(printed, nobody); status != http.StatusCreated {
			t.Errorf("nobody else signs in by a printed link that %s, as through a tunnel: status %d", what, status)
		}
	}
}
