package main

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/leasehold/leasehold/dispatch/client"
)

// The texts that an attacker would choose, if the page could be made to run them.
var hostile = []string{
	`<img src=x onerror="window.owned=1">`,
	`"><script>window.owned=1</script>`,
	`javascript:window.owned=1`,
	"{{constructor.constructor('window.owned=1')()}}",
	"</title><svg/onload=window.owned=1>",
}

// What happens is seen as it happens, whatever agents choose to call things, and an
// operator acts by keyboard alone.
func TestPageIsLive(t *testing.T) {
	t.Parallel()
	b := startChromium(t)
	s := newSite(t)
	root := s.works(s.actor("live", "root", "root", ""), branch(t, inDir(t, "src/main"), "main"))
	one := s.works(s.actor("live", "one", "worker", ""), branch(t, inDir(t, "src/one"), "feature/one"))
	for _, text := range hostile {
		s.do(root, "run_lease_acquire", map[string]any{"key": text, "reason": text, "as": text[:min(len(text), 20)], "ttl_secs": 3600})
		s.do(root, "task_enqueue", map[string]any{"queue": "work", "payload": text})
	}

	link := s.link()
	p := b.open(link)
	p.sees("the tree", row("one"))
	p.sees("where it works", row("one · feature/one"))
	var used bool
	p.eval(`location.hash.includes("code")`, &used)
	if used {
		t.Error("the code stays in the address")
	}
	again := b.open(link)
	again.sees("that whoever is signed in already stays so", row("one"))
	if seen := p.errorsSeen(); len(seen) != 1 || !strings.Contains(seen[0], "401") {
		t.Errorf("a link that was used is answered so: %v", seen)
	}
	p.do("Page.bringToFront", nil) // pages that nobody can see draw nothing

	p.view("leases")
	for _, text := range hostile {
		p.sees(text, row(text))
	}
	p.eval(row(hostile[0])+".click()", nil)
	p.sees("its history", `document.querySelector(".happened li")`)
	var owned bool
	p.eval(`!!window.owned || !!document.querySelector("main img, main script, main iframe")`, &owned)
	if owned {
		t.Error("a text of an agent became a part of the page")
	}
	p.eval(`document.querySelector(".panel-head button").click()`, nil)

	// Contention, hand-over, expiry.
	held := s.acquire(one, "contended", 600)
	p.sees("a lease", row("contended"))
	s.waits(root, "contended")
	p.sees("contention", row("contended")+`?.textContent.includes("1 waiting")`)
	p.sees("contention, whole", `(c => c.scrollWidth <= c.clientWidth)(`+row("contended")+`.querySelector(".c-line"))`)
	long := "file:" + strings.Repeat("deep/", 90) + "app.ts"
	s.acquire(one, long, 600)
	p.sees("the end of a long key, which tells it from others", `(row => {
		const cell = row.querySelector(".c-main"), text = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT).nextNode(), end = document.createRange();
		end.setStart(text, text.length - 1);
		end.setEnd(text, text.length);
		return end.getBoundingClientRect().right <= cell.getBoundingClientRect().right;
	})(`+row("app.ts")+`)`)
	s.do(one, "run_lease_release", map[string]any{"lease_id": held})
	p.sees("the hand-over", row("contended")+`?.textContent.includes("root")`)
	s.reserved(p, one, root)
	s.acquire(one, "short", 1)
	p.sees("a lease", row("short"))
	p.sees("its expiry", "!"+row("short"))
	p.view("events")
	p.sees("the event of it", row("expired"))

	// Revoke, by keyboard alone.
	revoked := s.acquire(one, "revoke me", 600)
	p.view("leases")
	p.sees("a lease", row("revoke me"))
	p.eval(`document.activeElement.blur()`, nil)
	p.tabTo("the search", `document.activeElement.type === "search"`)
	p.write("revoke me")
	p.sees("what was searched for", `document.querySelectorAll(".space .row").length === 1`)
	p.tabTo("the list", `document.activeElement.classList.contains("row")`)
	p.press("Enter")
	p.sees("the panel", `document.activeElement.id === "panel-title"`)
	p.tabTo("the button", `document.activeElement.textContent === "Revoke lease"`)
	p.eval(`window.button = document.activeElement`, nil)
	s.do(one, "lease_renew", map[string]any{"lease_id": revoked, "ttl_secs": 3600})
	s.acquire(one, "another", 600) // an event, for which the page asks again
	p.sees("the button again, still with the keyboard", `document.activeElement !== window.button && document.activeElement.textContent === "Revoke lease"`)
	p.press("Enter")
	p.sees("the question", `document.activeElement.id === "why"`)
	p.write("it hangs")
	p.press("Enter")
	p.sees("that it is revoked", `!document.querySelector("dialog") && !`+row("revoke me"))
	var told struct{ Revoked bool }
	s.read(s.do(s.operator, "operator_lease_revoke", map[string]any{"run": "live", "scope": "run", "key": "revoke me", "reason": "again"}), &told)
	if told.Revoked {
		t.Error("the page did not revoke the lease")
	}
	p.press("Escape")

	s.pausedAndDead(p, root)
	p.tidy()
}

