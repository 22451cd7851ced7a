package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// A hooked is a client whose hook asks before it writes. Its process is one that
// does nothing.
type hooked struct {
	t   *testing.T
	dir string
	pid int
	env []string
}

func newHooked(t *testing.T, dir string) *hooked {
	t.Helper()
	process := exec.Command("sleep", "1000")
	process.SysProcAttr = &syscall.SysProcAttr{}
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { process.Process.Kill(); process.Wait() })
	return &hooked{t: t, dir: dir, pid: process.Process.Pid}
}

// hookedShim starts a daemon, and a shim in a repository as the client of the hooks.
func hookedShim(t *testing.T) (*stdio, *hooked) {
	t.Helper()
	newDir(t)
	startDaemon(t)
	shop := repository(t, filepath.Join(t.TempDir(), "shop"))
	client, _ := startShim(t, "--directory", shop)
	client.handshake()
	return client, &hooked{t: t, dir: shop, pid: os.Getpid()} // which has started the shim
}

// writes asks for a write as Claude Code does, and gives why it was refused; "" if
// it was not. extra are more members of what the hook reads.
func (h *hooked) writes(file, extra string) (refusal, note string) {
	h.t.Helper()
	stdin := fmt.Sprintf(`{"cwd":%q,"hook_event_name":"PreToolUse","tool_name":"Write","tool_input":{"file_path":%q}%s}`, h.dir, file, extra)
	var answer struct {
		HookSpecificOutput struct{ PermissionDecision, PermissionDecisionReason, AdditionalContext string }
	}
	if out := h.run("claude", stdin); out != "" {
		if err := json.Unmarshal([]byte(out), &answer); err != nil {
			h.t.Fatalf("%v: %s", err, out)
		}
	}
	said := answer.HookSpecificOutput
	if refused := said.PermissionDecision == "deny"; refused != (said.PermissionDecisionReason != "") {
		h.t.Errorf("the hook said %+v", said)
	}
	return said.PermissionDecisionReason, said.AdditionalContext
}

func (h *hooked) run(client, stdin string) string {
	h.t.Helper()
	return h.said(stdin, "hook", client)
}

// said gives what a command prints that runs in the client's directory.
func (h *hooked) said(stdin string, args ...string) string {
	h.t.Helper()
	cmd := testProgram(h.t, args...)
	cmd.Dir, cmd.Stdin, cmd.Stderr = h.dir, strings.NewReader(stdin), os.Stderr
	cmd.Env = append(cmd.Env, fmt.Sprintf("CLAUDE_PID=%d", h.pid), fmt.Sprintf("LEASEHOLD_CLIENT_PID=%d", h.pid), "LEASEHOLD_RUN=")
	cmd.Env = append(cmd.Env, h.env...)
	out, err := cmd.Output()
	if err != nil {
		h.t.Fatalf("%v: %v", args, err)
	}
	return string(out)
}

func (h *hooked) mayWrite(file, extra string) {
	h.t.Helper()
	if refusal, note := h.writes(file, extra); refusal != "" || note != "" {
		h.t.Errorf("%s: %s%s", file, refusal, note)
	}
}

// mayNotWrite gives the number of seconds that the refusal names.
func (h *hooked) mayNotWrite(file, extra string, words ...string) (expiresIn int) {
	h.t.Helper()
	refusal, _ := h.writes(file, extra)
	for _, want := range append(words, "lease ", " held by actor ", ", expires in ", "do something else") {
		if !strings.Contains(refusal, want) {
			h.t.Errorf("%s is refused with %q, without %q", file, refusal, want)
		}
	}
	_, after, _ := strings.Cut(refusal, ", expires in ")
	seconds, _, _ := strings.Cut(after, "s")
	expiresIn, _ = strconv.Atoi(seconds) // 0 if it names none
	return expiresIn
}

func repository(t *testing.T, dir string) string {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("git", "init", "--quiet", dir).CombinedOutput(); err != nil {
		t.Skipf("git: %v %s", err, out)
	}
	return dir
}

// A user who leaves a conversation and begins another in the same client, or has one
// that is done beside it, can go on with the same files at once.
func TestTheNextConversationMayWrite(t *testing.T) {
	t.Parallel()
	newDir(t)
	startDaemon(t)
	shop := repository(t, filepath.Join(t.TempDir(), "shop"))
	for client, say := range map[string]struct{ write, over string }{
		"codex":    {`{"cwd":%q,"session_id":%q,"hook_event_name":"PreToolUse","tool_name":"apply_patch","tool_input":{"command":"*** Begin Patch\n*** Update File: codex.ts\n*** End Patch"}}`, `{"cwd":%q,"session_id":%q,"hook_event_name":"Stop"}`},
		"opencode": {`{"dir":%q,"session":%q,"main":true,"event":"before","tool":"edit","args":{"filePath":"opencode.ts"}}`, `{"dir":%q,"session":%q,"main":true,"event":"session.idle"}`},
	} {
		one, two := newHooked(t, shop), newHooked(t, shop)
		writes := func(h *hooked, conversation string, may bool) {
			t.Helper()
			if out := h.run(client, fmt.Sprintf(say.write, shop, conversation)); (out == "") != may {
				t.Errorf("%s, conversation %s: may write: %v; the hook says %q", client, conversation, may, out)
			}
		}
		writes(one, "a", true)
		writes(one, "b", false)
		if client == "codex" { // OpenCode's agents cannot be told at the end of a turn
			one.said("", "call", "actor_message", "to=holder of file:codex.ts", "text=one more thing")
			if told := one.run(client, fmt.Sprintf(say.over, shop, "a")); !strings.Contains(told, "one more thing") {
				t.Errorf("at the end of its turn the agent is told %s", told)
			}
			writes(one, "b", false) // the agent goes on
		}
		one.run(client, fmt.Sprintf(say.over, shop, "a"))
		if client == "opencode" { // the clients of Codex's hooks are their parent: this process
			writes(two, "c", false)
		}
		writes(one, "b", true)
		writes(one, "a", false)
		if client == "codex" {
			begins := `{"cwd":%q,"session_id":%q,"hook_event_name":"SessionStart","source":%q}`
			one.run(client, fmt.Sprintf(begins, shop, "a", "compact"))
			writes(one, "a", false)
			one.run(client, fmt.Sprintf(begins, shop, "d", "clear"))
			writes(one, "d", true)
			one.run(client, fmt.Sprintf(`{"cwd":%q,"session_id":"a","hook_event_name":"SessionEnd"}`, shop))
			writes(one, "e", false)
		}
	}
}

