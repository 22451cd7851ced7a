package server

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/leasehold/leasehold/dispatch/server/wire"
	"github.com/leasehold/leasehold/engine/call"
)

// A stream that will carry the answer of a tool call begins with an event that has an id
// and no data. A client whose stream breaks before the answer names this id in a GET, and
// is told that it must call again. Otherwise it would wait for the answer until its own
// limit. What the call took is given back first.
//
// Such a GET does not make the call again, although the id could contain the call. The client
// may have given up the call meanwhile without being able to say so. Then nobody would know of
// what the call is granted.
//
// The answer has an id of its own, and so has the end of a stream whose call was cancelled. So a
// client that resumes a stream that it has read to the end undoes nothing, and gets no answer
// to a call that it has given up.
const (
	lastEventID  = "Last-Event-Id"
	beforeAnswer = "call-"
	afterAnswer  = "answered-"
)

// errStreamBroken is the answer to a call whose stream broke before.
const errStreamBroken = cutOff("the connection was lost before this call was answered: what it took was given back; other changes may have taken effect, so look before you repeat it")

// eventsSince is the first version whose clients expect events without data.
const eventsSince = "2025-11-25"

// maxEventID is the longest request id that is part of an event's id: a proxy limits the
// length of a header.
const maxEventID = 256

// resumable returns what the ids of the events on a call's stream have in common, or "" if
// its client cannot use them.
func resumable(r *http.Request, m *wire.Message, name call.Call) string {
	marked := m.Params.Meta.Call != "" // its client sends it again
	if m.Method != wire.ToolsCall || marked || len(m.ID) > maxEventID || r.Header.Get(mcp.HeaderProtocolVersion) < eventsSince {
		return ""
	}
	return strconv.FormatUint(name.Print, 36) + "-" + base64.RawURLEncoding.EncodeToString(m.ID)
}

// resume answers a GET that names the last event of a stream. It returns false if that was
// no stream of a call.
func (hs *httpSession) resume(w http.ResponseWriter, r *http.Request) bool {
	last := r.Header.Get(lastEventID)
	if strings.HasPrefix(last, afterAnswer) {
		w.WriteHeader(http.StatusNoContent)
		return true
	}
	of, ok := strings.CutPrefix(last, beforeAnswer)
	print, id, _ := strings.Cut(of, "-")
	p, err := strconv.ParseUint(print, 36, 64)
	raw, bad := base64.RawURLEncoding.DecodeString(id)
	m := wire.Message{Method: wire.ToolsCall, ID: raw, Key: wire.Key(raw)}
	if !ok || err != nil || bad != nil || m.Key == "" || !json.Valid(raw) || !hs.presence.begin() {
		return false
	}
	s := hs.endpoint.server
	name := call.Call{Session: hs.se.ID(), Name: m.CallName(), Print: p, Log: hs.se.CallLog()}
	hs.requests.cancelNamed(errClientGone, name.Key())
	s.retell(hs.se)
	s.undone(hs.se, hs.se.Undo(context.WithoutCancel(r.Context()), name))
	stream := newEventStream(w, s.opts.WriteTimeout)
	stream.answer(of, refuseCall(&m, errStreamBroken))
	if stream.err != nil {
		hs.brokeOff(r)
	} else {
		hs.presence.answered()
	}
	return true
}

// reached sends the id of an instant of a call's stream, without an answer.
func (s *eventStream) reached(instant, of string) {
	if of != "" {
		s.write([]byte("id: " + instant + of + "\ndata:\n\n"))
	}
}

// answer sends the answer of a call, which ends its stream.
func (s *eventStream) answer(of string, line []byte) {
	kind := "message"
	if of != "" {
		kind += "\nid: " + afterAnswer + of
	}
	s.named(kind, line)
}
