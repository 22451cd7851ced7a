package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/leasehold/leasehold/dispatch/server/tools"
)

// Prefix is the path before all routes.
const Prefix = "/api/v1"

// A Route is a tool with a method and a path.
type Route struct {
	Method string
	Path   string // below Prefix; {name} is an argument, {name...} the rest of the path
	Tool   tools.Tool
	Tag    string

	// Holds says that a session holds what the call is granted, so the request
	// must name one.
	Holds bool
	// Unless is the tool to call if the request has a condition, which becomes
	// its argument expected_version.
	Unless *tools.Tool
	// Fixed has arguments whose value the route sets, so callers do not give
	// them.
	Fixed map[string]json.RawMessage

	never   string // an argument that the tool refuses with what is fixed
	made    bool   // the answer describes something new
	missing string // the member of an answer that is null if nothing was found
	empty   string // the member of an answer that is an empty list if there is nothing
	etag    func(object json.RawMessage) (version uint64, ok bool)
}

// EventStream returns the route of a run's events as they happen. A client that
// reconnects says with Last-Event-ID which events it has.
func EventStream() Route {
	for _, r := range Routes() {
		if r.Tool.Name == "operator_events" {
			r.Path += "/stream"
			return r
		}
	}
	panic("api: events have no route")
}

// Routes returns all routes that call a tool, in the order of the document.
var Routes = sync.OnceValue(func() []Route {
	known := make(map[string]tools.Tool)
	for _, t := range slices.Concat(tools.Agents(), tools.Programs(), tools.Operators(nil), tools.Logs(nil, nil)) { // these are used for their schemas only
		known[t.Name] = t
	}
	list := routes()
	for i := range list {
		r := &list[i]
		r.Tool = named(known, r.Tool.Name)
		if r.Unless != nil {
			r.Unless = new(named(known, r.Unless.Name))
		}
	}
	return list
})

func named(known map[string]tools.Tool, name string) tools.Tool {
	t, ok := known[name]
	if !ok {
		panic("api: there is no tool " + name)
	}
	return t
}

func routes() []Route {
	text := func(s string) map[string]json.RawMessage {
		return map[string]json.RawMessage{"status": json.RawMessage(`"` + s + `"`)}
	}
	return []Route{
		post("leases", "/leases", "run_lease_acquire", Route{Holds: true, made: true}),
		get("leases", "/leases", "lease_list"),
		post("leases", "/layer/leases", "lease_acquire", Route{Holds: true, made: true}),
		post("leases", "/leases/many", "lease_acquire_many", Route{Holds: true, made: true}),
		get("leases", "/leases/held", "lease_get"),
		get("leases", "/leases/history", "lease_history"),
		post("leases", "/leases/check", "lease_check", Route{}),
		post("leases", "/leases/revoke", "lease_revoke", Route{}),
		get("leases", "/leases/{lease_id}", "lease_get_by_id"),
		get("leases", "/leases/{lease_id}/history", "lease_history_by_id"),
		post("leases", "/leases/{lease_id}/renew", "lease_renew", Route{}),
		post("leases", "/leases/{lease_id}/offer", "lease_transfer", Route{}),
		del("leases", "/leases/{lease_id}", "run_lease_release"),

		get("store", "/store", "kv_list"),
		{Method: http.MethodGet, Tag: "store", Path: "/store/{path...}", Tool: tools.Tool{Name: "kv_get"}, missing: "entry", etag: entryVersion},
		{Method: http.MethodPut, Tag: "store", Path: "/store/{path...}", Tool: tools.Tool{Name: "kv_set"}, Unless: &tools.Tool{Name: "kv_cas"}, etag: version},
		{Method: http.MethodDelete, Tag: "store", Path: "/store/{path...}", Tool: tools.Tool{Name: "kv_delete"}, Unless: &tools.Tool{Name: "kv_delete"}},

		get("tasks", "/queues", "queue_stats"),
		get("tasks", "/queues/{queue}/dead", "queue_dead"),
		post("tasks", "/queues/{queue}/redrive", "queue_redrive", Route{}),
		post("tasks", "/queues/{queue}/tasks", "task_enqueue", Route{made: true}),
		post("tasks", "/tasks/many", "task_enqueue_many", Route{made: true}),
		get("tasks", "/queues/{queue}/tasks", "task_list"),
		post("tasks", "/tasks/submit", "task_submit_many", Route{}),
		post("tasks", "/tasks/next", "task_claim", Route{Holds: true, empty: "tasks"}),
		get("tasks", "/tasks/{task_id}", "task_get"),
		get("tasks", "/tasks/{task_id}/result", "task_result"),
		post("tasks", "/tasks/{task_id}/heartbeat", "task_heartbeat", Route{}),
		post("tasks", "/tasks/{task_id}/complete", "task_submit", Route{Fixed: text("completed"), never: "error"}),
		post("tasks", "/tasks/{task_id}/fail", "task_submit", Route{Fixed: text("failed"), never: "result"}),
		post("tasks", "/tasks/{task_id}/nack", "task_nack", Route{}),
		post("tasks", "/tasks/{task_id}/abandon", "task_abandon", Route{}),
		post("tasks", "/tasks/{task_id}/cancel", "task_cancel", Route{}),

		get("actors", "/actors", "actor_list"),
		get("actors", "/actors/{actor}", "actor_status"),
		post("actors", "/actors/wait", "actor_wait", Route{}),
		post("actors", "/actors/{actor}/cancel", "actor_cancel", Route{}),
		post("actors", "/report", "actor_report", Route{}),
		post("actors", "/messages", "actor_message", Route{made: true}),
		post("actors", "/messages/next", "actor_inbox", Route{empty: "messages"}),

		get("operator", "/runs", "operator_tree"),
		get("operator", "/runs/{run}", "operator_tree"),
		del("operator", "/runs/{run}", "operator_run_remove"),
		post("operator", "/runs/{run}/actors", "operator_actor_add", Route{made: true}),
		post("operator", "/runs/{run}/actors/end", "operator_actor_end", Route{}),
		post("operator", "/runs/{run}/actors/token", "operator_actor_token", Route{made: true}),
		get("operator", "/runs/{run}/leases", "operator_leases"),
		post("operator", "/runs/{run}/leases/check", "operator_lease_check", Route{}),
		post("operator", "/runs/{run}/leases/revoke", "operator_lease_revoke", Route{}),
		get("operator", "/runs/{run}/events", "operator_events"),
		get("operator", "/runs/{run}/logs", "operator_logs"),
		get("operator", "/runs/{run}/store", "operator_kv"),
		get("operator", "/runs/{run}/queues", "operator_queue_stats"),
		post("operator", "/runs/{run}/queues/{queue}/redrive", "operator_queue_redrive", Route{}),
		post("operator", "/runs/{run}/queues/{queue}/pause", "operator_queue_pause", Route{}),
		post("operator", "/runs/{run}/queues/{queue}/resume", "operator_queue_resume", Route{}),
		get("operator", "/runs/{run}/tasks", "operator_queue_list"),
		get("operator", "/runs/{run}/tasks/{task_id}", "operator_task"),
		post("operator", "/runs/{run}/tasks/{task_id}/cancel", "operator_task_cancel", Route{}),

		get("tokens", "/tokens", "operator_token_list"),
		post("tokens", "/tokens", "operator_token_issue", Route{made: true}),
		post("tokens", "/tokens/{name}/rotate", "operator_token_rotate", Route{made: true}),
		del("tokens", "/tokens/{name}", "operator_token_revoke"),
	}
}

