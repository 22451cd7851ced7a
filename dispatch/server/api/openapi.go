package api

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/leasehold/leasehold/engine/traceparent"
)

// Document returns the OpenAPI 3.1 description of the API, derived from the
// tools that it calls.
func Document(version string) json.RawMessage {
	doc := document{
		OpenAPI: "3.1.0",
		Info: info{
			Title: "Leasehold", Version: version, License: &license{"Apache 2.0", "Apache-2.0"},
			Description: "Leases, layered stores and a durable queue for programs beside agents. A call acts as the actor whose token it bears, by the rules that agents have.",
		},
		Servers:  []server{{URL: "/"}},
		Security: []map[string][]string{{"token": {}}},
		Tags: []tag{
			{"sessions", "A session holds what its program is granted, and gives it back when the program ends."},
			{"leases", "Leases of the run, and of the caller's layer."},
			{"store", "The store of the caller's layer."},
			{"tasks", "Durable queues."},
			{"actors", "The tree, and messages in it."},
			{"operator", "All runs, for the token of an operator, or of a reader, who changes nothing."},
			{"tokens", "The tokens of operators and readers."},
		},
		Paths: make(map[string]map[string]*operation),
		Components: components{
			Schemas: map[string]*jsonschema.Schema{"Problem": problemSchema(), "Session": sessionSchema(true), "SessionInfo": sessionSchema(false)},
			Responses: map[string]*response{
				"Problem": {Description: "A refusal: code says why in a word, detail what, who and what next.", Content: content("application/problem+json", ref("Problem"))},
			},
			SecuritySchemes: map[string]securityScheme{"token": {Type: "http", Scheme: "bearer", Description: "The token of an actor, an operator or a reader."}},
		},
	}
	for _, r := range Routes() {
		doc.add(r.Method, r.Path, r.operation())
	}
	events := EventStream()
	doc.add(events.Method, events.Path, events.streamOperation())
	for _, o := range sessionOperations() {
		doc.add(o.method, o.path, o.operation)
	}
	return mustJSON(doc)
}

func (d *document) add(method, path string, o *operation) {
	path = Prefix + strings.ReplaceAll(path, "...}", "}")
	if d.Paths[path] == nil {
		d.Paths[path] = make(map[string]*operation)
	}
	d.Paths[path][strings.ToLower(method)] = o
}

// operation describes a route.
func (r *Route) operation() *operation {
	o := &operation{
		OperationID: r.id(), Summary: r.Tool.Title, Description: r.Tool.Description, Tags: []string{r.Tag},
		Parameters: []parameter{sessionParameter(r.Holds)}, Responses: make(map[string]*response),
	}
	path := r.inPath()
	body := &jsonschema.Schema{Type: "object", Properties: make(map[string]*jsonschema.Schema), AdditionalProperties: &jsonschema.Schema{Not: &jsonschema.Schema{}}}
	input := r.Tool.Input()
	for _, name := range input.PropertyOrder {
		schema := input.Properties[name]
		required := slices.Contains(input.Required, name)
		_, fixed := r.Fixed[name]
		switch {
		case fixed, name == r.never, r.Unless != nil && name == "expected_version":
		case slices.Contains(path, name):
			o.Parameters = append(o.Parameters, parameterOf(name, "path", schema, true))
		case !r.hasBody():
			o.Parameters = append(o.Parameters, parameterOf(name, "query", schema, required))
		default:
			body.Properties[name] = schema
			body.PropertyOrder = append(body.PropertyOrder, name)
			if required {
				body.Required = append(body.Required, name)
			}
		}
	}
	if r.hasBody() {
		o.RequestBody = &requestBody{Required: len(body.Required) > 0, Content: content(jsonType, body)}
	}
	if !r.Tool.Effect.ReadOnly {
		o.Parameters = append(o.Parameters, parameter{
			Name: "Idempotency-Key", In: "header", Schema: &jsonschema.Schema{Type: "string", MaxLength: new(256)},
			Description: "Sent again with the same key and session, the call has one effect and the same answer.",
		})
	}
	if r.Tag == "tasks" && !r.Tool.Effect.ReadOnly {
		o.Parameters = append(o.Parameters, parameter{
			Name: traceparent.Header, In: "header", Schema: &jsonschema.Schema{Type: "string"},
			Description: "W3C trace context of the caller, which the spans of the call go on from. One that cannot be read is ignored.",
		}, parameter{
			Name: traceparent.StateHeader, In: "header", Schema: &jsonschema.Schema{Type: "string"},
			Description: "What belongs to the trace context. More than 512 bytes are dropped.",
		})
	}
	if r.Unless != nil {
		o.Parameters = append(o.Parameters, parameter{Name: "If-Match", In: "header", Schema: &jsonschema.Schema{Type: "string"}, Description: "The ETag that the entry must have."},
			parameter{Name: "If-None-Match", In: "header", Schema: &jsonschema.Schema{Type: "string", Enum: []any{"*"}}, Description: "There must be no entry."})
	}
	for _, status := range r.statuses() {
		o.Responses[strconv.Itoa(status)] = r.response(status)
	}
	o.refuse()
	return o
}