// A call of a tool of ours is that of the sub-agent that the hook has named before it.
func TestTheHookNamesTheSubAgentOfACall(t *testing.T) {
	t.Parallel()
	client, h := hookedShim(t)
	for id, agent := range []string{"", "a"} {
		h.run("claude", fmt.Sprintf(`{"cwd":%q,"hook_event_name":"PreToolUse","tool_name":"mcp__leasehold__run_lease_acquire","tool_use_id":"u%d","agent_id":%q}`, h.dir, id, agent))
		client.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"run_lease_acquire","arguments":{"key":"k%d"},"_meta":{"claudecode/toolUseId":"u%[2]d"}}}`, id+10, id))
		client.answer(id + 10)
		if list := h.said("", "call", "lease_list", fmt.Sprintf("prefix=k%d", id)); strings.Contains(list, `"as":"a"`) != (agent == "a") {
			t.Errorf("a call of agent %q: %s", agent, list)
		}
	}
}

// A sub-agent may go on with the files of the agent that gives it work. When it has ended, the
// agent keeps what it has taken meanwhile.
func TestAnAgentLeavesItsFilesToItsSubAgents(t *testing.T) {
	t.Parallel()
	newDir(t)
	startDaemon(t)
	shop := repository(t, filepath.Join(t.TempDir(), "shop"))
	h := &hooked{t: t, dir: shop, pid: os.Getpid()} // what a hook finds if its client does not name itself
	h.mayWrite("a.ts", "")
	h.mayNotWrite("a.ts", `,"agent_id":"s"`)
	gives := `{"cwd":%q,"hook_event_name":%q,"tool_name":%q}`
	h.run("claude", fmt.Sprintf(gives, shop, "PreToolUse", "Agent"))
	h.mayWrite("a.ts", `,"agent_id":"s"`)
	h.mayWrite("b.ts", "")
	h.run("claude", fmt.Sprintf(gives, shop, "PostToolUse", "Agent"))
	h.mayNotWrite("b.ts", `,"agent_id":"s"`)
	for client, tools := range map[string][]string{"claude": {"SendMessage", "Workflow"}, "copilot": {"write_agent"}, "qwen": {"send_message", "workflow"}} {
		for _, tool := range tools {
			h.mayWrite(tool, "")
			h.run(client, fmt.Sprintf(gives, shop, "PreToolUse", tool))
			h.mayWrite(tool, `,"agent_id":"s"`)
		}
	}
}

// A model whose conversation goes on in another process is told that what it held there
// has ended, also while no daemon runs; and what it holds, if it is the same process.
func TestTheHookTellsAModelThatItWasResumed(t *testing.T) {
	t.Parallel()
	newDir(t)
	shop := repository(t, filepath.Join(t.TempDir(), "shop"))
	h := &hooked{t: t, dir: shop, pid: os.Getpid()}
	begin := func(name, source string) string {
		return strings.ReplaceAll(h.run(name, fmt.Sprintf(`{"cwd":%q,"session_id":"s","hook_event_name":"SessionStart","source":%q}`, shop, source)), `\"`, `"`)
	}
	ended := func(when, words string) {
		t.Helper()
		for name, sources := range map[string][]string{"claude": {"resume", "fork"}, "codex": {"resume"}, "gemini": {"resume"}, "qwen": {"resume"}} {
			for _, source := range sources {
				if told := begin(name, source); !strings.Contains(told, "was resumed") || !strings.Contains(told, words) || strings.Contains(told, "you still hold") {
					t.Errorf("%s, at %s, %s: the model is told %s", name, source, when, told)
				}
			}
			if told := begin(name, "startup"); told != "" {
				t.Errorf("%s, at startup, %s: the model is told %s", name, when, told)
			}
		}
	}
	ended("without a daemon", "before may not be yours; look with lease_list")
	startDaemon(t)
	ended("with a daemon", "before are not yours, except those named here")
	if told := begin("kimi", "resume"); told != "" {
		t.Errorf("kimi would tell its user, and not its model: %s", told)
	}
	call := `{"event":%q,"dir":%q,"session":"ses_1","main":true,"call":"c","tool":"read","resumed":true}` // of opencode
	if told := h.run("opencode", fmt.Sprintf(call, "after", shop)); !strings.Contains(told, `{"note":"Leasehold: this conversation was resumed`) || !strings.Contains(told, "are not yours, except") {
		t.Errorf("opencode: the model is told %s", told)
	}
	if told := h.run("opencode", fmt.Sprintf(call, "before", shop)); told != "" {
		t.Errorf("opencode: the model is told before a tool that may fail: %s", told)
	}
	client, _ := startShim(t, "--directory", shop) // of this process
	client.handshake()
	client.call(11, "run_lease_acquire", `{"key":"deploy"}`)
	client.answer(11)
	if told := begin("claude", "resume"); !strings.Contains(told, "was resumed") || !strings.Contains(told, `you still hold run lease "deploy"`) {
		t.Errorf("the model is told %s", told)
	}
	way, cut := wayCutAt(t, "hook_notices")
	stdin := fmt.Sprintf(`{"cwd":%q,"session_id":"s","hook_event_name":"SessionStart","source":"resume"}`, shop)
	if told := h.said(stdin, "hook", "claude", "--socket", way); !strings.Contains(told, "may not be yours") || !cut.Load() {
		t.Errorf("without an answer of the daemon the model is told %s; the call was cut off: %v", told, cut.Load())
	}
}

// wayCutAt returns a socket by which the daemon can be reached, until a call of a tool: the
// first ends its connection, unanswered.
func wayCutAt(t *testing.T, tool string) (way string, cut *atomic.Bool) {
	t.Helper()
	cut = new(atomic.Bool)
	way = inDir(t, "way")
	listener, err := net.Listen("unix", way)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			daemon, err := net.Dial("unix", inDir(t, "s"))
			if err != nil {
				client.Close()
				continue
			}
			go func() {
				defer client.Close()
				_, _ = io.Copy(client, daemon)
			}()
			go func() {
				defer daemon.Close()
				for lines := bufio.NewReader(client); ; {
					line, err := lines.ReadString('\n')
					if err != nil || strings.Contains(line, tool) && !cut.Swap(true) {
						return
					}
					_, _ = io.WriteString(daemon, line)
				}
			}()
		}
	}()
	return way, cut
}

// A daemon that is killed while a hook asks keeps the leases, so the hook asks the next
// one.
func TestTheHookAsksADaemonThatIsBack(t *testing.T) {
	t.Parallel()
	newDir(t)
	startDaemon(t)
	shop := repository(t, filepath.Join(t.TempDir(), "shop"))
	holder, writer := newHooked(t, shop), newHooked(t, shop)
	holder.mayWrite("app.ts", "")

	way, cut := wayCutAt(t, "hook_write")
	stdin := fmt.Sprintf(`{"cwd":%q,"hook_event_name":"PreToolUse","tool_name":"Write","tool_input":{"file_path":"app.ts"}}`, shop)
	if said := writer.said(stdin, "hook", "claude", "--socket", way); !strings.Contains(said, "app.ts is not changed") || !cut.Load() {
		t.Errorf("the hook says %s; the first call was cut off: %v", said, cut.Load())
	}
}

