package hook

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/leasehold/leasehold/dispatch/server/tools"
)

// Each client's input is understood. The inputs are those that the clients of November
// 2026 write to a hook.
func TestWhatClientsSay(t *testing.T) {
	patch := `*** Begin Patch\n*** Add File: new.txt\n+x\n*** Update File: old name.txt\n*** Move to: sub/new name.txt\n@@\n-*** Delete File: no\n*** Delete File: gone.txt\n*** End Patch`
	patched := []string{"new.txt", "old name.txt", "sub/new name.txt", "gone.txt"}
	for _, test := range []struct {
		client, stdin string
		want          event
	}{
		{
			"claude", `{"session_id":"s","cwd":"/w","hook_event_name":"PreToolUse","tool_name":"Edit","tool_input":{"file_path":"/w/a","old_string":"x"},"tool_use_id":"u"}`,
			event{kind: before, name: "PreToolUse", dir: "/w", use: "u", files: []string{"/w/a"}},
		},
		{
			"claude", `{"cwd":"/w","hook_event_name":"PreToolUse","tool_name":"NotebookEdit","tool_input":{"notebook_path":"/w/n"},"agent_id":"g"}`,
			event{kind: before, name: "PreToolUse", dir: "/w", party: "g", files: []string{"/w/n"}},
		},
		{
			"claude", `{"cwd":"/w","hook_event_name":"PreToolUse","tool_name":"Read","tool_input":{"file_path":"/w/a"}}`,
			event{kind: before, name: "PreToolUse", dir: "/w"},
		},
		{
			"claude", `{"hook_event_name":"PreToolUse","tool_name":"mcp__leasehold__run_lease_acquire","tool_input":{"command":["no","string"]},"tool_use_id":"u","agent_id":"g"}`,
			event{kind: before, name: "PreToolUse", use: "u", party: "g", ours: true},
		},
		{"claude", `{"hook_event_name":"PreToolUse","tool_name":"mcp__files__edit","tool_input":{"file_path":["a","b"],"notebook_path":7}}`, event{kind: before, name: "PreToolUse"}},
		{"claude", `{"hook_event_name":"PreToolUse","tool_name":"mcp__other__say","tool_input":"words"}`, event{kind: before, name: "PreToolUse"}},
		{"opencode", `{"event":"before","tool":"other_say","args":["words"]}`, event{kind: before, name: "before"}},
		{"opencode", `{"event":"before","tool":"other_edit","args":{"filePath":{"a":1},"patchText":null}}`, event{kind: before, name: "before"}},
		{"claude", `{"hook_event_name":"PostToolUse","tool_name":"Bash","tool_input":{"command":"make"}}`, event{kind: after, name: "PostToolUse", shell: true}},
		{"claude", `{"hook_event_name":"PreToolUse","tool_name":"Agent"}`, event{kind: before, name: "PreToolUse", delegates: true}},
		{"claude", `{"hook_event_name":"PreToolUse","tool_name":"SendMessage","tool_input":{"to":"a1","message":"go on"}}`, event{kind: before, name: "PreToolUse", delegates: true}},
		{"claude", `{"hook_event_name":"PreToolUse","tool_name":"SendMessage","tool_input":{"to":"main","message":"half done"},"agent_id":"g"}`, event{kind: before, name: "PreToolUse", party: "g"}},
		{"claude", `{"hook_event_name":"Stop","stop_hook_active":false}`, event{kind: stop, name: "Stop"}},
		{"gemini", `{"hook_event_name":"AfterAgent"}`, event{kind: stop, name: "AfterAgent"}},
		{"claude", `{"hook_event_name":"SubagentStop","agent_id":"g"}`, event{kind: partyEnd, name: "SubagentStop", party: "g"}},
		{"claude", `{"hook_event_name":"SessionEnd","reason":"other"}`, event{kind: sessionEnd, name: "SessionEnd"}},
		{"claude", `{"hook_event_name":"TeammateIdle"}`, event{name: "TeammateIdle"}},
		{
			"codex", `{"session_id":"thread","cwd":"/w","hook_event_name":"PreToolUse","tool_name":"apply_patch","tool_input":{"command":"` + patch + `"}}`,
			event{kind: before, name: "PreToolUse", dir: "/w", party: "thread", main: true, files: patched},
		},
		{"codex", `{"session_id":"thread","hook_event_name":"SessionStart","source":"compact"}`, event{kind: begin, name: "SessionStart", party: "thread", main: true, compacted: true}},
		{"opencode", `{"event":"session.idle","session":"s","main":true}`, event{kind: stop, name: "session.idle", party: "s", main: true}},
		{"codex", `{"session_id":"thread","agent_id":"sub","hook_event_name":"SubagentStop"}`, event{kind: partyEnd, name: "SubagentStop", party: "sub"}},
		{
			"codex", `{"hook_event_name":"PreToolUse","tool_name":"Bash","tool_input":{"command":"apply_patch <<'EOF'\n` + patch + `\nEOF"}}`,
			event{kind: before, name: "PreToolUse", main: true, files: patched, shell: true},
		},
		{
			"codex", `{"hook_event_name":"PreToolUse","tool_name":"Bash","tool_input":{"command":"set -e; cd 'my app' && cd ../sub\napply_patch <<'EOF'\n*** Begin Patch\n*** Add File: a\n*** Add File: /w/b\n+ cd no && x\n*** End Patch\nEOF\ncd /tmp; apply_patch <<'EOF'\n*** Begin Patch\n*** Delete File: c\n*** End Patch\nEOF"}}`,
			event{kind: before, name: "PreToolUse", main: true, files: []string{"my app/../sub/a", "/w/b", "/tmp/c"}, shell: true},
		},
		{
			"codex", `{"hook_event_name":"PreToolUse","tool_name":"Bash","tool_input":{"command":"cd -- sub 2>/dev/null || exit\ncd deep >/dev/null 2>&1 && ls\n(cd no)\ncd $no && cd no/$no; cd no & apply_patch <<'EOF'\n*** Begin Patch\n*** Add File: a\n*** End Patch\nEOF"}}`,
			event{kind: before, name: "PreToolUse", main: true, files: []string{"sub/deep/a"}, shell: true},
		},
		{"codex", `{"hook_event_name":"PreToolUse","tool_name":"Bash","tool_input":{"command":"ls"}}`, event{kind: before, name: "PreToolUse", main: true, shell: true}},
		{
			"gemini", `{"cwd":"/w","hook_event_name":"BeforeTool","tool_name":"write_file","tool_input":{"file_path":"a"}}`,
			event{kind: before, name: "BeforeTool", dir: "/w", files: []string{"a"}},
		},
		{"gemini", `{"hook_event_name":"AfterTool","tool_name":"run_shell_command","tool_input":{"command":"make"}}`, event{kind: after, name: "AfterTool", use: fingerprint("make"), shell: true}},
		{"gemini", `{"hook_event_name":"AfterTool","tool_name":"read_file","tool_response":{"llmContent":"File not found: a","error":{"message":"File not found: a"}}}`, event{kind: after, name: "AfterTool", unheard: true}},
		{"gemini", `{"hook_event_name":"BeforeTool","tool_name":"mcp_leasehold_lease_renew"}`, event{kind: before, name: "BeforeTool", ours: true}},
		{
			"opencode", `{"event":"before","dir":"/w","session":"ses_1","main":true,"call":"c","tool":"edit","args":{"filePath":"/w/a"}}`,
			event{kind: before, name: "before", dir: "/w", use: "c", party: "ses_1", main: true, files: []string{"/w/a"}},
		},
		{"opencode", `{"event":"before","tool":"apply_patch","args":{"patchText":"` + patch + `"}}`, event{kind: before, name: "before", files: patched}},
		{
			"copilot", `{"hook_event_name":"PreToolUse","session_id":"s","timestamp":"2026-11-26T00:35:37.252Z","cwd":"/w","tool_name":"Write","tool_input":{"path":"/w/a","file_text":"x"}}`,
			event{kind: before, name: "PreToolUse", dir: "/w", files: []string{"/w/a"}},
		},
		{
			"copilot", `{"hook_event_name":"PreToolUse","session_id":"g","agent_id":"g","parent_agent_id":"s","tool_name":"Edit","tool_input":"` + patch + `"}`,
			event{kind: before, name: "PreToolUse", party: "g", files: patched},
		},
		{
			"copilot", `{"hook_event_name":"PreToolUse","agent_id":"g","tool_name":"leasehold-run_lease_acquire","tool_input":{"key":"k","as":"x"}}`,
			event{kind: before, name: "PreToolUse", party: "g", ours: true, input: map[string]any{"key": "k", "as": "g"}},
		},
		{"copilot", `{"hook_event_name":"PreToolUse","tool_name":"leasehold-lease_list","tool_input":{}}`, event{kind: before, name: "PreToolUse", ours: true}},
		{"copilot", `{"hook_event_name":"PreToolUse","agent_id":"g","tool_name":"leasehold-lease_list"}`, event{kind: before, name: "PreToolUse", party: "g", ours: true, input: map[string]any{"as": "g"}}},
		{"copilot", `{"hook_event_name":"PostToolUse","tool_name":"Bash","tool_input":{"command":"make"}}`, event{kind: after, name: "PostToolUse", use: fingerprint("make"), shell: true}},
		{"copilot", `{"hook_event_name":"PreToolUse","tool_name":"Agent","tool_input":{"prompt":"p"}}`, event{kind: before, name: "PreToolUse", delegates: true}},
		{"copilot", `{"hook_event_name":"Stop","agent_id":"g"}`, event{name: "Stop", party: "g"}},
		{"copilot", `{"hook_event_name":"SubagentStop","session_id":"s","agent_id":"g"}`, event{kind: partyEnd, name: "SubagentStop", party: "g"}},
		{
			"qwen", `{"session_id":"s","cwd":"/w","hook_event_name":"PreToolUse","timestamp":"2026-11-26T02:31:37.435Z","permission_mode":"yolo","prompt_id":"s########0","tool_name":"write_file","tool_input":{"file_path":"/w/a","content":"x"},"tool_use_id":"toolu_1","tool_call_id":"call_0"}`,
			event{kind: before, name: "PreToolUse", dir: "/w", use: "toolu_1", files: []string{"/w/a"}},
		},
		{"qwen", `{"hook_event_name":"PreToolUse","agent_id":"general-purpose-1","tool_name":"edit","tool_input":{"file_path":"a"}}`, event{kind: before, name: "PreToolUse", party: "general-purpose-1", files: []string{"a"}}},
		{"qwen", `{"hook_event_name":"PreToolUse","tool_name":"notebook_edit","tool_input":{"notebook_path":"n"}}`, event{kind: before, name: "PreToolUse", files: []string{"n"}}},
		{"qwen", `{"hook_event_name":"PostToolUseFailure","tool_name":"run_shell_command","tool_input":{"command":"false"},"tool_use_id":"u"}`, event{kind: after, name: "PostToolUseFailure", use: "u", shell: true}},
		{"qwen", `{"hook_event_name":"PreToolUse","tool_name":"agent","tool_input":{"prompt":"p"}}`, event{kind: before, name: "PreToolUse", delegates: true}},
		{"qwen", `{"hook_event_name":"PreToolUse","agent_id":"g","tool_name":"mcp__leasehold__run_lease_acquire","tool_input":{"key":"k","as":"x"}}`, event{kind: before, name: "PreToolUse", party: "g", ours: true, input: map[string]any{"as": "g"}}},
		{"qwen", `{"hook_event_name":"PreToolUse","agent_id":"g","tool_name":"mcp__leasehold__run_lease_acquire","tool_input":{"key":"k","as":"g"}}`, event{kind: before, name: "PreToolUse", party: "g", ours: true}},
		{"qwen", `{"hook_event_name":"PreToolUse","tool_name":"mcp__leasehold__run_lease_acquire","tool_input":{"key":"k"}}`, event{kind: before, name: "PreToolUse", ours: true}},
		{"qwen", `{"hook_event_name":"SubagentStop","agent_id":"g"}`, event{kind: partyEnd, name: "SubagentStop", party: "g"}},
		{
			"kimi", `{"hook_event_name":"PreToolUse","session_id":"session_1","cwd":"/w","client_type":"kimi_code_cli","tool_name":"Write","tool_input":{"path":"/w/b","content":"hi\n"},"tool_call_id":"call_3_0"}`,
			event{kind: before, name: "PreToolUse", dir: "/w", files: []string{"/w/b"}},
		},
		{"kimi", `{"hook_event_name":"PreToolUse","tool_name":"Edit","tool_input":{"path":"b","old_string":"x","new_string":"y"}}`, event{kind: before, name: "PreToolUse", files: []string{"b"}}},
		{"kimi", `{"hook_event_name":"PostToolUseFailure","tool_name":"Bash","tool_input":{"command":"false"}}`, event{kind: after, name: "PostToolUseFailure", use: fingerprint("false"), shell: true}},
		{"kimi", `{"hook_event_name":"PreToolUse","tool_name":"mcp__leasehold__run_lease_acquire","tool_input":{"path":"a.txt"}}`, event{kind: before, name: "PreToolUse", ours: true}},
		{"kimi", `{"hook_event_name":"Stop","session_id":"session_1","client_type":"kimi_code_cli","stop_hook_active":false}`, event{kind: stop, name: "Stop"}},
		{
			"crush", `{"event":"PreToolUse","session_id":"s","cwd":"/w","tool_name":"multiedit","tool_input":{"file_path":"/w/a","edits":[]}}`,
			event{kind: before, name: "PreToolUse", dir: "/w", files: []string{"/w/a"}},
		},
		{"crush", `{"event":"PreToolUse","cwd":"/w","tool_name":"view","tool_input":{"file_path":"/w/a"}}`, event{kind: before, name: "PreToolUse", dir: "/w"}},
		{"crush", `{"event":"PreToolUse","tool_name":"mcp_leasehold_run_lease_acquire","tool_input":{"path":"a"}}`, event{kind: before, name: "PreToolUse", ours: true}},
		{"opencode", `{"event":"session.deleted","session":"ses_1"}`, event{kind: partyEnd, name: "session.deleted", party: "ses_1"}},
	} {
		c := clientNamed(test.client)
		got, err := c.read([]byte(test.stdin))
		if err != nil || !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s says %s:\n%+v, %v\nwant %+v", test.client, test.stdin, got, err, test.want)
		}
	}
	for _, c := range clients {
		if _, err := c.read([]byte("no JSON")); err == nil {
			t.Errorf("%s may say anything", c.name)
		}
		if _, err := c.read([]byte("[1]")); err == nil || err.Error() != "stdin is not the JSON of a hook: it is of type array and must be an object" {
			t.Errorf("%s may write a list: %v", c.name, err)
		}
	}
	if _, err := claude.read([]byte(`{"cwd":5}`)); err == nil || err.Error() != "stdin is not the JSON of a hook: cwd is of type number and must be a string" {
		t.Errorf("a directory may be a number: %v", err)
	}
}

