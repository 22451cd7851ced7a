package tools

import (
	"context"
	"fmt"
	"strings"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/engine/event"
	"github.com/leasehold/leasehold/kvstore"
	"github.com/leasehold/leasehold/registry"
)

type showEventsArgs struct {
	runArg
	Since uint64  `json:"since,omitempty" doc:"only those with a greater revision; default: all that are kept" min:"0"`
	Back  uint64  `json:"back,omitempty" doc:"without since: begin so many revisions before the last, which counts all runs" min:"0"`
	Wait  seconds `json:"wait_secs,omitempty" doc:"for an event, if there is none yet" min:"0" max:"50" default:"0"`
	Limit int     `json:"limit,omitempty" doc:"how many at most" min:"1" max:"500" default:"500"`
	Key   string  `json:"key,omitempty" doc:"only of this lease or task" max:"512"`
	Scope string  `json:"scope,omitempty" doc:"with a key: whose lease it is" enum:"layer|run|all" default:"\"all\""`
	Layer string  `json:"layer,omitempty" doc:"with scope layer: path of its lead" max:"512" default:"\"root\""`
	Actor string  `json:"actor,omitempty" doc:"only by or about the actor at this path" max:"512"`
}

// An Event is an event as users see it.
type Event struct {
	Revision uint64 `json:"revision"`
	At       stamp  `json:"at"`
	Event    string `json:"event" jsonschema:"what happened: lease_granted, task_claimed, …"`
	Scope    string `json:"scope,omitempty" jsonschema:"of a lease: run or layer"`
	Layer    string `json:"layer,omitempty" jsonschema:"path of the lead of the lease's layer"`
	Key      string `json:"key,omitempty" jsonschema:"of a lease"`
	Queue    string `json:"queue,omitempty" jsonschema:"of a task"`
	TaskID   string `json:"task_id,omitempty"`
	Session  string `json:"session_id,omitempty"`
	Message  string `json:"message_id,omitempty"`
	Token    uint64 `json:"token,omitempty" jsonschema:"of the lease or claim"`
	Mode     string `json:"mode,omitempty" jsonschema:"shared; absent: exclusive"`
	ActorID  string `json:"actor_id,omitempty"`
	Path     string `json:"path,omitempty" jsonschema:"of the actor"`
	As       string `json:"as,omitempty" jsonschema:"which of its sub-agents"`
	By       string `json:"by,omitempty" jsonschema:"path of another actor: who holds the key, is offered it, ended the actor, or is written to"`
	Cause    string `json:"cause,omitempty"`
	Reason   string `json:"reason,omitempty" jsonschema:"that the holder gave"`
	Text     string `json:"text" jsonschema:"all of it, in a line"`
}

type eventList struct {
	Next   uint64  `json:"next" jsonschema:"since of the next call"`
	More   bool    `json:"more,omitempty" jsonschema:"there may be more already"`
	Events []Event `json:"events"`
}

func (l eventList) Text() string { return fmt.Sprintf("%d events", len(l.Events)) }

func (o *operator) showEvents(ctx context.Context, se *dispatch.Session, a showEventsArgs) (eventList, error) {
	if err := (scoped{Scope: a.Scope}).layerOnly(a.Layer); err != nil {
		return eventList{}, err
	}
	if a.Scope != "all" && a.Key == "" {
		return eventList{}, &registry.ArgumentError{Argument: "scope", Problem: "must be left out without a key"}
	}
	ctx, stop := se.Within(ctx)
	defer stop()
	q := dispatch.EventQuery{Since: a.Since, Back: a.Back, Wait: a.Wait.duration(), Limit: a.Limit, Key: a.Key, Actor: a.Actor}
	if a.Key != "" && a.Scope != "all" {
		q.Scope, q.Layer = dispatch.Scope(a.Scope), a.Layer
	}
	if q.Scope == dispatch.LayerScope {
		q.Key = strings.TrimPrefix(a.Key, "/"+kvstore.Leases+"/")
	}
	page, err := o.state.RunEvents(ctx, a.Run, q)
	return eventsOf(page), err
}

