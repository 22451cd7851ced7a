package server_test

import (
	"context"
	"strings"
	"testing"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/server"
	"github.com/leasehold/leasehold/dispatch/server/tools"
	"github.com/leasehold/leasehold/dispatch/server/wire"
)

// What is wrong with a call is told whichever part of the server finds it: a
// JSON-RPC error where it is none of a tool, else a refusal.
func TestCallsThatAreNoneAreRefused(t *testing.T) {
	d := newDaemon(t, server.Options{})
	d.AddTestTool("fall", func(context.Context, *dispatch.Session) string { panic("over") })
	p := d.dial(t, "w")
	for params, want := range map[string]struct {
		code    int // 0: it is a refusal
		message string
	}{
		`{"name":"nothing","arguments":{}}`:                                                          {-32602, "nothing: tool not found"},
		`{"name":"launch_next","arguments":{}}`:                                                      {-32602, "launch_next: tool not found"}, // an operator's
		`{}`:                                                                                         {-32602, "params.name of tools/call must be given"},
		`{"name":"lease_list","_meta":5}`:                                                            {-32602, "params._meta of tools/call must not be a number: see the schema of MCP"},
		`{"name":"lease_list","arguments":5}`:                                                        {0, "arguments must be a JSON object"},
		`{"name":"lease_list","arguments":[]}`:                                                       {0, "arguments must be a JSON object"},
		`{"name":"lease_list","arguments":{"scope":[]}}`:                                             {0, "scope must be a string"},
		`{"name":"lease_list","arguments":{"prefix":{}}}`:                                            {0, "prefix must be a string"},
		`{"name":"lease_list","arguments":{"prefixx":"a"}}`:                                          {0, "prefixx is unknown; the arguments are scope, prefix, after, limit"},
		`{"name":"lease_list","arguments":{"limit":1.5}}`:                                            {0, "limit must be a whole number"},
		`{"name":"lease_list","arguments":{"limit":1e30}}`:                                           {0, "limit must be from 1 to 200"},
		`{"name":"lease_list","arguments":{"prefix":"a","prefix":"b"}}`:                              {0, "prefix must be given once"},
		`{"name":"lease_check","arguments":{"scope":"run","key":"k","token":-1}}`:                    {0, "token must be at least 0"},
		`{"name":"lease_check","arguments":{"scope":"run","key":"k","token":1e30}}`:                  {0, "token must be at most 9007199254740992"},
		`{"name":"lease_acquire_many","arguments":{"leases":[{"scope":"run","key":"a","key":"b"}]}}`: {0, "leases[0]: key must be given once"},
		`{"name":"lease_acquire_many","arguments":{"leases":[{"scope":"run","key":"a"},{"scope":"run","key":"a"}]}}`: {0, "leases must not name the same lease twice"},
		`{"name":"lease_check","arguments":{"scope":"layer","key":"a//b","token":1}}`:                                {0, "key must be canonical: a/b"},
		`{"name":"lease_acquire","arguments":{"name":"` + strings.Repeat("x", 505) + `"}}`:                           {0, "name must be at most 504 bytes"},
		`{"name":"lease_acquire","arguments":{"name":""}}`:                                                           {0, "name must be from 1 to 512 bytes"},
		`{"name":"spawn_worker","arguments":{"prompt":"x","env":{"A":1}}}`:                                           {0, "env must be an object of strings"},
		`{"name":"spawn_worker","arguments":{"prompt":"x","env":["A"]}}`:                                             {0, "env must be an object of strings"},
		`{"name":"spawn_sublead","arguments":{"prompt":"x","initial_ref":["A"]}}`:                                    {0, "initial_ref must be an object"},
		`{"name":"kv_get","arguments":{}}`:                                                                           {0, "path must be given"},
		`{"name":"lease_release","arguments":{"key":"k"}}`:                                                           {0, "key is unknown; the argument is lease_id; missing: lease_id"},
		`{"name":"kv_get","arguments":{"pth":"/a"}}`:                                                                 {0, "pth is unknown; the arguments are path, layer; missing: path"},
		`{"name":"fall","arguments":{}}`:                                                                             {-32603, "panic recovered in fall tool handler: over"},
	} {
		p.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":%s}`, params)
		switch m := p.receive(); {
		case want.code == 0 && (!m.Result.IsError || m.text() != want.message):
			t.Errorf("%s: %+v, want %q", params, m, want.message)
		case want.code != 0 && (m.Error == nil || m.Error.Code != want.code || m.Error.Message != want.message):
			t.Errorf("%s: %+v, want %d %q", params, m.Error, want.code, want.message)
		}
	}
}

