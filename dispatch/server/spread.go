package server

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/server/tools"
	"github.com/leasehold/leasehold/dispatch/server/wire"
	"github.com/leasehold/leasehold/engine/call"
)

// Runs are spread over partitions, and most clients belong to one run. The
// other clients are served where they connect: operators and readers in the
// first partition, which has their tokens, and hooks in the partition of the
// session that they speak for. A call of theirs about a run elsewhere is made
// there, over a [link]. A call about all runs is made everywhere, and the
// answers are merged.

// A spread makes the calls of a home's sessions that concern other partitions.
type spread struct {
	server *Server
	home   *home

	mu       sync.Mutex
	sessions map[uuid.UUID]*linked
	closed   bool
	ending   sync.WaitGroup // for what closes links
}

// linked is a session and its links.
type linked struct {
	se    *dispatch.Session
	stop  func() bool // stops waiting for the session's end
	links map[int]*dialled
	watch *changeWatch
}

// A dialled is a link that exists or is being made.
type dialled struct {
	ready chan struct{}
	*link
	err      error // set before ready is closed
	launches bool  // the session is a launcher there; under spread.mu
}

func (d *dialled) useless() bool {
	select {
	case <-d.ready:
		return d.err != nil || d.lost()
	default:
		return false
	}
}

// errSpreadOver refuses calls of sessions whose home this process no longer
// has.
var errSpreadOver = cutOff("this server does not lead any more")

// ofLocked returns the links of a session, which exist until the session or the
// home ends.
func (sp *spread) ofLocked(se *dispatch.Session) *linked {
	l := sp.sessions[se.ID()]
	if l == nil {
		l = &linked{se: se, links: make(map[int]*dialled)}
		sp.ending.Add(1)
		l.stop = context.AfterFunc(se.Context(), func() {
			defer sp.ending.Done()
			sp.forget(l)
		})
		if sp.sessions == nil {
			sp.sessions = make(map[uuid.UUID]*linked)
		}
		sp.sessions[se.ID()] = l
	}
	return l
}

func (sp *spread) forget(l *linked) {
	sp.mu.Lock()
	delete(sp.sessions, l.se.ID())
	links := l.links
	l.links = nil
	sp.mu.Unlock()
	for _, d := range links {
		if <-d.ready; d.err == nil {
			d.close()
		}
	}
}

// close ends all links and allows no new ones.
func (sp *spread) close() {
	sp.mu.Lock()
	sp.closed = true
	all := sp.sessions
	sp.sessions = nil
	sp.mu.Unlock()
	for _, l := range all {
		if l.stop() {
			sp.forget(l)
			sp.ending.Done()
		}
	}
	sp.ending.Wait()
}

// begin adds work that close waits for, unless the spread is closed.
func (sp *spread) begin() bool {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	if !sp.closed {
		sp.ending.Add(1)
	}
	return !sp.closed
}

