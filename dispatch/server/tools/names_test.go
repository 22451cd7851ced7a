package tools_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/leasehold/leasehold/dispatch/server/tools"
)

// mayName are the files with texts that name tools, and the groups of these tools. A client
// may see only some groups (leasehold mcp --tools). So such a text is for a caller of a tool
// that is useful with these groups only, or it is made by ifSeen, or it is advice at the end
// of a refusal, which onlySeen removes.
var mayName = map[string]string{
	"dispatch/agent/launch.go":              "tree", // a launched agent has all tools of its role
	"dispatch/await.go":                     "tree layer queue",
	"dispatch/errors.go":                    "tree",
	"dispatch/manifest/manifest.go":         "tree", // for people
	"dispatch/messages.go":                  "messages tree leases",
	"dispatch/project/path.go":              "leases",
	"dispatch/server/tools/hooks.go":        "leases",                           // by ifSeen
	"dispatch/server/tools/instructions.go": "leases layer tree messages queue", // each with the tool that must be seen
	"dispatch/server/tools/leases.go":       "leases layer",
	"dispatch/server/tools/messages.go":     "messages",
	"dispatch/server/tools/notices.go":      "leases tree messages", // by ifSeen
	"dispatch/server/tools/spawn.go":        "tree",
	"dispatch/server/tools/store.go":        "layer",
	"dispatch/server/tools/tasks.go":        "queue",
	"dispatch/server/tools/tree.go":         "tree",
	"dispatch/spawn.go":                     "tree queue",
	"dispatch/store.go":                     "layer tree",
	"kvstore/store.go":                      "layer",
	"kvstore/txn.go":                        "layer",
	"queue/queue.go":                        "queue",
	"registry/errors.go":                    "leases",
	"registry/limits.go":                    "leases layer queue",
	"registry/transfer.go":                  "leases",
}

// Whoever writes a text that names a tool must see that the client has it.
func TestTextsNameToolsOfTheirOwnGroup(t *testing.T) {
	groups := map[string]string{}
	var names []string
	for _, tool := range tools.Agents() {
		groups[tool.Name] = tool.Group
		names = append(names, tool.Name)
	}
	name := regexp.MustCompile(`\b(` + strings.Join(names, "|") + `)\b`)
	const top = "../../.."
	for _, dir := range []string{"dispatch", "registry", "queue", "kvstore"} {
		err := filepath.WalkDir(filepath.Join(top, dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if err != nil {
				return err
			}
			path, _ = filepath.Rel(top, path)
			ast.Inspect(file, func(n ast.Node) bool {
				if text, ok := n.(*ast.BasicLit); ok && text.Kind == token.STRING && strings.Contains(text.Value, " ") {
					for _, named := range name.FindAllString(text.Value, -1) {
						if !strings.Contains(mayName[path], groups[named]) {
							t.Errorf("%s names %s, which is in the group %s: %s", path, named, groups[named], text.Value)
						}
					}
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