// refuse adds the responses for refusals.
func (o *operation) refuse() {
	for _, status := range []string{"4XX", "5XX"} {
		o.Responses[status] = &response{Ref: "#/components/responses/Problem"}
	}
}

// streamOperation describes a stream of events.
func (r *Route) streamOperation() *operation {
	o := r.operation()
	o.OperationID, o.Summary = "events_stream", "Follow what happens in a run"
	o.Parameters = slices.DeleteFunc(o.Parameters, func(p parameter) bool { return p.Name == "wait_secs" || p.Name == "limit" })
	o.Parameters = append(o.Parameters, parameter{Name: "Last-Event-ID", In: "header", Schema: &jsonschema.Schema{Type: "string"}, Description: "The id of the last event that the client has; it goes before since."})
	o.Responses["200"] = &response{Description: "Events, each with its revision as its id", Content: map[string]mediaType{"text/event-stream": {Schema: &jsonschema.Schema{Type: "string"}}}}
	return o
}

// statuses returns the statuses of successful answers.
func (r *Route) statuses() (list []int) {
	list = []int{http.StatusOK}
	switch {
	case r.made && r.Tool.Output().Properties["reentrant"] != nil:
		list = append(list, http.StatusCreated, http.StatusAccepted)
	case r.made && r.Tool.Argument("ticket") != nil:
		list = []int{http.StatusCreated, http.StatusAccepted}
	case r.made:
		list = []int{http.StatusCreated}
	case r.empty != "":
		list = append(list, http.StatusNoContent)
	}
	return list
}

func (r *Route) response(status int) *response {
	answer := &response{Description: http.StatusText(status), Content: content(jsonType, r.Tool.Output())}
	switch status {
	case http.StatusNoContent:
		return &response{Description: "There is nothing."}
	case http.StatusAccepted:
		return &response{Description: "Still held. The caller keeps its place in the line for 30 s: ask again.", Content: content(jsonType, waitSchema())}
	}
	if r.etag != nil {
		answer.Headers = map[string]*header{"ETag": {Description: "The version of the entry.", Schema: &jsonschema.Schema{Type: "string"}}}
	}
	return answer
}

func sessionParameter(required bool) parameter {
	p := parameter{Name: "Leasehold-Session", In: "header", Required: required, Schema: &jsonschema.Schema{Type: "string"}}
	p.Description = "The session of the call. Without one it is of a session that all such calls of the actor share."
	if required {
		p.Description = "The session that holds what is granted, and gives it back at its end."
	}
	return p
}

func parameterOf(name, in string, schema *jsonschema.Schema, required bool) parameter {
	p := parameter{Name: name, In: in, Description: schema.Description, Required: required, Schema: schema}
	if schema.Type == "array" {
		p.Style, p.Explode = "form", new(false)
	}
	return p
}

// codes returns the codes of all refusals, except that of a wait that has timed
// out.
func codes() (list []any) {
	for _, code := range slices.Sorted(maps.Keys(statuses)) {
		if code != "WAIT_TIMEOUT" {
			list = append(list, code)
		}
	}
	return append(list, "STALE_TOKEN", "INTERNAL")
}

func problemSchema() *jsonschema.Schema {
	return &jsonschema.Schema{
		Type: "object", Required: []string{"type", "title", "status", "code", "detail"},
		Properties: map[string]*jsonschema.Schema{
			"type":   {Type: "string", Format: "uri"},
			"title":  {Type: "string"},
			"status": {Type: "integer"},
			"code":   {Type: "string", Enum: codes()},
			"detail": {Type: "string", Description: "what, who, and what next"},
		},
		PropertyOrder: []string{"type", "title", "status", "code", "detail"},
	}
}

