package spotlights_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"github.com/leasehold/leasehold/dispatch/server"
	"github.com/leasehold/leasehold/dispatch/server/tools"
	"github.com/leasehold/leasehold/dispatch/server/wire"
)

// A textDaemon is a daemon whose answers to agents have only their text. So
// agents know only the list of tools and the texts of replies: a call may use
// only listed tools and arguments, and continues with what a reader finds in
// the text. The operator, who is not a model, reads objects.
type textDaemon struct {
	daemon
	mu   sync.Mutex
	read int // number of replies
}

func (d *textDaemon) Dial(ctx context.Context) (net.Conn, error) {
	inner, err := d.daemon.Dial(ctx)
	if err != nil {
		return nil, err
	}
	near, far := net.Pipe()
	operator := make(chan bool, 1)
	var called sync.Map // the tool of a request, by its id
	d.wg.Go(func() {
		hello := true
		relay(far, inner, func(line []byte) []byte {
			if hello {
				var h server.Hello
				hello = json.Unmarshal(line, &h) != nil
				operator <- h.Operator
				return line
			}
			d.listed(line, &called)
			return line
		})
	})
	d.wg.Go(func() {
		operator := <-operator
		relay(inner, far, func(line []byte) []byte {
			if operator {
				return line
			}
			return d.textOnly(line, &called)
		})
	})
	return near, nil
}

// relay passes lines on until there are no more.
func relay(from, to net.Conn, change func([]byte) []byte) {
	defer to.Close()
	defer from.Close()
	in := bufio.NewReader(from)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		if _, err := to.Write(change(line)); err != nil {
			return
		}
	}
}

// listed checks a call against the list of tools.
func (d *textDaemon) listed(line []byte, called *sync.Map) {
	var m struct {
		ID     json.RawMessage
		Method string
		Params struct {
			Name      string
			Arguments map[string]json.RawMessage
		}
	}
	if err := json.Unmarshal(line, &m); err != nil || m.Method != wire.ToolsCall || strings.HasPrefix(m.Params.Name, "operator_") {
		return
	}
	called.Store(string(m.ID), m.Params.Name)
	input, ok := listedTools()[m.Params.Name]
	if !ok {
		d.t.Errorf("%s is not listed", m.Params.Name)
	}
	for name := range m.Params.Arguments {
		if input.Properties[name].Description == "" {
			d.t.Errorf("the argument %s of %s is not listed with a description", name, m.Params.Name)
		}
	}
	for _, name := range input.Required {
		if m.Params.Arguments[name] == nil {
			d.t.Errorf("%s is called without %s, which the list requires", m.Params.Name, name)
		}
	}
}

// An input is the schema of a tool's arguments in the list of tools.
type input struct {
	Properties map[string]struct{ Description string }
	Required   []string
}

var listedTools = sync.OnceValue(func() map[string]input {
	inputs := make(map[string]input)
	for _, t := range tools.Agents() {
		var in input
		if err := json.Unmarshal(t.Definition(true).RawInputSchema, &in); err != nil {
			panic(err) // it is one of our own
		}
		inputs[t.Name] = in
	}
	return inputs
})

// textOnly replaces the object of an answer by what a reader finds in its text.
func (d *textDaemon) textOnly(line []byte, called *sync.Map) []byte {
	var m struct {
		JSONRPC string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id"`
		Result  struct {
			Content []struct {
				Type string `json:"type"`
				Text string `json:"text"`
			} `json:"content"`
			Object  map[string]any `json:"structuredContent"`
			IsError bool           `json:"isError,omitempty"`
		} `json:"result"`
	}
	if err := json.Unmarshal(line, &m); err != nil || m.Result.Object == nil {
		return line
	}
	tool, ok := called.Load(string(m.ID))
	if !ok {
		return line
	}
	text := m.Result.Content[0].Text
	m.Result.Object = understood(text, m.Result.IsError)
	for _, name := range nextCalls(text) {
		if _, ok := listedTools()[name]; !ok {
			d.t.Errorf("%s names a next call that is not listed: %s", tool, text)
		}
	}
	d.mu.Lock()
	d.read++
	d.mu.Unlock()
	return wire.Line(m)
}

var toolLike = regexp.MustCompile(`\b(?:run_lease|lease|task|queue|kv|actor|spawn)_(?:acquire|release|renew|list|submit|nack|result|wait|claim|worker|sublead)\w*`)

// nextCalls returns the tools that a text tells its reader to call.
func nextCalls(text string) []string {
	line, _, _ := strings.Cut(text, "\n")
	return toolLike.FindAllString(line, -1)
}

// phrases parse the lines for people. Everything else in a text is JSON.
var phrases = []*regexp.Regexp{
	regexp.MustCompile(`\b(?P<_>lease_id|token|version) (?P<value>[\w-]+)`),
	regexp.MustCompile(`^(?P<scope>layer|run) lease (?P<name>"(?:[^"\\]|\\.)*")`),
	regexp.MustCompile(`^(?P<scope>layer|run) lease (?P<key>"(?:[^"\\]|\\.)*")`),
	regexp.MustCompile(`^task (?P<task_id>\S+)(?: of (?P<queue>\S+))? is (?P<state>\w+)(?:, attempt (?P<attempt>\d+) of (?P<max_attempts>\d+))?`),
	regexp.MustCompile(`^(?P<state>\w+)(?:; call again|$)`),
	regexp.MustCompile(`^(?P<role>\w+) (?P<path>\S+) (?:is )?(?P<status>\w+)`),
}

// understood returns what a reader learns from a text.
func understood(text string, refused bool) map[string]any {
	line, rest, _ := strings.Cut(text, "\n")
	known := make(map[string]any)
	if refused {
		known["message"] = line
	}
	for _, phrase := range phrases {
		for _, m := range phrase.FindAllStringSubmatch(line, -1) {
			for i, name := range phrase.SubexpNames() {
				switch name {
				case "", "_":
				case "value":
					known[m[1]] = word(m[i])
				default:
					if m[i] != "" {
						known[name] = word(m[i])
					}
				}
			}
		}
	}
	var said map[string]any
	if err := json.Unmarshal([]byte(rest), &said); err == nil {
		maps.Copy(known, said)
	}
	return known
}

func word(s string) any {
	if text, err := strconv.Unquote(s); err == nil {
		return text
	}
	if n, err := strconv.ParseUint(s, 10, 53); err == nil {
		return n
	}
	return fmt.Sprint(s)
}
