package server

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/server/api"
	"github.com/leasehold/leasehold/dispatch/server/fair"
	"github.com/leasehold/leasehold/dispatch/server/tools"
	"github.com/leasehold/leasehold/dispatch/server/wire"
	"github.com/leasehold/leasehold/engine/call"
	"github.com/leasehold/leasehold/engine/traceparent"
	"github.com/leasehold/leasehold/registry"
)

// idempotencyKey is the header by which a program names its call.
const idempotencyKey = "Idempotency-Key"

// api serves the API. A call of the API is a call of a tool. It is handled like
// a call over MCP, and differs only in its form.
func (e *endpoint) api() http.Handler {
	mux := http.NewServeMux()
	handle := func(method, path string, serve func(http.ResponseWriter, *http.Request, dispatch.Actor)) {
		mux.Handle(method+" "+api.Prefix+path, e.admitted(serve))
	}
	routes := api.Routes()
	for i := range routes {
		route := &routes[i]
		handle(route.Method, route.Path, func(w http.ResponseWriter, r *http.Request, actor dispatch.Actor) {
			e.apiCall(w, r, actor, route)
		})
	}
	handleStream := func(path string, serve func(http.ResponseWriter, *http.Request, dispatch.Actor)) {
		handle(http.MethodGet, path, serve)
		// GET serves HEAD too, which would not end, and would take the notices.
		mux.HandleFunc(http.MethodHead+" "+api.Prefix+path, func(w http.ResponseWriter, _ *http.Request) {
			e.tell(w, api.NotAllowed(http.MethodGet))
		})
	}
	events := new(api.EventStream())
	handleStream(events.Path, func(w http.ResponseWriter, r *http.Request, actor dispatch.Actor) {
		e.streamEvents(w, r, actor, events)
	})
	handle(http.MethodDelete, "/calls/{key...}", e.cancelCall)
	handle(http.MethodPost, "/sessions", e.openSession)
	handle(http.MethodGet, "/session", e.showSession)
	handle(http.MethodPost, "/session/heartbeat", e.showSession)
	handleStream("/session/notices", e.streamNotices)
	handle(http.MethodDelete, "/session", e.endSession)
	document := sync.OnceValue(func() []byte { return api.Document(e.server.opts.Version) })
	mux.HandleFunc("GET "+api.Prefix+"/openapi.json", func(w http.ResponseWriter, _ *http.Request) {
		e.tell(w, api.Answer{Status: http.StatusOK, Type: "application/json", Body: document()})
	})

	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		refuse, pattern := mux.Handler(r)
		if pattern != "" {
			mux.ServeHTTP(w, r)
			return
		}
		header := make(headerOnly)
		refuse.ServeHTTP(header, r)
		if allowed := http.Header(header).Get("Allow"); allowed != "" {
			e.tell(w, api.NotAllowed(allowed))
			return
		}
		e.tell(w, api.Problem(http.StatusNotFound, "NOT_FOUND", "there is no route "+r.Method+" "+r.URL.Path+"; GET "+api.Prefix+"/openapi.json lists all"))
	})
}

// admitted serves a request of an actor, unless that is refused.
func (e *endpoint) admitted(serve func(http.ResponseWriter, *http.Request, dispatch.Actor)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r, actor, leave, refused := e.admit(r)
		defer leave()
		if refused != nil {
			e.tell(w, refused.answer())
			return
		}
		serve(w, r, actor)
	})
}

// A headerOnly keeps the header of an answer and drops the rest.
type headerOnly http.Header

func (h headerOnly) Header() http.Header       { return http.Header(h) }
func (headerOnly) Write(p []byte) (int, error) { return len(p), nil }
func (headerOnly) WriteHeader(int)             {}

// tell writes an answer that does not come from a call.
func (e *endpoint) tell(w http.ResponseWriter, a api.Answer) {
	_ = writeAnswer(w, a, e.server.opts.WriteTimeout) // a client that does not get it can ask again
}

func writeAnswer(w http.ResponseWriter, a api.Answer, timeout time.Duration) error {
	for name, value := range a.Header {
		w.Header().Set(name, value)
	}
	return writeBody(w, a.Status, a.Type, a.Body, timeout)
}