func eventsOf(page dispatch.EventPage) eventList {
	list := eventList{Events: make([]Event, 0, len(page.Events)), Next: page.Next, More: page.More}
	for i := range page.Events {
		list.Events = append(list.Events, eventOf(&page.Events[i]))
	}
	return list
}

func eventOf(e *event.Event) Event {
	shown := Event{
		Revision: e.Revision, At: stampOf(e.At), Event: e.Kind.String(), Layer: e.Layer, Queue: e.Queue, Token: e.Token,
		Path: e.Path, As: e.Party, By: e.By, Cause: e.Cause, Reason: e.Reason, Text: textOf(e),
	}
	if e.Actor != uuid.Nil {
		shown.ActorID = e.Actor.String()
	}
	if e.Shared {
		shown.Mode = "shared"
	}
	switch {
	case e.Kind == event.SessionBegan, e.Kind == event.SessionEnded:
		shown.Session = e.Key
	case e.Kind == event.MessageSent, e.Kind == event.MessageRecalled:
		shown.Message = e.Key
	case e.Queue != "":
		shown.TaskID = e.Key
	case e.Key != "":
		shown.Key, shown.Scope = e.Key, string(dispatch.RunScope)
		if e.Layer != "" {
			shown.Scope = string(dispatch.LayerScope)
		}
	}
	return shown
}

// textOf describes an event in one line.
func textOf(e *event.Event) string {
	who := event.Who(e.Path, e.Party)
	what := fmt.Sprintf("run lease %q", e.Key)
	switch {
	case e.Queue != "":
		what = fmt.Sprintf("task %s of queue %s", e.Key, e.Queue)
	case e.Layer != "":
		what = fmt.Sprintf("layer lease %q", e.Key)
	}
	token := fmt.Sprintf(", token %d", e.Token)
	text := ""
	switch e.Kind {
	case event.LeaseGranted:
		text = who + " holds " + what + token
	case event.LeaseHandedOver:
		text = who + " holds " + what + token + ", after a wait"
	case event.LeaseWaiting:
		text = who + " waits for " + what + ", held by " + e.By
	case event.LeaseWaitEnded:
		text = who + " no longer waits for " + what
	case event.LeaseAdopted:
		text = who + " goes on with " + what + token
	case event.LeaseReleased:
		text = who + " no longer holds " + what
	case event.LeaseExpired:
		text = what + " of " + who + " expired"
	case event.LeaseRevived:
		text = who + " holds " + what + token + ", renewed after it had expired"
	case event.LeaseRevoked:
		text = what + " of " + who + " was revoked"
	case event.LeaseOffered:
		if text = who + " offers " + what + " to " + e.By; e.By == "" {
			text = who + " no longer offers " + what
		}
	case event.WriteRefused:
		if text = "a write of " + who + " that needs " + what + token + " was refused"; e.By != "" {
			text += ", as " + e.By + " holds it now"
		}
	case event.WriteOverruled:
		text = who + " writes to what " + what + " is for, which " + e.By + " holds"
	case event.FileChanged:
		text = "while a shell command of " + who + " ran, that changed what " + what + " is for, which " + e.By + " holds"
	case event.Deadlock:
		text = who + " was refused a wait, as it would never end"
	case event.MessageSent:
		text = who + " wrote to " + e.By
	case event.MessageRecalled:
		text = who + " took back what it had written to " + e.By
	case event.SessionBegan:
		text = "a session of " + who + " began"
	case event.SessionEnded:
		text = "a session of " + who + " ended"
	case event.ActorBegan:
		text = "actor " + who + " began"
	case event.ActorEnded:
		if text = "actor " + who + " ended"; e.By != "" {
			text += ", by " + e.By
		}
	case event.TaskClaimed:
		text = who + " claimed " + what + token
	case event.QueuePaused:
		text = who + " paused queue " + e.Queue
	case event.QueueResumed:
		text = who + " resumed queue " + e.Queue
	case event.TaskReturned:
		text = what + " is to be tried again"
	default:
		text = what + " is " + strings.TrimPrefix(e.Kind.String(), "task_")
	}
	if e.Cause != "" && e.Cause != "released" && e.Cause != "expired" {
		text += " (" + e.Cause + ")"
	}
	if e.Reason != "" {
		text += fmt.Sprintf("; reason: %q", e.Reason)
	}
	return text
}
