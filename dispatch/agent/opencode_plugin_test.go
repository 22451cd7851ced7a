package agent_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/leasehold/leasehold/dispatch/agent"
)

// The plugin runs a tool whose hook was killed, or is stopped and never answers. The
// tool's model reads that nobody checked, and what a hook says before the tool. The tool is
// opencode's own, or one of an MCP server, whose result has another form.
func TestThePluginTellsWhatAHookDidNotCheck(t *testing.T) {
	const use = `
const input = { tool: "write", sessionID: "s", callID: "c" }, output = { args: {}, output: "written" }
await plugin["tool.execute.before"](input, output)
await plugin["tool.execute.after"](input, output)
console.log(output.output)

const other = { args: {}, content: [{ type: "text", text: "looked up" }] }
await plugin["tool.execute.before"]({ ...input, tool: "other_look" }, other)
await plugin["tool.execute.after"]({ ...input, tool: "other_look" }, other)
console.log(other.content.map((part) => part.text).join("\n\n"))
`
	for what, want := range map[string]string{
		"kill -KILL $$":                "nobody checked",
		"kill -STOP $$":                "nobody checked",
		`echo '{"note": "by policy"}'`: "by policy",
	} {
		wait := "15000"
		if strings.Contains(what, "STOP") { // for which the plugin waits in vain
			wait = "500"
		}
		out, err := usePlugin(t, wait, "case \"$(cat)\" in *'\"before\"'*) "+what+";; esac\n", use)
		own, other, _ := strings.Cut(out, "looked up\n\n")
		if err != nil || !strings.HasPrefix(own, "written\n\n") || !strings.Contains(own, want) || !strings.Contains(other, want) {
			t.Errorf("%s: %v: %q", what, err, out)
		}
	}
}

// The plugin says once of a session that another process has begun, or that is a fork, that
// it was resumed, and after each compaction that the model has forgotten.
func TestThePluginSaysWhatAModelDoesNotKnow(t *testing.T) {
	const use = `
const use = async (sessionID) => {
  const output = { output: "" }
  await plugin["tool.execute.after"]({ tool: "read", sessionID, callID: "c" }, output)
  console.log(sessionID + output.output.trim())
}
const happens = (type, properties) => plugin.event({ event: { type, properties } })
await happens("session.created", { info: { id: "new ", title: "New session" } })
await happens("session.created", { info: { id: "fork ", title: "New session (fork #1)" } })
for (const id of ["new ", "new ", "old ", "old ", "fork ", "fork "]) await use(id)
for (const id of ["new ", "old "]) await happens("session.compacted", { sessionID: id })
for (const id of ["new ", "new ", "old ", "old "]) await use(id)
`
	// A hook that answers with what it was told.
	const hook = "in=$(cat)\nsays=; case $in in *'\"resumed\":true'*) says=resumed;; esac; case $in in *'\"compacted\":true'*) says=compacted;; esac\n[ -z \"$says\" ] || echo '{\"note\": \"'$says'\"}'\n"
	out, err := usePlugin(t, "15000", hook, use)
	if want := "new \nnew \nold resumed\nold \nfork resumed\nfork \nnew compacted\nnew \nold compacted\nold \n"; err != nil || out != want {
		t.Errorf("%v: %q, not %q", err, out, want)
	}
}

// usePlugin returns what a script for node prints that uses the plugin, with this shell
// script as its hook. wait is how many milliseconds the plugin waits for the hook.
func usePlugin(t *testing.T, wait, hook, use string) (string, error) {
	t.Helper()
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("there is no node")
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "hook")
	for name, text := range map[string]string{
		path:                             "#!/bin/sh\n" + hook,
		filepath.Join(dir, "plugin.mjs"): strings.Replace(agent.OpenCodePlugin(path), "15000", wait, 1),
		filepath.Join(dir, "use.mjs"):    "import { Leasehold } from \"./plugin.mjs\"\nconst plugin = await Leasehold({ directory: process.cwd() })\n" + use,
	} {
		if err := os.WriteFile(name, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), node, "use.mjs")
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	return string(out), err
}
