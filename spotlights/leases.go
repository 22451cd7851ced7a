package spotlights

import (
	"fmt"
	"strings"
	"time"
)

var strictTree = Story{
	Name:    "strict-tree",
	Title:   "Each sub-tree has its own leases",
	Promise: "a layer's lease serialises that sub-tree and no other",
	tell: func(st *stage) {
		root := st.root()
		s1, s2 := root.sublead("S1"), root.sublead("S2")
		one, two, other := s1.worker("W1").connect(), s1.worker("W2").connect(), s2.worker("W1").connect()

		st.say("S1→W1 takes the lease %q in its layer.", "output-file")
		one.acquire(layerTool, "output-file")
		st.say("S2→W1 takes a lease of the same name. That is a different lease, because S2→W1 is in another layer.")
		other.acquire(layerTool, "/leases/output-file")
		st.say("S1→W2 is in the same layer as S1→W1, so it is refused.")
		refusal := two.refused("LEASE_HELD", layerTool, "output-file")
		st.show("S1→W2", refusal.Message)
		st.want(strings.HasPrefix(refusal.Message, fmt.Sprintf("lease %q held by actor %s (S1→W1), expires in ", "output-file", one.id)),
			"the refusal does not say who holds it where: %s", refusal.Message)
	},
}

var runContention = Story{
	Name:    "run-contention",
	Title:   "Two sub-trees, one file",
	Promise: "a run's lease serialises the whole tree; a refused agent is told who holds it, and the next in line gets it when it is released",
	tell: func(st *stage) {
		root := st.root()
		s1, s2 := root.sublead("S1").connect(), root.sublead("S2").connect()

		st.say("S1 takes the run's lease %q.", "output.json")
		held := s1.acquire(runTool, "output.json", "ttl_secs", 30)
		st.show("S1", withoutID(held))
		st.say("S2 asks for it too, and is told who holds it.")
		st.show("S2", s2.refused("LEASE_HELD", runTool, "output.json").Message)
		st.say("S2 asks again, and this time waits in line.")
		got := s2.wait(runTool, "output.json")
		st.stillWaits("S2", got)
		st.say("S1 releases it, and S2 gets it at once.")
		released := time.Now()
		s1.release(held)
		mine := st.granted("S2", got)
		st.show("S2", withoutID(mine.lease))
		st.say("    %v from release to grant", mine.at.Sub(released).Round(time.Microsecond))
		st.want(mine.Token > held.Token, "token %d after %d", mine.Token, held.Token)
	},
}

var crashedHolder = Story{
	Name:    "crashed-holder",
	Title:   "A worker dies holding locks",
	Promise: "when an agent dies, all its leases are released at once, in every scope, and it is never granted what it waited for",
	tell: func(st *stage) {
		root := st.root()
		s1 := root.sublead("S1")
		dying, peer, lead, other := s1.worker("W1").connect(), s1.worker("W2").connect(), s1.connect(), root.sublead("S2").connect()

		st.say("S1→W1 holds %q in its layer and %q across the run, for an hour each.", "chunk", "port 3000")
		dying.acquire(layerTool, "chunk", "ttl_secs", 3600)
		dying.acquire(runTool, "port 3000", "ttl_secs", 3600)
		st.say("It also waits for %q, which S1 holds.", "deploy")
		deploy := lead.acquire(runTool, "deploy")
		ghost := dying.wait(runTool, "deploy")
		chunk, port := peer.wait(layerTool, "chunk"), other.wait(runTool, "port 3000")

		st.say("S1→W1 dies.")
		died := time.Now()
		dying.crash()
		st.say("    S1→W2 has %q after %v", "chunk", st.granted("S1→W2", chunk).at.Sub(died).Round(time.Microsecond))
		st.say("    S2 has %q after %v", "port 3000", st.granted("S2", port).at.Sub(died).Round(time.Microsecond))
		st.say("S1 releases %q. The dead worker is not granted it.", "deploy")
		lead.release(deploy)
		st.want((<-ghost).err != nil, "the dead worker was answered")
		peer.acquire(runTool, "deploy")
	},
}