// pausedAndDead pauses and resumes a queue, cancels a task and redrives another.
func (s *site) pausedAndDead(p *tab, c *client.Client) {
	s.t.Helper()
	s.do(c, "task_enqueue", map[string]any{"queue": "dead", "payload": 1, "max_attempts": 1})
	s.finish(c, "dead", true)
	p.view("queues")
	p.sees("a queue", row("work"))
	p.eval(row("work")+".click()", nil)
	p.answer("Pause queue", "the disk is full")
	p.sees("the pause", row("work")+`?.textContent.includes("paused")`)
	if got := s.do(c, "task_claim", map[string]any{"queues": []string{"work"}, "ttl_secs": 60}); !strings.Contains(string(got), `"tasks":[]`) {
		s.t.Errorf("a paused queue gave %s", got)
	}
	p.answer("Resume queue", "")
	p.sees("the end of the pause", "!"+row("work")+`?.textContent.includes("paused")`)
	p.answer("Cancel", "")
	p.sees("that a task is cancelled", `[...document.querySelectorAll(".facts div")].some((d) => d.textContent === "Cancelled1")`)
	p.eval(row("dead")+".click()", nil)
	p.answer("Redrive dead tasks", "")
	p.sees("that it is tried again", `[...document.querySelectorAll(".facts div")].some((d) => d.textContent === "Ready1")`)
}

// answer presses a button in the panel, and answers its question.
func (p *tab) answer(button, reason string) {
	p.t.Helper()
	find := fmt.Sprintf(`[...document.querySelectorAll(".panel button")].find((b) => b.textContent === %q)`, button)
	p.sees(button, find)
	p.eval(find+".click()", nil)
	p.sees("a question", `document.querySelector("dialog[open]")`)
	if reason != "" {
		p.write(reason)
	}
	p.eval(`document.querySelector("dialog [type=submit]").click()`, nil)
	p.sees("that it is done", `!document.querySelector("dialog")`)
}

// tabTo presses Tab until it is somewhere.
func (p *tab) tabTo(what, there string) {
	p.t.Helper()
	for range 60 {
		p.press("Tab")
		var ok bool
		if p.eval(there, &ok); ok {
			return
		}
	}
	p.t.Fatalf("Tab does not lead to %s", what)
}

func (s *site) acquire(c *client.Client, key string, secs int) (id string) {
	s.t.Helper()
	var got struct {
		LeaseID string `json:"lease_id"`
	}
	s.read(s.do(c, "run_lease_acquire", map[string]any{"key": key, "ttl_secs": secs}), &got)
	return got.LeaseID
}

// reserved keeps a key for a party that is first in line until the page shows it. One
// reservation lasts for a few seconds.
func (s *site) reserved(p *tab, holder, first *client.Client) {
	s.t.Helper()
	p.eval(`new MutationObserver(() => window.kept ||= `+row("reserved for root")+`?.textContent).observe(document.querySelector("main"), { childList: true, subtree: true, characterData: true })`, nil)
	for n, kept := 0, ""; kept == ""; n++ {
		key := fmt.Sprint("kept ", n)
		id := s.acquire(holder, key, 600)
		p.sees("a lease", row(key))
		if answer, err := first.Call(s.t.Context(), "run_lease_acquire", map[string]any{"key": key, "wait_secs": 0.1}); err == nil {
			s.t.Fatalf("granted while it is held: %s", answer.Object)
		}
		s.do(holder, "run_lease_release", map[string]any{"lease_id": id})
		p.sees("that its holder has it no longer", row(key)+`?.textContent.includes("reserved for root") ?? true`)
		p.eval(`window.kept || ""`, &kept)
	}
}

