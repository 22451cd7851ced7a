package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A refused is a system call that a kernel or a container does not allow, if its argument
// has that value.
type refused struct {
	call, argument, value int
	with                  syscall.Errno
}

// init makes this program, if it is started as `without ERRNO CALL ARGUMENT VALUE COMMAND...`,
// that command, for which the call fails. It runs on the only thread of the program.
func init() {
	if len(os.Args) < 7 || os.Args[1] != "without" {
		return
	}
	var r refused
	var errno int
	if _, err := fmt.Sscan(strings.Join(os.Args[2:6], " "), &errno, &r.call, &r.argument, &r.value); err != nil {
		panic(err)
	}
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}, // seccomp_data.nr
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: uint32(r.call), Jf: 3},
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: uint32(16 + 8*r.argument)}, // seccomp_data.args
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: uint32(r.value), Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(errno)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	for _, do := range []func() error{
		func() error { return unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) },
		func() error {
			return unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&program)), 0, 0)
		},
		func() error { return syscall.Exec(os.Args[6], os.Args[6:], os.Environ()) },
	} {
		if err := do(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(99)
		}
	}
}

// Where a system call is missing that leasehold can do without, it does. Where it cannot,
// it says what is missing and what to do, and so does the doctor of files without locks.
func TestMissingSystemCalls(t *testing.T) {
	t.Parallel()
	const noLocks = "hint: no file can be locked there, as on NFS without its lock service"
	lease := []string{"call", "run_lease_acquire", "key=x"}
	dispatch := []string{"dispatch", "run.toml"}
	for name, c := range map[string]struct {
		refused
		command []string
		says    string // as it fails; "" if it does not
	}{
		"exec adopts nothing":          {refused{unix.SYS_PRCTL, 0, unix.PR_SET_CHILD_SUBREAPER, unix.EINVAL}, []string{"exec", "--lease", "x", "--", "true"}, ""},
		"a run adopts nothing":         {refused{unix.SYS_PRCTL, 0, unix.PR_SET_CHILD_SUBREAPER, unix.ENOSYS}, dispatch, ""},
		"exec must not adopt":          {refused{unix.SYS_PRCTL, 0, unix.PR_SET_CHILD_SUBREAPER, unix.EPERM}, []string{"exec", "--lease", "x", "--", "true"}, "leasehold: prctl PR_SET_CHILD_SUBREAPER: operation not permitted"},
		"what is left is signalled":    {refused{unix.SYS_PIDFD_SEND_SIGNAL, 1, int(unix.SIGTERM), unix.EPERM}, dispatch, ""},
		"what is left is killed":       {refused{unix.SYS_PIDFD_SEND_SIGNAL, 1, int(unix.SIGKILL), unix.EPERM}, dispatch, ""},
		"no lock for a client":         {refused{unix.SYS_FLOCK, 1, unix.LOCK_EX | unix.LOCK_NB, unix.ENOLCK}, lease, noLocks},
		"no lock for the store":        {refused{unix.SYS_FCNTL, 1, unix.F_SETLK, unix.ENOLCK}, []string{"serve"}, noLocks},
		"no lock for setup":            {refused{unix.SYS_FLOCK, 1, unix.LOCK_EX | unix.LOCK_NB, unix.ENOLCK}, []string{"setup", "codex", "--yes"}, noLocks},
		"the doctor tries to lock":     {refused{unix.SYS_FLOCK, 1, unix.LOCK_EX | unix.LOCK_NB, unix.ENOLCK}, []string{"doctor"}, "do: no file can be locked there"},
		"a call that cannot be spared": {refused{unix.SYS_FLOCK, 1, unix.LOCK_EX | unix.LOCK_NB, unix.ENOSYS}, lease, "hint: the kernel, or the rules of this container (seccomp), lack that system call"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := shortDir(t)
			binary := leaseholdIn(t, dir)
			left := filepath.Join(dir, "left")
			run := `[agents.a]
extends = "command"
command = ["sh", "-c", '''(trap '' TERM; touch ` + left + `; exec sleep 1000) & until [ -e ` + left + ` ]; do sleep 0.01; done''']
[root]
name = "boss"
agent = "a"
prompt = "p"
[run]
drain_grace_secs = 1
`
			for _, err := range []error{
				os.MkdirAll(filepath.Join(dir, "s", "leasehold"), 0o700), os.Mkdir(filepath.Join(dir, ".codex"), 0o700),
				os.WriteFile(filepath.Join(dir, "run.toml"), []byte(run), 0o600),
			} {
				if err != nil {
					t.Fatal(err)
				}
			}
			call := func(args ...string) (string, error) {
				cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
				cmd.Dir = dir
				cmd.Env = append(os.Environ(), "HOME="+dir, "XDG_STATE_HOME="+dir+"/s", "XDG_RUNTIME_DIR="+dir+"/r", "LEASEHOLD_SOCKET=", "LEASEHOLD_RUN=")
				out, err := cmd.CombinedOutput()
				return string(out), err
			}
			t.Cleanup(func() {
				stop := exec.Command(binary, "stop")
				stop.Env = append(os.Environ(), "HOME="+dir, "XDG_STATE_HOME="+dir+"/s", "XDG_RUNTIME_DIR="+dir+"/r", "LEASEHOLD_SOCKET=")
				_ = stop.Run()
			})
			without := func(args ...string) (string, error) {
				return call(append([]string{os.Args[0], "without", fmt.Sprint(int(c.with)), fmt.Sprint(c.call), fmt.Sprint(c.argument), fmt.Sprint(c.value), binary}, args...)...)
			}
			if out, err := without("version"); err != nil {
				t.Skipf("no filter can be set here: %v %s", err, out)
			}
			out, err := without(c.command...)
			if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(out, c.says)) {
				t.Errorf("%v: %v: %s", c.command, err, out)
			}
		})
	}
}