// A write to a file that another client has written to is refused before it
// happens, whatever the file is called, and by whatever client.
func TestTheHookKeepsClientsApart(t *testing.T) {
	t.Parallel()
	newDir(t)
	startDaemon(t)
	shop := repository(t, filepath.Join(t.TempDir(), "shop"))
	one, two := newHooked(t, shop), newHooked(t, shop)
	one.mayWrite("src/app.ts", "")
	one.mayWrite(filepath.Join(shop, "src/../src/app.ts"), "")
	if left := two.mayNotWrite("./src/app.ts", "", `lease "file:src/app.ts"`, "(claude-code-shop)", shop, "./src/app.ts is not changed", `run_lease_acquire with key "file:src/app.ts" and wait_secs 50`); left <= 60 || left > 300 {
		t.Errorf("a lease of 300 s expires in %d s", left)
	}
	if err := os.Symlink("src", filepath.Join(shop, "link")); err != nil {
		t.Fatal(err)
	}
	two.mayNotWrite("link/app.ts", "")
	// Sub-agents of one client.
	one.mayNotWrite("src/app.ts", `,"agent_id":"a"`)
	one.mayWrite("b.ts", `,"agent_id":"a"`)
	one.mayNotWrite("b.ts", `,"agent_id":"b"`, `for its agent "a"`)
	one.run("claude", `{"hook_event_name":"SubagentStop"}`) // of one that its client does not name
	one.mayNotWrite("b.ts", `,"agent_id":"b"`)
	one.run("claude", `{"hook_event_name":"SubagentStop","agent_id":"a"}`)
	one.mayWrite("b.ts", `,"agent_id":"b"`)
	// A patch is all or nothing.
	out := two.run("codex", fmt.Sprintf(`{"cwd":%q,"hook_event_name":"PreToolUse","tool_name":"apply_patch","tool_input":{"command":"*** Begin Patch\n*** Add File: new\n*** Delete File: src/app.ts\n*** End Patch"}}`, shop))
	if !strings.Contains(out, "none of new, src/app.ts is changed") {
		t.Errorf("a patch of several files: %s", out)
	}
	one.mayWrite("new", "")
	// Another project has a run of its own, whoever writes there.
	other := repository(t, filepath.Join(t.TempDir(), "other"))
	three := newHooked(t, other)
	three.mayWrite("src/app.ts", "")
	three.mayNotWrite(filepath.Join(shop, "src/app.ts"), "", "try again then")
	three.mayNotWrite("src/app.ts", fmt.Sprintf(`,"cwd":%q`, shop), "wait_secs 50") // it works there, wherever its hook runs
	one.mayNotWrite(filepath.Join(other, "src/app.ts"), "")
	// The end of a session.
	one.run("claude", `{"hook_event_name":"SessionEnd"}`)
	two.mayWrite("src/app.ts", "")
	// The directory that a client works in may have been removed, as a worktree is.
	one.mayNotWrite(filepath.Join(shop, "src/app.ts"), fmt.Sprintf(`,"cwd":%q`, filepath.Join(t.TempDir(), "gone")))
	// Nobody can lease a file of such a name, so its directory stands for it. The other
	// files of a patch are guarded all the same.
	one.mayWrite("down/all*", "")
	two.mayNotWrite("down/more*", "", `lease "file:down"`, "down/more* is not changed")
	out = one.run("codex", fmt.Sprintf(`{"cwd":%q,"hook_event_name":"PreToolUse","tool_name":"apply_patch","tool_input":{"command":"*** Begin Patch\n*** Add File: all*\n*** Delete File: src/app.ts\n*** End Patch"}}`, shop))
	if !strings.Contains(out, "none of all*, src/app.ts is changed") {
		t.Errorf("a patch of such a file and another: %s", out)
	}
	// Not every file of a large patch is named.
	var many strings.Builder
	many.WriteString(`*** Add File: a\n`)
	for i := range 100 {
		fmt.Fprintf(&many, `*** Add File: many/%d\n`, i)
	}
	out = one.run("codex", fmt.Sprintf(`{"cwd":%q,"hook_event_name":"PreToolUse","tool_name":"apply_patch","tool_input":{"command":"*** Begin Patch\n%s*** Delete File: src/app.ts\n*** End Patch"}}`, shop, many.String()))
	if !strings.Contains(out, "none of a, many/0, many/1, many/2, many/3, many/4, many/5, many/6, many/7, many/8, 92 more is changed") {
		t.Errorf("a patch of many files: %s", out)
	}
	// The other files of a patch are guarded if nobody can tell where one is.
	if err := os.Symlink("loop", filepath.Join(shop, "loop")); err != nil {
		t.Fatal(err)
	}
	patch := `{"cwd":%q,"hook_event_name":"PreToolUse","tool_name":"apply_patch","tool_input":{"command":"*** Begin Patch\n*** Add File: loop/a\n*** Delete File: %s\n*** End Patch"}}`
	if out = one.run("codex", fmt.Sprintf(patch, shop, "src/app.ts")); !strings.Contains(out, "src/app.ts is not changed") {
		t.Errorf("a patch of a file that cannot be and another: %s", out)
	}
	if out = one.run("codex", fmt.Sprintf(patch, shop, "seen")); !strings.Contains(out, "did not check whether somebody else is changing loop/a,") {
		t.Errorf("a patch of a file that cannot be: %s", out)
	}
	two.mayNotWrite("seen", "")
	// What keeps the hook from checking is told to the model, and stops nobody.
	if err := os.WriteFile(filepath.Join(other, ".leasehold.toml"), []byte("run = 3"), 0o600); err != nil {
		t.Fatal(err)
	}
	if refusal, note := three.writes("src/app.ts", ""); refusal != "" || !strings.Contains(note, "leasehold did not check") || !strings.Contains(note, ".leasehold.toml:1:") {
		t.Errorf("with settings that cannot be read: %q, %q", refusal, note)
	}
	// What cannot be understood is an error that stops nobody.
	cmd := testProgram(t, "hook", "claude")
	cmd.Stdin = strings.NewReader("no JSON")
	if err := cmd.Run(); err == nil || cmd.ProcessState.ExitCode() != 1 {
		t.Errorf("without JSON: %v", err)
	}
}

