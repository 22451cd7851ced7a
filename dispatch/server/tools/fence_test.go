package tools_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/server"
)

// need is a lease as require_leases takes it.
func need(scope, key string, token any) args {
	return args{"scope": scope, "key": key, "token": token}
}

// A path that is meant as a pattern is refused, since its lease would guard none of the
// files that are meant. A refusal says which of several leases is wrong.
func TestALeaseOfAPatternIsRefused(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		h.actor(dispatch.Root, "", "boss")
		w := h.actor(dispatch.Worker, "", "W1")
		refused := func(tool string, a args, want string) {
			t.Helper()
			if no := fmt.Sprint(w.refused("INVALID_ARGUMENT", tool, a)["message"]); !strings.HasPrefix(no, want) {
				t.Errorf("%s %v: %s", tool, a, no)
			}
		}
		for _, path := range []string{"src/*.ts", "src/{a,b}.ts", "src/?.ts", "src/a?/**"} {
			refused("run_lease_acquire", args{"path": path}, "path must name one file or directory, ")
			pair := []args{{"scope": "run", "key": "x"}, {"scope": "run", "path": path}}
			refused("lease_acquire_many", args{"leases": pair}, "leases[1]: path must name one file or directory, ")
			refused("lease_acquire_many", args{"leases": pair[1:]}, "path must name one file or directory, ")
			pair[0]["token"], pair[1]["token"] = 1, 1
			refused("kv_set", args{"path": "/shared/a", "value": 1, "require_leases": pair}, "require_leases[1]: path must name one file or directory, ")
		}
		for _, path := range []string{"pages/[id].tsx", "{{cookiecutter.name}}/a.py", "file:what?.txt"} {
			w.ok("run_lease_acquire", args{"path": path})
		}
	})
}

// Every write with require_leases is refused if its lease has a new holder. The
// refusal names the new holder, and the write changes nothing.
func TestAWriteOfASupersededHolderIsRefused(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		h.actor(dispatch.Root, "", "boss")
		zombie, heir := h.actor(dispatch.Worker, "", "W1"), h.actor(dispatch.Worker, "", "W2")
		heir.ok("kv_set", args{"path": "/shared/a", "value": 1})
		heir.ok("task_enqueue", args{"queue": "q", "payload": 1})
		claim := zombie.ok("task_claim", args{"queues": []string{"q"}, "ttl_secs": 3600})["tasks"].([]any)[0].(map[string]any)
		writes := func(more args) map[string]args {
			all := map[string]args{
				"kv_set":       {"path": "/shared/a", "value": 2},
				"kv_cas":       {"path": "/shared/a", "value": 2, "expected_version": 1},
				"kv_delete":    {"path": "/shared/a"},
				"task_enqueue": {"queue": "other", "payload": 1},
				"task_submit":  {"task_id": claim["task_id"], "token": claim["token"], "status": "completed"},
			}
			for _, a := range all {
				maps.Copy(a, more)
			}
			return all
		}
		for scope, acquire := range map[string]func(caller, int) any{
			"layer": func(c caller, ttl int) any {
				return c.ok("lease_acquire", args{"name": "x", "ttl_secs": ttl})["token"]
			},
			"run": func(c caller, ttl int) any {
				return c.ok("run_lease_acquire", args{"key": "x", "ttl_secs": ttl})["token"]
			},
		} {
			old := acquire(zombie, 1)
			time.Sleep(2 * time.Second)
			// Nobody has taken it yet: only a strict fence looks at the deadline.
			for tool, a := range writes(args{"require_leases": []args{need(scope, "x", old)}, "require_mode": "strict"}) {
				zombie.refused("STALE_TOKEN", tool, a)
			}
			if c := zombie.ok("lease_check", need(scope, "x", old)); c["current"] != true || c["held"] != false {
				t.Errorf("past its deadline: %v", c)
			}
			token := acquire(heir, 3600)
			for tool, a := range writes(args{"require_leases": []args{need(scope, "x", old)}}) {
				data := zombie.refused("STALE_TOKEN", tool, a)
				if data["key"] != "x" || data["scope"] != scope || data["token"] != old || data["held_token"] != token || data["holder"].(map[string]any)["path"] != "W2" {
					t.Errorf("%s: %v", tool, data)
				}
			}
			if c := zombie.ok("lease_check", need(scope, "x", old)); c["current"] != false || c["held"] != true || c["held_token"] != token {
				t.Errorf("superseded: %v", c)
			}
			// Every required lease is checked, not only one.
			heir.refused("STALE_TOKEN", "kv_set", args{"path": "/shared/a", "value": 2, "require_leases": []args{need(scope, "x", token), need(scope, "y", token)}})
		}
		// A lease of a directory that covers the key is named.
		old := zombie.ok("run_lease_acquire", args{"key": "file:src/a.go"})
		zombie.ok("run_lease_release", args{"lease_id": old["lease_id"]})
		heir.ok("run_lease_acquire", args{"key": "file:src/**", "ttl_secs": 3600})
		for tool, a := range writes(args{"require_leases": []args{need("run", "file:src/a.go", old["token"])}}) {
			if data := zombie.refused("STALE_TOKEN", tool, a); data["key"] != "file:src/a.go" || data["held_key"] != "file:src/**" {
				t.Errorf("%s: %v", tool, data)
			}
		}
		if e := heir.ok("kv_get", args{"path": "/shared/a"})["entry"].(map[string]any); e["version"] != 1.0 {
			t.Errorf("changed: %v", e)
		}
		if q := heir.ok("queue_stats", args{})["queues"].([]any); len(q) != 1 {
			t.Errorf("queues: %v", q)
		}
		if s := heir.ok("task_get", args{"task_id": claim["task_id"]}); s["state"] != "in_progress" {
			t.Errorf("task: %v", s)
		}
		// Writes with the holder's token succeed, also those of another actor.
		g := heir.ok("run_lease_acquire", args{"key": "mine", "ttl_secs": 3600})
		both := args{"require_leases": []args{need("run", "mine", g["token"])}, "require_mode": "strict"}
		for _, tool := range []string{"kv_cas", "kv_set", "kv_delete", "task_enqueue", "task_submit"} {
			zombie.ok(tool, writes(both)[tool])
		}
	})
}

