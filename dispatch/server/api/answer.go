package api

import (
	"encoding/json"
	"net/http"
	"strings"

	"github.com/leasehold/leasehold/dispatch/server/tools"
	"github.com/leasehold/leasehold/dispatch/server/wire"
)

// An Answer is the response to a request.
type Answer struct {
	Status int
	Type   string // of the body
	Body   []byte // empty: none
	Header map[string]string
}

// Answer turns the tool's reply into a response.
func (c *Call) Answer(reply tools.Reply) Answer {
	r := c.Route
	if reply.IsError {
		return refusal(reply.Object)
	}
	a := Answer{Status: http.StatusOK, Type: jsonType, Body: reply.Object}
	switch {
	case r.missing != "" && string(member(reply.Object, r.missing)) == "null":
		refused := map[string]any{"code": "NOT_FOUND", "message": "there is no such " + r.missing}
		if news := member(reply.Object, "notices"); news != nil {
			refused["notices"] = news
		}
		return problem(http.StatusNotFound, "NOT_FOUND", mustJSON(refused))
	case r.empty != "" && string(member(reply.Object, r.empty)) == "[]" && member(reply.Object, "notices") == nil:
		return Answer{Status: http.StatusNoContent}
	}
	if r.made && string(member(reply.Object, "reentrant")) != "true" {
		a.Status = http.StatusCreated
	}
	if r.etag != nil {
		if version, ok := r.etag(reply.Object); ok {
			a.Header = map[string]string{"ETag": etag(version)}
		}
	}
	if id, ok := wire.TextOf(member(reply.Object, "task_id")); ok && a.Status == http.StatusCreated {
		a.Header = map[string]string{"Location": Prefix + "/tasks/" + id}
	}
	return a
}

const jsonType = "application/json"

// Problem returns a refusal that does not come from a tool.
func Problem(status int, code, detail string) Answer {
	return problem(status, code, mustJSON(map[string]string{"code": code, "message": detail}))
}

// Made answers a request that has created something, and Found one that has
// found something.
func Made(v any) Answer  { return Answer{Status: http.StatusCreated, Type: jsonType, Body: mustJSON(v)} }
func Found(v any) Answer { return Answer{Status: http.StatusOK, Type: jsonType, Body: mustJSON(v)} }

// Refuse returns the response for an error.
func Refuse(err error) Answer { return refusal(tools.RefusalOf(err).Reply().Object) }

// statuses maps the codes of refusals to HTTP statuses.
var statuses = map[string]int{
	"INVALID_ARGUMENT": http.StatusBadRequest,
	"UNAUTHENTICATED":  http.StatusUnauthorized,
	"FORBIDDEN":        http.StatusForbidden,
	"NOT_FOUND":        http.StatusNotFound,
	"LEASE_HELD":       http.StatusConflict, "NOT_HOLDER": http.StatusConflict, "DEADLOCK": http.StatusConflict,
	"DRAINING": http.StatusConflict, "REQUEST_ID_REUSED": http.StatusConflict,
	"LEASE_LOST": http.StatusGone, "COMPACTED": http.StatusGone,
	"VERSION_MISMATCH": http.StatusPreconditionFailed,
	"WAIT_TIMEOUT":     http.StatusAccepted,
	"LIMIT":            http.StatusTooManyRequests,
	"UNAVAILABLE":      http.StatusServiceUnavailable,
}

// retrySecs is how long a client should wait before it tries again after a
// limit, or while the daemon is unavailable.
const retrySecs = "1"

// refusal returns a refusal as a problem. A caller whose wait ended but that
// keeps its place in line was not refused, so that is no problem.
func refusal(object json.RawMessage) Answer {
	code, _ := wire.TextOf(member(object, "code"))
	status := statusOf(code, object)
	if status == http.StatusAccepted {
		return Answer{Status: status, Type: jsonType, Body: object}
	}
	return problem(status, code, object)
}

func problem(status int, code string, object json.RawMessage) Answer {
	a := Answer{Status: status, Type: "application/problem+json"}
	switch status {
	case http.StatusUnauthorized:
		a.Header = map[string]string{"WWW-Authenticate": `Bearer realm="leasehold"`}
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		a.Header = map[string]string{"Retry-After": retrySecs}
	}
	body := []byte(`{"type":"urn:leasehold:` + strings.ToLower(strings.ReplaceAll(code, "_", "-")) + `","title":`)
	body = append(append(body, mustJSON(http.StatusText(status))...), `,"status":`...)
	body = append(body, mustJSON(status)...)
	for name, value := range wire.Members(object) {
		if string(name) == "message" {
			name = []byte("detail")
		}
		body = append(append(append(append(body, `,"`...), name...), `":`...), value...)
	}
	a.Body = append(body, '}')
	return a
}

// statusOf returns the status of a refusal. A stale token may be that of a
// finished task, of a lost claim, or of a lease that a write requires. A limit
// may be one that the request itself exceeds, so that no other try helps.
func statusOf(code string, object json.RawMessage) int {
	if code == "LIMIT" && string(member(object, "too_large")) == "true" {
		return http.StatusRequestEntityTooLarge
	}
	if code == "STALE_TOKEN" {
		state, task := wire.TextOf(member(object, "state"))
		switch {
		case !task:
			return http.StatusPreconditionFailed
		case state == "ready" || state == "delayed" || state == "in_progress":
			return http.StatusGone
		default:
			return http.StatusConflict
		}
	}
	if status, ok := statuses[code]; ok {
		return status
	}
	return http.StatusInternalServerError
}

// member returns a member of an object, or nil.
func member(object json.RawMessage, name string) json.RawMessage {
	for n, value := range wire.Members(object) {
		if string(n) == name {
			return value
		}
	}
	return nil
}

func mustJSON(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic("api: what it answers is plain data: " + err.Error())
	}
	return b
}