// A verdict is written in each client's format. An empty one writes nothing, so that the
// client decides.
func TestWhatClientsAreTold(t *testing.T) {
	for name, want := range map[string][3]string{
		"claude":   {``, `{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"deny","permissionDecisionReason":"no <a>"}}`, `{"hookSpecificOutput":{"hookEventName":"PreToolUse","additionalContext":"so"},"systemMessage":"so"}`},
		"codex":    {``, `{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"deny","permissionDecisionReason":"no <a>"}}`, `{"hookSpecificOutput":{"hookEventName":"PreToolUse","additionalContext":"so"},"systemMessage":"so"}`},
		"gemini":   {``, `{"decision":"deny","reason":"no <a>"}`, `{"systemMessage":"so"}`},
		"qwen":     {``, `{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"deny","permissionDecisionReason":"no <a>"}}`, `{"hookSpecificOutput":{"hookEventName":"PreToolUse","additionalContext":"so"},"systemMessage":"so"}`},
		"opencode": {``, `{"refuse":"no <a>"}`, `{"note":"so"}`},
	} {
		for i, v := range []verdict{{}, {refuse: "no <a>"}, {note: "so"}} {
			var out strings.Builder
			if err := clientNamed(name).answer(&out, event{kind: before, name: "PreToolUse"}, v); err != nil || strings.TrimSpace(out.String()) != want[i] {
				t.Errorf("%s is told %s, %v; want %s", name, &out, err, want[i])
			}
		}
	}
}

