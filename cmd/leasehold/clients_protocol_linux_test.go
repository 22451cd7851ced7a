package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
)

// calls are what each client is told to call for what all of them have: the name of
// its tool, and the arguments, in which $path and the like stand for ours. Codex changes
// files by patches, reads them by commands, and waits for its agents.
var calls = map[string]map[string]string{
	"write": {
		"claude":   `Write {"file_path":"$path","content":"$text"}`,
		"codex":    "apply_patch *** Add File: $path\n+$text",
		"gemini":   `write_file {"file_path":"$path","content":"$text"}`,
		"opencode": `write {"filePath":"$path","content":"$text"}`,
		"copilot":  `create {"path":"$path","file_text":"$text"}`,
		"qwen":     `write_file {"file_path":"$path","content":"$text"}`,
		"kimi":     `Write {"path":"$path","content":"$text"}`,
		"crush":    `write {"file_path":"$path","content":"$text"}`,
	},
	"edit": {
		"claude":   `Edit {"file_path":"$path","old_string":"$old","new_string":"$new"}`,
		"codex":    "apply_patch *** Update File: $path\n@@\n-$old\n+$new",
		"gemini":   `replace {"file_path":"$path","old_string":"$old","new_string":"$new","instruction":"replace it"}`,
		"opencode": `edit {"filePath":"$path","oldString":"$old","newString":"$new"}`,
		"copilot":  `edit {"path":"$path","old_str":"$old","new_str":"$new"}`,
		"qwen":     `edit {"file_path":"$path","old_string":"$old","new_string":"$new"}`,
		"kimi":     `Edit {"path":"$path","old_string":"$old","new_string":"$new"}`,
		"crush":    `edit {"file_path":"$path","old_string":"$old","new_string":"$new"}`,
	},
	"read": {
		"claude":   `Read {"file_path":"$path"}`,
		"codex":    `exec_command {"cmd":"cat $path"}`,
		"gemini":   `read_file {"file_path":"$path"}`,
		"opencode": `read {"filePath":"$path"}`,
		"copilot":  `view {"path":"$path"}`,
		"qwen":     `read_file {"file_path":"$path"}`,
		"kimi":     `Read {"path":"$path"}`,
		"crush":    `view {"file_path":"$path"}`,
	},
	"sh": {
		"claude":   `Bash {"command":"$command","description":"run it"}`,
		"codex":    `exec_command {"cmd":"$command"}`,
		"gemini":   `run_shell_command {"command":"$command","description":"run it"}`,
		"opencode": `bash {"command":"$command","description":"run it"}`,
		"copilot":  `bash {"command":"$command","description":"run it"}`,
		"qwen":     `run_shell_command {"command":"$command","description":"run it","is_background":false}`,
		"kimi":     `Bash {"command":"$command"}`,
		"crush":    `bash {"command":"$command","description":"run it"}`,
	},
	"agent": {
		"claude":   `Agent {"prompt":"$prompt","description":"follow the script","subagent_type":"general-purpose","run_in_background":false}`,
		"codex":    `multi_agent_v1.spawn_agent {"message":"$prompt"}`,
		"gemini":   `invoke_agent {"prompt":"$prompt","agent_name":"generalist"}`,
		"opencode": `task {"prompt":"$prompt","description":"follow the script","subagent_type":"general"}`,
		"copilot":  `task {"prompt":"$prompt","description":"follow the script","agent_type":"general-purpose","name":"worker","mode":"sync"}`,
		"qwen":     `agent {"prompt":"$prompt","description":"follow the script","subagent_type":"general-purpose","run_in_background":false}`,
		"kimi":     `Agent {"prompt":"$prompt","description":"follow the script","subagent_type":"coder","run_in_background":false}`,
	},
	"wait": {
		"codex": `multi_agent_v1.wait_agent {"targets":$agents,"timeout_ms":300000}`,
	},
}

// prefixes are what stands before the names of leasehold's tools.
var prefixes = map[string]string{"claude": "mcp__leasehold__", "codex": "mcp__leasehold.", "gemini": "mcp_leasehold_", "opencode": "leasehold_", "copilot": "leasehold-", "qwen": "mcp__leasehold__", "kimi": "mcp__leasehold__", "crush": "mcp_leasehold_"}

// call is what a client is told to call: the tool and its arguments in JSON, or the
// text of a patch.
func (o op) call(client string) (name, args string) {
	form, ok := calls[o.Tool][client]
	if !ok {
		return prefixes[client] + o.Tool, encoded(o.Args)
	}
	name, args, _ = strings.Cut(form, " ")
	return name, os.Expand(args, func(arg string) string {
		value, isText := o.Args[arg].(string)
		switch in := encoded(o.Args[arg]); {
		case !isText:
			return in
		case args[0] == '{':
			return in[1 : len(in)-1]
		}
		return strings.ReplaceAll(strings.TrimSuffix(value, "\n"), "\n", "\n+")
	})
}

type object = map[string]any

