package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
)

// These are the reasons for which the context of a lease or a task ends; see
// [context.Cause].
var (
	// ErrLost means that the lease or claim is no longer held. The error says
	// why; the next two are kinds of it.
	ErrLost = errors.New("lost")
	// ErrDeadline means that it could not be renewed in time, so it may have
	// been lost.
	ErrDeadline = fmt.Errorf("%w: it could not be renewed before its local deadline", ErrLost)
	// ErrSession means that the session that held it has ended.
	ErrSession = fmt.Errorf("%w: the session has ended", ErrLost)

	// ErrReleased means that its holder released it.
	ErrReleased = errors.New("released")
	// ErrDraining means that the worker is stopping and did not wait longer for
	// the handler.
	ErrDraining = errors.New("the worker drains")
)

// ErrClosed is the error of calls on a closed [Client].
var ErrClosed = errors.New("the client is closed")

// An Error is a refusal.
type Error struct {
	Status  int    // HTTP status
	Code    string // LEASE_HELD, STALE_TOKEN, …
	Message string // what, who, and what next
	Object  json.RawMessage

	foreign bool // a proxy's, which has no code
}

func (e *Error) Error() string { return e.Message }

// CodeOf returns the code of a refusal, or "" if err is not a refusal.
func CodeOf(err error) string {
	if refusal, ok := errors.AsType[*Error](err); ok {
		return refusal.Code
	}
	return ""
}

// errorOf reads a refusal from the body of a response.
func errorOf(status int, body []byte) *Error {
	e := &Error{Status: status, Object: body}
	var p struct{ Code, Detail, Message string }
	if json.Unmarshal(body, &p) != nil || p.Code == "" {
		e.foreign = true
		e.Code, e.Message = "UNAVAILABLE", strings.TrimSuffix(fmt.Sprintf("%d %s: %.200s", status, http.StatusText(status), body), ": ")
		return e
	}
	e.Code, e.Message = p.Code, p.Detail+p.Message
	return e
}

// passing reports whether another try, or another server, may give another
// answer.
func (e *Error) passing() bool {
	return e.Status == http.StatusServiceUnavailable || e.foreign && e.Status >= http.StatusInternalServerError
}

// lost reports whether the refusal says that the lease or claim is not held.
func (e *Error) lost() bool {
	switch e.Code {
	case "LEASE_LOST", "NOT_HOLDER", "STALE_TOKEN", "NOT_FOUND", "FORBIDDEN":
		return true
	}
	return false
}

// unfit reports whether what was sent is the cause, so that no other try helps.
func (e *Error) unfit() bool {
	var limit struct {
		TooLarge bool `json:"too_large"`
	}
	decode(e.Object, &limit)
	return e.Code == "INVALID_ARGUMENT" || e.Status == http.StatusRequestEntityTooLarge || limit.TooLarge
}
