package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

// A scenario is what the model of one agent does. The agent's prompt has it, so the
// model needs no state: how far it has come is how many results it was shown.
type scenario struct {
	ID    string // under which what it reads is kept
	Steps [][]op // of each step the calls are made at once
}

// An op is one call of a tool, in no client's words.
type op struct {
	Tool string         // write, edit, sh, agent, or a tool of leasehold's
	Args map[string]any // path and text; path, old and new; command; prompt; else the tool's own
}

const scriptMark = "SCRIPT "

func (s scenario) prompt() string {
	text, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return "Follow the script.\n" + scriptMark + string(text) + "\n"
}

// A model speaks the protocols of all clients, and does what scripts say.
type model struct {
	*httptest.Server
	t *testing.T

	mu      sync.Mutex
	results map[string][]string // what an agent's model has read, by its script
	tools   map[string][]string // the names that each protocol was offered last
}

func newModel(t *testing.T) *model {
	m := &model{t: t, results: map[string][]string{}, tools: map[string][]string{}}
	m.Server = httptest.NewServer(m)
	t.Cleanup(m.Close)
	return m
}

// read is what the model of a script has read.
func (m *model) read(id string) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.results[id])
}

// A turn is a request for the model's next step, in no protocol's words.
type turn struct {
	text    string // all that was said to it
	results []string
	tools   []string
}

