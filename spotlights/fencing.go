package spotlights

import (
	"encoding/json"
	"strings"
	"time"
)

var lateWrite = Story{
	Name:    "late-write",
	Title:   "A zombie writes",
	Promise: "a write that names its lease happens only if nobody else has been granted that lease since; the zombie is told who holds it, and the refusal is recorded",
	tell: func(st *stage) {
		root := st.root()
		zombie, next := root.worker("W1").connect(), root.worker("W2").connect()
		write := func(l lease, text string) args {
			return args{"path": "/shared/config", "value": text, "require_leases": []args{{"scope": "run", "key": "config", "token": l.Token}}}
		}
		st.say("W1 takes the lease %q for 2 s, writes under it, and stops in the middle of its work.", "config")
		old := zombie.acquire(runTool, "config", "ttl_secs", 2)
		zombie.ask("kv_set", write(old, "half of it"), nil)
		st.say("The TTL ends. W2, which has waited, gets the lease and writes.")
		held := next.acquire(runTool, "config", "wait_secs", 50)
		next.ask("kv_set", write(held, "all of it"), nil)
		st.say("W1 wakes up, does not know this, and writes with its token %d.", old.Token)
		st.show("W1", zombie.rejected("STALE_TOKEN", "kv_set", write(old, "the other half")))
		var got struct{ Entry struct{ Value string } }
		next.ask("kv_get", args{"path": "/shared/config"}, &got)
		st.want(got.Entry.Value == "all of it", "the entry is %q", got.Entry.Value)
		st.say("The entry still has what W2 wrote: %q. leasehold history shows the operator what happened:", got.Entry.Value)
		for _, e := range st.history("config") {
			st.say("    %s", e)
		}
	},
}

var readersAndWriter = Story{
	Name:    "readers-and-writer",
	Title:   "Readers and a writer",
	Promise: "many readers share a lease; a writer waits until the last of them is done, and readers that come later wait behind it",
	tell: func(st *stage) {
		root := st.root()
		one, two, late := root.worker("R1").connect(), root.worker("R2").connect(), root.worker("R3").connect()
		writer := root.worker("W").connect()
		st.say("R1 and R2 share the lease, to read the schema.")
		first := one.acquire(runTool, "schema", "mode", "shared")
		second := two.acquire(runTool, "schema", "mode", "shared")
		st.show("R2", withoutID(second))
		st.say("W asks for the lease alone, to change the schema, and waits. R3 asks after that, to read, and waits behind W.")
		writes := writer.wait(runTool, "schema")
		reads := late.wait(runTool, "schema", "mode", "shared")
		one.release(first)
		st.stillWaits("W", writes)
		st.say("R1 and R2 release it. W gets it, and R3 still waits.")
		two.release(second)
		mine := st.granted("W", writes)
		st.show("W", withoutID(mine.lease))
		st.stillWaits("R3", reads)
		writer.release(mine.lease)
		st.say("W releases it, and R3 gets it.")
		st.show("R3", withoutID(st.granted("R3", reads).lease))
	},
}

var revoked = Story{
	Name:    "revoked",
	Title:   "The operator takes a lease away",
	Promise: "a revoked lease goes to the next in line in the same instant; its former holder is told who revoked it and why, and its token is refused",
	tell: func(st *stage) {
		root := st.root()
		stuck, next := root.worker("W1").connect(), root.worker("W2").connect()
		st.say("W1 holds %q for an hour, and is stuck. W2 waits.", "deploy")
		old := stuck.acquire(runTool, "deploy", "ttl_secs", 3600)
		waits := next.wait(runTool, "deploy")
		const reason = "the deploy hangs"
		st.say("The operator: leasehold revoke deploy --reason %q", reason)
		at := time.Now()
		st.operate("operator_lease_revoke", args{"scope": "run", "key": "deploy", "reason": reason})
		mine := st.granted("W2", waits)
		st.show("W2", withoutID(mine.lease))
		st.say("    %v after the command", mine.at.Sub(at).Round(time.Microsecond))
		st.say("The next reply that W1 gets, from any tool, says what happened.")
		text := stuck.ask("lease_list", nil, nil)
		st.show("W1", text)
		st.want(strings.Contains(text, "operator") && strings.Contains(text, reason), "W1 is not told who took it and why: %s", text)
		var check struct{ Current bool }
		stuck.ask("lease_check", args{"scope": "run", "key": "deploy", "token": old.Token}, &check)
		st.want(!check.Current && mine.Token > old.Token, "token %d is current after %d", old.Token, mine.Token)
	},
}

// history returns a line for each event of a lease of the run.
func (st *stage) history(key string) (lines []string) {
	var page struct{ Events []struct{ Text string } }
	st.must(json.Unmarshal(st.operate("operator_events", args{"key": key, "scope": "run"}).Object, &page))
	for _, e := range page.Events {
		lines = append(lines, e.Text)
	}
	return lines
}

var deadlockRefused = Story{
	Name:    "deadlock",
	Title:   "Two agents that would wait for each other",
	Promise: "the request that would close a cycle is refused at once, and the refusal names the cycle; nobody waits for ever",
	tell: func(st *stage) {
		root := st.root()
		one, two := root.worker("W1").connect(), root.worker("W2").connect()
		st.say("W1 holds %q, W2 holds %q.", "schema", "api")
		one.acquire(runTool, "schema")
		api := two.acquire(runTool, "api")
		st.say("W1 also asks for %q, and waits.", "api")
		waits := one.wait(runTool, "api")
		st.say("W2 also asks for %q, and would wait in line. Each would then wait for the other, so W2 is refused at once.", "schema")
		st.show("W2", two.refused("DEADLOCK", runTool, "schema", "wait_secs", 50).Message)
		st.stillWaits("W1", waits)
		st.say("W2 releases %q, and W1 has both.", "api")
		two.release(api)
		st.show("W1", withoutID(st.granted("W1", waits).lease))
	},
}

var twoFiles = Story{
	Name:    "two-files",
	Title:   "Two files at once",
	Promise: "several leases are granted together or not at all",
	tell: func(st *stage) {
		root := st.root()
		one, two, three := root.worker("W1").connect(), root.worker("W2").connect(), root.worker("W3").connect()
		both := args{"leases": []args{{"scope": "run", "key": "a.go"}, {"scope": "run", "key": "a_test.go"}}}
		st.say("W1 holds %q. W2 asks for that and %q, both or none, and is refused.", "a_test.go", "a.go")
		held := one.acquire(runTool, "a_test.go")
		st.show("W2", two.rejected("LEASE_HELD", "lease_acquire_many", both))
		st.say("W2 was not granted the free one either: W3 can take it.")
		three.release(three.acquire(runTool, "a.go"))
		st.say("W1 releases its lease. W2 asks again, and gets both.")
		one.release(held)
		st.show("W2", two.ask("lease_acquire_many", both, nil))
		st.show("W3", three.refused("LEASE_HELD", runTool, "a.go").Text)
		st.show("W3", three.refused("LEASE_HELD", runTool, "a_test.go").Text)
	},
}
