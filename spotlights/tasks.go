package spotlights

import (
	"fmt"
	"slices"
	"strconv"
	"time"
)

var workerDies = Story{
	Name:    "worker-dies",
	Title:   "A worker dies in the middle of a task",
	Promise: "when a worker dies, the next worker gets its task at once, whatever the TTL",
	tell: func(st *stage) {
		root := st.root()
		lead, dying, next := root.connect(), root.worker("W1").connect(), root.worker("W2").connect()

		st.say("The lead puts a task in the queue. W1 claims it, for an hour.")
		id := lead.enqueue(args{"compile": "a.go"}, nil)
		first := dying.claimOne(args{"ttl_secs": 3600})
		st.show("W1", first.text)
		st.say("W2 asks for work. There is none, so it waits.")
		st.want(len(next.claim(nil)) == 0, "W2 was given the task of W1")
		got := next.waitForTask()

		st.say("W1 dies.")
		died := time.Now()
		dying.crash()
		second := st.given("W2", got)
		st.show("W2", second.text)
		st.say("    %v from death to claim", second.at.Sub(died).Round(time.Microsecond))
		st.want(second.ID == id && second.Attempt == 2 && second.Token > first.Token, "W2 was given %+v", second.task)
		next.submit(second.task, "built by W2")
		seen := lead.see(id)
		st.want(seen.State == "completed" && len(seen.Attempts) == 2, "the task is %+v", seen)
		st.say("W2 submits. The task keeps both attempts on record: %s: %s, %s: %s.",
			seen.Attempts[0].Path, seen.Attempts[0].Cause, seen.Attempts[1].Path, seen.Attempts[1].Cause)
	},
}

var zombieRefused = Story{
	Name:    "zombie-refused",
	Title:   "The zombie that wakes and submits",
	Promise: "a worker that lost its claim is refused, and cannot change the result of the worker that has it",
	tell: func(st *stage) {
		root := st.root()
		lead, zombie, next := root.connect(), root.worker("W1").connect(), root.worker("W2").connect()

		st.say("W1 claims a task for 2 s, stays connected, and goes quiet.")
		id := lead.enqueue(args{"migrate": "users"}, nil)
		first := zombie.claimOne(args{"ttl_secs": 2})
		second := next.claimOne(args{"wait_secs": 50})
		st.want(second.ID == id && second.Attempt == 2, "W2 was given %+v", second)
		st.say("W2 has waited for work, and gets the task when the claim of W1 expires.")
		st.show("W2", second.text)

		st.say("W1 wakes up while W2 is working on it, and submits.")
		st.show("W1", zombie.rejected("STALE_TOKEN", "task_submit", completed(first, "by W1")))
		zombie.rejected("STALE_TOKEN", "task_heartbeat", args{"task_id": id, "token": first.Token})
		zombie.rejected("STALE_TOKEN", "task_nack", args{"task_id": id, "token": first.Token, "reason": "too late"})
		st.say("W2 submits. W1 tries again, and changes nothing.")
		next.submit(second, "by W2")
		st.show("W1", zombie.rejected("STALE_TOKEN", "task_submit", completed(first, "by W1")))
		seen := lead.see(id)
		st.want(seen.State == "completed" && string(seen.Result) == `"by W2"`, "the task is %+v", seen)
		st.say("The lead reads the result: %s", seen.Result)
	},
}

