package spotlights

import (
	"strconv"
	"strings"
	"time"

	"github.com/leasehold/leasehold/dispatch/launcher"
	"github.com/leasehold/leasehold/dispatch/process"
	"github.com/leasehold/leasehold/engine/event"
)

var killedWorker = Story{
	Name:    "killed-worker",
	Title:   "A worker's process is killed",
	Promise: "when a process is killed, the next in line gets its leases at once, wherever in the tree that is; its lead is told what happened",
	Real:    true,
	tell: func(st *stage) {
		d := st.dispatch(map[string]string{
			"lead": `
leasehold call spawn_sublead name=S1 agent=sublead env='{"HAS": "holder"}' prompt=Lead.
leasehold call task_claim queues=held ttl_secs=60 wait_secs=50
leasehold call spawn_sublead name=S2 agent=sublead env='{"HAS": "waiter"}' prompt=Lead.
leasehold call actor_wait actors=S1,S2 mode=all wait_secs=50`,
			"sublead": `
leasehold call spawn_worker name=W1 agent="$HAS" prompt=Work.
leasehold call actor_report result="$(leasehold call actor_wait actors=W1 wait_secs=50 | tail -n 1)"`,
			"holder": `
leasehold call run_lease_acquire key="port 3000" ttl_secs=3600
leasehold call task_enqueue queue=held payload=1
exec sleep 1000`,
			"waiter": waiter("port 3000"),
		})
		st.say("leasehold dispatch runs S1 and S2, each with a worker. All of them are processes.")
		d.until(event.LeaseWaiting.String(), "S2→W1")
		st.say("S1→W1 holds the run's lease %q, for an hour. S2→W1 waits for it.", "port 3000")
		st.say("The process of S1→W1 is killed, with SIGKILL.")
		died := d.murder("S1→W1")
		actors := d.over()

		st.say("    S2→W1 has %q %s", "port 3000", st.grantedAfter(actors["S2→W1"], died))
		var said struct {
			Actors []struct{ Status, Cause string }
		}
		st.result(actors["S1"], &said)
		st.want(len(said.Actors) == 1, "S1 reads of %d actors", len(said.Actors))
		read := said.Actors[0]
		st.want(read.Status == "failed" && read.Cause == "killed by SIGKILL", "S1 reads %+v", read)
		st.say("S1 waits for its worker with actor_wait.")
		st.show("S1", read.Status+", "+read.Cause)
		held := actors["S1→W1"].LeasesHeld
		st.want(len(held) == 1 && held[0].Key == "port 3000", "the summary has %+v as what S1→W1 held", held)
	},
}

// waiter returns the script of an agent that waits for a run's lease and
// reports when it was granted. Like all scripts here, it uses nothing but the
// texts of replies.
func waiter(key string) string {
	return `
at=$(leasehold call run_lease_acquire key="` + key + `" wait_secs=50 | sed -n 's/.*"acquired_at":"\([^"]*\)".*/\1/p')
leasehold call actor_report result="$at"
`
}

// grantedAfter describes how long after an instant a waiter got its lease.
func (st *stage) grantedAfter(waiter launcher.Actor, since time.Time) string {
	var at time.Time
	st.result(waiter, &at)
	return "after " + at.Sub(since).Round(time.Millisecond).String()
}

