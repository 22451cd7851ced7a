package server_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/process"
	"github.com/leasehold/leasehold/dispatch/server"
	"github.com/leasehold/leasehold/engine/pebble"
)

// A mover is a state that goes from one house to the next, whose servers cannot see
// the processes of clients, as on another machine.
type mover struct {
	*street
	fs    vfs.FS
	leave func()
}

// to closes the state where it is, and opens it in another house.
func (m *mover) to(house int) {
	m.Helper()
	if m.leave != nil {
		m.leave()
	}
	eng, err := pebble.Open(pebble.Options{Dir: "state", FS: m.fs})
	if err != nil {
		m.Fatal(err)
	}
	state, err := dispatch.Open(m.Context(), eng, dispatch.Options{
		Partition: dispatch.Partition{Number: 1, Of: m.partitions},
		Alive:     func(process.Peer) bool { return true },
	})
	if err != nil {
		m.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := state.Tend(ctx); err != nil {
			m.Error(err)
		}
	})
	m.host(1, house, state)
	m.leave = sync.OnceFunc(func() {
		m.end(1)
		stop()
		running.Wait()
		if err := eng.Close(); err != nil {
			m.Error(err)
		}
	})
	m.Cleanup(m.leave)
}

// A client that dies while its partition moves loses its leases: the server of its
// machine tells the next leader. One that lives keeps them.
func TestAClientThatDiesWhileItsPartitionMovesIsGone(t *testing.T) {
	inStreet(t, 3, 2, func(s *street) {
		s.end(1)
		m := &mover{street: s, fs: vfs.NewMem()}
		m.to(0)
		run := s.runs()[1]
		op := s.operator(2)
		s.actor(op, run, "root", "root")
		held := func() (n int) {
			var list struct{ Leases []struct{ Key string } }
			op.want(&list, "operator_leases", `{"run":"`+run+`"}`)
			return len(list.Leases)
		}
		var clients []*caller
		var ends []func()
		for house := range 2 { // one comes to the leader, and one through another server
			for _, name := range []string{"dies", "lives"} {
				who, end := s.process()
				name := fmt.Sprint(name, house)
				c := s.connectAs(house, server.Hello{Run: run, Name: name}, who)
				c.want(nil, "run_lease_acquire", `{"key":"`+name+`","ttl_secs":3600}`)
				clients, ends = append(clients, c), append(ends, end)
			}
		}
		if n := held(); n != 4 {
			t.Fatalf("%d leases are held", n)
		}
		s.end(1)
		for _, c := range clients {
			c.expectClosed()
		}
		ends[0]()
		ends[2]()
		m.to(2)
		synctest.Wait()
		if n := held(); n != 4 {
			t.Errorf("%d leases are held as soon as it has moved", n)
		}
		time.Sleep(10 * time.Second)
		if n := held(); n != 2 {
			t.Errorf("%d leases are held after two of four clients have died", n)
		}
		time.Sleep(10 * time.Minute)
		if n := held(); n != 2 {
			t.Errorf("%d leases are held, and two clients live", n)
		}
	})
}

// A client that leaves while the leader hangs is gone once another leads.
func TestAClientThatLeavesALeaderThatHangsIsGone(t *testing.T) {
	inStreet(t, 3, 2, func(s *street) {
		s.end(1)
		m := &mover{street: s, fs: vfs.NewMem()}
		m.to(0)
		run := s.runs()[1]
		op := s.operator(2)
		s.actor(op, run, "root", "root")
		who, end := s.process()
		c := s.connectAs(1, server.Hello{Run: run, Name: "w"}, who)
		c.want(nil, "run_lease_acquire", `{"key":"k","ttl_secs":3600}`)
		s.hang.Store(true)
		end()
		c.nc.Close()
		time.Sleep(20 * time.Second)
		s.hang.Store(false)
		m.to(2)
		time.Sleep(40 * time.Second)
		var list struct{ Leases []struct{ Key string } }
		if op.want(&list, "operator_leases", `{"run":"`+run+`"}`); len(list.Leases) > 0 {
			t.Errorf("it still holds %+v", list.Leases)
		}
	})
}

