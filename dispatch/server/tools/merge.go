package tools

import (
	"cmp"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"time"
)

// Partial reports whether the replies to a tool can be merged although some
// partitions have not answered.
func Partial(tool string) bool { return tool == "operator_tree" }

// Merge combines the replies of partitions to a call into one. It is for tools
// that are not about a single run. missing are the partitions that have not
// answered.
func Merge(tool string, args Arguments, replies []Reply, missing ...int) Reply {
	switch tool {
	case "operator_tree":
		return mergeRuns(args, replies, missing)
	case "hook_write":
		g := guarded{Leases: []guardedFile{}, Overruled: []string{}}
		for _, one := range decoded[guarded](replies) {
			g.Actor = cmp.Or(one.Actor, g.Actor)
			g.Leases, g.Overruled = append(g.Leases, one.Leases...), append(g.Overruled, one.Overruled...)
		}
		return merged(g)
	case "hook_notices":
		list := noticeList{Notices: []Notice{}}
		var lines []string
		for _, one := range decoded[noticeList](replies) {
			list.Notices = append(list.Notices, one.Notices...)
			if one.Line != "" {
				lines = append(lines, one.Line)
			}
		}
		list.Line = strings.Join(lines, "; ")
		return merged(list)
	case "hook_command": // every partition has noted the same files
		most := seenFiles{Files: []seenFile{}}
		for _, one := range decoded[seenFiles](replies) {
			if len(one.Files) > len(most.Files) {
				most = one
			}
		}
		return merged(most)
	case "hook_sessions":
		var n ownSessions
		for _, one := range decoded[ownSessions](replies) {
			n.Own += one.Own
		}
		return merged(n)
	default:
		var n hooked
		for _, one := range decoded[hooked](replies) {
			n.Sessions += one.Sessions
		}
		return merged(n)
	}
}

func decoded[T any](replies []Reply) []T {
	list := make([]T, len(replies))
	for i, r := range replies {
		if err := json.Unmarshal(r.Object, &list[i]); err != nil {
			panic("tools: another partition answers otherwise than this one: " + err.Error())
		}
	}
	return list
}

func merged[R answer](a R) Reply {
	return newReply(mustJSON(a), a.Text(), toldBy(reflect.TypeFor[R]()), nil)
}

// mergeRuns merges lists of runs by name. Each run is in one list only. Runs that
// do not fit on the page are dropped. The next call asks for them again, because
// every list then begins after the last actor of this page.
func mergeRuns(args Arguments, replies []Reply, missing []int) Reply {
	limit := maxTree
	var given struct {
		Limit  *int
		Actors *bool
	}
	if json.Unmarshal(args, &given) == nil && given.Limit != nil {
		limit = *given.Limit
	}
	alone := given.Actors != nil && !*given.Actors
	all := runList{Runs: []run{}, Missing: missing}
	more := false
	through := "" // a list may be incomplete after this run
	for _, one := range decoded[runList](replies) {
		all.Runs = append(all.Runs, one.Runs...)
		all.Ended += one.Ended
		if one.Next == "" {
			continue
		}
		last, _, _ := strings.Cut(one.Next, "/")
		if !more || last < through {
			through = last
		}
		more = true
	}
	slices.SortStableFunc(all.Runs, func(a, b run) int { return strings.Compare(a.Run, b.Run) })
	if more {
		all.Runs = slices.DeleteFunc(all.Runs, func(r run) bool { return r.Run > through })
	}
	if alone {
		if len(all.Runs) > limit {
			all.Runs, more = all.Runs[:limit], true
		}
		if more {
			all.Next = all.Runs[len(all.Runs)-1].Run
		}
		return merged(all)
	}
	for i := range all.Runs {
		r := &all.Runs[i]
		if len(r.Actors) > limit {
			r.Actors, more = r.Actors[:limit], true
		}
		limit -= len(r.Actors)
		if limit == 0 && i+1 < len(all.Runs) {
			all.Runs, more = all.Runs[:i+1], true
			break
		}
	}
	if more && len(all.Runs) > 0 {
		last := all.Runs[len(all.Runs)-1]
		all.Next = last.Run + "/" + last.Actors[len(last.Actors)-1].Path
	}
	return merged(all)
}

// Changed is the reply of operator_watch.
func Changed(is bool) Reply { return merged(changed{is}) }

// WaitOf returns how long a call may wait: wait_secs, or 50 seconds by default
// and at most.
func WaitOf(args Arguments) time.Duration {
	wait := seconds(50)
	var given struct {
		Wait *seconds `json:"wait_secs"`
	}
	if json.Unmarshal(args, &given) == nil && given.Wait != nil {
		wait = max(0, min(wait, *given.Wait))
	}
	return wait.duration()
}

// NewlyGuarded returns the keys of the leases in a reply of hook_write that were
// not held before the call.
func NewlyGuarded(r Reply) (keys []string) {
	keys = []string{}
	var g guarded
	_ = json.Unmarshal(r.Object, &g) // never fails: this program wrote it
	for _, l := range g.Leases {
		if !l.Reentrant {
			keys = append(keys, l.Key)
		}
	}
	return keys
}

// OwnSessions returns the number of sessions in a reply of hook_sessions.
func OwnSessions(r Reply) int {
	var n ownSessions
	_ = json.Unmarshal(r.Object, &n) // never fails: this program wrote it
	return n.Own
}
