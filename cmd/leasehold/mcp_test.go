package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/place"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/shim"
	"github.com/leasehold/leasehold/dispatch/server"
	"github.com/leasehold/leasehold/dispatch/server/wire"
)

func TestSDKClientThroughAShimThatStartsTheDaemon(t *testing.T) {
	t.Parallel()
	newDir(t)
	cs, err := connectSDK(t.Context(), "Some Client", testProgram(t, "mcp"))
	if err != nil {
		t.Fatal(err)
	}
	if v := cs.InitializeResult().ProtocolVersion; v != "2025-11-25" {
		t.Errorf("protocol version %s", v)
	}
	tools, err := cs.ListTools(t.Context(), nil)
	if err != nil || len(tools.Tools) < 6 {
		t.Errorf("tools: %v %v", tools, err)
	}
	res, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "run_lease_acquire", Arguments: map[string]any{"key": "k"}})
	if err != nil || res.IsError {
		t.Fatalf("acquire: %v %+v", err, res)
	}
	if b, _ := json.Marshal(res.StructuredContent); !strings.Contains(string(b), `"Some-Client-leasehold"`) {
		t.Errorf("the holder is not named after the client and its directory: %s", b)
	}
	if err := cs.Close(); err != nil {
		t.Error(err)
	}
}

func TestManyShimsStartOneDaemon(t *testing.T) {
	t.Parallel()
	newDir(t)
	var wg sync.WaitGroup
	for range 12 {
		s, _ := startShim(t)
		wg.Go(func() { s.handshake() })
	}
	wg.Wait()
	log, err := os.ReadFile(daemonLog(t))
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(log), `"message":"connected"`); n != 12 {
		t.Errorf("%d shims connected to it", n)
	}
	if r, ok := place.ReadRecord(target(t).State); !ok || r.PID != daemonPID(t) || !r.OnDemand {
		t.Errorf("recorded: %+v; listens: %d", r, daemonPID(t))
	}
	if strings.Contains(string(log), "in use") || strings.Contains(string(log), "another daemon") {
		t.Errorf("a second daemon was started:\n%s", log)
	}
}

func TestKilledClientFreesItsLeasesAtOnce(t *testing.T) {
	t.Parallel()
	newDir(t)
	holder, _ := startShim(t, "--name", "holder")
	holder.handshake()
	holder.call(1, "run_lease_acquire", `{"key":"c"}`)
	c := holder.answer(1).Result.StructuredContent

	victim := testProgram(t, "client")
	out, err := victim.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Fatalf("client: %q %v", line, err)
	}
	next, _ := startShim(t, "--name", "next")
	next.handshake()
	awaitWaiters := func(want int) {
		awaitTrue(t, fmt.Sprintf("%d wait", want), func() bool {
			holder.call(2, "lease_list", `{}`)
			select {
			case line := <-holder.lines:
				return strings.Count(line, `"waiting_ms"`)/strings.Count(line, `"leases"`) >= want
			case <-time.After(patience):
				return false
			}
		})
	}
	awaitWaiters(1)
	next.call(1, "run_lease_acquire", `{"key":"a","wait_secs":50}`)
	next.call(2, "lease_acquire", `{"name":"b","wait_secs":50}`)
	next.call(3, "run_lease_acquire", `{"key":"c","wait_secs":50}`)
	awaitWaiters(4)

	killed := time.Now()
	victim.Process.Kill()
	for range 2 {
		if r := next.receive(); r.Result.IsError || r.Error != nil {
			t.Errorf("hand-over: %+v %+v", r, r.Error)
		}
	}
	t.Logf("from the kill to the second hand-over: %v", time.Since(killed))
	victim.Wait()

	holder.call(3, "run_lease_release", fmt.Sprintf(`{"lease_id":%q}`, c.LeaseID))
	holder.answer(3)
	if r := next.answer(3); r.Result.StructuredContent.Token <= c.Token {
		t.Errorf("the dead waiter was served: %+v", r)
	}
}