// An apiForm is the form of one call of the API.
type apiForm struct {
	hs    *httpSession
	call  api.Call
	key   string // the Idempotency-Key
	again bool   // another request had the call, and this one takes it back
	api.Answer
}

func (f *apiForm) reply(_ *wire.Message, r tools.Reply) []byte {
	return f.become(f.orEnded(f.call.Answer(r)))
}

func (f *apiForm) refuse(_ *wire.Message, err error) []byte {
	return f.become(f.orEnded(api.Refuse(err)))
}

// orEnded returns the answer of every call in a session that does not exist, if the call
// was refused because the session ended while it ran. What an actor that has ended is told
// says more.
func (f *apiForm) orEnded(a api.Answer) api.Answer {
	_, told := errors.AsType[*dispatch.EndedError](context.Cause(f.hs.se.Context()))
	refused := a.Status == http.StatusUnauthorized || a.Status == http.StatusServiceUnavailable
	if refused && f.hs.over.Load() && !told {
		return noAPISession
	}
	return a
}

func (f *apiForm) broken(_ *wire.Message, fault string) []byte {
	return f.become(api.Problem(http.StatusInternalServerError, "INTERNAL", fault))
}

// become stores the answer and returns its body. That is never nil, because nil
// would mean that there is no answer.
func (f *apiForm) become(a api.Answer) []byte {
	if a.Body == nil {
		a.Body = []byte{}
	}
	f.Answer = a
	return a.Body
}

func (*apiForm) accepts() (json, stream bool) { return true, false }

func (f *apiForm) write(w http.ResponseWriter, _ []byte, timeout time.Duration) error {
	return writeAnswer(w, f.Answer, timeout)
}

// unanswered answers a call that was cancelled, or that another request has now.
// That request need not be newer: a copy that was broken off may have arrived
// late. So this one takes the call back, unless it has done that already: then
// both have a client, and one of them must send the call again.
func (f *apiForm) unanswered(w http.ResponseWriter, cause error) {
	if cause == errSentAgain && !f.again {
		f.again = true
		return
	}
	a := api.Problem(http.StatusServiceUnavailable, "UNAVAILABLE", "a request with the same "+idempotencyKey+" came while this one ran; send this one again, and it gets the same answer")
	if cause == errCancelled {
		a = api.Problem(http.StatusConflict, "REQUEST_ID_REUSED", "DELETE "+api.Prefix+"/calls/{key} has cancelled this call; make another with an "+idempotencyKey+" of its own")
	}
	_ = writeAnswer(w, a, time.Second)
}

// name names a call by its Idempotency-Key. If a session holds what the call is
// granted, the key belongs to the session. Otherwise it belongs to the actor,
// so that a program that was restarted can ask whether its call was made.
func (f *apiForm) name(c call.Call, se *dispatch.Session, _ *wire.Message) (call.Call, bool) {
	if f.key == "" || !c.Recorded() {
		return c, false
	}
	whose := se.Actor().ID
	if f.call.Route.Holds {
		whose = se.ID()
	}
	return c.Requested(whose, requestOf(f.key), c.Print), true
}

// requestOf returns the request_id of calls with an Idempotency-Key.
func requestOf(key string) string { return "api " + key }

func (f *apiForm) noSession(w http.ResponseWriter, _ *wire.Message, timeout time.Duration) {
	_ = writeAnswer(w, noAPISession, timeout)
}