// A note reaches the model at the events where the client passes it on. An agent that is
// about to stop continues with it.
func TestWhatIsToldReachesTheModel(t *testing.T) {
	answers := func(c client, k kind) string {
		var out strings.Builder
		if err := c.answer(&out, event{kind: k, name: "E"}, verdict{note: "news"}); err != nil {
			t.Error(err)
		}
		return strings.TrimSpace(out.String())
	}
	if got := answers(copilot, after); got != `{"additionalContext":"news"}` {
		t.Errorf("copilot is told after a command: %s", got)
	}
	for name, want := range map[string]map[kind]string{
		"claude":   {begin: `{"hookSpecificOutput":{"hookEventName":"E","additionalContext":"news"},"systemMessage":"news"}`, before: `{"hookSpecificOutput":{"hookEventName":"E","additionalContext":"news"},"systemMessage":"news"}`, stop: `{"decision":"block","reason":"news"}`, partyEnd: `{"decision":"block","reason":"news"}`},
		"codex":    {begin: `{"hookSpecificOutput":{"hookEventName":"E","additionalContext":"news"},"systemMessage":"news"}`, before: `{"hookSpecificOutput":{"hookEventName":"E","additionalContext":"news"},"systemMessage":"news"}`, stop: `{"decision":"block","reason":"news"}`},
		"gemini":   {begin: `{"systemMessage":"news","hookSpecificOutput":{"additionalContext":"news"}}`, after: `{"systemMessage":"news","hookSpecificOutput":{"additionalContext":"news"}}`, stop: `{"decision":"block","reason":"news"}`},
		"qwen":     {begin: `{"hookSpecificOutput":{"hookEventName":"E","additionalContext":"news"},"systemMessage":"news"}`, after: `{"hookSpecificOutput":{"hookEventName":"E","additionalContext":"news"},"systemMessage":"news"}`, stop: `{"decision":"block","reason":"news"}`, partyEnd: `{"decision":"block","reason":"news"}`},
		"opencode": {after: `{"note":"news"}`},
		"crush":    {before: `{"hookSpecificOutput":{"hookEventName":"E","additionalContext":"news"},"systemMessage":"news"}`},
		"kimi":     {stop: `{"hookSpecificOutput":{"hookEventName":"E","permissionDecision":"deny","permissionDecisionReason":"news"}}`},
	} {
		c := clientNamed(name)
		if len(c.tells) != len(want) {
			t.Errorf("%s is told at %v", name, c.tells)
		}
		for _, k := range c.tells {
			if got := answers(c, k); got != want[k] {
				t.Errorf("%s is told at %s: %s; want %s", name, k, got, want[k])
			}
		}
	}
}

