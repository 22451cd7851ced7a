package dispatch_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/process"
	"github.com/leasehold/leasehold/dispatch/work"
)

// Processes that are not there: the rules alone.
func TestAConnectionFromALaunchedProcessIsItsActors(t *testing.T) {
	inHouse(t, dispatch.Options{}, func(t *testing.T, h *house) {
		tr := h.started()
		tr.spawn("root", dispatch.Spawn{Role: dispatch.Worker})
		other := tr.orders().Launch[0]
		_, outside, err := h.AddActor(t.Context(), dispatch.NewActor{Run: "elsewhere", Name: "boss", Role: dispatch.Root})
		if err != nil {
			t.Fatal(err)
		}
		_, access, err := h.IssueAccess(t.Context(), "monitor", dispatch.Operator, 0)
		if err != nil {
			t.Fatal(err)
		}
		root := tr.pid["root"]
		token := tr.tokens["root"]
		runs := func(pid, parent, group, session int) int {
			h.alive.Store(pid, true)
			h.family.Store(pid, process.Running{Parent: parent, Group: group, Session: session})
			return pid
		}
		runs(launcherPID, 50, launcherPID, 50) // from the user's shell
		runs(root, launcherPID, root, root)
		inside := map[string]int{
			"the process itself":                 root,
			"a child":                            runs(201, root, root, root),
			"a child in a group of its own":      runs(202, root, 202, root),
			"a grandchild":                       runs(203, 202, 202, root),
			"a child with a session of its own":  runs(204, root, 204, 204),
			"one whose parents are gone":         runs(205, 1, root, root),
			"one whose parents and group are":    runs(206, 1, 206, root),
			"a child of one whose parents are":   runs(207, 206, 207, 207),
			"one below the session of its own's": runs(208, 204, 208, 204),
		}
		for what, pid := range inside {
			peer := process.Peer{PID: pid, Start: "1", Transport: "unix"}
			refused := func(c dispatch.Credentials, want func(error) bool) {
				t.Helper()
				h.unchanged(what, func() {
					if se, err := h.Connect(t.Context(), c, peer); !want(err) {
						t.Errorf("%s with %+v: %v %v", what, c, se, err)
					}
				})
			}
			refused(dispatch.Credentials{Operator: true}, isForbidden)
			refused(dispatch.Credentials{Token: other.Token}, isForbidden)
			refused(dispatch.Credentials{Handle: other.Handle}, isForbidden)
			refused(dispatch.Credentials{Token: outside}, isForbidden)
			refused(dispatch.Credentials{Token: access}, isForbidden)
			for shown, mine := range map[string]bool{token: true, other.Token: false, outside: false, access: false} {
				a, err := h.Authenticate(t.Context(), shown)
				if err != nil {
					t.Fatal(err)
				}
				if err := h.Vet(t.Context(), a, peer); (err == nil) != mine || err != nil && !isForbidden(err) {
					t.Errorf("%s shows the token of %s: %v", what, a.Path, err)
				}
			}
			for _, c := range []dispatch.Credentials{
				{Run: "default", Name: "me"}, {}, {Token: token}, {Handle: tr.cast["root"].Handle()},
			} {
				se, err := h.Connect(t.Context(), c, peer)
				if err != nil || se.Actor().ID != tr.ids["root"] {
					t.Fatalf("%s with %+v: %v", what, c, err)
				}
				h.hangUp(se)
			}
		}

		started := process.Peer{PID: runs(301, launcherPID, 301, 301), Start: "1", Transport: "unix"}
		for _, c := range []dispatch.Credentials{{Operator: true}, {Run: "default", Name: "me"}, {Token: outside}} {
			if _, err := h.Connect(t.Context(), c, started); !isForbidden(err) {
				t.Errorf("another child of the dispatcher, with %+v: %v", c, err)
			}
		}
		for _, c := range []dispatch.Credentials{{Token: other.Token}, {Handle: other.Handle}} {
			se, err := h.Connect(t.Context(), c, started)
			if err != nil || se.Actor().Path != "W1" {
				t.Fatalf("what was just started, with what it was given: %v", err)
			}
			h.hangUp(se)
		}

		for what, pid := range map[string]int{
			"the user's shell":                   runs(50, 1, 50, 50),
			"another of the user's":              runs(51, 50, 51, 50),
			"the dispatcher":                     launcherPID,
			"one that has left all of it":        runs(401, 1, 401, 401),
			"one with the number of a group now": runs(402, 1, 999, 999),
		} {
			se, err := h.Connect(t.Context(), dispatch.Credentials{Operator: true}, process.Peer{PID: pid, Start: "1", Transport: "unix"})
			if err != nil {
				t.Errorf("%s is no operator: %v", what, err)
				continue
			}
			h.hangUp(se)
		}
		h.alive.Store(root, false) // what it leaves behind is still its actor's
		for _, pid := range []int{205, 206} {
			if _, err := h.Connect(t.Context(), dispatch.Credentials{Operator: true}, process.Peer{PID: pid, Start: "1", Transport: "unix"}); !isForbidden(err) {
				t.Errorf("what a process left behind is an operator: %v", err)
			}
		}
		runs(root, 1, root, root) // another process has its number now
		h.family.Store(root, process.Running{Peer: process.Peer{Start: "2"}, Parent: 1, Group: root, Session: root})
		for _, pid := range []int{root, runs(501, 1, root, root), runs(502, root, 502, root)} {
			se, err := h.Connect(t.Context(), dispatch.Credentials{Operator: true}, process.Peer{PID: pid, Start: h.opts.Process(pid).Start, Transport: "unix"})
			if err != nil {
				t.Errorf("process %d, of one that has the number of an agent that has ended, is no operator: %v", pid, err)
				continue
			}
			h.hangUp(se)
		}
		tr.ids["W1"] = other.Actor.ID
		tr.exitAll()
	})
}