var fifoHandOver = Story{
	Name:    "fifo-hand-over",
	Title:   "Twenty in line",
	Promise: "waiters get a lease in the order in which they asked, and nobody overtakes",
	tell: func(st *stage) {
		root := st.root()
		const n = 20
		holder := root.connect()
		held := holder.acquire(runTool, "gpu")
		var line []*agent
		var got []<-chan answer
		for i := range n {
			g := root.worker(fmt.Sprintf("W%02d", i+1)).connect()
			line, got = append(line, g), append(got, g.wait(runTool, "gpu"))
		}
		st.say("%d workers wait in line for %q.", n, "gpu")
		start := time.Now()
		for i, g := range line {
			holder.release(held)
			a := st.granted(g.path, got[i])
			for j := i + 1; j < n; j++ {
				st.stillWaits(line[j].path, got[j])
			}
			st.want(a.Token > held.Token, "token %d after %d", a.Token, held.Token)
			holder, held = g, a.lease
		}
		st.say("    all of them got it, in order, in %v", time.Since(start).Round(time.Microsecond))
	},
}

var twoSessions = Story{
	Name:    "two-sessions",
	Title:   "One actor, two sessions",
	Promise: "a lease belongs to the session that took it; another session of the same actor can adopt it, if it knows the lease_id",
	tell: func(st *stage) {
		w := st.root().worker("W1")
		one, two := w.connect(), w.connect()
		st.say("W1 is connected twice. The first session takes %q.", "report")
		l := one.acquire(runTool, "report")
		st.say("The second session asks for it, and is refused: it is the same actor, but another party.")
		st.show("W1 (second)", two.refused("LEASE_HELD", runTool, "report").Message)
		st.say("The second session renews the lease with its lease_id, and so adopts it. It gets a new token.")
		_, err := two.Call(st.ctx, "lease_renew", map[string]any{"lease_id": l.ID})
		st.must(err)
		st.say("The first session ends. Its late clean-up does not touch the lease.")
		one.crash()
		again := two.acquire(runTool, "report")
		st.want(again.Reentrant && again.Token > l.Token, "the lease was lost with the old session, or kept its token: %+v", again)
		st.show("W1 (second)", withoutID(again))
	},
}

var daemonRestart = Story{
	Name:    "daemon-restart",
	Title:   "The daemon is killed",
	Promise: "what was acknowledged survives kill -9 of the daemon; leases keep their holder for a full TTL, and tokens rise",
	tell: func(st *stage) {
		root := st.root()
		a, b := root.worker("W1").connect(), root.worker("W2").connect()
		st.say("W1 takes %q for 20 s, W2 takes %q.", "database", "cache")
		l := a.acquire(runTool, "database", "ttl_secs", 20)
		gone := b.acquire(runTool, "cache", "ttl_secs", 2)
		st.say("The daemon is killed and started again.")
		st.must(st.daemon.Restart(st.ctx))
		st.operator = nil
		a.resume()
		_, err := a.Call(st.ctx, "lease_renew", map[string]any{"lease_id": l.ID})
		st.must(err)
		st.say("W1 is back, with the same session and the same lease.")
		again := a.acquire(runTool, "database")
		st.want(again.Reentrant && again.Token == l.Token, "another lease after the restart: %+v", again)
		st.show("W1", withoutID(again))
		st.say("W2 never comes back. Its lease is kept for its TTL. Then W1 gets it.")
		st.show("W1", a.refused("LEASE_HELD", runTool, "cache").Message)
		mine := a.acquire(runTool, "cache", "wait_secs", 10)
		st.want(mine.Token > gone.Token && mine.Token > l.Token, "token %d after %d", mine.Token, gone.Token)
		st.show("W1", withoutID(mine))
	},
}

var expiry = Story{
	Name:    "expiry",
	Title:   "The second safety net",
	Promise: "a holder that is connected but has gone quiet loses its lease at its TTL, and is told so in its next answer",
	tell: func(st *stage) {
		root := st.root()
		quiet, next := root.worker("W1").connect(), root.worker("W2").connect()
		st.say("W1 takes %q for 2 s, and goes quiet.", "index")
		l := quiet.acquire(runTool, "index", "ttl_secs", 2)
		mine := next.acquire(runTool, "index", "wait_secs", 10)
		st.say("W2 has waited, and gets it when the TTL is over.")
		st.show("W2", withoutID(mine))
		kept := mine.AcquiredAt.Sub(l.AcquiredAt)
		st.want(kept >= 2*time.Second, "taken away after %v, within its ttl", kept)
		st.say("W1 wakes up. The next reply that it gets, from any tool, says what happened.")
		answer, err := quiet.Call(st.ctx, "lease_list", nil)
		st.must(err)
		st.show("W1", answer.Text)
		st.want(strings.Contains(answer.Text, `you lost lease "index" (expired), now held by W2`), "the loss was not told: %s", answer.Text)
	},
}

// withoutID returns the text of a grant without its secret lease_id.
func withoutID(l lease) string {
	text, _, _ := strings.Cut(l.text, ", lease_id")
	return text
}