// next is what the model does now; nothing if it is done.
func (m *model) next(protocol string, in turn) []op {
	_, rest, found := strings.Cut(in.text, scriptMark)
	if !found || len(in.tools) == 0 {
		return nil // a question of the client's own, such as for a title
	}
	var s scenario
	if err := json.NewDecoder(strings.NewReader(rest)).Decode(&s); err != nil {
		m.t.Errorf("a script that cannot be read: %v in %.300s", err, rest)
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.results[s.ID], m.tools[protocol] = in.results, in.tools
	done := 0
	for _, step := range s.Steps {
		if done >= len(in.results) {
			for _, o := range step {
				if o.Args["lease_id"] != nil { // of the last lease that it was granted
					all := leaseID.FindAllStringSubmatch(strings.Join(in.results, "\n"), -1)
					if len(all) > 0 {
						o.Args["lease_id"] = all[len(all)-1][1]
					}
				}
			}
			return step
		}
		done += len(step)
	}
	return nil
}

var leaseID = regexp.MustCompile(`lease_id[":\s]+([0-9a-f-]{36})`)

func (m *model) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	send := func(event string, v any) {
		text, _ := json.Marshal(v)
		if event != "" {
			fmt.Fprintf(w, "event: %s\n", event)
		}
		fmt.Fprintf(w, "data: %s\n\n", text)
	}
	path := r.URL.Path
	stream := func() { w.Header().Set("Content-Type", "text/event-stream") }
	switch {
	case strings.HasSuffix(path, "/v1/messages"):
		m.anthropic(body, w, stream, send)
	case strings.HasSuffix(path, "/responses"):
		stream()
		m.responses(body, send)
	case strings.HasSuffix(path, "/chat/completions"):
		stream()
		m.chat(body, send)
		fmt.Fprint(w, "data: [DONE]\n\n")
	case strings.Contains(path, "enerateContent"):
		answer := m.gemini(body)
		if strings.Contains(path, "stream") {
			stream()
			send("", answer)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(answer)
	default:
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"input_tokens":1,"totalTokens":1,"data":[],"models":[]}`)
	}
}

// textOf is all text in a value of JSON that is a message's content.
func textOf(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case []any:
		var all []string
		for _, one := range v {
			all = append(all, textOf(one))
		}
		return strings.Join(all, "\n")
	case map[string]any:
		for _, name := range []string{"text", "output", "content", "error"} {
			if _, ok := v[name]; ok {
				return textOf(v[name])
			}
		}
		text, _ := json.Marshal(v)
		return string(text)
	}
	return ""
}

type object = map[string]any

func str(args map[string]any, name string) string { return fmt.Sprint(args[name]) }

func encoded(v any) string {
	text, _ := json.Marshal(v)
	return string(text)
}

// anthropic is the Messages API, for Claude Code.
func (m *model) anthropic(body []byte, w io.Writer, stream func(), send func(string, any)) {
	var in struct {
		Stream   bool
		Messages []struct{ Content any }
		Tools    []struct{ Name string }
	}
	json.Unmarshal(body, &in)
	var t turn
	for _, message := range in.Messages {
		if blocks, ok := message.Content.([]any); ok {
			for _, b := range blocks {
				if block, _ := b.(map[string]any); block["type"] == "tool_result" {
					t.results = append(t.results, textOf(block["content"]))
					continue
				}
				t.text += textOf(b) + "\n"
			}
			continue
		}
		t.text += textOf(message.Content) + "\n"
	}
	for _, tool := range in.Tools {
		t.tools = append(t.tools, tool.Name)
	}
	var content []object
	for i, o := range m.next("anthropic", t) {
		name, args := "mcp__leasehold__"+o.Tool, o.Args
		switch o.Tool {
		case "write":
			name, args = "Write", object{"file_path": o.Args["path"], "content": o.Args["text"]}
		case "edit":
			name, args = "Edit", object{"file_path": o.Args["path"], "old_string": o.Args["old"], "new_string": o.Args["new"]}
		case "read":
			name, args = "Read", object{"file_path": o.Args["path"]}
		case "sh":
			name, args = "Bash", object{"command": o.Args["command"], "description": "run it"}
		case "agent":
			name, args = "Agent", object{"description": "follow the script", "prompt": o.Args["prompt"], "subagent_type": "general-purpose", "run_in_background": false}
		}
		content = append(content, object{"type": "tool_use", "id": fmt.Sprintf("toolu_%d_%d", len(t.results), i), "name": name, "input": args})
	}
	reason := "tool_use"
	if len(content) == 0 {
		content, reason = []object{{"type": "text", "text": "done"}}, "end_turn"
	}
	usage := object{"input_tokens": 1, "output_tokens": 1, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}
	message := object{"id": "msg_1", "type": "message", "role": "assistant", "model": "scripted", "content": content, "stop_reason": reason, "stop_sequence": nil, "usage": usage}
	if !in.Stream {
		json.NewEncoder(w).Encode(message)
		return
	}
	stream()
	message["content"], message["stop_reason"] = []object{}, nil
	send("message_start", object{"type": "message_start", "message": message})
	for i, block := range content {
		delta := object{"type": "text_delta", "text": block["text"]}
		start := object{"type": "text", "text": ""}
		if block["type"] == "tool_use" {
			delta = object{"type": "input_json_delta", "partial_json": encoded(block["input"])}
			start = object{"type": "tool_use", "id": block["id"], "name": block["name"], "input": object{}}
		}
		send("content_block_start", object{"type": "content_block_start", "index": i, "content_block": start})
		send("content_block_delta", object{"type": "content_block_delta", "index": i, "delta": delta})
		send("content_block_stop", object{"type": "content_block_stop", "index": i})
	}
	send("message_delta", object{"type": "message_delta", "delta": object{"stop_reason": reason, "stop_sequence": nil}, "usage": usage})
	send("message_stop", object{"type": "message_stop"})
}

// responses is the Responses API, for Codex.
func (m *model) responses(body []byte, send func(string, any)) {
	var in struct {
		Input []map[string]any
		Tools []map[string]any
	}
	json.Unmarshal(body, &in)
	var t turn
	for _, item := range in.Input {
		if kind, _ := item["type"].(string); strings.HasSuffix(kind, "_call_output") {
			t.results = append(t.results, textOf(item["output"]))
		} else if item["role"] != nil {
			t.text += textOf(item["content"]) + "\n"
		}
	}
	for _, tool := range in.Tools {
		name, _ := tool["name"].(string)
		t.tools = append(t.tools, name)
	}
	send("response.created", object{"type": "response.created", "response": object{"id": "r1"}})
	ops := m.next("responses", t)
	for i, o := range ops {
		id := fmt.Sprintf("call_%d_%d", len(t.results), i)
		call := object{"type": "function_call", "id": "fc_" + id, "call_id": id, "namespace": "mcp__leasehold", "name": o.Tool, "arguments": encoded(o.Args)}
		patch := ""
		switch path := str(o.Args, "path"); o.Tool {
		case "write":
			patch = fmt.Sprintf("*** Begin Patch\n*** Add File: %s\n+%s\n*** End Patch\n", path, strings.ReplaceAll(strings.TrimSuffix(str(o.Args, "text"), "\n"), "\n", "\n+"))
		case "edit":
			patch = fmt.Sprintf("*** Begin Patch\n*** Update File: %s\n@@\n-%s\n+%s\n*** End Patch\n", path, str(o.Args, "old"), strings.ReplaceAll(str(o.Args, "new"), "\n", "\n+"))
		case "sh", "read":
			command := str(o.Args, "command")
			if o.Tool == "read" {
				command = "cat " + path
			}
			delete(call, "namespace")
			call["name"], call["arguments"] = "exec_command", encoded(object{"cmd": command})
			if slices.Contains(t.tools, "shell_command") {
				call["name"], call["arguments"] = "shell_command", encoded(object{"command": command})
			}
		}
		if patch != "" {
			call = object{"type": "custom_tool_call", "id": "ct_" + id, "call_id": id, "name": "apply_patch", "input": patch}
		}
		send("response.output_item.done", object{"type": "response.output_item.done", "item": call})
	}
	if len(ops) == 0 {
		send("response.output_item.done", object{"type": "response.output_item.done", "item": object{"type": "message", "id": "m1", "role": "assistant", "content": []object{{"type": "output_text", "text": "done"}}}})
	}
	send("response.completed", object{"type": "response.completed", "response": object{"id": "r1", "usage": object{"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}}})
}

// gemini is the Gemini API.
func (m *model) gemini(body []byte) any {
	var in struct {
		Contents []struct {
			Parts []struct {
				Text             string
				FunctionResponse *struct{ Response any }
			}
		}
		Tools []struct{ FunctionDeclarations []struct{ Name string } }
	}
	json.Unmarshal(body, &in)
	var t turn
	for _, content := range in.Contents {
		for _, part := range content.Parts {
			if part.FunctionResponse != nil {
				t.results = append(t.results, textOf(part.FunctionResponse.Response))
			}
			t.text += part.Text + "\n"
		}
	}
	for _, group := range in.Tools {
		for _, f := range group.FunctionDeclarations {
			t.tools = append(t.tools, f.Name)
		}
	}
	var parts []object
	for _, o := range m.next("gemini", t) {
		name, args := "mcp_leasehold_"+o.Tool, o.Args
		switch o.Tool {
		case "write":
			name, args = "write_file", object{"file_path": o.Args["path"], "content": o.Args["text"]}
		case "edit":
			name, args = "replace", object{"file_path": o.Args["path"], "old_string": o.Args["old"], "new_string": o.Args["new"], "instruction": "replace it"}
		case "read":
			name, args = "read_file", object{"file_path": o.Args["path"]}
		case "sh":
			name, args = "run_shell_command", object{"command": o.Args["command"], "description": "run it"}
		case "agent":
			name, args = "invoke_agent", object{"agent_name": "generalist", "prompt": o.Args["prompt"]}
		}
		parts = append(parts, object{"functionCall": object{"name": name, "args": args}})
	}
	if len(parts) == 0 {
		parts = []object{{"text": "done"}}
	}
	return object{
		"candidates":    []object{{"content": object{"role": "model", "parts": parts}, "finishReason": "STOP", "index": 0}},
		"usageMetadata": object{"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2},
	}
}

// chat is the Chat Completions API, for opencode.
func (m *model) chat(body []byte, send func(string, any)) {
	var in struct {
		Messages []struct {
			Role    string
			Content any
		}
		Tools []struct{ Function struct{ Name string } }
	}
	json.Unmarshal(body, &in)
	var t turn
	for _, message := range in.Messages {
		if message.Role == "tool" {
			t.results = append(t.results, textOf(message.Content))
			continue
		}
		t.text += textOf(message.Content) + "\n"
	}
	for _, tool := range in.Tools {
		t.tools = append(t.tools, tool.Function.Name)
	}
	var calls []object
	for i, o := range m.next("chat", t) {
		name, args := "leasehold_"+o.Tool, o.Args
		switch o.Tool {
		case "write":
			name, args = "write", object{"filePath": o.Args["path"], "content": o.Args["text"]}
		case "edit":
			name, args = "edit", object{"filePath": o.Args["path"], "oldString": o.Args["old"], "newString": o.Args["new"]}
		case "read":
			name, args = "read", object{"filePath": o.Args["path"]}
		case "sh":
			name, args = "bash", object{"command": o.Args["command"], "description": "run it"}
		case "agent":
			name, args = "task", object{"description": "follow it", "prompt": o.Args["prompt"], "subagent_type": "general"}
		}
		calls = append(calls, object{"index": i, "id": fmt.Sprintf("call_%d_%d", len(t.results), i), "type": "function", "function": object{"name": name, "arguments": encoded(args)}})
	}
	chunk := func(delta object, reason any) {
		send("", object{
			"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "scripted",
			"choices": []object{{"index": 0, "delta": delta, "finish_reason": reason}},
			"usage":   object{"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
		})
	}
	if len(calls) > 0 {
		chunk(object{"role": "assistant", "tool_calls": calls}, nil)
		chunk(object{}, "tool_calls")
		return
	}
	chunk(object{"role": "assistant", "content": "done"}, nil)
	chunk(object{}, "stop")
}