// link returns a session's link to a partition, and makes it if necessary. The
// link of a launcher is made once: if it is lost, so is the launcher.
func (sp *spread) link(ctx context.Context, se *dispatch.Session, partition int, launches bool) (*link, error) {
	for {
		sp.mu.Lock()
		if sp.closed || se.Context().Err() != nil {
			sp.mu.Unlock()
			return nil, errSpreadOver
		}
		l := sp.ofLocked(se)
		if l.links == nil {
			sp.mu.Unlock()
			return nil, errSpreadOver // the session has just ended
		}
		d := l.links[partition]
		if d != nil && d.launches && d.useless() {
			sp.mu.Unlock()
			return nil, errLinkLost
		}
		if d == nil || d.useless() {
			d = &dialled{ready: make(chan struct{})}
			l.links[partition] = d
			go func() { // ends with the dialling, for which forget waits
				defer close(d.ready)
				a := se.Actor()
				d.link, d.err = sp.server.dialLink(sp.home.ctx, partition, voucher{a.ID, a.Name, a.Path, a.Role}, se.Peer())
			}()
		}
		d.launches = d.launches || launches
		sp.mu.Unlock()
		select {
		case <-d.ready:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		if d.err != nil || !d.lost() {
			return d.link, d.err
		}
	}
}

// launcherTools are the tools of launchers.
var launcherTools = map[string]bool{
	"operator_run_dispatch": true, "operator_launch_join": true, "operator_launch_leave": true, "operator_launch_next": true, "operator_launch_started": true, "operator_launch_exited": true,
	"operator_run_drain": true, "operator_run_finish": true,
}

// maxSends is how often a call is sent at most, when the partition goes from one
// server to the next.
const maxSends = 3

// call calls a tool in a partition. If the link is lost meanwhile, it sends the
// call again, and the call still has one effect.
func (sp *spread) call(ctx context.Context, se *dispatch.Session, partition int, tool string, args tools.Arguments) tools.Reply {
	name := call.Call{Session: se.ID(), Name: "link " + uuid.NewString(), Print: call.PrintOf(tool, string(args))}
	return sp.callAs(ctx, name, se, partition, tool, args)
}

func (sp *spread) callAs(ctx context.Context, name call.Call, se *dispatch.Session, partition int, tool string, args tools.Arguments) tools.Reply {
	for sends := 1; ; sends++ {
		l, err := sp.link(ctx, se, partition, launcherTools[tool])
		var r tools.Reply
		if err == nil {
			r, err = l.call(ctx, name, tool, args)
		}
		switch {
		case err == nil:
			return r
		case errors.Is(err, errLinkLost) && launcherTools[tool]:
			_ = se.Close(err) // a launcher attaches again, over another connection
		case errors.Is(err, errLinkLost) && sends < maxSends:
			continue
		}
		if said, ok := errors.AsType[*HelloError](err); ok {
			return tools.Refusal{Code: said.Code, Message: said.Message}.Reply()
		}
		return tools.RefusalOf(err).Reply()
	}
}

// everywhere calls a tool in all partitions, and returns the answers in the
// order of the partitions, or the first refusal.
func (sp *spread) everywhere(ctx context.Context, se *dispatch.Session, tool string, args tools.Arguments) (list []tools.Reply, refused *tools.Reply) {
	list = sp.ask(ctx, se, tool, args)
	for i := range list {
		if list[i].IsError {
			return nil, &list[i]
		}
	}
	return list, nil
}

// ask calls a tool in all partitions.
func (sp *spread) ask(ctx context.Context, se *dispatch.Session, tool string, args tools.Arguments) []tools.Reply {
	list := make([]tools.Reply, sp.server.opts.Partitions)
	var calls errgroup.Group
	calls.SetLimit(maxSpread)
	for partition := range list {
		calls.Go(func() error {
			list[partition] = sp.call(ctx, se, partition, tool, args)
			return nil
		})
	}
	_ = calls.Wait() // none returns an error
	return list
}

// partialWait is how long a call that can do without some partitions waits for
// one. Partitions that move are led again within it.
const partialWait = 2 * time.Second

// some calls a tool in all partitions, and merges the answers of those that a
// server leads.
func (sp *spread) some(ctx context.Context, se *dispatch.Session, tool string, args tools.Arguments) tools.Reply {
	ctx, stop := context.WithTimeoutCause(ctx, partialWait, sp.server.noHome())
	defer stop()
	var list []tools.Reply
	var missing []int
	var refused tools.Reply
	for partition, r := range sp.ask(ctx, se, tool, args) {
		switch {
		case !r.IsError:
			list = append(list, r)
		case tools.Unavailable(r):
			missing, refused = append(missing, partition), r
		default:
			return r
		}
	}
	if len(list) == 0 {
		return refused
	}
	return tools.Merge(tool, args, list, missing...)
}

// maxSpread is how many partitions a call asks at once.
const maxSpread = 64

// away returns a function for a call that concerns more than this partition, or
// nil.
func (sp *spread) away(ctx context.Context, se *dispatch.Session, tool string, args tools.Arguments) toolFunc {
	if sp == nil || se.Vouched() {
		return nil
	}
	outside := se.Actor().Run == ""
	run, named := textArgument(args, "run")
	switch tool {
	case "operator_watch":
		return sp.watch
	case "operator_tree":
		if !named || run == "" {
			return sp.all(tool)
		}
	case "hook_present", "hook_tool_use", "hook_party_end", "hook_notices", "hook_sessions", "hook_give_back":
		if outside {
			return sp.all(tool)
		}
	case "hook_command":
		return sp.all(tool)
	case "hook_write", "hook_check", "hook_changed":
		if confined, err := se.Confined(ctx); confined || err != nil {
			return nil
		}
		if tool == "hook_write" {
			return sp.writeAway(se, args)
		}
	}
	if !outside && tool != "hook_check" && tool != "hook_changed" {
		return nil // everything else concerns the client's own run
	}
	if partition := sp.server.partitionOfRun(run); named && partition != sp.home.partition {
		return func(ctx context.Context, se *dispatch.Session, args tools.Arguments) tools.Reply {
			if name := call.Of(ctx); name.Lasting() { // its client may send it again, too
				return sp.callAs(ctx, name, se, partition, tool, args)
			}
			return sp.call(ctx, se, partition, tool, args)
		}
	}
	return nil
}

// all returns a function for a call about all runs.
func (sp *spread) all(tool string) toolFunc {
	if tools.Partial(tool) {
		return func(ctx context.Context, se *dispatch.Session, args tools.Arguments) tools.Reply {
			return sp.some(ctx, se, tool, args)
		}
	}
	return func(ctx context.Context, se *dispatch.Session, args tools.Arguments) tools.Reply {
		list, refused := sp.everywhere(ctx, se, tool, args)
		if refused != nil {
			return *refused
		}
		return tools.Merge(tool, args, list)
	}
}

func textArgument(args tools.Arguments, name string) (text string, ok bool) {
	for n, value := range wire.Members(args) {
		if string(n) == name {
			text, ok = wire.TextOf(value)
		}
	}
	return text, ok
}

// A changeWatch is a session's wait for changes in all partitions at once. It
// continues between the calls of the session, so that no change is missed.
type changeWatch struct {
	news chan struct{} // contains an element when there is a change

	mu      sync.Mutex
	pending []bool // by partition: whether a call waits there
	refused *tools.Reply
}

// watch answers the first call at once, and later calls when anything has
// changed since the last.
func (sp *spread) watch(ctx context.Context, se *dispatch.Session, args tools.Arguments) tools.Reply {
	sp.mu.Lock()
	if sp.closed {
		sp.mu.Unlock()
		return tools.RefusalOf(errSpreadOver).Reply()
	}
	own := sp.ofLocked(se)
	w, first := own.watch, own.watch == nil
	if first {
		w = &changeWatch{news: make(chan struct{}, 1), pending: make([]bool, sp.server.opts.Partitions)}
		own.watch = w
	}
	sp.mu.Unlock()
	if first {
		_, refused := sp.everywhere(ctx, se, "operator_watch", nil) // the partitions know the session from here on
		if refused != nil {
			return *refused
		}
		return tools.Changed(true)
	}
	for partition := range w.pending {
		w.mu.Lock()
		waits := w.pending[partition]
		w.pending[partition] = true
		w.mu.Unlock()
		if !waits && sp.begin() {
			go func() { // ends with the session or the home
				defer sp.ending.Done()
				w.wait(sp, se, partition)
			}()
		}
	}
	limit := time.NewTimer(tools.WaitOf(args))
	defer limit.Stop()
	select {
	case <-w.news:
		w.mu.Lock()
		refused := w.refused
		w.refused = nil
		w.mu.Unlock()
		if refused != nil {
			return *refused
		}
		return tools.Changed(true)
	case <-limit.C:
		return tools.Changed(false)
	case <-ctx.Done():
		return tools.RefusalOf(context.Cause(ctx)).Reply()
	}
}

// wait waits for a change in one partition, for as long as a call may.
func (w *changeWatch) wait(sp *spread, se *dispatch.Session, partition int) {
	ctx, stop := context.WithCancel(sp.home.ctx)
	defer stop()
	defer context.AfterFunc(se.Context(), stop)()
	r := sp.call(ctx, se, partition, "operator_watch", nil)
	var is struct{ Changed bool }
	_ = json.Unmarshal(r.Object, &is)
	w.mu.Lock()
	w.pending[partition] = false
	if r.IsError {
		w.refused = &r
	}
	w.mu.Unlock()
	if r.IsError || is.Changed {
		select {
		case w.news <- struct{}{}:
		default:
		}
	}
}