// A sub-agent of Qwen Code has to name itself in the calls of the tools that let it, and
// in no other, because no other tool has the argument in its schema.
func TestASubAgentOfQwenCodeNamesItself(t *testing.T) {
	for _, tool := range tools.Agents() {
		e, err := qwen.read([]byte(`{"hook_event_name":"PreToolUse","agent_id":"g","tool_name":"mcp__leasehold__` + tool.Name + `","tool_input":{}}`))
		if err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		if err := qwen.answer(&out, e, verdict{}); err != nil {
			t.Fatal(err)
		}
		if _, takes := tool.Input().Properties["as"]; takes != strings.Contains(out.String(), `call the tool again with as \"g\"`) {
			t.Errorf("%s takes as: %v, and its caller is told %q", tool.Name, takes, &out)
		}
	}
}

func clientNamed(name string) client {
	for _, c := range clients {
		if c.name == name {
			return c
		}
	}
	panic(name)
}

// The look of all below a directory is that of the files there, but not of the repository's
// own, which each command of git changes. That of the directory alone is not.
func TestALookAtADirectory(t *testing.T) {
	top := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		name = filepath.Join(top, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	keys := []string{"file:**", "file:src/**", "file:" + top + "/src/**", "file:src/deep/x", "file:docs/**", "file:src/deep"}
	var was map[string]string
	changed := func() (list []string) {
		now := map[string]string{}
		for _, key := range keys {
			if now[key] = lookAt(top, key); was != nil && now[key] != was[key] {
				list = append(list, key)
			}
		}
		was = now
		return list
	}
	write("docs/x", "")
	changed()
	for _, step := range []struct {
		name, text string
		want       []string
	}{
		{"src/deep/x", "", append(slices.Clone(keys[:4]), keys[5])},
		{"src/deep/x", "more", keys[:4]},
		{"src/y", "", keys[:3]},
		{"y", "", keys[:1]},
		{"src/.git/index", "", nil},
		{"docs/x", "more", []string{keys[0], keys[4]}},
	} {
		write(step.name, step.text)
		if got := changed(); !reflect.DeepEqual(got, step.want) {
			t.Errorf("a write to %s changes %v, want %v", step.name, got, step.want)
		}
	}
	if got := changed(); got != nil {
		t.Errorf("without a write %v change", got)
	}
	for i := range maxBelow {
		write(fmt.Sprintf("docs/%04d", i), "")
	}
	changed()
	write("docs/last", "")
	if got := changed(); got != nil {
		t.Errorf("after %d files, another changes %v", maxBelow, got)
	}
}

// A key has composed accents. The name of its file may have the same, or others, as of an
// archive that was made on a Mac.
func TestALookFindsAccents(t *testing.T) {
	for _, path := range []string{"\u00e9t/caf\u00e9.ts", "e\u0301t/cafe\u0301.ts"} {
		top := t.TempDir()
		file := filepath.Join(top, path)
		if err := os.Mkdir(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{"file:\u00e9t/caf\u00e9.ts", "file:\u00e9t/**"} {
			looks := map[string]bool{}
			for _, text := range []string{"", "1", "22"} {
				if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
				looks[lookAt(top, key)] = true
			}
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
			looks[lookAt(top, key)] = true
			if len(looks) != 4 {
				t.Errorf("%s: four states of %+q look like %d: %v", key, path, len(looks), looks)
			}
		}
	}
}
