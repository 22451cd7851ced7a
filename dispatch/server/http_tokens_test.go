package server_test

import (
	"testing"
	"testing/synctest"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/server"
)

// An operator that replaces its own token has only the old one until it has the answer. If
// that is lost, it asks for it again with the old one.
func TestAnOperatorMayLoseTheAnswerThatReplacesItsToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProgram(t, newWeb(t, server.Options{}))
		operator := func(name string) *program {
			_, token, err := p.state.IssueAccess(t.Context(), name, dispatch.Operator, 0)
			if err != nil {
				t.Fatal(err)
			}
			return &program{web: &web{daemon: p.daemon, client: p.client, token: token}, t: t, book: p.book}
		}
		valid := func(want bool, tokens ...string) {
			t.Helper()
			for _, token := range tokens {
				status := 401
				if want {
					status = 200
				}
				(&program{web: &web{daemon: p.daemon, client: p.client, token: token}, t: t, book: p.book}).want(status, "GET", "/runs", "")
			}
		}
		ops, boss := operator("ops"), operator("boss")
		old := ops.token
		rotate := func(p *program, header ...string) string {
			t.Helper()
			return p.want(201, "POST", "/tokens/ops/rotate", `{}`, header...).text("token")
		}
		lost := rotate(ops, "Idempotency-Key", "k")
		next := rotate(ops, "Idempotency-Key", "k")
		valid(false, lost)
		valid(true, next)
		valid(false, old)

		// Without a key, each call issues another token.
		ops.token = next
		lost = rotate(ops)
		last := rotate(ops)
		valid(false, lost)
		valid(true, last)
		valid(false, next)

		// What another replaces is void at once, also if it was being replaced.
		ops.token = last
		unused := rotate(ops)
		given := rotate(boss)
		valid(false, last, unused)
		valid(true, given)
		ops.token = given
		rotate(ops)
		boss.want(200, "DELETE", "/tokens/ops", "")
		valid(false, given)
	})
}
