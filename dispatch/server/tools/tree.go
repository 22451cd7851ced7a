package tools

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/leasehold/leasehold/dispatch"
)

// treeTools are the tools about the tree.
func treeTools() []Tool {
	return []Tool{
		tool("actor_list", "See who works with you",
			"The actors you work with: as a lead your whole sub-tree, as a worker your layer. Shows what each holds and waits for.",
			Effect{ReadOnly: true, Idempotent: true}, listActors),
	}
}

type actorList struct {
	Actors []actor `json:"actors" jsonschema:"each lead before its layer"`
}

type actor struct {
	ActorID   string     `json:"actor_id"`
	Name      string     `json:"name"`
	Role      string     `json:"role"`
	Path      string     `json:"path"`
	State     string     `json:"state" jsonschema:"connected, away (its session can be resumed), idle (no session) or ended"`
	Sessions  int        `json:"sessions"`
	Leases    int        `json:"leases" jsonschema:"held"`
	Waiting   int        `json:"waiting" jsonschema:"for how many leases"`
	CreatedAt time.Time  `json:"created_at"`
	EndedAt   *time.Time `json:"ended_at,omitempty"`
	EndCause  string     `json:"end_cause,omitempty"`
	You       bool       `json:"you,omitempty"`
}

func actorOf(a dispatch.ActorInfo) actor {
	out := actor{
		ActorID: a.ID.String(), Name: a.Name, Role: string(a.Role), Path: a.Path, State: "idle",
		Sessions: a.Sessions, Leases: a.Leases, Waiting: a.Waiting, CreatedAt: a.CreatedAt.UTC(),
	}
	switch {
	case a.Ended():
		at := a.EndedAt.UTC()
		out.State, out.EndedAt, out.EndCause = "ended", &at, a.EndCause
	case a.Connected:
		out.State = "connected"
	case a.Sessions > 0:
		out.State = "away"
	}
	return out
}

func (l actorList) Text() string {
	var texts []string
	for _, a := range l.Actors {
		texts = append(texts, fmt.Sprintf("%s (%s, %s)", a.Path, a.Role, a.State))
	}
	return strings.Join(texts, ", ")
}

func listActors(ctx context.Context, se *dispatch.Session, _ struct{}) (actorList, error) {
	infos, err := se.Actors(ctx)
	if err != nil {
		return actorList{}, err
	}
	list := actorList{Actors: []actor{}}
	for _, info := range infos {
		a := actorOf(info)
		a.You = info.ID == se.Actor().ID
		list.Actors = append(list.Actors, a)
	}
	return list, nil
}