// A file of another project has a lease in its own run and in that of the writer, so the
// tools of both runs see it, and whoever has leased it with the tools of either is heeded.
func TestTheHookHeedsBothRunsOfAFile(t *testing.T) {
	t.Parallel()
	newDir(t)
	startDaemon(t)
	shop := repository(t, filepath.Join(t.TempDir(), "shop"))
	inner := repository(t, filepath.Join(shop, "inner"))
	other := repository(t, filepath.Join(t.TempDir(), "other"))
	acquires := func(dir, path string, held bool) {
		t.Helper()
		cmd := testProgram(t, "call", "run_lease_acquire", "path="+path, "ttl_secs=60")
		cmd.Dir, cmd.Env = dir, append(cmd.Env, "LEASEHOLD_RUN=")
		out, err := cmd.CombinedOutput()
		if refused := err != nil; refused != held || held && !strings.Contains(string(out), "LEASE_HELD") {
			t.Errorf("in %s, a lease of %s: %s", dir, path, out)
		}
	}
	for _, there := range []string{inner, other} {
		one, two, three := newHooked(t, shop), newHooked(t, shop), newHooked(t, there)
		file := filepath.Join(there, "x.go")
		one.mayWrite(file, "")
		two.mayNotWrite(file, "", file+" is not changed", "run_lease_acquire with key")
		three.mayNotWrite("x.go", "")
		acquires(shop, file, true)
		acquires(there, "x.go", true)
		acquires(shop, filepath.Join(there, "y.go"), false)
	}
}

// The settings of a file's project say whether it is guarded there, and not those of the
// project that the client works in.
func TestTheHookHeedsTheSettingsOfAnotherProject(t *testing.T) {
	t.Parallel()
	other, holder := shopWithAHolder(t)
	if err := os.WriteFile(filepath.Join(other, ".leasehold.toml"), []byte(`guard.paths = ["**", "!gen/**"]`), 0o644); err != nil {
		t.Fatal(err)
	}
	for i, path := range []string{"x.go", "gen/x.go"} {
		holder.call(11+i, "run_lease_acquire", fmt.Sprintf(`{"path":%q}`, path))
		holder.answer(11 + i)
	}
	writer := newHooked(t, repository(t, filepath.Join(t.TempDir(), "shop")))
	writer.mayNotWrite(filepath.Join(other, "x.go"), "")
	writer.mayWrite(filepath.Join(other, "gen/x.go"), "")
}

// LEASEHOLD_RUN chooses the run of the client, and not that of another project's files. A
// patch may change files of several projects.
func TestTheHookHeedsTheRunOfEachFile(t *testing.T) {
	t.Parallel()
	newDir(t)
	startDaemon(t)
	var dirs []string
	for _, name := range []string{"shop", "one", "two"} {
		dirs = append(dirs, repository(t, filepath.Join(t.TempDir(), name)))
	}
	chosen := newHooked(t, dirs[0])
	chosen.env = []string{"LEASEHOLD_RUN=chosen"}
	chosen.run("opencode", fmt.Sprintf(`{"event":"before","dir":%q,"session":"s","main":true,"call":"c","tool":"apply_patch","args":{"patchText":"*** Begin Patch\n*** Add File: x\n*** Add File: %s/y\n*** Add File: %s/z\n*** End Patch"}}`, dirs[0], dirs[1], dirs[2]))
	newHooked(t, dirs[0]).mayWrite("x", "")
	newHooked(t, dirs[1]).mayNotWrite("y", "")
	newHooked(t, dirs[2]).mayNotWrite("z", "")
	other := newHooked(t, dirs[0])
	other.env = chosen.env
	other.mayNotWrite("x", "")
}

// shopWithAHolder returns a repository whose daemon runs, and an agent that works in it.
func shopWithAHolder(t *testing.T) (shop string, holder *stdio) {
	t.Helper()
	newDir(t)
	startDaemon(t)
	shop = repository(t, filepath.Join(t.TempDir(), "shop"))
	holder, _ = startShim(t, "--directory", shop)
	holder.handshake()
	return shop, holder
}

// With the tools an agent names a file of another project by its path, and the hooks of
// the other agents of its run heed that.
func TestTheHookHeedsALeaseOfAFileElsewhere(t *testing.T) {
	t.Parallel()
	shop, holder := shopWithAHolder(t)
	other := newHooked(t, shop)
	for i, there := range []string{repository(t, filepath.Join(shop, "inner")), repository(t, filepath.Join(t.TempDir(), "other"))} {
		file := filepath.Join(there, "x.go")
		holder.call(11+i, "run_lease_acquire", fmt.Sprintf(`{"path":%q,"ttl_secs":60}`, file))
		holder.answer(11 + i)
		other.mayNotWrite(file, "", file+" is not changed", "run_lease_acquire with key")
	}
}

// A refused agent is told which of its files is not changed, and how to wait for that
// one, also if somebody holds a directory above it.
func TestTheHookNamesTheFileBelowALeasedDirectory(t *testing.T) {
	t.Parallel()
	shop, holder := shopWithAHolder(t)
	holder.call(11, "run_lease_acquire", `{"path":"src/**","ttl_secs":60}`)
	holder.answer(11)
	newHooked(t, shop).mayNotWrite("src/a/x.go", "", `lease "file:src/**"`, "; src/a/x.go is not changed", `run_lease_acquire with key "file:src/a/x.go"`)
}

// An agent of Claude Code may go to another repository, such as a submodule. Its session
// stays in the run of the directory that its client was started in, so the keys of its
// leases are those of that project.
func TestTheHookHeedsWhereTheClientWasStarted(t *testing.T) {
	t.Parallel()
	newDir(t)
	startDaemon(t)
	shop := repository(t, filepath.Join(t.TempDir(), "shop"))
	inner := repository(t, filepath.Join(shop, "inner"))
	shim, _ := startShim(t, "--directory", shop)
	shim.handshake()
	gone := &hooked{t: t, dir: inner, pid: os.Getpid(), env: []string{"CLAUDE_PROJECT_DIR=" + shop}}
	stayed := newHooked(t, shop)
	gone.mayWrite("x.go", "")
	stayed.mayNotWrite("inner/x.go", "", `lease "file:inner/x.go"`, "inner/x.go is not changed")
	stayed.mayWrite("x.go", "")
	gone.mayNotWrite("../x.go", "", "../x.go is not changed")
}

// A client may work in several projects in one process, as opencode serve does, with a shim
// for each. A write is that of the shim in its project.
func TestTheHookKeepsTheProjectsOfAClientApart(t *testing.T) {
	t.Parallel()
	newDir(t)
	startDaemon(t)
	var of [2]*hooked
	for i, name := range []string{"shop", "other"} {
		dir := repository(t, filepath.Join(t.TempDir(), name))
		shim, _ := startShim(t, "--directory", dir)
		shim.handshake()
		of[i] = &hooked{t: t, dir: dir, pid: os.Getpid()} // of both
	}
	for i, h := range of {
		other, third := of[1-i], newHooked(t, of[1-i].dir)
		file := fmt.Sprint("a.ts", i)
		h.mayWrite(file, `,"agent_id":"ses_1"`)
		other.mayWrite(file, `,"agent_id":"ses_2"`)
		third.mayNotWrite(file, "", `"ses_2"`)
	}
}

