package agenttest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// geminiFlags are those of Gemini CLI 0.61 that matter here.
var geminiFlags = flags{
	"-p": 1, "--prompt": 1, "-o": 1, "--output-format": 1, "-m": 1, "--model": 1, "--approval-mode": 1, "-y": 0, "--yolo": 0,
	"--skip-trust": 0, "--allowed-mcp-server-names": 1, "--allowed-tools": 1, "--include-directories": 1,
}

// geminiHides are names that Gemini CLI takes out of a server's environment,
// unless its env has them.
var geminiHides = regexp.MustCompile(`(?i)TOKEN|SECRET|PASSWORD|PASSWD|KEY|AUTH|CREDENTIAL|CREDS|PRIVATE|CERT`)

func geminiGiven(g *Given, args []string) error {
	given, rest, err := geminiFlags.parse(args)
	if err != nil {
		return err
	}
	if one(given, "-o", "--output-format") != "json" {
		return errors.New("its output is for people")
	}
	g.Model = one(given, "-m", "--model")
	g.Prompt = strings.TrimSpace(strings.Join(append(rest, one(given, "-p", "--prompt")), " "))
	if g.Prompt == "" {
		if g.Prompt, err = piped(); err != nil {
			return err
		}
	}
	if g.Env["GEMINI_CLI_TRUST_WORKSPACE"] != "true" && !has(given, "--skip-trust") {
		return errors.New("MCP server 'leasehold' uses stdio transport but current folder is not trusted")
	}
	home := g.Env["GEMINI_CLI_HOME"]
	if home == "" {
		home = g.Env["HOME"]
	}
	return g.geminiServers(filepath.Join(home, ".gemini", "settings.json"))
}

func (g *Given) geminiServers(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if err := g.secretFree(file, text); err != nil {
		return err
	}
	if err := hooked(string(text), "hook gemini", "BeforeTool"); err != nil {
		return err
	}
	var config struct {
		Servers map[string]json.RawMessage `json:"mcpServers"`
	}
	if err := json.Unmarshal(text, &config); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	var s struct {
		Command string            `json:"command"`
		Args    []string          `json:"args"`
		Env     map[string]string `json:"env"`
		Timeout float64           `json:"timeout"`
		Trust   bool              `json:"trust"`
		Include []string          `json:"includeTools"`
	}
	if err := strictly(config.Servers["leasehold"], &s); err != nil {
		return fmt.Errorf("%s: leasehold: %w", file, err)
	}
	if !s.Trust {
		return errors.New("it would ask about each tool")
	}
	for _, tool := range s.Include {
		if len("mcp_leasehold_"+tool) > 63 {
			return fmt.Errorf("the name of %s is too long", tool)
		}
	}
	g.Timeout, g.Allowed = s.Timeout/1000, s.Include
	g.Server = make(map[string]string)
	for name, value := range g.Env {
		if !geminiHides.MatchString(name) {
			g.Server[name] = value
		}
	}
	for _, value := range append([]string{s.Command}, s.Args...) {
		g.Command = append(g.Command, g.afterDollar(value))
	}
	for name, value := range s.Env {
		g.Server[name] = g.afterDollar(value)
	}
	return nil
}

var dollar = regexp.MustCompile(`\$(?:(\w+)|\{([^}]+?)(?::-([^}]*))?\})`)

// afterDollar expands $VAR, ${VAR} and ${VAR:-default}. What is not set stays as
// it is.
func (g *Given) afterDollar(s string) string {
	return dollar.ReplaceAllStringFunc(s, func(ref string) string {
		m := dollar.FindStringSubmatch(ref)
		if value, set := g.Env[m[1]+m[2]]; set {
			return value
		}
		if strings.Contains(ref, ":-") {
			return m[3]
		}
		return ref
	})
}

func geminiPrint(w io.Writer, g Given, _ float64) error {
	text, err := json.MarshalIndent(object{
		"session_id": "fake", "response": g.Answer, "stats": object{"models": object{"fake": object{"tokens": object{"total": 2}}}},
	}, "", "  ")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "Loaded cached credentials.\n%s\n", text)
	return err
}