func waitSchema() *jsonschema.Schema {
	return &jsonschema.Schema{
		Type: "object", Required: []string{"code", "message", "position", "ticket"},
		Properties: map[string]*jsonschema.Schema{
			"code": {Const: new(any("WAIT_TIMEOUT"))}, "message": {Type: "string"},
			"position": {Type: "integer", Description: "in the line; 1 is next"}, "ticket": {Type: "string", Description: "keeps the place for 30 s"},
		},
		PropertyOrder: []string{"code", "message", "position", "ticket"},
	}
}

func sessionSchema(opened bool) *jsonschema.Schema {
	s := &jsonschema.Schema{
		Type: "object", Properties: map[string]*jsonschema.Schema{
			"session":    {Type: "string", Description: "secret, told once: what Leasehold-Session has"},
			"session_id": {Type: "string"}, "actor_id": {Type: "string"}, "path": {Type: "string"}, "run": {Type: "string"}, "role": {Type: "string"},
			"idle_secs": {Type: "number", Description: "the session ends that long after its last request, unless its stream is open"},
		},
		PropertyOrder: []string{"session", "session_id", "actor_id", "path", "run", "role", "idle_secs"},
	}
	if !opened {
		delete(s.Properties, "session")
		s.PropertyOrder = s.PropertyOrder[1:]
	}
	s.Required = slices.Clone(s.PropertyOrder)
	return s
}

type sessionOperation struct {
	method, path string
	*operation
}

// sessionOperations returns the routes that call no tool.
func sessionOperations() []sessionOperation {
	one := func(method, path, id, summary string, status int, answer *response) sessionOperation {
		o := &operation{
			OperationID: id, Summary: summary, Tags: []string{"sessions"},
			Responses: map[string]*response{strconv.Itoa(status): answer},
		}
		o.refuse()
		if path != "/sessions" {
			o.Parameters = []parameter{sessionParameter(true)}
		}
		return sessionOperation{method, path, o}
	}
	shown := &response{Description: "OK", Content: content(jsonType, ref("SessionInfo"))}
	cancel := one(http.MethodDelete, "/calls/{key}", "call_cancel", "Cancel a call by its Idempotency-Key", http.StatusNoContent, &response{Description: "Cancelled, if there is such a call"})
	cancel.Description = "A call that is under way ends, and the leases, claims, tasks, messages and actors that it took or made are given back or removed, also if its answer was sent: for a program that has closed the connection of a call and does not know whether the answer came. What it changed stays, such as an entry of a store or the expiry of a lease. If no request of the call has arrived yet, the next one is refused as cancelled if it arrives within two seconds. A call that was answered more than ten minutes ago, or that granted something to another session, is not known: nothing happens."
	key := &jsonschema.Schema{Type: "string", MinLength: new(1), MaxLength: new(256), Description: "the Idempotency-Key"}
	cancel.Parameters = []parameter{sessionParameter(false), parameterOf("key", "path", key, true)}
	return []sessionOperation{
		cancel,
		one(http.MethodPost, "/sessions", "session_open", "Open a session", http.StatusCreated, &response{Description: "Created", Content: content(jsonType, ref("Session"))}),
		one(http.MethodGet, "/session", "session_get", "See the session", http.StatusOK, shown),
		one(http.MethodPost, "/session/heartbeat", "session_heartbeat", "Keep the session, as every request does", http.StatusOK, shown),
		one(http.MethodGet, "/session/notices", "session_notices", "Be told of leases that are lost, wanted or offered; the session lasts while this is open", http.StatusOK,
			&response{Description: "Events named notice", Content: map[string]mediaType{"text/event-stream": {Schema: &jsonschema.Schema{Type: "string"}}}}),
		one(http.MethodDelete, "/session", "session_end", "End the session, and give back what it holds", http.StatusNoContent, &response{Description: "Ended"}),
	}
}

func content(media string, schema *jsonschema.Schema) map[string]mediaType {
	return map[string]mediaType{media: {Schema: schema}}
}

func ref(name string) *jsonschema.Schema {
	return &jsonschema.Schema{Ref: "#/components/schemas/" + name}
}

// NotAllowed answers a request with a method that its path does not have.
func NotAllowed(allowed string) Answer {
	a := Problem(http.StatusMethodNotAllowed, "INVALID_ARGUMENT", "the method must be "+allowed)
	a.Header = map[string]string{"Allow": allowed}
	return a
}
