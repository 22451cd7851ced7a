package main

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/dispatch/server/tools"
)

// An mcpMessage is what a shim looks at in a message.
type mcpMessage struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Error  json.RawMessage `json:"error"`
	Params struct {
		RequestID  json.RawMessage `json:"requestId"`
		ClientInfo struct {
			Name string `json:"name"`
		} `json:"clientInfo"`
		Meta struct {
			ClientInfo struct {
				Name string `json:"name"`
			} `json:"io.modelcontextprotocol/clientInfo"`
		} `json:"_meta"`
		Arguments struct {
			WaitSecs json.RawMessage `json:"wait_secs"`
		} `json:"arguments"`
	} `json:"params"`
}

// readMessage reads what a shim looks at, and reports false if line is no
// message.
func readMessage(line []byte) (m mcpMessage, ok bool) {
	var typeError *json.UnmarshalTypeError // for the daemon to judge
	err := json.Unmarshal(line, &m)
	ok = err == nil || errors.As(err, &typeError) && len(line) > 0 && line[0] == '{'
	return m, ok
}

func (m *mcpMessage) request() bool { return m.Method != "" && m.ID != nil }

// waits reports whether the call may block for long.
func (m *mcpMessage) waits() bool {
	wait := string(m.Params.Arguments.WaitSecs)
	return wait != "" && wait != "0" && wait != "null"
}

// clientName is a name for a worker, after what its client calls itself.
func (m *mcpMessage) clientName() string {
	name := cmp.Or(m.Params.ClientInfo.Name, m.Params.Meta.ClientInfo.Name)
	name = strings.Trim(foreign.ReplaceAllString(name, "-"), "-.")
	_, err := uuid.Parse(name)
	if err == nil || slices.Contains(reserved, name) {
		name = strings.TrimSuffix("client-"+name, "-")
	}
	return strings.TrimRight(name[:min(len(name), 64)], "-.")
}

var (
	foreign = regexp.MustCompile(`[^A-Za-z0-9._-]+`)

	// reserved are words that mean somebody else, or nobody.
	reserved = []string{"", "parent", "root", "self"}
)

// idKey is a request id as a key. 1 and "1" are two ids.
func idKey(id json.RawMessage) string {
	var s string
	if json.Unmarshal(id, &s) == nil {
		return `"` + s
	}
	return string(bytes.TrimSpace(id))
}

// markResent makes a request one that is sent again, after it has taken spent
// already: it has the mark, and does not begin its wait anew, which would
// outlast the client's patience. A request without room for that goes out as
// it is.
func markResent(line []byte, spent time.Duration) []byte {
	marked, err := edit(line, "params", func(params []byte) ([]byte, error) {
		params, err := edit(params, "_meta", func(meta []byte) ([]byte, error) {
			return edit(meta, tools.ResentMark, func([]byte) ([]byte, error) { return []byte("true"), nil })
		})
		if err != nil {
			return nil, err
		}
		if shorter, err := edit(params, "arguments", func(arguments []byte) ([]byte, error) {
			return edit(arguments, "wait_secs", func(wait []byte) ([]byte, error) { return lessWait(wait, spent) })
		}); err == nil {
			params = shorter
		}
		return params, nil
	})
	if err != nil {
		return line
	}
	return marked
}

// lessWait is what remains of a wait. It stays a wait to the end: its answer
// then says what a wait's answer says.
func lessWait(wait []byte, spent time.Duration) ([]byte, error) {
	var secs float64
	if err := json.Unmarshal(wait, &secs); err != nil || secs <= 0 {
		return nil, errors.New("no wait")
	}
	return json.Marshal(min(secs, max(secs-spent.Seconds(), 1)))
}

// withID gives a request another id.
func withID(line []byte, id string) []byte {
	changed, err := edit(line, "id", func([]byte) ([]byte, error) { return json.Marshal(id) })
	if err != nil {
		return line // cannot be: line is a request, and so an object
	}
	return changed
}

// edit changes one field of an object; a missing object is an empty one.
func edit(object []byte, field string, change func([]byte) ([]byte, error)) ([]byte, error) {
	fields := make(map[string]json.RawMessage)
	if len(object) > 0 {
		if err := json.Unmarshal(object, &fields); err != nil {
			return nil, err
		}
	}
	if fields == nil {
		return nil, errors.New("null is no object")
	}
	value, err := change(fields[field])
	if err != nil {
		return nil, err
	}
	fields[field] = value
	return json.Marshal(fields)
}

// rpcError is a JSON-RPC error.
func rpcError(id json.RawMessage, code int, message string) []byte {
	if id == nil {
		id = json.RawMessage("null")
	}
	b, _ := json.Marshal(map[string]any{
		"jsonrpc": "2.0", "id": id,
		"error": map[string]any{"code": code, "message": message},
	})
	return b
}

// notification is a JSON-RPC notification.
func notification(method string, params any) []byte {
	b, _ := json.Marshal(map[string]any{"jsonrpc": "2.0", "method": method, "params": params})
	return b
}

// readLines sends the lines of r, without their ends, until it cannot or stop
// is closed; then it closes lines. Memory is bounded by limit: what is longer
// is cut there.
func readLines(r io.Reader, limit int, lines chan<- []byte, stop <-chan struct{}) {
	defer close(lines)
	br := bufio.NewReaderSize(r, 64<<10)
	for {
		var line []byte
		for {
			part, err := br.ReadSlice('\n')
			line = append(line, part[:min(len(part), limit-len(line))]...)
			if err == nil {
				break
			}
			if !errors.Is(err, bufio.ErrBufferFull) {
				return
			}
		}
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		select {
		case lines <- line:
		case <-stop:
			return
		}
	}
}
