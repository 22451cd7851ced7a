package spotlights

import (
	"encoding/json"
	"strings"

	"github.com/leasehold/leasehold/dispatch/server"
)

// A story that needs no processes acts as the launcher of its run: it takes the
// daemon's orders, and connects as the actors that it is ordered to start.

// begin begins the run and connects as its root.
func (st *stage) begin(settings args) *agent {
	st.operate("operator_run_dispatch", args{
		"root": args{"name": "lead", "agent": "script", "prompt": "Lead."}, "agents": []string{"script"}, "settings": settings,
	})
	return st.launched("root")
}

// launched takes the order to start an actor, which must be the only order.
func (st *stage) launched(path string) *agent {
	var orders struct {
		Launch []struct {
			ActorID string `json:"actor_id"`
			Path    string
			Token   string
			Session string
		}
	}
	st.must(json.Unmarshal(st.operate("operator_launch_next", args{"wait_secs": 1}).Object, &orders))
	st.want(len(orders.Launch) == 1 && orders.Launch[0].Path == path, "the orders are %+v, want one to start %s", orders.Launch, path)
	o := orders.Launch[0]
	c := st.connect(server.Hello{Handle: o.Session}, path)
	return &agent{actor{st, path, o.ActorID, o.Token}, c}
}

// spawn makes a spawn that must succeed, and connects as the new actor.
func (g *agent) spawn(tool string, a args) (made *agent, text string) {
	var spawned struct{ Path string }
	text = g.ask(tool, spawning(a), &spawned)
	return g.st.launched(spawned.Path), text
}

func spawning(a args) args {
	a["prompt"] = "Do your part."
	return a
}

// overCap makes a spawn that must be refused for exceeding a limit. The refusal
// must change nothing: neither the tree nor the orders.
func (g *agent) overCap(tool string, a args) (text string) {
	before := g.tree()
	text = g.rejected("LIMIT", tool, spawning(a))
	after := g.tree()
	g.st.want(before == after, "the refusal of %v left a trace: the tree was %s and is %s", a, before, after)
	orders := string(g.st.operate("operator_launch_next", args{"wait_secs": 0}).Object)
	g.st.want(!strings.Contains(orders, `"path"`), "the refusal of %v left an order: %s", a, orders)
	return text
}

// tree returns everything that an agent is shown of its sub-tree.
func (g *agent) tree() string {
	answer, err := g.Call(g.st.ctx, "actor_list", args{})
	g.st.must(err)
	return string(answer.Object)
}

// exit ends the agent's process.
func (g *agent) exit(costUSD float64) {
	g.crash()
	g.st.operate("operator_launch_exited", args{"actor_id": g.id, "status": "succeeded", "exit_code": 0, "cost_usd": costUSD})
}