// A client whose leasehold mcp dies starts another, and its model goes on. The first
// answer tells it what it lost.
func TestAClientThatStartsItsServerAgainIsToldWhatItLost(t *testing.T) {
	t.Parallel()
	newDir(t)
	startDaemon(t)
	first, cmd := startShim(t, "--name", "agent")
	first.handshake()
	first.call(1, "run_lease_acquire", `{"key":"deploy"}`)
	first.answer(1)
	cmd.Process.Kill()

	nc, err := net.Dial("unix", inDir(t, "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	br, _, err := server.Greet(nc, server.Hello{Operator: true})
	if err != nil {
		t.Fatal(err)
	}
	awaitTrue(t, "its lease is free", func() bool {
		if _, err := nc.Write(callLine(1, "operator_tree", `{}`)); err != nil {
			t.Fatal(err)
		}
		line, err := br.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		return !strings.Contains(line, `"name":"agent"`)
	})
	again, _ := startShim(t, "--name", "agent")
	again.handshake()
	again.call(1, "lease_list", `{}`)
	if line := <-again.lines; !strings.Contains(line, "LEASE_LOST") || !strings.Contains(line, `"key":"deploy"`) {
		t.Errorf("the first answer: %s", line)
	}
}

func TestDaemonKilledUnderItsClients(t *testing.T) {
	t.Parallel()
	newDir(t)
	holder, _ := startShim(t, "--name", "holder")
	holder.handshake()
	waiter, _ := startShim(t, "--name", "waiter")
	waiter.handshake()
	holder.call(1, "run_lease_acquire", `{"key":"k"}`)
	lease := holder.answer(1).Result.StructuredContent
	for round := range 3 {
		id := 10 + round
		if round == 0 {
			waiter.call(5, "run_lease_acquire", `{"key":"k","wait_secs":50}`)
		}
		before := daemonPID(t)
		if before == 0 {
			t.Fatal("no daemon")
		}
		syscall.Kill(before, syscall.SIGKILL)
		holder.call(id, "run_lease_acquire", `{"key":"k"}`)
		again := holder.answer(id).Result.StructuredContent
		if !again.Reentrant || again.Token != lease.Token || again.LeaseID != lease.LeaseID {
			t.Errorf("round %d: not the same lease: %+v, was %+v", round, again, lease)
		}
		if pid := daemonPID(t); pid == before || pid == 0 {
			t.Errorf("round %d: daemon %d after %d", round, pid, before)
		}
	}
	waiter.silent()
	holder.call(20, "run_lease_release", fmt.Sprintf(`{"lease_id":%q}`, lease.LeaseID))
	if r := holder.answer(20); !r.Result.StructuredContent.Released {
		t.Errorf("release: %+v", r)
	}
	if r := waiter.answer(5); r.Result.StructuredContent.Token <= lease.Token {
		t.Errorf("the waiter: %+v", r)
	}
	waiter.send(`{"jsonrpc":"2.0","id":6,"method":"ping"}`)
	waiter.answer(6) // and not a second answer to 5, or one of the replay
}

func TestDaemonStoppedPolitelyUnderItsClients(t *testing.T) {
	t.Parallel()
	newDir(t)
	s, _ := startShim(t)
	s.handshake()
	s.call(1, "run_lease_acquire", `{"key":"k"}`)
	lease := s.answer(1).Result.StructuredContent
	syscall.Kill(daemonPID(t), syscall.SIGTERM)
	s.call(2, "run_lease_acquire", `{"key":"k"}`)
	if again := s.answer(2).Result.StructuredContent; !again.Reentrant || again.Token != lease.Token {
		t.Errorf("not the same lease: %+v, was %+v", again, lease)
	}
}

func TestDaemonStartedByHandIsNotReplaced(t *testing.T) {
	newDir(t)
	t.Setenv(dirEnv, inDir(t, "")) // the shim of this process might start a daemon
	daemon := startDaemon(t)
	s := runShim(t, shim.Config{Target: target(t), Start: true, Run: "r", Outage: 300 * time.Millisecond})
	s.handshake()
	s.call(1, "task_claim", `{"queues":["q"],"ttl_secs":60,"wait_secs":50}`)
	s.call(2, "kv_wait", `{"path":"/shared/a","wait_secs":50}`)
	s.send(`{"jsonrpc":"2.0","id":3,"method":"ping"}`)
	s.answer(3) // so the daemon has the calls before it
	daemon.Process.Kill()
	daemon.Wait()
	// Only what the daemon may have done needs a warning: not what changes nothing, and
	// not what no daemon was sent.
	refused := make(map[string]string)
	for range 2 {
		r := s.receive()
		refused[string(r.ID)] = r.Result.StructuredContent.Message
	}
	s.call(4, "kv_set", `{"path":"/shared/a","value":1}`)
	r := s.answer(4)
	if !r.Result.IsError || r.Result.StructuredContent.Code != "UNAVAILABLE" {
		t.Errorf("without a daemon: %+v", r)
	}
	refused["4"] = r.Result.StructuredContent.Message
	for id, message := range refused {
		if warned := strings.Contains(message, "may have taken effect"); warned != (id == "1") || !strings.HasPrefix(message, "no daemon listens at ") {
			t.Errorf("call %s: %s", id, message)
		}
	}
	s.send(`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`)
	if r := s.receive(); r.Error == nil || !strings.Contains(r.Error.Message, "leasehold serve") {
		t.Errorf("without a daemon: %+v", r)
	}
	startDaemon(t)
	awaitTrue(t, "calls work again", func() bool {
		s.call(3, "lease_list", `{}`)
		return !s.answer(3).Result.IsError
	})
}

func TestDaemonThatCannotStartIsToldToTheClient(t *testing.T) {
	t.Parallel()
	newDir(t)
	if err := os.WriteFile(inDir(t, "state"), []byte("in its place"), 0o600); err != nil {
		t.Fatal(err)
	}
	s, _ := startShim(t)
	s.send(initializeLine)
	if r := s.receive(); r.Error == nil || !strings.Contains(r.Error.Message, "did not start") || !strings.Contains(r.Error.Message, "state") {
		t.Errorf("initialize: %+v %+v", r, r.Error)
	}
}

func TestAStartThatIsNotPossibleIsToldToTheClient(t *testing.T) {
	t.Parallel()
	newDir(t)
	lock := place.StartLock(inDir(t, "state/leasehold"))
	if err := os.MkdirAll(lock, 0o700); err != nil { // as on a disk that is read-only, no file can be opened there
		t.Fatal(err)
	}
	s, _ := startShim(t)
	s.send(initializeLine)
	if r := s.receive(); r.Error == nil || !strings.Contains(r.Error.Message, "did not start: open "+lock) {
		t.Errorf("initialize: %+v %+v", r, r.Error)
	}
}

func TestTokenThatOpensNothingIsToldToTheClient(t *testing.T) {
	t.Parallel()
	newDir(t)
	startDaemon(t)
	s := runShim(t, shim.Config{Target: target(t), Token: "lht_no"})
	s.send(initializeLine)
	if r := s.receive(); r.Error == nil || !strings.Contains(r.Error.Message, "token") {
		t.Errorf("initialize: %+v", r)
	}
	s.call(1, "lease_list", `{}`)
	if r := s.answer(1); r.Result.StructuredContent.Code != "UNAUTHENTICATED" {
		t.Errorf("call: %+v", r)
	}
}

func TestShimRefusesWhatWouldBreakTheConnection(t *testing.T) {
	t.Parallel()
	newDir(t)
	startDaemon(t)
	s := runShim(t, shim.Config{Target: target(t), Run: "r"})
	s.handshake()
	s.send(`{"jsonrpc":"2.0","method":"ping","params":"` + strings.Repeat("x", wire.MaxMessage) + `","id":1}`)
	if r := s.receive(); string(r.ID) != "1" || r.Error == nil || !strings.Contains(r.Error.Message, "4 MiB") {
		t.Errorf("too large: %+v", r)
	}
	endless := strings.Repeat("x", 5*wire.MaxMessage) // of which the shim does not keep all
	s.send(`{"jsonrpc":"2.0","id":7,"method":"ping","params":"` + endless + `"}`)
	if r := s.receive(); string(r.ID) != "7" || r.Error == nil || !strings.Contains(r.Error.Message, "4 MiB") {
		t.Errorf("much too large: %+v", r)
	}
	s.send(`{"jsonrpc":"2.0","method":"ping","params":"` + endless + `","id":7}`)
	if r := s.receive(); string(r.ID) != "null" || r.Error == nil || !strings.Contains(r.Error.Message, "4 MiB") {
		t.Errorf("much too large, with its id at the end: %+v", r)
	}
	s.send(`{`)
	if r := s.receive(); r.Error == nil || r.Error.Code != -32700 {
		t.Errorf("malformed: %+v", r)
	}
	s.send(`[{"jsonrpc":"2.0","method":"ping","id":1}]`)
	if r := s.receive(); r.Error == nil || r.Error.Code != -32600 {
		t.Errorf("batch: %+v", r)
	}
	s.send(`{"jsonrpc":"2.0","id":2,"method":"ping"}`)
	s.answer(2)
}

// Some clients write a byte order mark before their text, and no newline after it.
func TestShimAnswersBeforeItEndsWithItsInput(t *testing.T) {
	t.Parallel()
	newDir(t)
	startDaemon(t)
	s, _ := startShim(t)
	if _, err := io.WriteString(s.in, "\ufeff"+initializeLine+"\r\n"+`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`); err != nil {
		t.Fatal(err)
	}
	s.in.Close()
	s.answer(0)
	s.answer(1)
	<-s.ended
}

func TestShimEndsWithWhoeverNeedsIt(t *testing.T) {
	t.Parallel()
	newDir(t)
	startDaemon(t)
	for name, end := range map[string]func(*stdio, *exec.Cmd){
		"input closed": func(s *stdio, _ *exec.Cmd) { s.in.Close() },
		"SIGTERM":      func(_ *stdio, c *exec.Cmd) { c.Process.Signal(syscall.SIGTERM) },
		"SIGHUP":       func(_ *stdio, c *exec.Cmd) { c.Process.Signal(syscall.SIGHUP) },
		"SIGKILL":      func(_ *stdio, c *exec.Cmd) { c.Process.Kill() },
	} {
		t.Run(name, func(t *testing.T) {
			watcher := runShim(t, shim.Config{Target: target(t), Run: "default"})
			watcher.handshake()
			s, cmd := startShim(t)
			s.handshake()
			s.call(1, "run_lease_acquire", `{"key":"k"}`)
			s.answer(1)
			s.call(2, "kv_wait", `{"path":"/shared/x","min_version":1,"wait_secs":50}`)
			watcher.call(1, "run_lease_acquire", `{"key":"k","wait_secs":50}`)
			start := time.Now()
			end(s, cmd)
			lease := watcher.answer(1).Result.StructuredContent
			t.Logf("hand-over after %v", time.Since(start))
			<-s.ended
			watcher.call(2, "run_lease_release", fmt.Sprintf(`{"lease_id":%q}`, lease.LeaseID))
			watcher.answer(2)
		})
	}
}

func TestShimEndsWithItsParent(t *testing.T) {
	t.Parallel()
	newDir(t)
	startDaemon(t)
	inR, inW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer inW.Close() // held: the end of input is not what ends it
	outR, outW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer outR.Close()
	parent := exec.Command("/bin/sh", "-c", `"$0" mcp <&3 3<&- & wait`, os.Args[0])
	parent.Env, parent.Stdout, parent.ExtraFiles = environOf(t), outW, []*os.File{inR}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	inR.Close()
	outW.Close()
	fmt.Fprintln(inW, initializeLine)
	out := bufio.NewReader(outR)
	if _, err := out.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	parent.Process.Kill()
	parent.Wait()
	if _, err := out.ReadString('\n'); err == nil { // at the end of output the shim has ended
		t.Error("the shim goes on")
	}
}

// The client of a shim stays subscribed through the end of the daemon, and is told
// of what may have changed meanwhile.
func TestSubscriptionsOutlastTheDaemonBehindAShim(t *testing.T) {
	t.Parallel()
	newDir(t)
	updates := make(chan string, 100)
	client := mcp.NewClient(&mcp.Implementation{Name: "reader", Version: "1"}, &mcp.ClientOptions{
		ResourceUpdatedHandler: func(_ context.Context, r *mcp.ResourceUpdatedNotificationRequest) { updates <- r.Params.URI },
	})
	cs, err := client.Connect(t.Context(), &mcp.CommandTransport{Command: testProgram(t, "mcp")}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer cs.Close()
	if c := cs.InitializeResult().Capabilities.Resources; c == nil || !c.Subscribe {
		t.Errorf("capabilities: %+v", c)
	}
	list, err := cs.ListResources(t.Context(), nil)
	if err != nil || len(list.Resources) != 2 {
		t.Fatalf("resources: %+v, %v", list, err)
	}
	for _, uri := range []string{"lease://run", "queue://jobs"} {
		if err := cs.Subscribe(t.Context(), &mcp.SubscribeParams{URI: uri}); err != nil {
			t.Fatal(err)
		}
	}
	if err := cs.Unsubscribe(t.Context(), &mcp.UnsubscribeParams{URI: "queue://jobs"}); err != nil {
		t.Fatal(err)
	}
	other, _ := startShim(t, "--name", "other")
	other.handshake()
	told := func() {
		t.Helper()
		select {
		case uri := <-updates:
			if uri != "lease://run" {
				t.Fatalf("told of %s", uri)
			}
		case <-time.After(patience):
			t.Fatal("told of nothing")
		}
	}
	other.call(1, "run_lease_acquire", `{"key":"a"}`)
	other.answer(1)
	told()
	pid := daemonPID(t)
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	told() // it may have changed
	awaitTrue(t, "another daemon runs", func() bool { p := daemonPID(t); return p != 0 && p != pid })
	res, err := cs.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: "lease://run"})
	if err != nil || !strings.Contains(res.Contents[0].Text, `"key":"a"`) {
		t.Fatalf("read: %+v, %v", res, err)
	}
	for len(updates) > 0 {
		<-updates
	}
	other.call(2, "run_lease_acquire", `{"key":"b"}`)
	other.answer(2)
	told()
}