// A message, and a lease that was taken away, reach the model of each client at its
// next tool call or when it is about to stop, once, in the words that the client passes on.
func TestTheHookTellsWhatIsNotTold(t *testing.T) {
	t.Parallel()
	newDir(t)
	startDaemon(t)
	shop := repository(t, filepath.Join(t.TempDir(), "shop"))
	leasehold := func(args ...string) {
		t.Helper()
		cmd := testProgram(t, args...)
		cmd.Dir = shop
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v %s", args, err, out)
		}
	}
	for name, client := range map[string]struct{ write, next, own, stop string }{
		"claude":   {`{"cwd":%q,"hook_event_name":"PreToolUse","tool_name":"Write","tool_input":{"file_path":%q}}`, `{"cwd":%q,"hook_event_name":"PreToolUse","tool_name":"Read"}`, `{"cwd":%q,"hook_event_name":"PreToolUse","tool_name":"mcp__leasehold__lease_list"}`, `{"cwd":%q,"hook_event_name":"Stop"}`},
		"codex":    {`{"cwd":%q,"hook_event_name":"PreToolUse","tool_name":"apply_patch","tool_input":{"command":"*** Begin Patch\n*** Add File: %s\n*** End Patch"}}`, `{"cwd":%q,"hook_event_name":"PreToolUse","tool_name":"Bash","tool_input":{"command":"ls"}}`, `{"cwd":%q,"hook_event_name":"PreToolUse","tool_name":"mcp__leasehold__lease_list"}`, `{"cwd":%q,"hook_event_name":"Stop"}`},
		"gemini":   {`{"cwd":%q,"hook_event_name":"BeforeTool","tool_name":"write_file","tool_input":{"file_path":%q}}`, `{"cwd":%q,"hook_event_name":"AfterTool","tool_name":"read_file"}`, `{"cwd":%q,"hook_event_name":"AfterTool","tool_name":"mcp_leasehold_lease_list"}`, `{"cwd":%q,"hook_event_name":"AfterAgent"}`},
		"opencode": {`{"dir":%q,"event":"before","tool":"edit","args":{"filePath":%q}}`, `{"dir":%q,"event":"after","tool":"read"}`, "", ""},
	} {
		file := name + ".txt"
		h := newHooked(t, shop)
		if out := h.run(name, fmt.Sprintf(client.write, shop, file)); out != "" {
			t.Fatalf("%s may not write: %s", name, out)
		}
		next := fmt.Sprintf(client.next, shop)
		leasehold("call", "actor_message", "to=holder of file:"+file, "text=are you done?")
		if client.own != "" { // that call has it in its answer
			if out := h.run(name, fmt.Sprintf(client.own, shop)); out != "" {
				t.Errorf("%s is told at a call of leasehold: %s", name, out)
			}
		}
		told := h.run(name, next)
		for _, want := range []string{"are you done?", "another agent, not your user", file, "additionalContext"} {
			if !strings.Contains(told, want) && (name != "opencode" || want != "additionalContext") {
				t.Errorf("%s is told %s, without %q", name, told, want)
			}
		}
		if again := h.run(name, next); again != "" {
			t.Errorf("%s is told again: %s", name, again)
		}
		if name == "gemini" { // which drops what a hook says after a tool that failed
			leasehold("call", "actor_message", "to=holder of file:"+file, "text=please answer")
			failed := fmt.Sprintf(`{"cwd":%q,"hook_event_name":"AfterTool","tool_name":"replace","tool_response":{"llmContent":"no match","error":{"message":"no match"}}}`, shop)
			if said, told := h.run(name, failed), h.run(name, next); said != "" || !strings.Contains(told, "please answer") {
				t.Errorf("after a tool that failed, %s is told %s; after the next, %s", name, said, told)
			}
		}
		if client.stop != "" {
			leasehold("call", "actor_message", "to=holder of file:"+file, "text=stay")
			if told := h.run(name, fmt.Sprintf(client.stop, shop)); !strings.Contains(told, `"decision":"block"`) || !strings.Contains(told, "stay") {
				t.Errorf("%s is about to stop: %s", name, told)
			}
			if again := h.run(name, fmt.Sprintf(client.stop, shop)); again != "" {
				t.Errorf("%s may not stop: %s", name, again)
			}
		}
		leasehold("revoke", "file:"+file, "--reason", "it is mine")
		if told := h.run(name, next); !strings.Contains(told, file) || !strings.Contains(told, "lost lease") {
			t.Errorf("%s is told of its loss: %s", name, told)
		}
	}
	// A refusal has it, too. A sub-agent is told before it ends, and goes on with that.
	holder, other := newHooked(t, shop), newHooked(t, shop)
	holder.mayWrite("held.txt", "")
	other.mayWrite("main.txt", "")
	other.mayWrite("sub.txt", `,"agent_id":"a"`)
	leasehold("revoke", "file:main.txt", "--reason", "it is mine")
	leasehold("revoke", "file:sub.txt", "--reason", "that, too")
	other.mayNotWrite("held.txt", "", "lost lease", "main.txt", "it is mine")
	end := `{"hook_event_name":"SubagentStop","agent_id":"a"}`
	if told := other.run("claude", end); !strings.Contains(told, `"decision":"block"`) || !strings.Contains(told, "sub.txt") {
		t.Errorf("a sub-agent is about to end: %s", told)
	}
	if again := other.run("claude", end); again != "" {
		t.Errorf("a sub-agent may not end: %s", again)
	}
}

