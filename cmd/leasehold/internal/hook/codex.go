package hook

import (
	"cmp"
	"strings"
)

// codex is the Codex CLI. It changes files with patches. A patch may name several files,
// and may also be part of a shell command.
var codex = client{
	name: "codex", guest: "codex", tells: []kind{begin, before, stop},
	read: func(stdin []byte) (event, error) {
		in, e, err := readClaude(stdin)
		if err != nil {
			return e, err
		}
		e.party, e.main = cmp.Or(in.AgentID, in.Session), in.AgentID == "" // the calls of its MCP tools name the same thread
		switch {
		case strings.Contains(in.text("command"), beginPatch):
			e.files = patched(in.text("command"))
			e.shell = in.Tool != "apply_patch"
		case in.Tool == "Bash":
			e.shell = true
		case strings.HasSuffix(in.Tool, "wait_agent"):
			e.delegates = true
		}
		return e, nil
	},
	answer: answerClaude,
}

// A patch begins with beginPatch. The lines that begin with patchHeads name files.
const beginPatch = "*** Begin Patch"

var patchHeads = []string{"*** Add File: ", "*** Update File: ", "*** Delete File: ", "*** Move to: "}

// patched returns the files that a patch adds, changes, deletes and renames.
func patched(patch string) (files []string) {
	_, patch, _ = strings.Cut(patch, beginPatch)
	for line := range strings.Lines(patch) {
		line = strings.TrimSpace(line)
		for _, head := range patchHeads {
			if name, ok := strings.CutPrefix(line, head); ok {
				files = append(files, named(strings.TrimSpace(name))...)
			}
		}
	}
	return files
}
