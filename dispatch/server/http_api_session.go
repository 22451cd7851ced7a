package server

import (
	"errors"
	"maps"
	"net/http"

	"github.com/google/uuid"
	"github.com/mark3labs/mcp-go/mcp"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/server/api"
	"github.com/leasehold/leasehold/dispatch/server/wire"
	"github.com/leasehold/leasehold/registry"
)

// apiSession is the header that names the session of a request.
const apiSession = "Leasehold-Session"

// apiMessages is the header with which a program says that no model reads the notices of
// an answer: [leaveMessages].
const apiMessages, leaveMessages = "Leasehold-Messages", "leave"

// noAPISession answers a request whose session does not exist. Its header
// distinguishes it from other NOT_FOUND answers.
var noAPISession = func() api.Answer {
	a := api.Problem(http.StatusNotFound, "NOT_FOUND", "header "+apiSession+" names no session of yours: it has ended; POST "+api.Prefix+"/sessions opens one")
	a.Header = map[string]string{apiSession: "ended"}
	return a
}()

// sessionFor returns the session for a call: the one that it names, or the one
// shared by all calls of its actor that name none. A call that is granted
// something must name one, because two programs with the same token would
// otherwise hold it together.
func (e *endpoint) sessionFor(r *http.Request, actor dispatch.Actor, route *api.Route) (*httpSession, *api.Answer) {
	handle := r.Header.Get(apiSession)
	if handle == "" && route.Holds {
		return nil, new(api.Refuse(&registry.ArgumentError{
			Argument: apiSession, Problem: "must be given: what this grants ends with a session; POST " + api.Prefix + "/sessions opens one, and so does open in the clients for Python and JavaScript",
		}))
	}
	if handle != "" {
		hs, status, err := e.session(r, handle, actor)
		switch {
		case status == http.StatusNotFound:
			return nil, &noAPISession
		case err != nil:
			return nil, new(api.Refuse(err))
		}
		return hs, nil
	}
	hs, err := e.unnamed(r, actor.ID)
	if err != nil {
		return nil, new(api.Refuse(err))
	}
	return hs, nil
}

// unnamed returns the session shared by the calls of an actor that name none.
func (e *endpoint) unnamed(r *http.Request, actor uuid.UUID) (*httpSession, error) {
	e.mu.Lock()
	hs := e.sessions[e.shared[actor]]
	e.mu.Unlock()
	if hs != nil {
		return hs, nil
	}
	hs, err := e.open(r, actor, "")
	if err != nil {
		return nil, err
	}
	hs.client.initialized.Store(true)
	hs.touch()
	e.mu.Lock()
	maps.DeleteFunc(e.shared, func(_ uuid.UUID, handle string) bool { return e.sessions[handle] == nil })
	other := e.sessions[e.shared[actor]]
	if other == nil {
		e.shared[actor] = hs.se.Handle()
	}
	e.mu.Unlock()
	if other != nil { // two first requests came at the same time
		hs.end(errors.New("its client has another"))
		return other, nil
	}
	return hs, nil
}

// A sessionInfo describes a session to a program.
type sessionInfo struct {
	Session   string  `json:"session,omitempty"` // the secret handle, only in the first answer
	SessionID string  `json:"session_id"`
	ActorID   string  `json:"actor_id"`
	Path      string  `json:"path"`
	Run       string  `json:"run"`
	Role      string  `json:"role"`
	IdleSecs  float64 `json:"idle_secs"` // the session ends this long after its last request, unless a stream is open
}

func (hs *httpSession) info() sessionInfo {
	a := hs.se.Actor()
	return sessionInfo{
		SessionID: hs.se.ID().String(), ActorID: a.ID.String(), Path: a.Path, Run: a.Run, Role: string(a.Role),
		IdleSecs: hs.endpoint.server.opts.HTTPIdle.Seconds(),
	}
}

// openSession opens a session for a program.
func (e *endpoint) openSession(w http.ResponseWriter, r *http.Request, actor dispatch.Actor) {
	hs, err := e.open(r, actor.ID, "")
	if err != nil {
		e.tell(w, api.Refuse(err))
		return
	}
	hs.client.initialized.Store(true)
	hs.presence.begin()
	info := hs.info()
	info.Session = hs.se.Handle()
	if writeAnswer(w, api.Made(info), e.server.opts.WriteTimeout) != nil {
		hs.brokeOff(r)
		return
	}
	answered(r, func() {}, func() { hs.presence.lose("", hs.grace(r)) })
	hs.presence.answered()
}

// named returns the session that a request names, or answers with a refusal and
// returns nil.
func (e *endpoint) named(w http.ResponseWriter, r *http.Request, actor dispatch.Actor) *httpSession {
	hs, refused := e.sessionFor(r, actor, &api.Route{Holds: true})
	if refused != nil {
		e.tell(w, *refused)
		return nil
	}
	return hs
}

// showSession describes a session to its program. Like every request, this
// keeps the session alive.
func (e *endpoint) showSession(w http.ResponseWriter, r *http.Request, actor dispatch.Actor) {
	hs := e.named(w, r, actor)
	switch {
	case hs == nil:
	case !hs.presence.begin():
		e.tell(w, noAPISession)
	default:
		e.tell(w, api.Found(hs.info()))
		hs.presence.answered()
	}
}

// endSession ends a session and releases everything that it holds.
func (e *endpoint) endSession(w http.ResponseWriter, r *http.Request, actor dispatch.Actor) {
	if hs := e.named(w, r, actor); hs != nil {
		hs.end(errDeleted)
		w.WriteHeader(http.StatusNoContent)
	}
}

// streamNotices sends a session's notices as they come. The session lasts while
// the stream is open.
func (e *endpoint) streamNotices(w http.ResponseWriter, r *http.Request, actor dispatch.Actor) {
	hs := e.named(w, r, actor)
	if hs == nil {
		return
	}
	refused := e.streamTo(w, r, hs, sendNotice)
	switch {
	case errors.Is(refused, errNoSession):
		e.tell(w, noAPISession)
	case refused != nil:
		e.tell(w, api.Refuse(refused))
	}
}

// sendNotice sends the data of a notice, without its MCP message.
func sendNotice(stream *eventStream, notice mcp.JSONRPCNotification) {
	stream.named("notice", wire.Line(notice.Params.AdditionalFields["data"]))
}
