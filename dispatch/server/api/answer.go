package api

import (
	"encoding/json"
	"net/http"
	"strings"

	"github.com/leasehold/leasehold/dispatch/server/tools"
	"github.com/leasehold/leasehold/dispatch/server/wire"
)

// An Answer is what a request is answered.
type Answer struct {
	Status int
	Type   string // of the body
	Body   []byte // empty: none
	Header map[string]string
}

// Answer is the reply of the tool as HTTP has it.
func (c *Call) Answer(reply tools.Reply) Answer {
	r := c.Route
	if reply.IsError {
		return refusal(reply.Object)
	}
	a := Answer{Status: http.StatusOK, Type: jsonType, Body: reply.Object}
	switch {
	case r.missing != "" && string(member(reply.Object, r.missing)) == "null":
		return Problem(http.StatusNotFound, "NOT_FOUND", "there is no such "+r.missing)
	case r.empty != "" && string(member(reply.Object, r.empty)) == "[]" && member(reply.Object, "notices") == nil:
		return Answer{Status: http.StatusNoContent}
	}
	if r.made && string(member(reply.Object, "reentrant")) != "true" {
		a.Status = http.StatusCreated
	}
	if r.etag != nil {
		if version, ok := r.etag(reply.Object); ok {
			a.Header = map[string]string{"ETag": ETag(version)}
		}
	}
	if id, ok := wire.TextOf(member(reply.Object, "task_id")); ok && a.Status == http.StatusCreated {
		a.Header = map[string]string{"Location": Prefix + "/tasks/" + id}
	}
	return a
}

const jsonType = "application/json"

// Problem is a refusal that no tool has made.
func Problem(status int, code, detail string) Answer {
	return problem(status, code, mustJSON(map[string]string{"code": code, "message": detail}))
}

// Made is the answer to what has made something, and Found to what has found it.
func Made(v any) Answer  { return Answer{Status: http.StatusCreated, Type: jsonType, Body: mustJSON(v)} }
func Found(v any) Answer { return Answer{Status: http.StatusOK, Type: jsonType, Body: mustJSON(v)} }

// Refuse is a refusal as HTTP has it.
func Refuse(err error) Answer { return refusal(tools.RefusalOf(err).Reply().Object) }

// statuses are the statuses of refusals by their codes.
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

// retrySecs is when whoever met a limit, or a daemon that cannot serve now, may try
// again.
const retrySecs = "1"

// refusal is the object of a refusal as a problem. Whoever waited and kept a place in
// the line was not refused, so that is none.
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

// statusOf is the status of a refusal. A stale token may be that of a task that is
// finished, of a claim that is lost, or of a lease that a write needs.
func statusOf(code string, object json.RawMessage) int {
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

// member is a member of an object; nil if it has none of the name.
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