var killCascade = Story{
	Name:    "kill-cascade",
	Title:   "The end of a lead",
	Promise: "when a lead ends, every process below it is ended, even one that resists; only then do the next in line get what they held",
	Real:    true,
	tell: func(st *stage) {
		d := st.dispatch(map[string]string{
			"lead": `
leasehold call spawn_sublead name=S1 agent=sublead prompt=Lead.
leasehold call task_claim queues=held ttl_secs=60 wait_secs=50
leasehold call spawn_worker name=W1 agent=waiter prompt=Work.
leasehold call actor_wait actors=S1,W1 mode=all wait_secs=50`,
			"sublead": `
leasehold call spawn_worker name=W1 agent=parent prompt=Work.
leasehold call actor_wait actors=W1 wait_secs=50`,
			"parent": `
leasehold call run_lease_acquire key=database ttl_secs=3600
sh -c 'trap "" TERM; echo $$ >deaf; sleep 1000' &
apart='echo $$ >apart; exec sleep 1000'
if command -v setsid; then
	setsid sh -c "$apart" &
else
	perl -MPOSIX -e 'POSIX::setsid(); exec @ARGV' sh -c "$apart" &
fi
until [ -s deaf ] && [ -s apart ]; do sleep 0.02; done
leasehold call task_enqueue queue=held payload=1
wait`,
			"waiter": waiter("database") + `until [ -e seen ]; do sleep 0.02; done`,
		})
		d.until(event.LeaseWaiting.String(), "W1")
		family := []int{d.pid("S1→W1"), st.child("deaf"), st.child("apart")}
		for _, pid := range family {
			st.want(process.Find(pid).PID == pid, "process %d is not there", pid)
		}
		st.want(process.Find(family[2]).Session == family[2], "process %d has no session of its own", family[2])
		st.say("S1→W1 holds the run's lease %q. W1, beside S1, waits for it.", "database")
		st.say("S1→W1 has two children: one ignores SIGTERM, one has moved to a session of its own.")

		st.say("S1 is killed. So the actors below it are ended, too.")
		died := d.murder("S1")
		exited := d.until(launcher.ActorExited, "S1")
		st.say("    S1 %s, by %s", exited.Status, exited.Signal)
		st.say("    %s", d.until(launcher.ActorStopping, "S1→W1").Text)
		d.until(event.LeaseHandedOver.String(), "W1")
		for _, pid := range family {
			st.want(process.Find(pid).PID == 0, "W1 has the lease, and process %d still runs", pid)
		}
		st.touch("seen")
		actors := d.over()
		st.want(actors["S1→W1"].Status == "cancelled", "S1→W1 has ended as %s", actors["S1→W1"].Status)
		st.say("The one that ignores SIGTERM is killed when the grace period of %v is over. Now no process of S1→W1 is left, and W1 gets the lease.", drainGrace)
		st.say("    all of it %s", st.grantedAfter(actors["W1"], died))
	},
}

// child returns the pid of an agent's child, which the child has written to
// file.
func (st *stage) child(file string) int {
	pid, err := strconv.Atoi(strings.TrimSpace(st.file(file)))
	st.must(err)
	return pid
}

var resumedRun = Story{
	Name:    "resumed-run",
	Title:   "The dispatcher is killed",
	Promise: "when the dispatcher of a run is killed, no process is left; when the run is resumed, it does what is not done yet, and nothing twice",
	Real:    true,
	tell: func(st *stage) {
		d := st.dispatch(map[string]string{
			"lead": `
leasehold call spawn_worker name=first agent=worker prompt=Work.
leasehold call spawn_worker name=second agent=worker prompt=Work.
leasehold call actor_wait actors=first,second mode=all wait_secs=50`,
			"worker": `
if [ "$LEASEHOLD_NAME" = second ] && [ "$LEASEHOLD_LIFE" = 1 ]; then
	exec sleep 1000
fi
echo "$LEASEHOLD_NAME" >>done
leasehold call actor_report result="done in life $LEASEHOLD_LIFE"`,
		})
		st.say("leasehold dispatch runs a lead, which is a script and has two workers.")
		st.say("    %s", d.until(launcher.ActorExited, "first").Text)
		left := []int{d.pid("root"), d.pid("second")}
		st.say("The other is still working when the dispatcher is killed, with SIGKILL.")
		d.kill()
		for _, pid := range left {
			st.gone(pid)
		}
		st.say("    The lead and its second worker are gone with it.")

		st.say("leasehold dispatch --resume starts the lead again: the same script, from its beginning.")
		again := st.resume()
		actors := again.over()
		for line := range strings.Lines(again.output("root")) {
			if !strings.HasPrefix(line, "{") { // the JSON object repeats the line above it
				st.show("the lead", strings.TrimSpace(line))
			}
		}
		for _, want := range []struct {
			path string
			life int
		}{{"root", 2}, {"first", 1}, {"second", 2}} {
			a := actors[want.path]
			if a.Status != "succeeded" || a.Life != want.life {
				st.want(false, "%s %s, in life %d; the lead said %s", a.Path, a.Status, a.Life, again.complaints("root"))
			}
		}
		st.want(st.file("done") == "first\nsecond\n", "what was done is %q", st.file("done"))
		st.say("Each worker has done its part once.")
	},
}