// A model whose conversation was compacted or cleared is told what it has asked for and
// still holds, and nothing if that is nothing; not what the guard has taken for it.
func TestTheHookTellsAModelWhatItHolds(t *testing.T) {
	t.Parallel()
	client, h := hookedShim(t)
	start := `{"cwd":%q,"session_id":"s","hook_event_name":"SessionStart","source":"compact"}`
	const call = `{"event":"after","dir":%q,"session":"s","main":true,"call":"c","tool":"read","compacted":%v}` // of opencode
	for name, stdin := range map[string]string{"claude": fmt.Sprintf(start, h.dir), "codex": fmt.Sprintf(start, h.dir), "opencode": fmt.Sprintf(call, h.dir, true)} {
		if told := h.run(name, stdin); told != "" {
			t.Errorf("%s holds nothing, and is told %s", name, told)
		}
	}
	h.mayWrite("guarded.ts", "")
	var want []string
	for id, call := range map[int][3]string{
		11: {"run_lease_acquire", `{"key":"deploy","keep_alive":true}`, `run lease "deploy" (expires in `},
		12: {"lease_acquire", `{"name":"output"}`, `layer lease "output" (expires in `},
		13: {"task_enqueue", `{"queue":"q","payload":1}`, ""},
	} {
		client.call(id, call[0], call[1])
		client.answer(id)
		want = append(want, call[2])
	}
	client.call(14, "task_claim", `{"queues":["q"],"ttl_secs":60,"wait_secs":0}`)
	client.answer(14)
	want = append(want, "s, kept alive, lease_id ", "the claim on task ", ", token ", "SessionStart", "you still hold")
	told := strings.ReplaceAll(h.run("claude", fmt.Sprintf(start, h.dir)), `\"`, `"`)
	for _, want := range want {
		if !strings.Contains(told, want) {
			t.Errorf("the model is told %s, without %q", told, want)
		}
	}
	if strings.Contains(told, "guarded.ts") {
		t.Errorf("the model is told of what the guard has taken: %s", told)
	}
	if told := h.run("codex", fmt.Sprintf(start, h.dir)); told != "" {
		t.Errorf("the agent of a thread is told what another holds: %s", told)
	}
	client.call(15, "run_lease_acquire", `{"key":"port","as":"s"}`)
	client.answer(15)
	for compacted, want := range map[bool]bool{false: false, true: true} {
		if told := h.run("opencode", fmt.Sprintf(call, h.dir, compacted)); strings.Contains(told, `you still hold run lease \"port\"`) != want {
			t.Errorf("opencode has compacted the conversation: %v; the model is told %s", compacted, told)
		}
	}
}