// A holder that keeps its lease alive does not lose it when the time that an answer
// tells is over. Every answer that tells such a time says so.
func TestEveryRemainingTimeSaysWhetherTheLeaseIsKeptAlive(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		h.actor(dispatch.Root, "", "boss")
		keeper, other := h.actor(dispatch.Worker, "", "W1"), h.actor(dispatch.Worker, "", "W2")
		g := keeper.ok("lease_acquire", args{"name": "x", "keep_alive": true})
		fence := []args{need("layer", "x", 1+uint64(g["token"].(float64)))}
		for what, answer := range map[string]map[string]any{
			"a grant":               g,
			"a renewal":             keeper.ok("lease_renew", args{"lease_id": g["lease_id"]}),
			"a refusal":             other.refused("LEASE_HELD", "lease_acquire", args{"name": "x"}),
			"a refusal of several":  other.refused("LEASE_HELD", "lease_acquire_many", args{"leases": []args{{"scope": "layer", "key": "x"}}}),
			"a wait":                other.refused("WAIT_TIMEOUT", "lease_acquire", args{"name": "x", "wait_secs": 1}),
			"a list":                other.ok("lease_list", args{}),
			"a check":               other.ok("lease_check", need("layer", "x", g["token"])),
			"a check of another":    other.ok("lease_check", need("layer", "x", 1+uint64(g["token"].(float64)))),
			"a write":               other.refused("STALE_TOKEN", "kv_set", args{"path": "/shared/a", "value": 1, "require_leases": fence}),
			"an entry":              other.ok("kv_get", args{"path": "/leases/x"}),
			"a list of entries":     other.ok("kv_list", args{"glob": "/leases/**", "values": true}),
			"a list of an operator": h.connect(server.Hello{Operator: true}).ok("operator_leases", args{"run": "r"}),
		} {
			times := 0
			var look func(v any)
			look = func(v any) {
				switch v := v.(type) {
				case []any:
					for _, v := range v {
						look(v)
					}
				case map[string]any:
					if v["expires_in_ms"] != nil {
						times++
						if v["keep_alive"] != true {
							t.Errorf("%s does not say that the lease is kept alive: %v", what, v)
						}
					}
					for _, v := range v {
						look(v)
					}
				}
			}
			look(answer)
			if times == 0 {
				t.Errorf("%s tells no time: %v", what, answer)
			}
		}
	})
}

