package server

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/server/api"
	"github.com/leasehold/leasehold/dispatch/server/tools"
	"github.com/leasehold/leasehold/dispatch/server/wire"
	"github.com/leasehold/leasehold/registry"
)

// streamEvents sends the events of a run as they happen. Each has its revision
// as its id, so a client that reconnects with the last id misses none. Faults
// of the request are answered before the stream begins.
func (e *endpoint) streamEvents(w http.ResponseWriter, r *http.Request, actor dispatch.Actor, route *api.Route) {
	hs, refused := e.sessionFor(r, actor, route)
	if refused != nil {
		e.tell(w, *refused)
		return
	}
	if hs.tools[route.Tool.Name].call == nil {
		e.tell(w, hs.notFor(r))
		return
	}
	asked, err := route.Call(r, nil)
	if last := r.Header.Get("Last-Event-ID"); err == nil && last != "" {
		revision, wrong := strconv.ParseUint(last, 10, 64)
		if wrong != nil {
			err = &registry.ArgumentError{Argument: "Last-Event-ID", Problem: "must be the id of an event"}
		}
		asked.Given["since"] = strconv.AppendUint(nil, revision, 10)
	}
	if err == nil && !hs.addStream() {
		err = &registry.LimitError{Which: "streams of one session", Max: maxStreams}
	}
	if err != nil {
		e.tell(w, api.Refuse(err))
		return
	}
	defer hs.dropStream()
	// A stream is a call that waits: one event wakes all of them.
	if err := hs.share.Begin(0, true); err != nil {
		e.tell(w, api.Refuse(err))
		return
	}
	defer hs.share.Done(0, true)
	if !hs.presence.begin() {
		e.tell(w, noAPISession)
		return
	}
	defer hs.presence.answered()

	ctx, cut := hs.during(r.Context())
	defer cut()
	asked.Given["wait_secs"] = json.RawMessage("0") // answer at once with what exists, or with a refusal
	text, next, page := hs.readEvents(ctx, route.Tool.Name, asked.Arguments())
	if page.IsError {
		e.tell(w, asked.Answer(page))
		return
	}
	stream := newEventStream(w, e.server.opts.WriteTimeout)
	defer stream.close()
	asked.Given["wait_secs"] = json.RawMessage(strconv.FormatFloat(e.server.opts.HTTPKeepAlive.Seconds(), 'f', -1, 64))
	for !page.IsError && stream.err == nil {
		if _, err := e.authenticate(r); err != nil {
			return // its token is no longer valid
		}
		stream.write(text)
		asked.Given["since"] = next
		text, next, page = hs.readEvents(ctx, route.Tool.Name, asked.Arguments())
	}
	if page.IsError && ctx.Err() == nil {
		stream.named("error", page.Object)
	}
}

// readEvents calls the tool for a page of events. It returns the page as the
// text of a stream, and where the next one begins. It does so in the actor's
// turn, because a page is as much work to encode as to read.
func (hs *httpSession) readEvents(ctx context.Context, tool string, args tools.Arguments) (text []byte, next json.RawMessage, page tools.Reply) {
	away := hs.spread.away(ctx, hs.se, tool, args)
	if away != nil { // it is read in a turn there
		page = away(ctx, hs.se, args)
	}
	ctx, turn, err := hs.share.Turn(ctx, false)
	if err != nil {
		return nil, nil, tools.RefusalOf(err).Reply()
	}
	defer turn.GiveBack()
	if away == nil {
		page = hs.tools[tool].call(ctx, hs.se, args)
	}
	if !page.IsError {
		text, next = eventText(page)
	}
	return text, next, page
}

// eventText returns a page of events as the text of a stream, and where the next
// page begins.
func eventText(page tools.Reply) (text []byte, next json.RawMessage) {
	text = make([]byte, 0, len(page.Object)*5/4)
	for name, value := range wire.Members(page.Object) {
		switch string(name) {
		case "next":
			next = value
		case "events":
			for event := range wire.Elements(value) {
				text = appendEvent(text, event)
			}
		}
	}
	if len(text) == 0 {
		return []byte(silence), next
	}
	return text, next
}

func appendEvent(text []byte, event json.RawMessage) []byte {
	var revision, kind []byte
	for name, value := range wire.Members(event) {
		switch string(name) {
		case "revision":
			revision = value
		case "event":
			kind = bytes.Trim(value, `"`)
		}
	}
	return fmt.Appendf(text, "id: %s\nevent: %s\ndata: %s\n\n", revision, kind, event)
}