// A reader sees everything and has nothing to act with. What the page does not offer
// the API refuses.
func TestPageOfAReader(t *testing.T) {
	t.Parallel()
	b := startChromium(t)
	s := newSite(t)
	c := s.works(s.actor("seen", "root", "root", ""), inDir(t, "src"))
	s.acquire(c, "looked at", 600)
	p := b.open(s.link("--role", "reader"))
	p.sees("who it is", `document.querySelector("#who").textContent.startsWith("Reader")`)
	p.view("leases")
	p.eval(`new Promise((done) => setInterval(() => `+row("looked at")+` && done(), 20))`, nil)
	p.eval(row("looked at")+".click()", nil)
	p.sees("its history", `document.querySelector(".happened li")`)
	var buttons []string
	p.eval(`[...document.querySelectorAll(".panel button")].map((b) => b.textContent)`, &buttons)
	if fmt.Sprint(buttons) != "[Close]" {
		t.Errorf("a reader is offered %v", buttons)
	}
	p.tidy()
	var status int
	p.eval(`fetch("/api/v1/runs/seen/leases/revoke", { method: "POST", headers: { "Content-Type": "application/json", "Leasehold-Page": localStorage.getItem("leasehold-key") }, body: JSON.stringify({ scope: "run", key: "looked at", reason: "none" }) }).then((r) => r.status)`, &status)
	if status != 403 {
		t.Errorf("a revoke by a reader is answered %d", status)
	}
	s.do(s.operator, "operator_actor_end", map[string]any{"run": "seen", "path": "root"})
	p.view("tree")
	p.sees("that the tree is over", `document.querySelector("main").innerText.includes("All actors have ended. Choose All to see them.")`)
	var asked []int
	p.eval(`import("/page/model.js").then(async ({ Model }) => {
		const count = () => performance.getEntriesByType("resource").filter((e) => e.name.includes("/runs?") && !e.name.includes("ended=false")).length;
		const model = new Model(), before = count();
		await model.refreshRuns();
		const first = count();
		await model.refreshRuns();
		return [before + 1 - first, count() - first, model.runs.length];
	})`, &asked)
	if !slices.Equal(asked, []int{0, 0, 1}) {
		t.Errorf("runs that have ended are listed again though nothing has changed: %v", asked)
	}
	p.eval(`document.querySelector("#out").click()`, nil)
	p.sees("that it is signed out", `document.body.innerText.includes("leasehold open")`)
	p.eval(`fetch("/api/v1/runs").then((r) => r.status)`, &status)
	if status != 401 {
		t.Errorf("after signing out the API answers %d", status)
	}
}

// Of many runs the page offers the newest, and says how to get to another.
func TestPageOffersTheNewestRuns(t *testing.T) {
	t.Parallel()
	b := startChromium(t)
	s := newSite(t)
	for i := range 103 { // their names are in the order of their beginnings, backwards
		s.actor(fmt.Sprintf("run%03d", 900-i), "root", "root", "")
	}
	p := b.open(s.link())
	p.sees("the run that it begins with", `document.querySelector("#run").value === "run798"`)
	var offered []string
	p.eval(`[...document.querySelectorAll("#run option")].map((o) => o.textContent)`, &offered)
	if len(offered) != 101 || offered[0] != "run798" || offered[99] != "run897" || offered[100] != "3 more: write run=NAME into the address" {
		t.Errorf("%d offered: %v", len(offered), offered)
	}
	p.eval(`location.hash = "#/tree?run=run900"`, nil)
	p.sees("a run that is not among them", `document.querySelector("#run").value === "run900" && document.title.includes("run900")`)
	p.eval(`[...document.querySelectorAll("#run option")].map((o) => o.textContent)`, &offered)
	if len(offered) != 102 || offered[100] != "run900" || offered[101] != "2 more: write run=NAME into the address" {
		t.Errorf("%d offered: %v", len(offered), offered)
	}
	var origin string
	p.eval(`location.origin`, &origin)
	p.visit(origin + "/?run=run899") // after signing in, the address has nothing else
	p.sees("a run that is written behind a bare address", `document.querySelector("#run").value === "run899"`)
	p.eval(`document.querySelector("#tab-leases").click()`, nil)
	p.sees("its leases", `location.hash === "#/leases?run=run899"`)
	p.tidy()
}

