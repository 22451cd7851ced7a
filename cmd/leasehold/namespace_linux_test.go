package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// Who is in a container and reaches a daemon outside of it, which has no pid there, cannot
// stop or restart it, and is told so. The pid 0 would be every process of his group.
func TestADaemonOutsideOfTheContainerGetsNoSignal(t *testing.T) {
	t.Parallel()
	dir := shortDir(t)
	binary := leaseholdIn(t, dir)
	call := callsIn(t, dir, binary)
	inside := func() *syscall.SysProcAttr {
		return &syscall.SysProcAttr{
			Setpgid:     true, // a signal to its group would not reach this test
			Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWPID,
			UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1, ContainerID: os.Getuid()}},
			GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1, ContainerID: os.Getgid()}},
		}
	}
	if out, err := call(inside(), "version"); err != nil {
		t.Skipf("no namespaces can be made here: %v %s", err, out)
	}
	if out, err := call(nil, "actor", "add", "--run", "r", "--name", "lead", "--role", "root"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	t.Cleanup(func() {
		cmd := exec.Command(binary, "stop")
		cmd.Env = environIn(dir)
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "stopped the daemon") {
			t.Errorf("stop, outside: %v: %s", err, out)
		}
	})
	for _, args := range []string{"stop", "restart"} {
		if out, err := call(inside(), args); err == nil || !strings.Contains(out, "the daemon has no pid here: it runs outside of this container") ||
			!strings.Contains(out, "hint: run this command where the daemon was started") {
			t.Errorf("%s: %v: %s", args, err, out)
		}
	}
	if out, err := call(inside(), "status"); err != nil || !strings.Contains(out, "a daemon runs (outside of this container or pid namespace)") {
		t.Errorf("status: %v: %s", err, out)
	}
	// A container seldom has XDG_RUNTIME_DIR. The state names the socket there, too.
	if out, err := callsIn(t, dir, "env")(inside(), "-u", "XDG_RUNTIME_DIR", binary, "tree", "--run", "r"); err != nil || !strings.Contains(out, "root") {
		t.Errorf("tree, without XDG_RUNTIME_DIR: %v: %s", err, out)
	}
}

// A daemon starts where /dev is as the kernel makes it, as in a small virtual machine: udev
// would add /dev/fd.
func TestADaemonStartsWithoutDevFD(t *testing.T) {
	t.Parallel()
	dir := shortDir(t)
	leaseholdIn(t, dir)
	const script = `
mkdir dev && touch dev/null && mount --bind /dev/null dev/null && mount --rbind dev /dev && [ ! -e /dev/fd ] || exit 99
./leasehold call kv_list glob=/shared/** --run r; code=$?
./leasehold stop
exit $code`
	out, err := callsIn(t, dir, "unshare")(nil, "--mount", "--map-root-user", "sh", "-c", script)
	if code := new(exec.ExitError); err != nil && (!errors.As(err, &code) || code.ExitCode() == 99 || strings.HasPrefix(out, "unshare: ")) {
		t.Skipf("no namespaces can be made here: %v %s", err, out)
	} else if err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// Two clients in two containers that share the socket of a daemon outside have the same
// pid. Each is a client of its own all the same: neither writes to a file of the other,
// and a client outside writes to none of theirs.
func TestClientsInContainersAreKeptApart(t *testing.T) {
	t.Parallel()
	dir := shortDir(t)
	binary := leaseholdIn(t, dir)
	shop := repository(t, filepath.Join(dir, "shop"))
	env := environIn(dir, "LEASEHOLD_RUN=", "L="+binary)
	if out, err := callsIn(t, dir, binary)(nil, "actor", "add", "--run", "r", "--name", "lead", "--role", "root"); err != nil { // starts the daemon
		t.Fatalf("%v: %s", err, out)
	}
	t.Cleanup(func() {
		cmd := exec.Command(binary, "stop")
		cmd.Env = env
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("stop: %v: %s", err, out)
		}
	})
	// The shell is the client: it starts the server, and the hook for each file.
	const client = `
if [ $$ = 1 ]; then mount -t proc proc /proc || exit 99; fi
mkfifo $P.in $P.out && "$L" mcp <$P.in >$P.out &
while [ ! -p $P.out ]; do sleep 0.01; done
exec 3>$P.in 4<$P.out
echo '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}' >&3
read line <&4
echo "$$"
while read file; do
	echo "$(printf '{"hook_event_name":"PreToolUse","tool_name":"Write","tool_input":{"file_path":"%s"}}' "$file" | CLAUDE_PID=$$ "$L" hook claude)"
done`
	start := func(name string, as *syscall.SysProcAttr) (ask func(string) string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "sh", "-c", client)
		cmd.Dir, cmd.SysProcAttr, cmd.Stderr = shop, as, os.Stderr
		cmd.Env = append(env, "P="+filepath.Join(dir, name))
		stdin, stdout := pipes(t, cmd)
		if err := cmd.Start(); err != nil {
			t.Skipf("no namespaces can be made here: %v", err)
		}
		t.Cleanup(func() { stdin.Close(); cmd.Process.Kill(); cmd.Wait() })
		answers := bufio.NewReader(stdout)
		pid, err := answers.ReadString('\n')
		if err == io.EOF && cmd.Wait() != nil && cmd.ProcessState.ExitCode() == 99 {
			t.Skip("no /proc can be mounted in a namespace here")
		}
		if as != nil && pid != "1\n" {
			t.Fatalf("the pid of %s is %q: %v", name, pid, err)
		}
		return func(file string) string {
			t.Helper()
			fmt.Fprintln(stdin, file)
			line, err := answers.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			return strings.TrimSpace(line)
		}
	}
	one, two, host := start("one", container()), start("two", container()), start("host", nil)
	for file, writer := range map[string]func(string) string{"one.ts": one, "two.ts": two, "host.ts": host} {
		if said := writer(file); said != "" {
			t.Errorf("the first that writes to %s is told %s", file, said)
		}
	}
	for _, file := range []string{"one.ts", "two.ts", "host.ts"} {
		refused := 0
		for _, writer := range []func(string) string{one, two, host} {
			if strings.Contains(writer(file), file+" is not changed") {
				refused++
			}
		}
		if refused != 2 {
			t.Errorf("%d of the two others are refused to write to %s", refused, file)
		}
	}
}

