package process_test

import (
	"bufio"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"

	"github.com/leasehold/leasehold/dispatch/process"
)

// The test binary is also the program that the tests start: its first argument
// is a role, and the others are the arguments of that role.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		maps.Copy(roles, linuxRoles)
		if role, ok := roles[os.Args[1]]; ok {
			role(os.Args[2:])
			os.Exit(0)
		}
	}
	os.Exit(m.Run())
}

// roles are what a process of a test can do. A process prints its role to
// standard output. That is a pipe, which ends when the last process with it has
// ended.
var roles map[string]func(args []string)

// linuxRoles are the roles that exist only on Linux.
var linuxRoles map[string]func(args []string)

// stay does nothing for ever. After a select without cases, Go would say that all goroutines
// are asleep, and exit, in a program without cgo.
func stay() {
	for {
		time.Sleep(time.Hour)
	}
}

func init() { // roles start others by name
	roles = map[string]func([]string){
		// idle waits for a signal.
		"idle": func([]string) { say("idle"); stay() },

		// stubborn ignores SIGTERM.
		"stubborn": func([]string) {
			signal.Ignore(syscall.SIGTERM)
			say("stubborn")
			stay()
		},

		// exit ends with a code.
		"exit": func(args []string) { os.Exit(must(strconv.Atoi(args[0]))) },

		// die ends by a signal.
		"die": func(args []string) {
			must(0, syscall.Kill(os.Getpid(), syscall.Signal(must(strconv.Atoi(args[0])))))
			stay()
		},

		// parent starts a process for each argument, and waits for a signal.
		"parent": func(args []string) {
			for _, arg := range args {
				spawn(arg)
			}
			say("parent")
			stay()
		},

		// leave starts a process for each argument, and exits.
		"leave": func(args []string) {
			for _, arg := range args {
				spawn(arg)
			}
		},

		// hydra reacts to SIGTERM by starting two of its kind and exiting, up
		// to a depth.
		"hydra": func(args []string) {
			depth := must(strconv.Atoi(args[0]))
			asked := make(chan os.Signal, 1)
			signal.Notify(asked, syscall.SIGTERM)
			say("hydra")
			<-asked
			if depth > 0 {
				for range 2 {
					spawn(fmt.Sprintf("session hydra %d", depth-1))
				}
			}
		},

		// brood starts short-lived processes that leave others behind, for
		// ever.
		"brood": func(args []string) {
			signal.Ignore(syscall.SIGTERM)
			signal.Ignore(syscall.SIGCHLD)
			say("brood")
			for {
				cmd := exec.Command("sh", "-c", "trap '' TERM; (trap '' TERM; sleep 0.05; exec sleep 1000) & sleep 0.02")
				cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
				_ = cmd.Run() // ended by the one who counts them
			}
		},

		// echo prints its standard input, and then facts about itself.
		"echo": func([]string) {
			must(os.Stdin.WriteTo(os.Stdout))
			fmt.Fprintf(os.Stdout, "\nsession %d of %d\n", must(sid(0)), os.Getpid())
			fmt.Fprintf(os.Stderr, "to stderr from %s\n", must(os.Getwd()))
		},

		// watchdog is the command of that name.
		"watchdog": func(args []string) {
			grace := must(time.ParseDuration(args[3]))
			must(process.RunWatchdog(context.Background(), os.Stdin, os.Stdout, args[1], grace, time.Minute))
		},

		// dispatcher starts a watchdog and a tree under the mark, and waits.
		"dispatcher": func(args []string) {
			mark, tree := args[0], args[1:]
			var keep []*os.File
			if tree[0] == "env" {
				keep = append(keep, os.NewFile(3, "kept"))
				unix.CloseOnExec(3)
			} else {
				tree = append([]string{must(os.Executable())}, tree...)
			}
			w := must(process.StartWatchdog(must(os.Executable()), mark, time.Second, keep...))
			w.Watch(must(process.Start(process.Spec{
				Argv: tree, Env: append(os.Environ(), mark), Stdout: os.Stdout, Stderr: os.Stderr, Mark: mark,
			})))
			say("dispatcher")
			stay()
		},
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(3)
	}
	return v
}

