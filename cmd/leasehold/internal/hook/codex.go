package hook

import (
	"cmp"
	"path/filepath"
	"regexp"
	"strings"
)

// codex is the Codex CLI. It changes files with patches. A patch may name several files,
// and may also be part of a shell command.
var codex = client{
	name: "codex", guest: "codex", tells: []kind{begin, before, stop},
	read: likeClaude(func(in claudeInput, e *event) {
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
	}),
	answer: answerClaude,
}

// A patch begins with beginPatch and ends with endPatch. The lines that begin with
// patchHeads name files.
const beginPatch, endPatch = "*** Begin Patch", "*** End Patch"

var patchHeads = []string{"*** Add File: ", "*** Update File: ", "*** Delete File: ", "*** Move to: "}

// goes finds where a shell command goes before it applies a patch, as in
// cd sub && apply_patch, or cd sub 2>/dev/null || exit. Names with variables of the
// shell are not known here.
var goes = regexp.MustCompile("(?:^|[\\s;&|(])cd[ \\t]+(?:--[ \\t]+)?(?:'([^']+)'|\"([^\"$`]+)\"|([^\\s'\"$`;&|()]+))(?:[ \\t](?:>&|&>|[^\\n;&|)])*)?(?:&&|\\|\\||;|\\n)")

// patched returns the files that patches add, change, delete and rename.
func patched(command string) (files []string) {
	dir := ""
	for i, part := range strings.Split(command, beginPatch) {
		between := part
		if i > 0 {
			for line := range strings.Lines(part) {
				for _, head := range patchHeads {
					if name, ok := strings.CutPrefix(strings.TrimSpace(line), head); ok {
						files = append(files, named(below(dir, strings.TrimSpace(name)))...)
					}
				}
			}
			_, between, _ = strings.Cut(part, endPatch)
		}
		for _, to := range goes.FindAllStringSubmatch(between, -1) {
			dir = below(dir, to[1]+to[2]+to[3])
		}
	}
	return files
}

// below returns the name of a file as seen from where the name of dir starts.
func below(dir, name string) string {
	if dir == "" || name == "" || filepath.IsAbs(name) || strings.HasPrefix(name, "~/") {
		return name
	}
	return dir + "/" + name // a link may lead elsewhere, so .. in name stays
}