// container is for a process that is alone in its pid namespace, where it is process 1 and
// may mount.
func container() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWPID | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
	}
}

// The daemon may run in a container and be killed, and the next one may be started
// outside. Who lives in the container keeps its leases, and its hooks are still known.
func TestADaemonMayMoveToAnotherContainer(t *testing.T) {
	t.Parallel()
	dir := shortDir(t)
	binary := leaseholdIn(t, dir)
	shop := repository(t, filepath.Join(dir, "shop"))
	const script = `
mount -t proc proc /proc || exit 99
leasehold guard install git >.git/said
echo text >a
git add a
mkfifo .git/in .git/out
leasehold mcp <.git/in >.git/out &
exec 3>.git/in 4<.git/out
echo '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}' >&3
read line <&4
echo '{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"run_lease_acquire","arguments":{"path":"a"}}}' >&3
read line <&4
kill -STOP $! # it would start the next daemon here
kill -KILL $(leasehold status | sed -n 's/.*(pid \([0-9]*\)).*/\1/p')
while leasehold status | grep -q 'a daemon runs'; do sleep 0.01; done
echo killed
read line
kill -CONT $!
echo '{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"run_lease_acquire","arguments":{"path":"a"}}}' >&3
read line <&4
echo "$line"
git commit --quiet -m own 2>&1`
	cmd := agentIn(t, dir, shop, script, "LEASEHOLD_RUN=r")
	stdin, stdout := pipes(t, cmd)
	if err := cmd.Start(); err != nil {
		t.Skipf("no namespaces can be made here: %v", err)
	}
	t.Cleanup(func() { stdin.Close(); cmd.Process.Kill(); cmd.Wait() })
	out := bufio.NewReader(stdout)
	if line, err := out.ReadString('\n'); line != "killed\n" {
		if cmd.Wait() != nil && cmd.ProcessState.ExitCode() == 99 {
			t.Skip("no /proc can be mounted in a namespace here")
		}
		t.Fatalf("before the daemon is killed: %v: %s", err, line)
	}
	outside := mustIn(t, dir, binary)
	outside("actor", "add", "--run", "r", "--name", "two", "--role", "worker", "--parent", "root")
	defer outside("stop")
	fmt.Fprintln(stdin)
	said, _ := io.ReadAll(out)
	if err := cmd.Wait(); err != nil || !strings.Contains(string(said), `"reentrant":true`) {
		t.Errorf("with the next daemon: %v: %s", err, said)
	}
}

