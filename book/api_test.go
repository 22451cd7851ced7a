package book

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/leasehold/leasehold/dispatch/server/api"
)

// apiRoutes is the page of the routes of the HTTP API, from its document.
func apiRoutes(t *testing.T) string {
	t.Helper()
	type field struct{ Required []string }
	var doc struct {
		Tags  []struct{ Name, Description string }
		Paths map[string]map[string]struct {
			OperationID, Summary string
			Tags                 []string
			Parameters           []struct {
				Name, In string
				Required bool
			}
			RequestBody *struct {
				Content map[string]struct {
					Schema struct {
						Properties map[string]json.RawMessage
						field
					}
				}
			}
			Responses map[string]json.RawMessage
		}
	}
	if err := json.Unmarshal(api.Document(""), &doc); err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	b.WriteString("# The routes of the HTTP API\n\n<!-- Generated from package api by `just docs`. Do not edit. -->\n\n")
	b.WriteString("The [tool](tools.md) of the same name (`task_submit` for `task_complete` and `task_fail`) says what a call means and what its arguments may be. If there is none, `GET /api/v1/openapi.json` does. `DELETE /api/v1/leases/{lease_id}` also releases leases of a layer. The arguments of a GET or DELETE are in its query, and those of other calls are in its body, a JSON object. Required arguments are in bold.\n")
	for _, tag := range doc.Tags {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n| route | does | arguments | answers |\n|---|---|---|---|\n", upperFirst(tag.Name), tag.Description)
		for _, path := range slices.Sorted(maps.Keys(doc.Paths)) {
			for _, method := range slices.Sorted(maps.Keys(doc.Paths[path])) {
				op := doc.Paths[path][method]
				if op.Tags[0] != tag.Name {
					continue
				}
				var args []string
				name := func(n string, must bool) {
					if n = "`" + n + "`"; must {
						n = "**" + n + "**"
					}
					args = append(args, n)
				}
				for _, p := range op.Parameters {
					if p.In == "query" || p.Name == "Leasehold-Session" && p.Required || strings.HasPrefix(p.Name, "If-") {
						name(p.Name, p.Required)
					}
				}
				if op.RequestBody != nil {
					body := op.RequestBody.Content["application/json"].Schema
					for _, n := range slices.Sorted(maps.Keys(body.Properties)) {
						name(n, slices.Contains(body.Required, n))
					}
				}
				statuses := slices.DeleteFunc(slices.Sorted(maps.Keys(op.Responses)), func(s string) bool { return strings.HasSuffix(s, "XX") })
				fmt.Fprintf(&b, "| `%s %s` | %s: `%s` | %s | %s |\n", strings.ToUpper(method), path, op.Summary, op.OperationID, strings.Join(args, ", "), strings.Join(statuses, ", "))
			}
		}
	}
	return b.String()
}