func encoded(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(text)
}

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
		m.anthropic(r, body, w, stream, send)
	case strings.HasSuffix(path, "/responses"):
		stream()
		m.responses(r, body, send)
	case strings.HasSuffix(path, "/chat/completions"):
		stream()
		m.chat(r, body, send)
		fmt.Fprint(w, "data: [DONE]\n\n")
	case strings.Contains(path, "enerateContent"):
		answer := m.gemini(r, body)
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

// anthropic is the Messages API, for Claude Code.
func (m *model) anthropic(r *http.Request, body []byte, w io.Writer, stream func(), send func(string, any)) {
	var in struct {
		Stream   bool
		Messages []struct{ Content any }
		Tools    []object
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
	t.tools = in.Tools
	var content []object
	do := m.next(r, t)
	for _, o := range do.ops {
		name, args := o.call("claude")
		content = append(content, object{"type": "tool_use", "id": m.callID("toolu"), "name": name, "input": json.RawMessage(args)})
	}
	reason := "tool_use"
	if len(content) == 0 {
		content, reason = []object{{"type": "text", "text": do.say}}, "end_turn"
	}
	usage := object{"input_tokens": do.tokens, "output_tokens": 1, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}
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
func (m *model) responses(r *http.Request, body []byte, send func(string, any)) {
	var in struct {
		Input []map[string]any
		Tools []object
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
	t.tools = in.Tools
	send("response.created", object{"type": "response.created", "response": object{"id": "r1"}})
	do := m.next(r, t)
	for _, o := range do.ops {
		call := codexCall(o.call("codex"))
		call["call_id"] = m.callID("call")
		call["id"] = "item_" + call["call_id"].(string)
		send("response.output_item.done", object{"type": "response.output_item.done", "item": call})
	}
	if len(do.ops) == 0 {
		send("response.output_item.done", object{"type": "response.output_item.done", "item": object{"type": "message", "id": "m1", "role": "assistant", "content": []object{{"type": "output_text", "text": do.say}}}})
	}
	send("response.completed", object{"type": "response.completed", "response": object{"id": "r1", "usage": object{"input_tokens": do.tokens, "output_tokens": 1, "total_tokens": do.tokens + 1}}})
}

// codexCall is a call as Codex is told it. What its tool is part of stands before its
// name.
func codexCall(name, args string) object {
	if name == "apply_patch" {
		return object{"type": "custom_tool_call", "name": name, "input": "*** Begin Patch\n" + args + "\n*** End Patch\n"}
	}
	call := object{"type": "function_call", "name": name, "arguments": args}
	if namespace, rest, ok := strings.Cut(name, "."); ok {
		call["namespace"], call["name"] = namespace, rest
	}
	return call
}

// gemini is the Gemini API.
func (m *model) gemini(r *http.Request, body []byte) any {
	var in struct {
		Contents []struct {
			Parts []struct {
				Text             string
				FunctionResponse *struct{ Response any }
			}
		}
		Tools []struct{ FunctionDeclarations []object }
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
		t.tools = append(t.tools, group.FunctionDeclarations...)
	}
	var parts []object
	do := m.next(r, t)
	for _, o := range do.ops {
		name, args := o.call("gemini")
		parts = append(parts, object{"functionCall": object{"name": name, "args": json.RawMessage(args)}})
	}
	if len(parts) == 0 {
		parts = []object{{"text": do.say}}
	}
	return object{
		"candidates":    []object{{"content": object{"role": "model", "parts": parts}, "finishReason": "STOP", "index": 0}},
		"usageMetadata": object{"promptTokenCount": do.tokens, "candidatesTokenCount": 1, "totalTokenCount": do.tokens + 1},
	}
}

// chat is the Chat Completions API, for opencode, Copilot CLI, Qwen Code, Kimi Code and Crush.
func (m *model) chat(r *http.Request, body []byte, send func(string, any)) {
	var in struct {
		Model    string
		Messages []struct {
			Role    string
			Content any
		}
		Tools []object
	}
	json.Unmarshal(body, &in)
	client := "opencode"
	if models[in.Model] != "" { // the others call theirs by their own names
		client = in.Model
	}
	var t turn
	for _, message := range in.Messages {
		if message.Role == "tool" {
			t.results = append(t.results, textOf(message.Content))
			continue
		}
		t.text += textOf(message.Content) + "\n"
	}
	t.tools = in.Tools
	var calls []object
	do := m.next(r, t)
	for i, o := range do.ops {
		name, args := o.call(client)
		calls = append(calls, object{"index": i, "id": m.callID("call"), "type": "function", "function": object{"name": name, "arguments": args}})
	}
	chunk := func(delta object, reason any) {
		send("", object{
			"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "scripted",
			"choices": []object{{"index": 0, "delta": delta, "finish_reason": reason}},
			"usage":   object{"prompt_tokens": do.tokens, "completion_tokens": 1, "total_tokens": do.tokens + 1},
		})
	}
	if len(calls) > 0 {
		chunk(object{"role": "assistant", "tool_calls": calls}, nil)
		chunk(object{}, "tool_calls")
		return
	}
	chunk(object{"role": "assistant", "content": do.say}, nil)
	chunk(object{}, "stop")
}