// A process of an agent whose run another server leads is nobody without credentials.
func TestAnAgentsProcessNeedsItsCredentialsAtAnotherServer(t *testing.T) {
	inStreet(t, 2, 2, func(s *street) {
		run := s.runs()[1]
		token := s.actor(s.operator(0), run, "root", "root")
		greet := func(who process.Peer, h server.Hello) error {
			near, far := net.Pipe()
			defer near.Close()
			s.houses[0].conns.Go(func() { s.houses[0].ServeConn(s.houses[0].ctx, far, who) })
			_, _, err := server.Greet(near, h)
			return err
		}
		agent, end := s.process(process.ActorMark + "=0195f9b2-0000-7000-8000-000000000001")
		for _, h := range []server.Hello{{Operator: true}, {Run: run, Name: "w"}} {
			var refused *server.HelloError
			if err := greet(agent, h); !errors.As(err, &refused) || refused.Code != "FORBIDDEN" || !strings.Contains(refused.Message, "comes from a launched agent, actor 0195f9b2-") {
				t.Errorf("%+v: %v", h, err)
			}
		}
		if err := greet(agent, server.Hello{Token: token}); err != nil {
			t.Errorf("with a token: %v", err)
		}
		other, _ := s.process()
		if err := greet(other, server.Hello{Operator: true}); err != nil {
			t.Errorf("a process of nobody: %v", err)
		}
		end()
		if err := greet(agent, server.Hello{Operator: true}); err == nil {
			t.Error("an agent is the operator over a connection that a process has opened and left to it")
		}
	})
}

// process starts a process that does nothing, with more in its environment, and
// returns a function that ends it.
func (s *street) process(environ ...string) (who process.Peer, end func()) {
	s.Helper()
	cmd := exec.Command("cat")
	cmd.Env = append(os.Environ(), environ...)
	in, err := cmd.StdinPipe()
	if err != nil {
		s.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		s.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		s.Fatal(err)
	}
	end = sync.OnceFunc(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	s.Cleanup(end)
	// Start returns before the kernel shows the new environment.
	fmt.Fprintln(in)
	if _, err := out.Read(make([]byte, 1)); err != nil {
		s.Fatal(err)
	}
	who = process.Find(cmd.Process.Pid).Peer
	who.Transport, who.Machine = "unix", process.Machine()
	return who, end
}

// connectAs connects to a house as a process.
func (s *street) connectAs(house int, h server.Hello, who process.Peer) *caller {
	s.Helper()
	near, far := net.Pipe()
	d := s.houses[house].daemon
	d.conns.Go(func() { d.ServeConn(d.ctx, far, who) })
	s.Cleanup(func() { near.Close() })
	p := &peer{t: s.T, nc: near, br: bufio.NewReader(near)}
	p.greet(h)
	return &caller{peer: p}
}

// A partition may leave a server and come back, again and again: the sessions of an actor
// keep their room there no longer than the partition.
func TestAPartitionTakesTheRoomOfItsSessionsAlong(t *testing.T) {
	inStreet(t, 2, 2, func(s *street) {
		t := s.T
		s.end(1)
		m := &mover{street: s, fs: vfs.NewMem()}
		m.to(0)
		token := s.actor(s.operator(0), s.runs()[1], "root", "root")
		w := &web{daemon: s.houses[0].daemon, client: s.houses[0].client, token: token}
		session := w.open(t)
		for range sessionsInStreet {
			m.to(1)
			m.to(0)
			if resp, body := w.do(t, "POST", ping, session...); resp.StatusCode != 200 {
				t.Fatalf("it comes back: %s %s", resp.Status, body)
			}
		}
		w.open(t)
	})
}