// say tells the test that a process has its role, and its pid.
func say(role string) { fmt.Printf("%s %d\n", role, os.Getpid()) }

// spawn starts a process: "ROLE ARG ...". The line may begin with session (in a
// session of its own) and bare (without an environment).
func spawn(line string) {
	words := strings.Fields(line)
	cmd := exec.Command(must(os.Executable()))
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	for ; ; words = words[1:] {
		if words[0] == "session" {
			cmd.SysProcAttr.Setsid = true
			continue
		}
		if words[0] == "bare" {
			cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
			continue
		}
		break
	}
	// A comma means a space in the line that a child passes to spawn.
	for _, word := range words {
		cmd.Args = append(cmd.Args, strings.ReplaceAll(word, ",", " "))
	}
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	must(0, cmd.Start())
	go cmd.Wait() // as a parent does
}

// A tree is the processes that a test has started, and the pipe that all of
// them write to.
type tree struct {
	t    *testing.T
	mark string
	out  *os.File // what they print
	in   *os.File
	said *bufio.Reader
	pids []int // of those that have said their role
}

func newTree(t *testing.T) *tree {
	t.Helper()
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	tr := &tree{t: t, mark: "LEASEHOLD_TEST_MARK=" + uuid.NewString(), out: out, in: in, said: bufio.NewReader(out)}
	t.Cleanup(func() {
		in.Close()
		process.End(context.Background(), tr.mark, 0)
		out.Close()
	})
	return tr
}

// start starts the root of the tree.
func (tr *tree) start(argv ...string) *process.Process {
	tr.t.Helper()
	p, err := process.Start(tr.spec(argv...))
	if err != nil {
		tr.t.Fatal(err)
	}
	return p
}

func (tr *tree) spec(argv ...string) process.Spec {
	return process.Spec{
		Argv: append([]string{os.Args[0]}, argv...), Env: append(os.Environ(), tr.mark),
		Stdout: tr.in, Stderr: os.Stderr, Mark: tr.mark,
	}
}

// await waits until n processes have said their role.
func (tr *tree) await(n int) {
	tr.t.Helper()
	tr.out.SetReadDeadline(time.Now().Add(time.Minute))
	for range n {
		line, err := tr.said.ReadString('\n')
		if err != nil {
			tr.t.Fatalf("after %d of the processes: %v", len(tr.pids), err)
		}
		_, pid, _ := strings.Cut(strings.TrimSpace(line), " ")
		n, err := strconv.Atoi(pid)
		if err != nil {
			tr.t.Fatalf("a process said %q", line)
		}
		tr.pids = append(tr.pids, n)
	}
}

// gone fails unless every process of the tree has ended: none has the pipe that
// it was started with, and none has the mark.
func (tr *tree) gone() {
	tr.t.Helper()
	tr.in.Close()
	tr.out.SetReadDeadline(time.Now().Add(10 * time.Second)) // waits only if a process is left
	for {
		line, err := tr.said.ReadString('\n')
		if err == nil {
			continue // written before it ended
		}
		if err.Error() != "EOF" {
			tr.t.Errorf("some process still has the pipe: %v %q", err, line)
		}
		break
	}
	for _, left := range withMark(tr.mark) {
		tr.t.Errorf("left with the mark: %s", left)
	}
	for _, pid := range tr.pids {
		if running(pid) {
			tr.t.Errorf("left: process %d", pid)
		}
	}
}

// bystander starts a process that looks much like the others and must not be
// touched. It returns a function that checks this.
func bystander(t *testing.T) func() {
	t.Helper()
	cmd := exec.Command(os.Args[0], "idle")
	cmd.Env = append(os.Environ(), "LEASEHOLD_TEST_MARK="+uuid.NewString())
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { cmd.Wait(); close(ended) }()
	t.Cleanup(func() { cmd.Process.Kill(); <-ended })
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		select {
		case <-ended:
			t.Errorf("the bystander has ended: %v", cmd.ProcessState)
		default:
		}
		if !running(cmd.Process.Pid) {
			t.Error("the bystander does not run")
		}
	}
}

// pidIn returns the pid that is in a file.
func pidIn(t *testing.T, file string) int {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	return pid
}