func TestRequirementsThatCannotBeReadAreNamed(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		h.actor(dispatch.Root, "", "boss")
		w := h.actor(dispatch.Worker, "", "W1")
		for _, wrong := range []any{
			"x",
			[]any{"x"},
			args{"scope": "run"},
			[]args{{"scope": "run", "key": "x", "token": 1, "mode": "strict"}},
			[]args{{"scope": "queue", "key": "x", "token": 1}},
			[]args{{"scope": "run", "key": "x"}},
			[]args{{"scope": "run", "token": 1}},
			[]args{{"scope": "run", "key": "x", "token": -1}},
			make([]args, 17),
		} {
			w.refused("INVALID_ARGUMENT", "kv_set", args{"path": "/shared/a", "value": 1, "require_leases": wrong})
		}
		w.refused("INVALID_ARGUMENT", "kv_set", args{"path": "/shared/a", "value": 1, "require_mode": "any"})
		w.refused("INVALID_ARGUMENT", "lease_check", need("layer", "a//b", 1))
		op := h.connect(server.Hello{Operator: true})
		op.refused("NOT_FOUND", "operator_lease_check", args{"run": "none", "scope": "run", "key": "x", "token": 1})
	})
}

// Holders take turns, pause for longer than their leases last, and write the
// token that they had. The check and the write are one transaction, so no token
// is written after a greater one.
func TestTokensOfGatedWritesNeverGoBack(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	inHouse(t, func(t *testing.T, h *house) {
		h.actor(dispatch.Root, "", "boss")
		var wg sync.WaitGroup
		var mu sync.Mutex
		byVersion := make(map[float64]float64)
		refused := 0
		for i := range 8 {
			w := h.actor(dispatch.Worker, "", fmt.Sprint("W", i))
			rnd := rand.New(rand.NewPCG(seed, uint64(i)))
			wg.Go(func() {
				for range 20 {
					g, held := w.call("lease_acquire", args{"name": "x", "ttl_secs": 1, "wait_secs": 2})
					if held != nil {
						continue
					}
					time.Sleep(time.Duration(rnd.IntN(2500)) * time.Millisecond)
					v, stale := w.call("kv_set", args{"path": "/shared/a", "value": g["token"], "require_leases": []args{need("layer", "x", g["token"])}})
					mu.Lock()
					if stale == nil {
						byVersion[v["version"].(float64)] = g["token"].(float64)
					} else if refused++; stale.Code != "STALE_TOKEN" {
						t.Errorf("%s: %s", stale.Code, stale.Message)
					}
					mu.Unlock()
					w.call("lease_release", args{"lease_id": g["lease_id"]})
				}
			})
		}
		wg.Wait()
		last := 0.0
		for v := 1.0; v <= float64(len(byVersion)); v++ {
			if byVersion[v] <= last {
				t.Errorf("version %v has token %v after %v", v, byVersion[v], last)
			}
			last = byVersion[v]
		}
		if refused == 0 || len(byVersion) == 0 {
			t.Errorf("%d writes, %d refused", len(byVersion), refused)
		}
	})
}

// An argument that has no effect beside another is refused: whoever sends it means
// something else than what would happen.
func TestAnArgumentWithoutEffectIsRefused(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		root := h.actor(dispatch.Root, "", "boss")
		h.actor(dispatch.Sublead, "", "S1")
		op := h.connect(server.Hello{Operator: true})
		for _, c := range []struct {
			who            caller
			tool, argument string
			args
		}{
			{root, "lease_revoke", "layer", args{"scope": "run", "key": "x", "layer": "S1", "reason": "r"}},
			{root, "kv_set", "require_mode", args{"path": "/shared/a", "value": 1, "require_mode": "strict"}},
			{root, "task_enqueue", "require_mode", args{"queue": "q", "payload": 1, "require_mode": "strict"}},
			{op, "operator_lease_revoke", "layer", args{"run": "r", "scope": "run", "key": "x", "layer": "S1", "reason": "r"}},
			{op, "operator_lease_check", "layer", args{"run": "r", "scope": "run", "key": "x", "layer": "S1", "token": 1}},
			{op, "operator_leases", "layer", args{"run": "r", "scope": "run", "layer": "S1"}},
			{op, "operator_events", "layer", args{"run": "r", "key": "x", "layer": "S1"}},
			{op, "operator_events", "scope", args{"run": "r", "scope": "layer"}},
		} {
			if no := c.who.refused("INVALID_ARGUMENT", c.tool, c.args); no["argument"] != c.argument {
				t.Errorf("%s %v: %v", c.tool, c.args, no)
			}
		}
		op.ok("operator_lease_check", args{"run": "r", "scope": "run", "key": "x", "layer": "root", "token": 1})
		op.ok("operator_leases", args{"run": "r", "layer": "S1"})
		op.ok("operator_events", args{"run": "r", "scope": "layer", "layer": "S1", "key": "x"})
	})
}
