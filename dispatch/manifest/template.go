package manifest

import (
	_ "embed"
	"fmt"
	"strings"

	"github.com/leasehold/leasehold/dispatch/agent"
)

//go:embed template.toml
var template string

// Template is a manifest that runs as it stands, with a plain shell for an
// agent, and says in comments what else there is.
func Template() []byte { return []byte(template) }

// TemplateFor is the template with a built-in profile for its agent.
func TemplateFor(profile string) ([]byte, error) {
	return nil, fmt.Errorf("%s %s", profile, strings.Join(agent.BuiltIns(), ", "))
}