// Nothing of a view is beyond the edge of a small phone. Filters that have no room there
// scroll, and long texts are cut off.
func TestPageOnASmallPhone(t *testing.T) {
	t.Parallel()
	b := startChromium(t)
	s := newSite(t)
	c := s.works(s.actor("small", "root", "root", ""), inDir(t, "src"))
	s.acquire(c, "file:"+strings.Repeat("a/long/path/", 20)+"of.go", 600)
	p := b.open(s.link())
	p.look(320, 640, "light")
	for view, has := range map[string]string{"tree": ".space .row", "leases": ".space .row", "queues": ".hush", "events": ".space .row", "logs": ".hush"} {
		p.view(view)
		p.sees(view, `document.title.toLowerCase().startsWith("`+view+`") && document.querySelector(".view `+has+`")`)
		var beyond []string
		p.eval(`[...document.querySelectorAll("body :not(.choices > *, .cell > *)")].filter((e) => e.getBoundingClientRect().right > innerWidth + 1).map((e) => e.outerHTML.slice(0, 100))`, &beyond)
		if len(beyond) > 0 {
			t.Errorf("%s: %d elements are beyond the edge: %s", view, len(beyond), strings.Join(beyond, "\n"))
		}
	}
	p.tidy()
}

// Many leases, actors and events do not freeze the page.
func TestPageUnderLoad(t *testing.T) {
	b := startChromium(t)
	s := newSite(t)
	lead := s.works(s.actor("load", "root", "root", ""), inDir(t, "src"))
	var holders []*client.Client
	for i := range *pageActors {
		token := s.actor("load", fmt.Sprintf("worker-%04d", i), "worker", "")
		if i < 20 {
			holders = append(holders, s.works(token, inDir(t, "src")))
		}
	}
	holders = append(holders, lead)
	for i := 0; i < *pageLeases; {
		some := []map[string]any{}
		for ; len(some) < 16 && i < *pageLeases; i++ {
			some = append(some, map[string]any{"scope": "run", "key": fmt.Sprintf("file:src/module-%05d.ts", i)})
		}
		s.do(holders[i/16%len(holders)], "lease_acquire_many", map[string]any{"leases": some, "ttl_secs": 3600, "reason": "rewrites the module"})
	}
	p := b.open(s.link())
	p.sees("the tree", `document.querySelectorAll(".tree .space .row").length > 5`)
	p.view("leases")
	p.sees("all leases", fmt.Sprintf(`document.querySelector(".leases").getAttribute("aria-rowcount") == %d`, *pageLeases+1))

	begun, sent := time.Now(), 0
	views, seen := []string{"events", "leases", "tree", "queues"}, 0
	for seen < len(views) || time.Since(begun) < *pageFor { // each view is seen, however slow this is
		s.acquire(lead, "busy", 60)
		id := s.acquire(lead, fmt.Sprintf("busy %d", sent), 60)
		s.do(lead, "run_lease_release", map[string]any{"lease_id": id})
		sent += 2
		if seen < len(views) && time.Since(begun) >= *pageFor*time.Duration(seen)/time.Duration(len(views)) {
			p.eval(fmt.Sprintf(`document.querySelector("#tab-%s").click()`, views[seen]), nil)
			// The next view must not be scrolled, so this is awaited.
			p.eval(`new Promise((done) => setTimeout(() => { const g = document.querySelector(".grid"); if (g) { g.scrollTop = g.scrollHeight / 2; } done(); }, 100))`, nil)
			seen++
		}
		if ahead := time.Duration(sent)*time.Second/time.Duration(*pageEvents) - time.Since(begun); ahead > 0 {
			time.Sleep(ahead)
		}
	}
	rate := float64(sent) / time.Since(begun).Seconds()
	p.view("events")
	p.sees("the last event", row(fmt.Sprintf("busy %d", sent-2)))
	var longest, rows float64
	p.eval(`window.longest`, &longest)
	p.eval(`document.querySelectorAll(".row").length`, &rows)
	var heap struct{ UsedSize float64 }
	p.must(p.call(p.session, "Runtime.getHeapUsage", nil, &heap))
	t.Logf("%d leases, %d actors, %.0f events/s for %v: longest task %.0f ms, %.0f rows in the page, %.0f MB of heap", *pageLeases, *pageActors+1, rate, *pageFor, longest, rows, heap.UsedSize/1e6)
	if longest > 5000 {
		t.Errorf("the page was frozen for %.0f ms", longest)
	}
	if rows > 200 {
		t.Errorf("%.0f rows are in the page, of which few can be seen", rows)
	}
	p.tidy()
}