func get(tag, path, tool string) Route {
	return Route{Method: http.MethodGet, Tag: tag, Path: path, Tool: tools.Tool{Name: tool}}
}

func del(tag, path, tool string) Route {
	return Route{Method: http.MethodDelete, Tag: tag, Path: path, Tool: tools.Tool{Name: tool}}
}

func post(tag, path, tool string, r Route) Route {
	r.Method, r.Tag, r.Path, r.Tool = http.MethodPost, tag, path, tools.Tool{Name: tool}
	return r
}

// Pattern returns the route in the form that http.ServeMux takes.
func (r *Route) Pattern() string { return r.Method + " " + Prefix + r.Path }

// id returns the name of the operation, such as task_complete.
func (r *Route) id() string {
	id := r.Tool.Name
	switch {
	case r.Path == "/runs/{run}":
		return strings.ReplaceAll(id, "operator_tree", "operator_run")
	}
	switch string(r.Fixed["status"]) {
	case `"completed"`:
		return "task_complete"
	case `"failed"`:
		return "task_fail"
	}
	return id
}

var wildcard = regexp.MustCompile(`\{(\w+)(\.\.\.)?\}`)

// inPath returns the arguments that are parts of the path.
func (r *Route) inPath() (names []string) {
	for _, m := range wildcard.FindAllStringSubmatch(r.Path, -1) {
		names = append(names, m[1])
	}
	return names
}

// hasBody reports whether arguments are in the body.
func (r *Route) hasBody() bool { return r.Method == http.MethodPost || r.Method == http.MethodPut }

func entryVersion(object json.RawMessage) (uint64, bool) {
	var answer struct{ Entry *struct{ Version uint64 } }
	ok := json.Unmarshal(object, &answer) == nil && answer.Entry != nil
	if !ok {
		return 0, false
	}
	return answer.Entry.Version, true
}

func version(object json.RawMessage) (uint64, bool) {
	var answer struct{ Version uint64 }
	return answer.Version, json.Unmarshal(object, &answer) == nil
}

// etag returns a version as the value of an ETag header.
func etag(version uint64) string { return fmt.Sprintf(`"%d"`, version) }