// What a shell command has changed that another has leased is told to both, in the
// words of each client, and recorded; what the holder has changed itself is not.
func TestTheHookReportsWhatShellCommandsChange(t *testing.T) {
	t.Parallel()
	newDir(t)
	startDaemon(t)
	shop := repository(t, filepath.Join(t.TempDir(), "shop"))
	n := 0
	change := func(name string) {
		t.Helper()
		n++
		if err := os.WriteFile(filepath.Join(shop, name), []byte(strings.Repeat("x", n)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for name, client := range map[string]struct{ begins, ended string }{
		"claude":   {`{"cwd":%q,"hook_event_name":"PreToolUse","tool_name":"Bash","tool_use_id":"u","tool_input":{"command":"make"}}`, `{"cwd":%q,"hook_event_name":"PostToolUse","tool_name":"Bash","tool_use_id":"u","tool_input":{"command":"make"}}`},
		"codex":    {`{"cwd":%q,"session_id":"s","hook_event_name":"PreToolUse","tool_name":"Bash","tool_use_id":"u","tool_input":{"command":"make"}}`, `{"cwd":%q,"session_id":"s","hook_event_name":"PostToolUse","tool_name":"Bash","tool_use_id":"u","tool_input":{"command":"make"}}`},
		"gemini":   {`{"cwd":%q,"hook_event_name":"BeforeTool","tool_name":"run_shell_command","tool_input":{"command":"make"}}`, `{"cwd":%q,"hook_event_name":"AfterTool","tool_name":"run_shell_command","tool_input":{"command":"make"}}`},
		"opencode": {`{"dir":%q,"event":"before","session":"s","call":"c","tool":"bash","args":{"command":"make"}}`, `{"dir":%q,"event":"after","session":"s","call":"c","tool":"bash"}`},
	} {
		holder, other := newHooked(t, shop), newHooked(t, shop)
		file, still, gone := name+".txt", name+"-still.txt", name+"-gone.txt"
		for _, f := range []string{file, still, gone} {
			change(f)
			holder.mayWrite(f, "")
		}
		command := func(during func()) string {
			t.Helper()
			if said := other.run(name, fmt.Sprintf(client.begins, shop)); said != "" {
				t.Errorf("%s is told before a command: %s", name, said)
			}
			during()
			return other.run(name, fmt.Sprintf(client.ended, shop))
		}
		if said := command(func() { change("free.txt") }); said != "" {
			t.Errorf("%s has changed nothing of others: %s", name, said)
		}
		said := command(func() {
			change(file)
			if err := os.Remove(filepath.Join(shop, gone)); err != nil {
				t.Fatal(err)
			}
		})
		for _, want := range []string{"files changed that others have leased", file, gone, "held by actor", "(claude-code-shop"} {
			if !strings.Contains(said, want) {
				t.Errorf("%s is told %s, without %q", name, said, want)
			}
		}
		if strings.Contains(said, still) {
			t.Errorf("%s is told of what has not changed: %s", name, said)
		}
		told := holder.run("claude", fmt.Sprintf(`{"cwd":%q,"hook_event_name":"PreToolUse","tool_name":"Read"}`, shop))
		for _, want := range []string{"file:" + file, "file:" + gone, "changed while a shell command of mine ran"} {
			if !strings.Contains(told, want) {
				t.Errorf("the holder is told %s, without %q", told, want)
			}
		}
		if said := command(func() { change(file); holder.mayWrite(file, "") }); said != "" {
			t.Errorf("%s is told of what its holder has changed: %s", name, said)
		}
		if events := holder.said("", "history", "file:"+file); strings.Count(events, "file_changed") != 1 {
			t.Errorf("on record is %s", events)
		}
	}
}

// What has changed before a shell command is not told after it, even if the client gives
// its commands no ids, and has run the same one before.
func TestTheHookReportsNothingFromBeforeAShellCommand(t *testing.T) {
	t.Parallel()
	client, holder := hookedShim(t)
	first, other := newHooked(t, holder.dir), newHooked(t, holder.dir)
	command := func(event string) {
		t.Helper()
		if said := other.run("claude", fmt.Sprintf(`{"cwd":%q,"hook_event_name":%q,"tool_name":"Bash","tool_input":{"command":"make"}}`, holder.dir, event)); said != "" {
			t.Errorf("at %s it is told %s", event, said)
		}
	}
	first.mayWrite("x", "")
	command("PreToolUse")
	command("PostToolUse")
	if err := os.WriteFile(filepath.Join(holder.dir, "x"), []byte("by the first"), 0o644); err != nil {
		t.Fatal(err)
	}
	first.run("claude", fmt.Sprintf(`{"cwd":%q,"hook_event_name":"SessionEnd"}`, holder.dir))
	command("PreToolUse")
	client.call(11, "run_lease_acquire", `{"path":"x"}`)
	client.answer(11)
	command("PostToolUse")
}

// What the holder of a directory writes below it, with a tool that its guard sees, is no
// change by the shell command of another.
func TestTheHolderOfADirectoryWritesBelowIt(t *testing.T) {
	t.Parallel()
	client, holder := hookedShim(t)
	other := newHooked(t, holder.dir)
	client.call(11, "run_lease_acquire", `{"path":"src/**"}`)
	client.answer(11)
	command := func(event string) {
		t.Helper()
		if said := other.run("claude", fmt.Sprintf(`{"cwd":%q,"hook_event_name":%q,"tool_name":"Bash","tool_use_id":"u","tool_input":{"command":"make"}}`, holder.dir, event)); said != "" {
			t.Errorf("at %s it is told %s", event, said)
		}
	}
	command("PreToolUse")
	holder.mayWrite("src/new", "")
	if err := os.MkdirAll(filepath.Join(holder.dir, "src"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(holder.dir, "src/new"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	command("PostToolUse")
}

// awayDir returns a directory on a file system of its own. stop keeps that from answering
// until the function is called that it returns.
func awayDir(t *testing.T) (away string, stop func() (resume func())) {
	t.Helper()
	if _, err := exec.LookPath("bindfs"); err != nil {
		t.Skip(err)
	}
	away = t.TempDir()
	bindfs := exec.Command("bindfs", "-f", "--no-allow-other", "-o", "attr_timeout=0,entry_timeout=0,negative_timeout=0", t.TempDir(), away)
	if err := bindfs.Start(); err != nil {
		t.Fatal(err)
	}
	var root, mount syscall.Stat_t
	if err := syscall.Stat(filepath.Dir(away), &root); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- bindfs.Wait() }()
	t.Cleanup(func() {
		exec.Command("fusermount3", "-u", "-z", away).Run()
		bindfs.Process.Kill()
		<-ended
	})
	for mount.Dev == 0 || mount.Dev == root.Dev {
		select {
		case err := <-ended:
			ended <- err
			t.Skipf("bindfs: %v", err)
		case <-time.After(10 * time.Millisecond):
		}
		if err := syscall.Stat(away, &mount); err != nil {
			t.Fatal(err)
		}
	}
	return away, func() func() {
		if err := bindfs.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		// What waits for it must not wait for ever.
		timer := time.AfterFunc(time.Minute, func() { bindfs.Process.Signal(syscall.SIGCONT) })
		return func() {
			t.Helper()
			if !timer.Stop() {
				t.Error("something waited for the file system")
			}
			bindfs.Process.Signal(syscall.SIGCONT)
		}
	}
}

// A file that another agent has leased may be on a file system that does not answer, such
// as one of a server that is away. Commands of other agents go on.
func TestAShellCommandDoesNotWaitForAFileSystem(t *testing.T) {
	t.Parallel()
	newDir(t)
	startDaemon(t)
	shop := repository(t, filepath.Join(t.TempDir(), "shop"))
	away, stop := awayDir(t)
	one, two := newHooked(t, shop), newHooked(t, shop)
	one.mayWrite(filepath.Join(away, "x"), "")
	command := func(event string) {
		t.Helper()
		if out := two.run("claude", fmt.Sprintf(`{"cwd":%q,"hook_event_name":%q,"tool_name":"Bash","tool_use_id":"u","tool_input":{"command":"true"}}`, shop, event)); out != "" {
			t.Errorf("%s: %s", event, out)
		}
	}
	command("PreToolUse")
	resume := stop()
	command("PostToolUse")
	command("PreToolUse")
	resume()
	one.mayWrite(filepath.Join(away, "x"), "")
}

// An agent may work in a directory whose file system does not answer. Others are refused
// what it holds all the same, and may look at it.
func TestAnAgentThatIsAwayKeepsItsFiles(t *testing.T) {
	t.Parallel()
	newDir(t)
	startDaemon(t)
	shop := repository(t, filepath.Join(t.TempDir(), "shop"))
	away, stop := awayDir(t)
	tree := filepath.Join(away, "tree")
	for _, args := range [][]string{{"commit", "--quiet", "--allow-empty", "-m", "first"}, {"worktree", "add", "--quiet", "-b", "far", tree}} {
		git := exec.Command("git", append([]string{"-C", shop, "-c", "user.name=t", "-c", "user.email=t@t"}, args...)...)
		if out, err := git.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v %s", args, err, out)
		}
	}
	one, two := newHooked(t, tree), newHooked(t, shop)
	one.mayWrite("app.ts", "")
	two.mayNotWrite("app.ts", "", tree+" on branch far")
	resume := stop()
	two.mayNotWrite("app.ts", "", tree+", pid")
	if out := two.said("", "call", "lease_list", "scope=run"); !strings.Contains(out, "file:app.ts") {
		t.Errorf("leases: %s", out)
	}
	resume()
}

// A client may run its hook in a shell that runs a script that runs it, and so on.
func TestTheHookFindsItsClientAboveShells(t *testing.T) {
	t.Parallel()
	client, h := hookedShim(t)
	hook := testProgram(t, "hook", "claude")
	nested := `if [ $1 -gt 1 ]; then n=$(($1 - 1)); shift; sh "$0" $n "$@"; else shift; "$@"; fi; exit` // a shell replaces itself by its last command
	script := filepath.Join(t.TempDir(), "nested")
	if err := os.WriteFile(script, []byte(nested), 0o644); err != nil {
		t.Fatal(err)
	}
	for id, shells := range []int{1, 5} {
		name := fmt.Sprint(shells, ".ts")
		cmd := exec.Command("sh", append([]string{script, strconv.Itoa(shells), hook.Path}, hook.Args[1:]...)...)
		cmd.Env, cmd.Dir, cmd.Stderr = append(hook.Env, "CLAUDE_PID=0", "LEASEHOLD_RUN="), h.dir, os.Stderr
		cmd.Stdin = strings.NewReader(fmt.Sprintf(`{"cwd":%q,"hook_event_name":"PreToolUse","tool_name":"Write","tool_input":{"file_path":%q}}`, h.dir, name))
		if out, err := cmd.Output(); err != nil || len(out) > 0 {
			t.Fatalf("below %d shells: %v %s", shells, err, out)
		}
		client.call(20+id, "run_lease_acquire", fmt.Sprintf(`{"path":%q}`, name))
		if answer := client.answer(20 + id); !answer.Result.StructuredContent.Reentrant {
			t.Errorf("below %d shells the hook has not taken the lease for its client: %+v", shells, answer.Result)
		}
	}
}

// A hook whose parent is an init has no client: that has ended, or hides itself.
func TestTheHookTakesNoInitForItsClient(t *testing.T) {
	t.Parallel()
	_, h := hookedShim(t)
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Fatal(err)
	}
	tini := filepath.Join(t.TempDir(), "tini") // a process of that name is no shell
	if err := os.Symlink(sh, tini); err != nil {
		t.Fatal(err)
	}
	for event, want := range map[string]string{
		`"PreToolUse","tool_name":"Write","tool_input":{"file_path":"a.ts"}`: "the process of the client is not known",
		`"PreToolUse","tool_name":"Bash","tool_use_id":"u"`:                  "",
		`"PostToolUse","tool_name":"Bash","tool_use_id":"u"`:                 "",
		`"SessionEnd"`: "",
	} {
		hook := testProgram(t, "hook", "claude")
		cmd := exec.Command(tini, append([]string{"-c", `"$0" "$@"; exit`, hook.Path}, hook.Args[1:]...)...)
		cmd.Env, cmd.Dir = append(hook.Env, "CLAUDE_PID=", "LEASEHOLD_RUN="), h.dir
		cmd.Stdin = strings.NewReader(fmt.Sprintf(`{"cwd":%q,"hook_event_name":%s}`, h.dir, event))
		out, err := cmd.CombinedOutput()
		if err != nil || (want == "") != (len(out) == 0) || !strings.Contains(string(out), want) {
			t.Errorf("at %s: %v %s", event, err, out)
		}
	}
}

// The settings of the project decide what is guarded, and what happens without a
// daemon; who must not be refused is not, and both are told.
func TestTheHooksSettings(t *testing.T) {
	t.Parallel()
	newDir(t)
	shop := repository(t, filepath.Join(t.TempDir(), "shop"))
	settings := func(text string) {
		if err := os.WriteFile(filepath.Join(shop, ".leasehold.toml"), []byte("[guard]\n"+text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	deaf := newHooked(t, shop)
	deaf.env = []string{dirEnv + "=/dev/null/no"}
	if refusal, note := deaf.writes("a", ""); refusal != "" || !strings.Contains(note, "did not check whether somebody else is changing a, and lets it happen") {
		t.Errorf("without a daemon: %q %q", refusal, note)
	}
	settings("without_daemon = \"refuse\"")
	if refusal, _ := deaf.writes("a", ""); !strings.Contains(refusal, "cannot tell who may change a") {
		t.Errorf("without a daemon, if that is to refuse: %q", refusal)
	}
	for _, how := range []struct{ setting, env string }{{`policy = "report"`, ""}, {"", "LEASEHOLD_GUARD=report"}} {
		settings("without_daemon = \"refuse\"\n" + how.setting)
		deaf := &hooked{t: t, dir: shop, pid: deaf.pid, env: append([]string{how.env}, deaf.env...)}
		if refusal, note := deaf.writes("a", ""); refusal != "" || !strings.Contains(note, "did not check") {
			t.Errorf("without a daemon, if that is to refuse, with %v: %q %q", how, refusal, note)
		}
	}

	startDaemon(t)
	one, two := newHooked(t, shop), newHooked(t, shop)
	settings("paths = [\"src/**\", \"!*.md\"]")
	one.mayWrite("src/a", "")
	one.mayWrite("src/a.md", "")
	one.mayWrite("b", "")
	two.mayNotWrite("src/a", "")
	two.mayWrite("src/a.md", "")
	two.mayWrite("b", "")
	overrules := 0
	overruled := func(why string) {
		t.Helper()
		if refusal, note := two.writes("src/a", ""); refusal != "" || !strings.Contains(note, `lease "file:src/a" held by actor`) {
			t.Errorf("%s: %q %q", why, refusal, note)
		}
		events := two.said("", "history", "file:src/a")
		if n := strings.Count(events, "write_overruled"); n != overrules+1 {
			t.Errorf("%s: %d on record of %d: %s", why, n, overrules+1, events)
		}
		overrules++
	}
	settings("policy = \"report\"")
	overruled("the project's setting")
	var files strings.Builder
	for i := range 14 {
		one.mayWrite(fmt.Sprint("src/many/", i), "")
		fmt.Fprintf(&files, `*** Add File: src/many/%d\n`, i)
	}
	patch := fmt.Sprintf(`{"cwd":%q,"hook_event_name":"PreToolUse","tool_name":"apply_patch","tool_input":{"command":"*** Begin Patch\n%s*** End Patch"}}`, shop, files.String())
	// The model and its user are both told.
	if note := two.run("codex", patch); strings.Count(note, "held by actor") != 2*10 || strings.Count(note, "; 4 more") != 2 {
		t.Errorf("of a patch of 14 files: %s", note)
	}
	settings("wrong = 1")
	for _, kind := range []string{"PreToolUse", "PostToolUse"} {
		if said := two.run("claude", fmt.Sprintf(`{"cwd":%q,"hook_event_name":%q,"tool_name":"Bash","tool_use_id":"u"}`, shop, kind)); said != "" {
			t.Errorf("at %s of a shell command, with settings that are wrong: %s", kind, said)
		}
	}
	settings("hold_secs = 7000")
	two.env = []string{"LEASEHOLD_GUARD=report"}
	overruled("the environment")
	one.mayWrite("long", "")
	two.env = nil
	if left := two.mayNotWrite("long", ""); left <= 300 || left > 7000 {
		t.Errorf("a lease of 7000 s expires in %d s", left)
	}
}

// A guarded edit beside a start of the command that does nothing.
func BenchmarkHook(b *testing.B) {
	dir := b.TempDir()
	b.Setenv(dirEnv, dir)
	leasehold := leaseholdIn(b, dir)
	env := append(os.Environ(), "LEASEHOLD_SOCKET="+filepath.Join(dir, "s"), "XDG_STATE_HOME="+filepath.Join(dir, "state"), "LEASEHOLD_RUN=", fmt.Sprintf("CLAUDE_PID=%d", os.Getpid()))
	daemon := exec.Command(leasehold, "serve")
	daemon.Env = env
	if err := daemon.Start(); err != nil {
		b.Fatal(err)
	}
	defer daemon.Wait()
	defer daemon.Process.Kill()
	median := func(stdin string, args ...string) time.Duration {
		var took []time.Duration
		for range 101 {
			cmd := exec.Command(leasehold, args...)
			cmd.Env, cmd.Dir, cmd.Stdin = env, dir, strings.NewReader(stdin)
			began := time.Now()
			out, err := cmd.CombinedOutput()
			if err != nil || stdin != "" && len(out) > 0 { // such as that no daemon answers
				b.Fatalf("%v\n%s", err, out)
			}
			took = append(took, time.Since(began))
		}
		slices.Sort(took)
		return took[len(took)/2]
	}
	write := fmt.Sprintf(`{"cwd":%q,"hook_event_name":"PreToolUse","tool_name":"Write","tool_input":{"file_path":"a"}}`, dir)
	for b.Loop() {
		b.ReportMetric(median("", "--version").Seconds()*1000, "ms/start")
		b.ReportMetric(median(write, "hook", "claude").Seconds()*1000, "ms/guarded-edit")
	}
}
