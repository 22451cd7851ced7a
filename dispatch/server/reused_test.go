package server_test

import (
	"sync"
	"testing"
	"testing/synctest"

	"github.com/leasehold/leasehold/dispatch/server"
)

// An id is that of one request from when that is made, not from when it is answered, for
// all tools that take one.
func TestAnIDIsThatOfTheRequestThatWaitsWithIt(t *testing.T) {
	type request struct{ path, body string }
	waiting := map[string]request{
		"lease of the run":   {"/leases", `{"key":"held"`},
		"lease of the layer": {"/layer/leases", `{"name":"held"`},
		"several leases":     {"/leases/many", `{"leases":[{"scope":"run","key":"held"}]`},
		"claim":              {"/tasks/next", `{"queues":["none"],"ttl_secs":60`},
	}
	others := map[string]request{
		"lease of the run":   {"/leases", `{"key":"b"`},
		"lease of the layer": {"/layer/leases", `{"name":"b"`},
		"several leases":     {"/leases/many", `{"leases":[{"scope":"run","key":"b"}]`},
		"claim":              {"/tasks/next", `{"queues":["q"],"ttl_secs":60`},
	}
	for what, id := range map[string]struct {
		body   string
		header []string
	}{
		"request_id":      {`,"request_id":"r"`, nil},
		"Idempotency-Key": {"", []string{"Idempotency-Key", "k"}},
	} {
		for first, waits := range waiting {
			t.Run(what+", "+first, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					one := newProgram(t, newWeb(t, server.Options{})).open()
					two := one.another("two").open()
					two.want(201, "POST", "/leases", `{"key":"held"}`)
					two.want(201, "POST", "/layer/leases", `{"name":"held"}`)
					two.want(201, "POST", "/queues/q/tasks", `{"payload":1}`)
					var calls sync.WaitGroup
					calls.Go(func() {
						// When its wait is over, it has the id no longer.
						a := one.ask("POST", waits.path, waits.body+id.body+`,"wait_secs":40}`, id.header...)
						if a.status != 202 && a.status != 204 {
							t.Errorf("the one that waits: %d %s", a.status, a.body)
						}
					})
					synctest.Wait()
					for name, other := range others {
						for _, more := range []string{"}", `,"wait_secs":1}`} {
							if a := one.want(409, "POST", other.path, other.body+id.body+more, id.header...); a.text("code") != "REQUEST_ID_REUSED" {
								t.Errorf("%s: %s", name, a.body)
							}
						}
					}
					calls.Wait()
					if a := one.ask("POST", "/leases", `{"key":"b"`+id.body+`}`, id.header...); a.status != 201 {
						t.Errorf("after the wait: %d %s", a.status, a.body)
					}
				})
			})
		}
	}
}
