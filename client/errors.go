package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
)

// Why the context of a lease or a task ends; see [context.Cause].
var (
	// ErrLost: what was held is not held any more. The error says why; the next two are
	// kinds of it.
	ErrLost = errors.New("lost")
	// ErrDeadline: it could not be renewed in time, so nobody knows.
	ErrDeadline = fmt.Errorf("%w: it could not be renewed before its local deadline", ErrLost)
	// ErrSession: the session ended that held it.
	ErrSession = fmt.Errorf("%w: the session has ended", ErrLost)

	// ErrReleased: its holder gave it back.
	ErrReleased = errors.New("released")
	// ErrDraining: the worker ends, and did not wait for the handler any longer.
	ErrDraining = errors.New("the worker drains")
)

// ErrClosed answers calls of a [Client] that was closed.
var ErrClosed = errors.New("the client is closed")

// An Error is a refusal.
type Error struct {
	Status  int    // of HTTP
	Code    string // LEASE_HELD, STALE_TOKEN, …
	Message string // what, who, and what next
	Object  json.RawMessage
}

func (e *Error) Error() string { return e.Message }

// CodeOf is the code of a refusal; "" if err is none.
func CodeOf(err error) string {
	if refusal, ok := errors.AsType[*Error](err); ok {
		return refusal.Code
	}
	return ""
}

// errorOf reads a problem.
func errorOf(status int, body []byte) *Error {
	e := &Error{Status: status, Object: body}
	var p struct{ Code, Detail, Message string }
	if json.Unmarshal(body, &p) != nil || p.Code == "" {
		e.Code, e.Message = "UNAVAILABLE", fmt.Sprintf("%d %s: %.200s", status, http.StatusText(status), body)
		return e
	}
	e.Code, e.Message = p.Code, p.Detail+p.Message
	return e
}

// passing reports whether a refusal may be another at the next try or server.
func (e *Error) passing() bool {
	switch e.Status {
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

// lost reports whether a refusal says that what is to be kept is not held.
func (e *Error) lost() bool {
	switch e.Code {
	case "LEASE_LOST", "NOT_HOLDER", "STALE_TOKEN", "NOT_FOUND", "FORBIDDEN":
		return true
	}
	return false
}
