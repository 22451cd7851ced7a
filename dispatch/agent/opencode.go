package agent

import (
	"bytes"
	"encoding/json"
	"strings"
)

// configureOpenCode runs opencode without a user. A variable adds its server,
// because only that overrides the configuration of a project. A file named by
// OPENCODE_CONFIG still applies. The name of a tool begins with that of its
// server. The last permission rule that matches decides, so the first rule
// denies all tools.
func configureOpenCode(p Profile, t Task) (configuration, error) {
	// opencode inserts the value of a reference before it parses the JSON, so
	// only values without quotes can be referred to. A server also inherits the
	// whole environment of opencode. But an entry of the project could replace
	// the secrets there.
	secrets := map[string]string{"LEASEHOLD_TOKEN": "{env:LEASEHOLD_TOKEN}", "LEASEHOLD_SESSION": "{env:LEASEHOLD_SESSION}"}
	var order rules
	for _, tool := range t.Allow {
		order = append(order, rule{tool, "allow"})
	}
	if len(t.Tools) > 0 {
		order = append(order, rule{"leasehold_*", "deny"})
		for _, tool := range t.Tools {
			order = append(order, rule{"leasehold_" + tool, "allow"})
		}
	} else {
		order = append(order, rule{"leasehold_*", "allow"})
	}
	plugin, err := t.write("leasehold.js", []byte(OpenCodePlugin(t.Leasehold)))
	if err != nil {
		return configuration{}, err
	}
	content, err := json.Marshal(map[string]any{
		"plugin": []string{"file://" + plugin},
		"mcp": map[string]any{"leasehold": map[string]any{
			"type": "local", "command": []string{t.Leasehold, "mcp"},
			"environment": secrets, "enabled": true, "timeout": callTimeout * 1000,
		}},
		"permission": order,
	})
	if err != nil {
		return configuration{}, err
	}
	conf := configuration{flags: []string{"--format", "json"}, set: map[string]string{"OPENCODE_CONFIG_CONTENT": string(content)}}
	if t.Model != "" {
		conf.flags = append(conf.flags, "--model", t.Model)
	}
	if p.mentions("{mcp_config}") {
		conf.file, err = t.write("opencode.json", content)
	}
	return conf, err
}

// rules are a JSON object in which the order of the keys matters.
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

// readOpenCode reads the events of --format json. The answer consists of the
// texts of the last message that has any. Each step reports its cost.
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
