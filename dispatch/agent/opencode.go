package agent

import (
	"bytes"
	"encoding/json"
	"strings"
)

// configureOpenCode runs opencode without a person. The configuration is of the
// form of version 1, which version 2 reads as well. A tool of a server is called
// after both; the last rule that fits decides, so all are denied first.
func configureOpenCode(_ Profile, t Task) (configuration, error) {
	s := t.server(func(name string) string { return "{env:" + name + "}" })
	rules := rules{{"leasehold_*", "deny"}}
	for _, tool := range t.Tools {
		rules = append(rules, rule{"leasehold_" + tool, "allow"})
	}
	if len(t.Tools) == 0 {
		rules[0].effect = "allow"
	}
	file, err := t.writeJSON("opencode.json", map[string]any{
		"$schema": "https://opencode.ai/config.json",
		"mcp": map[string]any{"leasehold": map[string]any{
			"type": "local", "command": append([]string{s.Command}, s.Args...),
			"environment": s.Env, "enabled": true, "timeout": s.Timeout,
		}},
		"permission": rules,
	})
	if err != nil {
		return configuration{}, err
	}
	flags := []string{"--format", "json"}
	if t.Model != "" {
		flags = append(flags, "--model", t.Model)
	}
	return configuration{flags: flags, file: file, env: map[string]string{"OPENCODE_CONFIG": file}}, nil
}

// rules are an object whose order means something.
type rules []rule

type rule struct{ tool, effect string }

func (r rules) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, one := range r {
		if i > 0 {
			b.WriteByte(',')
		}
		for j, s := range []string{one.tool, one.effect} {
			text, err := json.Marshal(s)
			if err != nil {
				return nil, err
			}
			if j > 0 {
				b.WriteByte(':')
			}
			b.Write(text)
		}
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// readOpenCode reads the events of --format json: the texts of the last message
// that has any are the answer, and each step reports its cost.
func readOpenCode(in *lines) (o Outcome) {
	var texts []string
	message, cost, costs := "", 0.0, false
	for line := range in.objects() {
		var event struct {
			Type string
			Part struct {
				MessageID string `json:"messageID"`
				Text      string
				Cost      *float64
			}
			Error struct {
				Name string
				Data struct{ Message string }
			}
		}
		if !understood(line, &event) {
			continue
		}
		switch event.Type {
		case "text":
			if event.Part.MessageID != message {
				message, texts = event.Part.MessageID, nil
			}
			texts = append(texts, event.Part.Text)
		case "step_finish":
			if event.Part.Cost != nil {
				cost, costs = cost+*event.Part.Cost, true
			}
		case "error":
			o.Failed = firstOf(event.Error.Data.Message, event.Error.Name, "it reports an error")
		}
	}
	o.Result = strings.Join(texts, "\n")
	if costs {
		o.CostUSD = &cost
	}
	return o
}
