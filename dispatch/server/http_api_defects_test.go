package server_test

import (
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold/dispatch/server"
)

// Lease services that keep rows in an SQL database are known for these defects. None can
// be reproduced here. Two more need several processes: a status that depends on which
// replica answers (examples/job-manager), and a holder that goes on to renew and to work
// after its lease is lost (TestARevokedLeaseEndsItsContextAtOnce and
// TestALostClaimEndsItsHandlerBeforeAnotherHasTheTask in package client).
func TestAPIHasNoDefectOfLeaseServicesOverSQL(t *testing.T) {
	for _, defect := range []struct {
		name  string
		tried func(t *testing.T, one, two *program)
	}{
		{"a zombie renews and completes the task of another", zombie},
		{"what is finished is finished again", finishedAgain},
		{"ten leased tasks at the head block the others", leasedAtTheHead},
		{"locking skips tasks, or gives them twice", skipped},
		{"a missing holder is accepted", noHolder},
		{"a release after the expiry frees the lease of another", lateRelease},
		{"a renewal after the expiry takes the lease back", lateRenewal},
		{"a failure is answered with 200", failures},
	} {
		t.Run(defect.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				one := newProgram(t, newWeb(t, server.Options{})).open()
				two := &program{web: one.web, t: t, book: one.book} // of the same actor
				defect.tried(t, one, two.open())
			})
		})
	}
}

// A claimed is a task that a program has claimed.
type claimed struct {
	TaskID string `json:"task_id"`
	Token  json.Number
}

func (c claimed) path(what string) string { return "/tasks/" + c.TaskID + "/" + what }

func (c claimed) body(more string) string { return `{"token":` + c.Token.String() + more + `}` }

// claim claims tasks of queue q.
func (p *program) claim(ttlSecs, count int) []claimed {
	p.t.Helper()
	var got struct{ Tasks []claimed }
	a := p.ask("POST", "/tasks/next", fmt.Sprintf(`{"queues":["q"],"ttl_secs":%d,"count":%d}`, ttlSecs, count))
	if a.status != 204 && (a.status != 200 || json.Unmarshal([]byte(a.body), &got) != nil) {
		p.t.Fatalf("claim: %d %s", a.status, a.body)
	}
	return got.Tasks
}

func (p *program) enqueue(n int) {
	p.t.Helper()
	for range n {
		p.want(201, "POST", "/queues/q/tasks", `{"payload":1}`)
	}
}

// Both programs have the token of one actor, as workers do that share a name.
func zombie(t *testing.T, one, two *program) {
	one.enqueue(1)
	lost := one.claim(1, 1)[0]
	time.Sleep(2 * time.Second)
	next := two.claim(60, 1)
	if len(next) == 0 { // the retry has a delay
		time.Sleep(time.Minute)
		next = two.claim(60, 1)
	}
	for _, what := range []string{"heartbeat", "complete", "abandon"} {
		one.want(410, "POST", lost.path(what), lost.body(""))
	}
	one.want(410, "POST", lost.path("fail"), lost.body(`,"error":"late"`))
	one.want(410, "POST", lost.path("nack"), lost.body(`,"reason":"late"`))
	two.want(200, "POST", next[0].path("heartbeat"), next[0].body(""))
	two.want(200, "POST", next[0].path("complete"), next[0].body(`,"result":"of two"`))
	one.want(409, "POST", lost.path("complete"), lost.body(`,"result":"of one"`))
	if a := one.want(200, "GET", lost.path("result"), ""); a.text("result") != "of two" {
		t.Errorf("the result is %s", a.body)
	}
}

func finishedAgain(t *testing.T, one, two *program) {
	one.enqueue(1)
	c := one.claim(60, 1)[0]
	one.want(200, "POST", c.path("complete"), c.body(`,"result":1`))
	one.want(200, "POST", c.path("complete"), c.body(`,"result":1`)) // the same, sent again
	for _, p := range []*program{one, two} {
		p.want(409, "POST", c.path("complete"), c.body(`,"result":2`))
		p.want(409, "POST", c.path("fail"), c.body(`,"error":2`))
		p.want(409, "POST", c.path("heartbeat"), c.body(""))
		p.want(409, "POST", c.path("abandon"), c.body(""))
		p.want(409, "POST", c.path("nack"), c.body(`,"reason":"x"`))
		p.want(200, "POST", c.path("cancel"), "") // says how it is
		p.want(200, "POST", "/queues/q/redrive", `{}`)
		time.Sleep(2 * time.Minute) // longer than the claim
		if got := p.claim(60, 1); got != nil {
			t.Errorf("it is claimed again: %v", got)
		}
		if a := p.want(200, "GET", c.path("result"), ""); a.text("state") != "completed" || a.object["result"] != 1.0 {
			t.Errorf("its end is %s", a.body)
		}
	}
}

func leasedAtTheHead(t *testing.T, one, two *program) {
	one.enqueue(11)
	if n := len(one.claim(3600, 10)); n != 10 {
		t.Errorf("one has claimed %d", n)
	}
	if n := len(two.claim(60, 10)); n != 1 {
		t.Errorf("two is given %d", n)
	}
	if n := len(two.claim(60, 10)); n != 0 {
		t.Errorf("two is given %d more", n)
	}
}