var heartbeatAndReaper = Story{
	Name:    "heartbeat-and-reaper",
	Title:   "A heartbeat in the last instant",
	Promise: "a heartbeat either keeps the whole claim or finds it gone; no task is both kept and given away",
	tell: func(st *stage) {
		const n = 20
		root := st.root()
		lead, beating, next := root.connect(), root.worker("W1").connect(), root.worker("W2").connect()
		for i := range n {
			lead.enqueue(i, nil)
		}
		st.say("W1 claims %d tasks for 1 s, and waits until the claims are about to expire.", n)
		tasks := beating.claim(args{"ttl_secs": 1, "count": n})
		claimed := time.Now()
		st.want(len(tasks) == n, "W1 was given %d tasks", len(tasks))

		st.say("It extends one claim each millisecond, from 9 ms before the end to 10 ms after.")
		kept := make([]bool, n)
		st.together(slices.Repeat([]*agent{beating}, n), func(i int, g *agent) {
			end := time.Duration(tasks[i].ExpiresInMS) * time.Millisecond
			time.Sleep(time.Until(claimed.Add(end + time.Duration(i-9)*time.Millisecond)))
			_, err := g.Call(st.ctx, "task_heartbeat", args{"task_id": tasks[i].ID, "token": tasks[i].Token, "ttl_secs": 60})
			kept[i] = err == nil
		})
		inTime := 0
		for i, t := range tasks {
			if kept[i] {
				inTime++
				beating.submit(t, "by W1")
			} else {
				beating.rejected("STALE_TOKEN", "task_submit", completed(t, "by W1"))
			}
		}
		st.say("    %d heartbeats came in time: W1 keeps these tasks, and submits them.", inTime)
		st.say("    %d came too late: W2 has these tasks, and W1 cannot submit them.", n-inTime)
		for range n - inTime {
			next.submit(next.claimOne(args{"wait_secs": 50}), "by W2")
		}
		st.want(len(next.claim(nil)) == 0, "W2 was given a task that W1 kept")
		st.want(lead.counts() == counts{Completed: n}, "the queue has %+v", lead.counts())
	},
}

var taskOrder = Story{
	Name:    "task-order",
	Title:   "The order of tasks",
	Promise: "tasks are claimed by priority, then in the order of enqueueing; a delayed one goes to a waiting worker as soon as it is due",
	tell: func(st *stage) {
		root := st.root()
		lead, worker := root.connect(), root.worker("W1").connect()

		st.say("The lead enqueues %q, %q, %q with priority 9, and %q, delayed by 2 s.", "one", "two", "urgent", "later")
		lead.enqueue("one", nil)
		lead.enqueue("two", nil)
		lead.enqueue("urgent", args{"priority": 9})
		enqueued := time.Now()
		lead.enqueue("later", args{"delay_secs": 2})
		for _, want := range []string{"urgent", "one", "two"} {
			t := worker.claimOne(nil)
			st.want(string(t.Payload) == strconv.Quote(want), "W1 was given %s, want %q", t.Payload, want)
			st.say("    W1 gets %s", t.Payload)
			worker.submit(t, nil)
		}
		st.say("Nothing is ready. W1 waits.")
		t := worker.claimOne(args{"wait_secs": 50})
		waited := time.Since(enqueued)
		st.want(string(t.Payload) == `"later"` && waited > 2*time.Second, "W1 was given %s after %v", t.Payload, waited)
		st.say("    W1 gets %s, after %v", t.Payload, waited.Round(100*time.Millisecond))
	},
}

var deadLetter = Story{
	Name:    "dead-letter",
	Title:   "A task that nobody can do",
	Promise: "a task that used up its attempts is dead and kept with the cause of each; a redrive gives it a fresh set of attempts",
	tell: func(st *stage) {
		root := st.root()
		lead, worker, other := root.connect(), root.worker("W1").connect(), root.worker("W2").connect()

		st.say("The lead enqueues a task that may be tried twice. W1 fails at it, twice.")
		id := lead.enqueue(args{"compile": "a.go"}, args{"max_attempts": 2})
		for range 2 {
			t := worker.claimOne(args{"wait_secs": 50})
			worker.ask("task_nack", args{"task_id": t.ID, "token": t.Token, "delay_secs": 0, "reason": "no compiler"}, nil)
		}
		st.want(len(other.claim(nil)) == 0, "a dead task was given to W2")
		var dead struct{ Tasks []outcome }
		text := lead.ask("queue_dead", args{"queue": jobs}, &dead)
		st.show("the lead", text)
		st.want(len(dead.Tasks) == 1 && len(dead.Tasks[0].Attempts) == 2, "dead are %+v", dead.Tasks)
		for _, a := range dead.Tasks[0].Attempts {
			st.say("    tried by %s: %s", a.Path, a.Cause)
		}
		st.say("The lead installs a compiler, and redrives the task.")
		lead.ask("queue_redrive", args{"queue": jobs}, nil)
		t := other.claimOne(nil)
		st.show("W2", t.text)
		st.want(t.ID == id && t.Attempt == 1, "W2 was given %+v", t)
		other.submit(t, "built")
		st.want(lead.counts() == counts{Completed: 1}, "the queue has %+v", lead.counts())
		st.say("W2 submits it: completed.")
	},
}

