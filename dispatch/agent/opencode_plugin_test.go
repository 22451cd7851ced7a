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
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("there is no node")
	}
	const use = `
import { Leasehold } from "./plugin.mjs"
const plugin = await Leasehold({ directory: process.cwd() })
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
		dir, plugin := t.TempDir(), agent.OpenCodePlugin("HOOK")
		if strings.Contains(what, "STOP") { // for which the plugin waits in vain
			plugin = strings.Replace(plugin, "15000", "500", 1)
		}
		hook := filepath.Join(dir, "hook")
		for name, text := range map[string]string{
			hook:                             "#!/bin/sh\ncase \"$(cat)\" in *'\"before\"'*) " + what + ";; esac\n",
			filepath.Join(dir, "plugin.mjs"): strings.Replace(plugin, "HOOK", hook, 1),
			filepath.Join(dir, "use.mjs"):    use,
		} {
			if err := os.WriteFile(name, []byte(text), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		cmd := exec.CommandContext(t.Context(), node, "use.mjs")
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		own, other, _ := strings.Cut(string(out), "looked up\n\n")
		if err != nil || !strings.HasPrefix(own, "written\n\n") || !strings.Contains(own, want) || !strings.Contains(other, want) {
			t.Errorf("%s: %v: %q", what, err, out)
		}
	}
}