// An accessibility check finds nothing, by day and by night, wide and on a phone.
func TestPageIsAccessible(t *testing.T) {
	if *pageAxe == "" {
		t.Skip("-page.axe says where axe-core is: just page")
	}
	axe, err := os.ReadFile(*pageAxe)
	if err != nil {
		t.Fatal(err)
	}
	b := startChromium(t)
	s := newSite(t)
	door := b.open(strings.SplitN(s.link(), "#", 2)[0])
	door.sees("the door", `document.querySelector(".door")`)
	s.shop()
	p := b.open(s.link())
	p.sees("the tree", row("checkout"))
	checks := 0
	check := func(p *tab, what string) {
		t.Helper()
		p.do("Page.bringToFront", nil)
		for _, look := range []struct {
			wide, tall int
			scheme     string
		}{{1280, 800, "light"}, {1280, 800, "dark"}, {390, 780, "light"}, {390, 780, "dark"}} {
			p.look(look.wide, look.tall, look.scheme)
			p.eval(`new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))`, nil)
			p.eval(`void (window.axe || (() => {`+string(axe)+`})())`, nil)
			var found []struct {
				ID, Help string
				Nodes    []struct{ HTML, FailureSummary string }
			}
			p.eval(`axe.run(document, { runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"] }).then((r) => r.passes.length > 9 && r.violations.map((v) => ({ id: v.id, help: v.help, nodes: v.nodes.slice(0, 3).map((n) => ({ html: n.html, failureSummary: n.failureSummary })) })))`, &found)
			checks++
			if len(found) > 0 {
				text, _ := json.MarshalIndent(found, "", "  ")
				t.Errorf("%s at %d×%d, %s: %s", what, look.wide, look.tall, look.scheme, text)
			}
		}
		p.look(1280, 800, "light")
	}
	check(door, "the door")
	check(p, "the tree")
	for _, view := range []string{"leases", "queues", "events", "logs"} {
		p.view(view)
		if view != "logs" {
			p.sees(view, `document.querySelectorAll(".space .row").length > 2`)
		}
		check(p, view)
		if view == "logs" {
			continue
		}
		p.eval(`document.querySelector(".space .row").click()`, nil)
		p.sees("the panel", `document.querySelector(".panel:not([hidden])")`)
		check(p, view+" with its panel")
		if view == "leases" {
			p.eval(`document.querySelector(".panel .danger").click()`, nil)
			check(p, "the question")
			p.press("Escape")
		}
	}
	t.Logf("%d checks", checks)
}

// The output of a launched agent is shown as it is written.
func TestPageShowsOutput(t *testing.T) {
	t.Parallel()
	b := startChromium(t)
	s := newSite(t)
	manifest := inDir(t, "night.toml")
	for file, text := range map[string]string{
		manifest:            "[agents.lead]\nextends = \"command\"\ncommand = [\"sh\", \"" + inDir(t, "lead.sh") + "\"]\n[root]\nagent = \"lead\"\nprompt = \"go\"\n",
		inDir(t, "lead.sh"): "echo first; echo '" + hostile[0] + "' >&2; until [ -e " + inDir(t, "go") + " ]; do sleep 0.1; done; echo last\n",
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run := testProgram(t, "dispatch", manifest)
	run.Dir, run.Stdout, run.Stderr = inDir(t, ""), t.Output(), t.Output()
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = run.Process.Kill(); _ = run.Wait() })
	// The daemon reads files of its own user's state, as leasehold logs does.
	awaitTrue(t, "the run begins", func() bool {
		answer, err := s.operator.Call(t.Context(), "operator_logs", map[string]any{"run": "night", "path": "root"})
		return err == nil && strings.Contains(string(answer.Object), "first")
	})
	p := b.open(s.link())
	p.sees("the tree", row("root"))
	p.view("logs")
	p.sees("what it wrote", `document.querySelector("pre").textContent === "first"`)
	p.sees("what it wrote to stderr", `document.querySelectorAll("pre")[1].textContent.includes("<img")`)
	if err := os.WriteFile(inDir(t, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	p.sees("what it wrote since", `document.querySelector("pre").textContent === "first\nlast"`)
	p.tidy()
}