// Whoever hides where it comes from gets no more than it would if it did not.
func TestAProcessThatCannotBeFollowedIsNobody(t *testing.T) {
	inHouse(t, dispatch.Options{}, func(t *testing.T, h *house) {
		var moves int // a process that goes to another parent while it is looked at
		seen := h.opts.Process
		h.opts.Process = func(pid int) process.Running {
			p := seen(pid)
			if p.PID != 0 && p.PID == moves {
				h.family.Store(pid, process.Running{Parent: launcherPID, Group: pid, Session: pid})
			}
			return p
		}
		h.crash() // the daemon that starts next looks in that way
		tr := h.started()
		_, access, err := h.IssueAccess(t.Context(), "monitor", dispatch.Operator, 0)
		if err != nil {
			t.Fatal(err)
		}
		runs := func(pid, parent int) int {
			h.alive.Store(pid, true)
			h.family.Store(pid, process.Running{Parent: parent, Group: pid, Session: pid})
			return pid
		}
		deep := runs(1000, tr.pid["root"])
		for range 300 {
			deep = runs(deep+1, deep)
		}
		runs(300, 1)
		moves = runs(301, 302) // its parent, 302, has just ended
		for what, peer := range map[string]process.Peer{
			"one that has ended and left its connection to another": {PID: 299, Start: "1"},
			"one whose number another has since":                    {PID: 300, Start: "0"},
			"one below very many":                                   {PID: deep, Start: "1"},
			"one whose parent ends meanwhile":                       {PID: moves, Start: "1"},
		} {
			peer.Transport = "unix"
			for _, c := range []dispatch.Credentials{{Operator: true}, {Run: "default", Name: "me"}, {Token: access}} {
				if se, err := h.Connect(t.Context(), c, peer); !isForbidden(err) {
					t.Errorf("%s with %+v: %v %v", what, c, se, err)
				}
			}
			a, err := h.Authenticate(t.Context(), access)
			if err != nil {
				t.Fatal(err)
			}
			if err := h.Vet(t.Context(), a, peer); !isForbidden(err) {
				t.Errorf("%s shows the token of an operator: %v", what, err)
			}
			runs(moves, 302)
		}
		moves = 0
		se, err := h.Connect(t.Context(), dispatch.Credentials{Operator: true}, process.Peer{PID: runs(303, 304), Start: "1", Transport: "unix"})
		if err != nil {
			t.Fatalf("one whose parent is hidden, as that of a shell over ssh may be: %v", err)
		}
		h.hangUp(se)
		tr.exitAll()
	})
}

// A daemon that starts again while an agent is being launched knows no process of it, and
// takes none that it cannot see, as the leader of a session outside of a container, for it.
func TestAnAgentWithoutAProcessHasNoKin(t *testing.T) {
	inHouse(t, dispatch.Options{}, func(t *testing.T, h *house) {
		tr := h.dispatch(work.Settings{})
		tr.orders()
		h.crash()
		h.alive.Store(60, true)
		h.family.Store(60, process.Running{Parent: 1, Group: 60})
		se, err := h.Connect(t.Context(), dispatch.Credentials{Operator: true}, process.Peer{PID: 60, Start: "1", Transport: "unix"})
		if err != nil {
			t.Fatalf("a process whose session has no number here: %v", err)
		}
		h.hangUp(se)
	})
}

// kinRole makes this test binary one of a tree of processes.
const kinRole = "DISPATCH_TEST_KIN"

func TestMain(m *testing.M) {
	role := os.Getenv(kinRole)
	if role == "" {
		os.Exit(m.Run())
	}
	if err := beKin(role); err != nil {
		fmt.Fprintln(os.Stderr, role, err)
		os.Exit(1)
	}
}