func skipped(t *testing.T, one, _ *program) {
	const tasks, programs = 100, 10
	one.enqueue(tasks)
	var mu sync.Mutex
	given := make(map[string]int)
	var wg sync.WaitGroup
	for range programs {
		p := (&program{web: one.web, t: t, book: one.book}).open()
		wg.Go(func() {
			for got := p.claim(60, 3); len(got) > 0; got = p.claim(60, 3) {
				mu.Lock()
				for _, c := range got {
					given[c.TaskID]++
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	for id, n := range given {
		if n > 1 {
			t.Errorf("task %s was given %d times", id, n)
		}
	}
	if len(given) != tasks {
		t.Errorf("%d of %d tasks were given", len(given), tasks)
	}
}

func noHolder(t *testing.T, one, _ *program) {
	one.enqueue(1)
	nobody := &program{web: one.web, t: t, book: one.book}
	for path, body := range map[string]string{
		"/leases": `{"key":"a"}`, "/layer/leases": `{"name":"a"}`, "/leases/many": `{"leases":[{"scope":"run","key":"a"}]}`,
		"/tasks/next": `{"queues":["q"],"ttl_secs":60}`,
	} {
		if a := nobody.want(400, "POST", path, body); a.text("argument") != "Leasehold-Session" {
			t.Errorf("%s: %s", path, a.body)
		}
	}
	nobody.web = &web{daemon: one.daemon, client: one.client} // without a token
	nobody.want(401, "POST", "/leases", `{"key":"a"}`)
	one.want(201, "POST", "/leases", `{"key":"a"}`) // nobody has it
	if n := len(one.claim(60, 1)); n != 1 {
		t.Errorf("%d tasks", n)
	}
}

func lateRelease(t *testing.T, one, two *program) {
	lost := one.want(201, "POST", "/leases", `{"key":"a","ttl_secs":1}`)
	time.Sleep(2 * time.Second)
	next := two.want(201, "POST", "/leases", `{"key":"a"}`)
	for range 2 {
		if a := one.want(200, "DELETE", "/leases/"+lost.text("lease_id"), ""); a.object["released"] != false {
			t.Errorf("released: %s", a.body)
		}
	}
	check := `{"scope":"run","key":"a","token":` + number(next.object["token"]) + `}`
	if a := one.want(200, "POST", "/leases/check", check); a.object["current"] != true || a.object["held"] != true {
		t.Errorf("the lease of two: %s", a.body)
	}
	two.want(200, "POST", "/leases/"+next.text("lease_id")+"/renew", `{}`)
}

func lateRenewal(t *testing.T, one, two *program) {
	lost := one.want(201, "POST", "/leases", `{"key":"a","ttl_secs":1}`)
	time.Sleep(2 * time.Second)
	next := two.want(201, "POST", "/leases", `{"key":"a","ttl_secs":600}`)
	for range 3 {
		one.want(410, "POST", "/leases/"+lost.text("lease_id")+"/renew", `{"ttl_secs":60}`)
		time.Sleep(time.Second)
	}
	two.want(200, "POST", "/leases/"+next.text("lease_id")+"/renew", `{}`)
	two.want(200, "DELETE", "/leases/"+next.text("lease_id"), "")
	one.want(410, "POST", "/leases/"+lost.text("lease_id")+"/renew", `{"ttl_secs":60}`) // though it is free
}

func failures(t *testing.T, one, two *program) {
	const none = "11111111-1111-1111-1111-111111111111"
	one.enqueue(1)
	one.want(201, "POST", "/leases", `{"key":"a"}`)
	for _, c := range []struct {
		status             int
		method, path, body string
	}{
		{409, "POST", "/leases", `{"key":"a"}`},
		{409, "POST", "/leases/many", `{"leases":[{"scope":"run","key":"b"},{"scope":"run","key":"a"}]}`},
		{409, "POST", "/leases/" + none + "/renew", `{}`},
		{400, "POST", "/leases", `{}`},
		{400, "POST", "/leases", `{"key":"b","ttl_secs":0}`},
		{400, "POST", "/tasks/next", `{"queues":["q"],"ttl_secs":0}`},
		{400, "POST", "/queues/q/tasks", `{}`},
		{404, "GET", "/tasks/" + none, ""},
		{404, "GET", "/tasks/" + none + "/result", ""},
		{404, "POST", "/tasks/" + none + "/complete", `{"token":1}`},
		{404, "POST", "/tasks/" + none + "/heartbeat", `{"token":1}`},
		{404, "POST", "/tasks/" + none + "/cancel", ""},
		{404, "GET", "/store/shared/none", ""},
		{403, "GET", "/runs", ""},
	} {
		two.want(c.status, c.method, c.path, c.body)
	}
	two.want(412, "PUT", "/store/shared/none", `{"value":1}`, "If-Match", `"7"`)
}