var thousandInFlight = Story{
	Name:    "thousand-in-flight",
	Title:   "The daemon is killed with a thousand tasks in flight",
	Promise: "when the daemon is killed with kill -9, no task is lost or doubled, and no result changes; a worker that comes back submits with the token it has",
	tell: func(st *stage) {
		const crew, each, done = 10, 100, 100
		root := st.root()
		lead := root.connect()
		var workers []*agent
		for i := range crew {
			workers = append(workers, root.worker(fmt.Sprintf("W%02d", i+1)).connect())
		}
		st.say("%d tasks are enqueued, and %d of them are done.", crew*each+done, done)
		st.together(workers, func(i int, g *agent) {
			for k := range each + done/crew {
				g.enqueue(i*each*2+k, nil)
			}
		})
		by := make(map[string]string) // path of the worker that submitted each task
		for _, t := range workers[0].claim(args{"count": done}) {
			workers[0].submit(t, t.ID)
			by[t.ID] = workers[0].path
		}
		st.say("%d workers claim %d each, for 5 s.", crew, each)
		held := make([][]task, crew)
		st.together(workers, func(i int, g *agent) { held[i] = g.claim(args{"ttl_secs": 5, "count": each}) })
		st.want(lead.counts() == counts{InProgress: crew * each, Completed: done}, "the queue has %+v", lead.counts())

		st.say("The daemon is killed and started again. Half of the workers come back, and submit.")
		st.must(st.daemon.Restart(st.ctx))
		st.operator = nil
		back := workers[:crew/2]
		st.together(back, func(i int, g *agent) {
			g.resume()
			for _, t := range held[i] {
				g.submit(t, t.ID)
			}
		})
		lead.resume()
		half := crew / 2 * each
		st.want(lead.counts() == counts{InProgress: half, Completed: done + half}, "the queue has %+v", lead.counts())
		for i := range back {
			for _, t := range held[i] {
				by[t.ID] = back[i].path
			}
		}
		st.say("    %d done, and %d in flight", done+half, half)

		st.say("The others never come back. Their claims last for their TTL. Then the workers that are there get the tasks.")
		again := make([][]task, len(back))
		st.together(back, func(i int, g *agent) {
			for len(again[i]) < each {
				for _, t := range g.claim(args{"count": each - len(again[i]), "wait_secs": 50}) {
					again[i] = append(again[i], t)
					g.submit(t, t.ID)
				}
			}
		})
		for i := range again {
			for _, t := range again[i] {
				_, twice := by[t.ID]
				st.want(t.Attempt == 2 && !twice, "%s was given again, as attempt %d", t.ID, t.Attempt)
				by[t.ID] = back[i].path
			}
		}
		const all = crew*each + done
		st.want(len(by) == all && lead.counts() == counts{Completed: all}, "%d tasks were submitted, the queue has %+v", len(by), lead.counts())
		for id, worker := range by {
			seen := lead.see(id)
			last := seen.Attempts[len(seen.Attempts)-1]
			st.want(string(seen.Result) == strconv.Quote(id) && last.Path == worker, "task %s, submitted by %s, is %+v", id, worker, seen)
		}
		st.say("    all %d are done once, each with the result that was submitted", all)
	},
}