// apiCall serves a route that calls a tool.
func (e *endpoint) apiCall(w http.ResponseWriter, r *http.Request, actor dispatch.Actor, route *api.Route) {
	key := r.Header.Get(idempotencyKey)
	if len(key) > maxIdempotencyKey {
		e.tell(w, longKey)
		return
	}
	body, status, err := e.readAPIBody(w, r, actor.ID)
	if err != nil {
		e.tell(w, api.Problem(status, codeOf(status), err.Error()))
		return
	}
	asked, err := route.Call(r, body)
	if err != nil {
		e.tell(w, api.Refuse(err))
		return
	}
	hs, refused := e.sessionFor(r, actor, route)
	if refused != nil {
		e.tell(w, *refused)
		return
	}
	if hs.tools[asked.Tool.Name].call == nil {
		e.tell(w, hs.notFor(r))
		return
	}
	arguments := asked.Arguments()
	if len(arguments) > wire.MaxMessage {
		e.tell(w, api.Problem(http.StatusRequestEntityTooLarge, "LIMIT", errTooLong.Error()))
		return
	}
	trace := traceparent.Join(r.Header.Get(traceparent.Header), strings.Join(r.Header.Values(traceparent.StateHeader), ","))
	env := wire.Call(uuid.NewString(), asked.Tool.Name, json.RawMessage(arguments), trace)
	env.Params.Meta.Program = r.Header.Get(apiMessages) == leaveMessages
	if key != "" && !hs.tools[asked.Tool.Name].readOnly {
		// Requests with one key are copies of a call, as those with one mark are in
		// MCP. A different request with the key is none: it is refused.
		env.Key = fmt.Sprintf("%s %x", requestOf(key), env.Print())
		env.Params.Meta.Call = env.Key
	}
	form := &apiForm{hs: hs, call: asked, key: key}
	if hs.call(w, r, env, arguments, form); form.again {
		fair.Sleep(r.Context(), lateCopy)
		hs.call(w, r, env, arguments, form)
	}
	if r.Method == http.MethodHead {
		e.server.retell(hs.se) // the answer has no body
	}
}

// lateCopy is how long a request waits before it takes its call back from another. If
// that one has lost its client, its connection shows it by then, so it does not do the
// same.
const lateCopy = 20 * time.Millisecond

// notFor refuses a route whose tool is not available to the session's role.
func (hs *httpSession) notFor(r *http.Request) api.Answer {
	return api.Problem(http.StatusForbidden, "FORBIDDEN", fmt.Sprintf("forbidden: a token of role %s is not for %s %s", hs.se.Actor().Role, r.Method, r.URL.Path))
}

const maxIdempotencyKey = 256

var longKey = api.Refuse(&registry.ArgumentError{Argument: idempotencyKey, Problem: fmt.Sprintf("must be at most %d bytes", maxIdempotencyKey)})

func codeOf(status int) string {
	if status == http.StatusRequestEntityTooLarge {
		return "LIMIT"
	}
	return "INVALID_ARGUMENT"
}

// readAPIBody is readBody for a request that may have no body.
func (e *endpoint) readAPIBody(w http.ResponseWriter, r *http.Request, actor uuid.UUID) (body []byte, status int, err error) {
	if r.ContentLength == 0 || r.Body == nil {
		return nil, 0, nil
	}
	if media, _, _ := mime.ParseMediaType(cmp.Or(r.Header.Get("Content-Type"), "application/json")); media != "application/json" {
		return nil, http.StatusUnsupportedMediaType, errors.New("Content-Type must be application/json")
	}
	return e.readAll(w, r, actor)
}

// cancelCall cancels the call of an Idempotency-Key. Its program may have closed the
// connection of the call and still not have its answer: what was read from a connection
// need not have reached whoever waited for it.
func (e *endpoint) cancelCall(w http.ResponseWriter, r *http.Request, actor dispatch.Actor) {
	key := r.PathValue("key")
	if len(key) > maxIdempotencyKey {
		e.tell(w, longKey)
		return
	}
	hs, refused := e.sessionFor(r, actor, &api.Route{})
	switch {
	case refused != nil:
		e.tell(w, *refused)
		return
	case !hs.presence.begin():
		e.tell(w, noAPISession)
		return
	}
	ofSession, ofActor := call.Known(hs.se.ID(), requestOf(key)), call.Known(actor.ID, requestOf(key))
	if !hs.requests.cancelNamed(errCancelled, ofSession.Key(), ofActor.Key()) {
		hs.requests.cancelEarly(ofSession.Key())
		hs.requests.cancelEarly(ofActor.Key())
	}
	e.server.retell(hs.se)
	ctx := context.WithoutCancel(r.Context())
	e.server.undone(hs.se, hs.se.Withdraw(ctx, ofSession))
	e.server.undone(hs.se, hs.se.Withdraw(ctx, ofActor))
	w.WriteHeader(http.StatusNoContent)
	hs.presence.answered()
}