// What another role may do is refused with who may, and is not said to be unknown.
func TestToolsOfOtherRolesAreForbidden(t *testing.T) {
	d := newDaemon(t, server.Options{})
	_, token, err := d.state.IssueAccess(t.Context(), "grafana", dispatch.Reader, 0)
	if err != nil {
		t.Fatal(err)
	}
	worker, reader, operator := d.dial(t, "w"), d.pipe(t), d.pipe(t)
	reader.greet(server.Hello{Token: token})
	operator.greet(server.Hello{Operator: true})
	refused := func(p *peer, tool, want string) {
		t.Helper()
		p.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":%q,"arguments":{}}}`, tool)
		if m := p.receive(); !m.Result.IsError || m.text() != want || !strings.Contains(string(m.Result.StructuredContent), `"code":"FORBIDDEN"`) {
			t.Errorf("%s: %q, want %q; %+v", tool, m.text(), want, m)
		}
	}
	for _, tool := range append(tools.Operators(d.state), tools.Hooks(d.state)...) {
		if !tool.Effect.ReadOnly {
			refused(reader, tool.Name, "forbidden: "+tool.Name+` is for operators, and you are the reader "grafana"; use an operator's token (leasehold token issue NAME --role operator)`)
		}
		if strings.HasPrefix(tool.Name, "operator_") {
			refused(worker, tool.Name, "forbidden: "+tool.Name+" is for operators, and you are the worker w; ask your operator to do it")
		}
	}
	for _, tool := range tools.Agents() {
		refused(reader, tool.Name, "forbidden: "+tool.Name+` is for agents, and you are the reader "grafana"; use an actor's token (leasehold actor token PATH)`)
		refused(operator, tool.Name, "forbidden: "+tool.Name+" is for agents, and you are an operator; use an actor's token (leasehold actor token PATH)")
	}
}

// JSON that some clients could not read back enters by no argument: whoever
// reads it would lose its connection, and with it its session.
func TestJSONThatSomeClientsCannotReadIsRefusedByItsArgument(t *testing.T) {
	d := newDaemon(t, server.Options{})
	p := d.dial(t, "w")
	deep := strings.Repeat("[", 1500) + strings.Repeat("]", 1500)
	for arguments, want := range map[string]string{
		`kv_set {"path":"/shared/x","value":` + deep + `}`:                                 "value must not be nested deeper than 64 levels",
		`kv_set {"path":"/shared/x","value":1e999}`:                                        "value must not contain the number 1e999, which is beyond what a float64 can hold",
		`kv_set {"path":"/shared/\ud800","value":1}`:                                       `path must not contain half of a surrogate pair, such as "\ud800"`,
		`kv_cas {"path":"/shared/x","expected_version":0,"value":"` + "\xff" + `"}`:        "value must be valid UTF-8",
		`task_enqueue {"queue":"q","payload":{"a":` + deep + `}}`:                          "payload must not be nested deeper than 64 levels",
		`task_enqueue_many {"tasks":[{"queue":"q","payload":` + deep + `}]}`:               "tasks[0]: payload must not be nested deeper than 64 levels",
		`task_enqueue_many {"tasks":` + deep + `}`:                                         "tasks must be a list of objects",
		`task_enqueue_many {"tasks":[{"queue":"q","payload":"` + "\xff" + `"}]}`:           "tasks[0]: payload must be valid UTF-8",
		`task_submit {"task_id":"x","token":1,"status":"completed","result":` + deep + `}`: "result must not be nested deeper than 64 levels",
		`task_submit {"task_id":"x","token":1,"status":"failed","error":"\udc00"}`:         `error must not contain half of a surrogate pair, such as "\ud800"`,
		`actor_report {"result":[-1e400]}`:                                                 "result must not contain the number -1e400, which is beyond what a float64 can hold",
		`spawn_sublead {"prompt":"p","initial_ref":{"a":` + deep + `}}`:                    "initial_ref must not be nested deeper than 64 levels",
	} {
		tool, args, _ := strings.Cut(arguments, " ")
		p.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":%q,"arguments":%s}}`, tool, args)
		if m := p.receive(); !m.Result.IsError || m.text() != want {
			t.Errorf("%.60s: %q, want %q", arguments, m.text(), want)
		}
	}
}

// A payload may be as deep among others as alone.
func TestAPayloadIsAsDeepAmongOthersAsAlone(t *testing.T) {
	d := newDaemon(t, server.Options{})
	p := d.dial(t, "w")
	for levels, fits := range map[int]bool{wire.MaxDepth: true, wire.MaxDepth + 1: false} {
		payload := strings.Repeat("[", levels) + strings.Repeat("]", levels)
		for tool, args := range map[string]string{
			"task_enqueue":      `{"queue":"q","payload":` + payload + `}`,
			"task_enqueue_many": `{"tasks":[{"queue":"q","payload":1},{"queue":"q","payload":` + payload + `}]}`,
		} {
			p.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":%q,"arguments":%s}}`, tool, args)
			if m := p.receive(); m.Result.IsError == fits {
				t.Errorf("%s with %d levels: %q", tool, levels, m.text())
			}
		}
	}
}