// agentIn is a shell under the name of no shell, as process 1 of a container. All that its
// script starts ends with it. It works in a repository, and its programs are in dir.
func agentIn(t *testing.T, dir, repository, script, run string) *exec.Cmd {
	t.Helper()
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(sh)
	if err != nil {
		t.Fatal(err)
	}
	agent := filepath.Join(dir, filepath.Base(repository)+"-agent")
	if err := os.WriteFile(agent, program, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), agent, "-c", script)
	cmd.Dir, cmd.SysProcAttr = repository, container()
	cmd.Env = environIn(dir, run, "PATH="+dir+string(os.PathListSeparator)+os.Getenv("PATH"),
		"GIT_AUTHOR_NAME=t", "GIT_AUTHOR_EMAIL=t@t", "GIT_COMMITTER_NAME=t", "GIT_COMMITTER_EMAIL=t@t")
	return cmd
}

// An agent may be process 1 of its container. It commits what it has leased itself, with a
// daemon in the container or outside of it, and holds what its hook took before its shim
// was there.
func TestAnAgentMayBeProcessOne(t *testing.T) {
	t.Parallel()
	dir := shortDir(t)
	binary := leaseholdIn(t, dir)
	const script = `
mount -t proc proc /proc || exit 99
leasehold guard install git
echo text >a
git add a
write() { echo '{"hook_event_name":"PreToolUse","tool_name":"Write","tool_input":{"file_path":"'$1'"}}' | leasehold hook claude; }
write early
mkfifo .git/in .git/out
leasehold mcp <.git/in >.git/out &
exec 3>.git/in 4<.git/out
echo '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}' >&3
read line <&4
echo '{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"run_lease_acquire","arguments":{"path":"early"}}}' >&3
read line <&4
echo "$line"
write a
leasehold leases | grep file:a && git commit --quiet -m own`
	for _, place := range []string{"in", "out"} {
		shop := repository(t, filepath.Join(dir, place))
		if place == "out" {
			outside := mustIn(t, dir, binary)
			outside("actor", "add", "--run", "r", "--name", "lead", "--role", "root")
			defer outside("stop")
		}
		cmd := agentIn(t, dir, shop, script, "LEASEHOLD_RUN=")
		out, err := cmd.CombinedOutput()
		switch {
		case cmd.Process == nil:
			t.Skipf("no namespaces can be made here: %v", err)
		case cmd.ProcessState.ExitCode() == 99:
			t.Skip("no /proc can be mounted in a namespace here")
		case err != nil:
			t.Errorf("with a daemon %sside: %v: %s", place, err, out)
		case place == "in" && !strings.Contains(string(out), `"reentrant":true`): // outside, it is not known before its shim
			t.Errorf("its shim is not given what its hook took before: %s", out)
		}
	}
}

// A dispatcher may be process 1 of its container, and so the parent of the daemon that it
// starts. The daemon is no process of the run, so it does not end with the run.
func TestADispatcherMayBeProcessOne(t *testing.T) {
	t.Parallel()
	dir := shortDir(t)
	binary := leaseholdIn(t, dir)
	manifest := "[run]\nname = \"r\"\n[root]\nagent = \"one\"\nprompt = \"p\"\n[agents.one]\nextends = \"command\"\ncommand = [\"true\"]\n"
	if err := os.WriteFile(filepath.Join(dir, "leasehold.toml"), []byte(manifest), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "sh", "-c", `mount -t proc proc /proc || exit 99; exec "$0" dispatch leasehold.toml`, binary)
	cmd.Dir, cmd.Env, cmd.SysProcAttr = dir, environIn(dir), container()
	out, err := cmd.CombinedOutput()
	switch {
	case cmd.Process == nil:
		t.Skipf("no namespaces can be made here: %v", err)
	case cmd.ProcessState.ExitCode() == 99:
		t.Skip("no /proc can be mounted in a namespace here")
	case err != nil || strings.Contains(string(out), "the daemon does not answer"):
		t.Errorf("dispatch: %v: %s", err, out)
	}
}
