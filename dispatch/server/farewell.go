package server

import (
	"context"
	"io"
	"sync"
	"time"

	"github.com/leasehold/leasehold/dispatch/process"
)

// A client may end while its partition moves to another server, when no server has
// a connection of it. The next leader keeps its session, since it cannot see a
// process of another machine. So the server of that machine looks for a while
// whether the process still runs, and tells the leader if it does not.

// farewells are the processes of this machine whose connections ended with the lead
// of a server.
type farewells struct {
	mu      sync.Mutex
	waiting map[farewell]*lookout
	came    chan struct{} // holds one token if there may be a new one
}

type farewell struct {
	partition int
	process.Peer
}

// A lookout says when a process is looked at again. The time between two looks
// doubles: most processes that end do so at once, or live on for long.
type lookout struct {
	wait, left time.Duration
}

const (
	firstLook = time.Second
	lastLook  = time.Minute // the longest time between two looks; after it a process is forgotten
)

// add notes a client whose connection ended. Of a client on another machine, or
// behind another server, nothing can be seen here.
func (f *farewells) add(partition int, peer process.Peer) {
	if peer.PID == 0 || peer.Elsewhere() {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.waiting[farewell{partition, peer}] = &lookout{firstLook, firstLook}
	select {
	case f.came <- struct{}{}:
	default:
	}
}

// due returns the processes to look at after a step of time, and how many there are.
func (f *farewells) due(step time.Duration) (list []farewell, all int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for one, l := range f.waiting {
		if l.left -= step; l.left > 0 {
			continue
		}
		list = append(list, one)
		if l.wait *= 2; l.wait > lastLook {
			delete(f.waiting, one)
		}
		l.left = l.wait
	}
	return list, len(f.waiting)
}

func (f *farewells) done(one farewell) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.waiting, one)
}

// tendFarewells tells leaders of processes that have ended, until ctx ends.
func (s *Server) tendFarewells(ctx context.Context) {
	tick := time.NewTicker(firstLook)
	defer tick.Stop()
	for waiting := 0; ; {
		if waiting == 0 {
			select {
			case <-s.farewells.came:
			case <-ctx.Done():
				return
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		var list []farewell
		list, waiting = s.farewells.due(firstLook)
		for _, one := range list {
			if !one.Alive() && s.tellGone(ctx, one) {
				s.farewells.done(one)
			}
		}
	}
}

// tellGone tells the leader of a partition that a process has ended. It returns
// false if there is no leader at present.
func (s *Server) tellGone(ctx context.Context, one farewell) bool {
	if s.hearGone(one) {
		return true
	}
	if s.opts.Elsewhere == nil {
		return false
	}
	way, _ := s.opts.Elsewhere(one.partition)
	if way == nil {
		return false
	}
	nc, err := way.open(ctx, passage{Gone: true, Peer: one.Peer, Partition: one.partition})
	if err != nil {
		return false
	}
	defer nc.Close()
	_ = nc.SetReadDeadline(time.Now().Add(passageTimeout))
	_, err = io.ReadFull(nc, make([]byte, 1)) // it has heard it
	return err == nil
}

// hearGone takes what tellGone says. It reports whether this server leads the
// partition.
func (s *Server) hearGone(one farewell) bool {
	h, _ := s.homes.look(one.partition)
	if h == nil {
		return false
	}
	defer h.guests.Done()
	h.state.ProcessGone(one.Peer)
	return true
}