// beKin is a process of the tree, and tells of those it starts. All but one
// stay until the test closes what they have as their input.
func beKin(role string) error {
	start := func(name, role string, attr syscall.SysProcAttr) error {
		cmd := kinCommand(role)
		cmd.Stdin, cmd.Stdout, cmd.SysProcAttr = os.Stdin, os.Stdout, &attr
		if err := cmd.Start(); err != nil {
			return err
		}
		fmt.Println(name, cmd.Process.Pid)
		if role == "leaves" {
			return cmd.Wait()
		}
		return nil
	}
	var err error
	switch role {
	case "leader":
		err = errors.Join(
			start("child", "stays", syscall.SysProcAttr{}),
			start("child in its own group", "stays", syscall.SysProcAttr{Setpgid: true}),
			start("child in its own session", "stays", syscall.SysProcAttr{Setsid: true}),
			start("child that is gone", "leaves", syscall.SysProcAttr{}),
			start("child that leads a session", "holds", syscall.SysProcAttr{Setsid: true}),
		)
		fmt.Println("leader", os.Getpid())
	case "leaves":
		return start("grandchild whose parent is gone", "stays", syscall.SysProcAttr{Setpgid: true})
	case "holds":
		err = start("grandchild in another session", "stays", syscall.SysProcAttr{})
	}
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

func kinCommand(role string) *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), kinRole+"="+role)
	cmd.Stderr = os.Stderr
	return cmd
}

// Real processes: what the kernel says of them is enough.
func TestRealProcessesOfATreeAreItsActors(t *testing.T) {
	atHome(t, dispatch.Options{}, func(h *house) {
		h.opts.Process, h.opts.Alive = nil, nil
		h.crash() // and so to the machine's own processes
		leader := kinCommand("leader")
		leader.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		hold, err := leader.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		told, err := leader.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := leader.Start(); err != nil {
			t.Fatal(err)
		}
		stray := kinCommand("stays")
		strayHold, err := stray.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := stray.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := errors.Join(hold.Close(), strayHold.Close(), leader.Wait(), stray.Wait()); err != nil {
				t.Error(err)
			}
		}()
		pids := make(map[string]int)
		for lines := bufio.NewScanner(told); len(pids) < 8 && lines.Scan(); {
			i := strings.LastIndexByte(lines.Text(), ' ')
			pid, err := strconv.Atoi(lines.Text()[i+1:])
			if err != nil {
				t.Fatal(err)
			}
			pids[lines.Text()[:i]] = pid
		}
		if len(pids) != 8 {
			t.Fatalf("processes: %v", pids)
		}
		delete(pids, "child that is gone")

		// This process is the dispatcher.
		self := process.Find(os.Getpid())
		op, err := h.Connect(t.Context(), dispatch.Credentials{Operator: true}, self.Peer)
		if err != nil {
			t.Fatal(err)
		}
		tr := &troupe{house: h, op: op}
		info, err := h.DispatchRun(t.Context(), op, begin(work.Settings{}))
		if err != nil {
			t.Fatal(err)
		}
		tr.orders()
		if err := h.LaunchStarted(t.Context(), op, "r", info.Root, leader.Process.Pid, ""); err != nil {
			t.Fatal(err)
		}
		for what, pid := range pids {
			peer := process.Find(pid).Peer
			if peer.PID == 0 {
				t.Fatalf("%s, process %d, is not there", what, pid)
			}
			if _, err := h.Connect(t.Context(), dispatch.Credentials{Operator: true}, peer); !isForbidden(err) {
				t.Errorf("%s is an operator: %v", what, err)
			}
			se, err := h.Connect(t.Context(), dispatch.Credentials{Run: "default", Name: "x"}, peer)
			if err != nil || se.Actor().ID != info.Root {
				t.Errorf("%s is not its actor: %v", what, err)
				continue
			}
			h.hangUp(se)
		}
		if _, err := h.Connect(t.Context(), dispatch.Credentials{Operator: true}, process.Find(stray.Process.Pid).Peer); !isForbidden(err) {
			t.Errorf("another child of the dispatcher is an operator: %v", err)
		}
		for what, pid := range map[string]int{"the dispatcher": os.Getpid(), "its parent": os.Getppid()} {
			se, err := h.Connect(t.Context(), dispatch.Credentials{Operator: true}, process.Find(pid).Peer)
			if err != nil {
				t.Errorf("%s is no operator: %v", what, err)
				continue
			}
			h.hangUp(se)
		}
		if _, _, err := h.LaunchExited(t.Context(), op, "r", info.Root, work.Exit{Status: work.Succeeded}); err != nil {
			t.Error(err)
		}
		h.hangUp(op)
	})
}

// Over HTTP nobody can tell which process it is, so the token and the session of
// a launched actor are of no use there: a worker cannot become its lead.
func TestALaunchedActorHasNoConnectionOverHTTP(t *testing.T) {
	inHouse(t, dispatch.Options{}, func(t *testing.T, h *house) {
		tr := h.started()
		for _, c := range []dispatch.Credentials{{Token: tr.tokens["root"]}, {Handle: tr.cast["root"].Handle()}} {
			h.unchanged("over HTTP", func() {
				if _, err := h.Connect(t.Context(), c, process.Peer{Transport: "http"}); !isForbidden(err) {
					t.Errorf("the lead over HTTP: %v", err)
				}
			})
		}
		_, outside, err := h.AddActor(t.Context(), dispatch.NewActor{Run: "elsewhere", Name: "boss", Role: dispatch.Root})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := h.Connect(t.Context(), dispatch.Credentials{Token: outside}, process.Peer{Transport: "http"}); err != nil {
			t.Errorf("one that nobody launched: %v", err)
		}
		tr.exitAll()
	})
}
