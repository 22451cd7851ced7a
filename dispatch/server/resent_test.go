package server_test

import (
	"testing"

	"github.com/leasehold/leasehold/dispatch/server"
)

// A call with a name that is sent again over another connection of its session
// is carried out once, whatever the ids of the requests are; the same id for
// another call is another call.
func TestANamedCallThatIsSentAgainIsCarriedOutOnce(t *testing.T) {
	d := newDaemon(t, server.Options{})
	token := d.token(t, "root")
	first := d.pipe(t)
	first.greet(server.Hello{Token: token})
	second := d.pipe(t)
	second.greet(server.Hello{Token: token, Handle: first.welcome.Handle})

	set := func(p *peer, id int, name string, again bool) string {
		p.send(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"kv_set","arguments":{"path":"/shared/n","value":%q},`+
			`"_meta":{"leasehold/call":%q,"leasehold/resent":%t}}}`, id, name, name, again)
		return p.receive().text()
	}
	for _, step := range []struct {
		by    *peer
		id    int
		name  string
		again bool
		want  string
	}{
		{first, 3, "a", false, "version 1"},
		{second, 4, "a", true, "version 1"},
		{second, 3, "b", true, "version 2"}, // the daemon went before it had it
		{first, 4, "b", true, "version 2"},
		{first, 3, "c", false, "version 3"},
	} {
		if got := set(step.by, step.id, step.name, step.again); got != step.want {
			t.Errorf("%s (again: %v): %s, want %s", step.name, step.again, got, step.want)
		}
	}
}
