package agenttest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"regexp"
	"strings"
)

// opencodeFlags are those of opencode run 1.18 that matter here.
var opencodeFlags = flags{
	"--format": 1, "-m": 1, "--model": 1, "--agent": 1, "--dir": 1, "--auto": 0, "--variant": 1, "--title": 1, "--file": 1,
}

func opencodeGiven(g *Given, args []string) error {
	if len(args) == 0 || args[0] != "run" {
		return errors.New("without run it wants a terminal")
	}
	given, rest, err := opencodeFlags.parse(args[1:])
	if err != nil {
		return err
	}
	if one(given, "--format") != "json" {
		return errors.New("its output has no events")
	}
	if g.Model = one(given, "-m", "--model"); g.Model != "" && !strings.Contains(g.Model, "/") {
		return fmt.Errorf("model %q is not PROVIDER/MODEL", g.Model)
	}
	in, err := piped()
	if err != nil {
		return err
	}
	if g.Prompt = strings.Join(rest, " "); in != "" {
		g.Prompt = strings.TrimPrefix(g.Prompt+"\n"+in, "\n")
	}
	return g.opencodeServers(g.Env["OPENCODE_CONFIG_CONTENT"])
}

var envReference = regexp.MustCompile(`\{env:([^}]+)\}`)

func (g *Given) opencodeServers(content string) error {
	for _, name := range []string{"LEASEHOLD_TOKEN", "LEASEHOLD_SESSION"} {
		if secret := g.Env[name]; secret != "" && strings.Contains(content, secret) {
			return fmt.Errorf("the configuration has %s in clear", name)
		}
	}
	// It expands before it reads, and what is not set becomes nothing.
	content = envReference.ReplaceAllStringFunc(content, func(ref string) string {
		return g.Env[envReference.FindStringSubmatch(ref)[1]]
	})
	var config struct {
		Schema string `json:"$schema"`
		MCP    map[string]struct {
			Type        string            `json:"type"`
			Command     []string          `json:"command"`
			Environment map[string]string `json:"environment"`
			Enabled     bool              `json:"enabled"`
			Timeout     int               `json:"timeout"`
		} `json:"mcp"`
		Permission json.RawMessage `json:"permission"`
		Plugin     []string        `json:"plugin"`
	}
	if err := strictly([]byte(content), &config); err != nil {
		return fmt.Errorf("configuration is invalid at OPENCODE_CONFIG_CONTENT: %w", err)
	}
	s, ok := config.MCP["leasehold"]
	if !ok || s.Type != "local" || !s.Enabled {
		return errors.New("there is no server leasehold that is local and enabled")
	}
	text, err := os.ReadFile(strings.TrimPrefix(strings.Join(config.Plugin, " "), "file://"))
	if err != nil {
		return fmt.Errorf("plugin %q: %w", config.Plugin, err)
	}
	if err := hooked(string(text), "opencode", `"tool.execute.before"`); err != nil {
		return err
	}
	g.Command, g.Timeout = s.Command, float64(s.Timeout)/1000
	g.Server = maps.Clone(g.Env)
	maps.Copy(g.Server, s.Environment)
	return g.opencodeRules(config.Permission)
}

// opencodeRules reads the rules in their order, of which the last that fits
// decides. A tool that is denied is not even shown.
func (g *Given) opencodeRules(raw json.RawMessage) error {
	type rule struct{ pattern, effect string }
	var rules []rule
	dec := json.NewDecoder(strings.NewReader(string(raw)))
	if _, err := dec.Token(); err != nil {
		return err
	}
	for dec.More() {
		pattern, err := dec.Token()
		if err != nil {
			return err
		}
		effect, err := dec.Token()
		if err != nil {
			return err
		}
		rules = append(rules, rule{fmt.Sprint(pattern), fmt.Sprint(effect)})
	}
	decide := func(tool string) (effect string) {
		for _, r := range rules {
			if ok, _ := path.Match(r.pattern, tool); ok {
				effect = r.effect
			}
		}
		return effect
	}
	if decide("leasehold_any_other") != "deny" {
		return errors.New("it may call more than it is allowed")
	}
	g.Allowed = []string{}
	for _, r := range rules {
		if tool, ok := strings.CutPrefix(r.pattern, "leasehold_"); ok && decide(r.pattern) == "allow" {
			g.Allowed = append(g.Allowed, tool)
		}
	}
	return nil
}

func opencodePrint(w io.Writer, g Given, cost float64) error {
	event := func(kind string, part object) object {
		part["sessionID"], part["messageID"] = "ses_fake", "msg_fake"
		return object{"type": kind, "timestamp": 1, "sessionID": "ses_fake", "part": part}
	}
	return print(w,
		event("step_start", object{"type": "step-start"}),
		event("step_finish", object{"type": "step-finish", "reason": "tool-calls", "cost": cost / 2, "tokens": object{"input": 1, "output": 1}}),
		event("text", object{"type": "text", "text": g.Answer}),
		event("step_finish", object{"type": "step-finish", "reason": "stop", "cost": cost / 2, "tokens": object{"input": 1, "output": 1}}))
}
