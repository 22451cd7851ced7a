package server

import (
	"context"
	"encoding/json"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/server/tools"
)

// A fileWrite is the part of a hook_write for one run.
type fileWrite struct {
	Run  string   `json:"run"`
	Home bool     `json:"home,omitempty"`
	Keys []string `json:"keys"`
}

// writeAway returns a function for a write to files of runs that are not all in
// this partition. It returns nil if they are, or if the arguments are invalid.
func (sp *spread) writeAway(se *dispatch.Session, args tools.Arguments) toolFunc {
	var given struct{ Writes []fileWrite }
	if json.Unmarshal(args, &given) != nil {
		return nil // the call is refused here
	}
	outside := se.Actor().Run == ""
	for _, w := range given.Writes {
		if outside || !w.Home && sp.server.partitionOfRun(w.Run) != sp.home.partition {
			return sp.write
		}
	}
	return nil
}

// write takes the leases of files in several partitions, one after the other.
// If one partition refuses, the leases taken in the others are released.
func (sp *spread) write(ctx context.Context, se *dispatch.Session, args tools.Arguments) tools.Reply {
	var given map[string]json.RawMessage
	var writes []fileWrite
	if json.Unmarshal(args, &given) != nil || json.Unmarshal(given["writes"], &writes) != nil || len(writes) == 0 {
		return sp.call(ctx, se, sp.home.partition, "hook_write", args) // it refuses the arguments
	}
	type part struct {
		partition int
		writes    []fileWrite
		reply     tools.Reply
	}
	var parts []*part
	for _, w := range writes {
		at, refused := sp.writesAt(ctx, se, w, given)
		if refused != nil {
			return *refused
		}
		if last := len(parts) - 1; last >= 0 && parts[last].partition == at {
			parts[last].writes = append(parts[last].writes, w)
			continue
		}
		parts = append(parts, &part{partition: at, writes: []fileWrite{w}})
	}
	var replies []tools.Reply
	for i, p := range parts {
		given["writes"] = mustJSON(p.writes)
		p.reply = sp.call(ctx, se, p.partition, "hook_write", tools.Arguments(mustJSON(given)))
		if !p.reply.IsError {
			replies = append(replies, p.reply)
			continue
		}
		for _, before := range parts[:i] {
			back := some(given, "pid", "mark", "party")
			back["keys"] = mustJSON(tools.NewlyGuarded(before.reply))
			if r := sp.call(context.WithoutCancel(ctx), se, before.partition, "hook_give_back", tools.Arguments(mustJSON(back))); r.IsError {
				return r
			}
		}
		return p.reply
	}
	return tools.Merge("hook_write", args, replies)
}

// writesAt returns the partition in which a write counts: that of the actor's
// own session; for the client's own project that of its session, wherever it
// is; otherwise that of the run.
func (sp *spread) writesAt(ctx context.Context, se *dispatch.Session, w fileWrite, given map[string]json.RawMessage) (partition int, refused *tools.Reply) {
	at := sp.server.partitionOfRun(w.Run)
	client := some(given, "pid", "mark")
	switch {
	case w.Home && se.Actor().Run != "":
		return sp.home.partition, nil
	case !w.Home || len(client) == 0:
		return at, nil
	}
	whose := tools.Arguments(mustJSON(client))
	if r := sp.call(ctx, se, at, "hook_sessions", whose); r.IsError || tools.OwnSessions(r) > 0 {
		return at, nil // a refusal comes again there
	}
	list, refused := sp.everywhere(ctx, se, "hook_sessions", whose)
	for i, r := range list {
		if tools.OwnSessions(r) > 0 {
			return i, nil
		}
	}
	return at, refused
}

// some returns those arguments of a call that have one of the names.
func some(given map[string]json.RawMessage, names ...string) map[string]json.RawMessage {
	found := make(map[string]json.RawMessage)
	for _, name := range names {
		if given[name] != nil {
			found[name] = given[name]
		}
	}
	return found
}

func mustJSON(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic("server: what it passes on is plain data: " + err.Error())
	}
	return b
}
