package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/leasehold/leasehold/dispatch/client"
)

// A small shop with a lead, two sub-leads and those who work for them.
func (s *site) shop() {
	s.t.Helper()
	home := filepath.Join(inDir(s.t, "src"), "shop")
	at := func(dir, name string) string { return branch(s.t, filepath.Join(filepath.Dir(home), dir), name) }
	lead := s.works(s.actor("shop", "root", "root", ""), at("shop", "main"))
	api := s.works(s.actor("shop", "api", "sublead", ""), at("shop-api", "api/orders"))
	web := s.works(s.actor("shop", "web", "sublead", ""), at("shop-web", "web/checkout"))
	s.do(lead, "run_lease_acquire", map[string]any{"key": "deploy:staging", "ttl_secs": 900, "reason": "release 2.4 goes out after the tests"})
	s.do(api, "run_lease_acquire", map[string]any{"path": "db/schema.sql", "ttl_secs": 300, "reason": "adds the table of refunds"})
	s.do(web, "run_lease_acquire", map[string]any{"key": "port:5173", "ttl_secs": 3600, "keep_alive": true, "reason": "development server"})
	for i, w := range []struct{ parent, name, dir, branch, key, reason string }{
		{"api", "orders", "shop-api", "api/orders", "file:src/api/orders.ts", "splits the handler"},
		{"api", "refunds", "shop-refunds", "api/refunds", "file:src/api/refunds.ts", "writes the refund flow"},
		{"api", "tests", "shop-tests", "api/tests", "port:5432", "database of the tests"},
		{"web", "cart", "shop-cart", "web/cart", "file:src/web/cart/**", "new totals"},
		{"web", "checkout", "shop-web", "web/checkout", "file:src/web/checkout.tsx", "address form"},
		{"web", "design", "shop-design", "web/design", "file:src/web/theme.css", "dark mode"},
	} {
		c := s.works(s.actor("shop", w.name, "worker", w.parent), at(w.dir, w.branch))
		s.do(c, "run_lease_acquire", map[string]any{"key": w.key, "ttl_secs": 60 + 45*i, "reason": w.reason})
		if i%2 == 0 {
			s.waits(c, "file:db/schema.sql")
		}
		if i == 5 {
			s.do(c, "run_lease_acquire", map[string]any{"key": "npm install", "ttl_secs": 9, "reason": "adds a package"})
		}
	}
	short := s.works(s.actor("shop", "docs", "worker", ""), at("shop-docs", "docs"))
	s.do(short, "lease_acquire", map[string]any{"name": "plan.md", "ttl_secs": 120})
	for q, n := range map[string]int{"thumbnails": 40, "emails": 14, "reports": 6} {
		for i := range n {
			s.do(lead, "task_enqueue", map[string]any{"queue": q, "payload": map[string]any{"n": i}, "max_attempts": 1})
		}
	}
	for i := range 22 {
		s.finish(short, "thumbnails", i%9 == 8)
	}
	for i := range 6 {
		s.finish(short, "emails", i == 2)
	}
}

// finish claims a task and completes it, or gives it up.
func (s *site) finish(c *client.Client, queue string, fails bool) {
	s.t.Helper()
	var got struct {
		Tasks []struct {
			TaskID string `json:"task_id"`
			Token  uint64
		}
	}
	s.read(s.do(c, "task_claim", map[string]any{"queues": []string{queue}, "ttl_secs": 60}), &got)
	for _, task := range got.Tasks {
		if fails {
			s.do(c, "task_nack", map[string]any{"task_id": task.TaskID, "token": task.Token, "reason": "exit status 1: out of memory"})
		} else {
			s.do(c, "task_submit", map[string]any{"task_id": task.TaskID, "token": task.Token, "status": "completed"})
		}
	}
}

// The pictures of the book come from a real run.
func TestPagePictures(t *testing.T) {
	if *pagePictures == "" {
		t.Skip("-page.pictures says where to put pictures for the book")
	}
	fonts(t)
	b := startChromium(t)
	s := newSite(t)
	s.shop()
	p := b.open(s.link())
	p.sees("the tree", `document.querySelectorAll(".tree .space .row").length > 6`)
	shots := 0
	shoot := func(name string, wide, tall int, scheme string) {
		if !slices.Contains([]string{"tree", "leases", "queues", "phone"}, name) && !*pageAll {
			return
		}
		p.look(wide, tall, scheme)
		time.Sleep(400 * time.Millisecond) // for what moves to come to rest
		p.picture(filepath.Join(*pagePictures, fmt.Sprintf("page-%s.png", name)))
		shots++
	}
	shoot("tree", 1280, 720, "light")
	p.view("leases")
	p.sees("leases", row("file:db/schema.sql"))
	p.eval(row("file:db/schema.sql")+".click()", nil)
	p.sees("its history", `document.querySelector(".happened li")`)
	shoot("leases", 1280, 720, "light")
	shoot("leases-dark", 1280, 720, "dark")
	p.eval(`document.querySelector(".panel .danger").click()`, nil)
	shoot("revoke", 1280, 720, "light")
	p.press("Escape")
	p.eval(`document.querySelector(".panel-head button").click()`, nil)
	shoot("phone", 390, 780, "dark")
	p.eval(row("file:db/schema.sql")+".click()", nil)
	shoot("x-phone-lease", 390, 780, "light")
	p.eval(`document.querySelector(".panel-head button").click()`, nil)
	p.look(1280, 720, "light")
	p.view("queues")
	p.sees("queues", row("thumbnails"))
	p.eval(row("thumbnails")+".click()", nil)
	p.sees("dead letters", `document.querySelector(".tasks li")`)
	shoot("queues", 1280, 720, "light")
	p.view("events")
	p.sees("events", `document.querySelectorAll(".events .space .row").length > 9`)
	shoot("events", 1280, 720, "dark")
	if *pageAll {
		for _, v := range []string{"tree", "queues", "events", "logs"} {
			p.view(v)
			shoot("x-phone-"+v, 390, 780, "light")
		}
		p.view("tree")
		p.eval(row("orders")+".click()", nil)
		shoot("x-tree-actor", 1280, 720, "light")
		shoot("x-phone-actor", 390, 780, "dark")
	}
	p.tidy()
	t.Logf("%d pictures", shots)
}

// fonts gives the browser what a desktop has, where it is installed.
func fonts(t *testing.T) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "fonts.conf")
	err := os.WriteFile(file, []byte(`<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig>
<include ignore_missing="yes">/etc/fonts/fonts.conf</include>
<match target="pattern"><test name="family" compare="contains"><string>sans</string></test><edit name="family" mode="prepend" binding="strong"><string>Inter</string></edit></match>
<match target="pattern"><test name="family" compare="contains"><string>system-ui</string></test><edit name="family" mode="prepend" binding="strong"><string>Inter</string></edit></match>
<alias binding="strong"><family>monospace</family><prefer><family>JetBrains Mono</family></prefer></alias>
</fontconfig>
`), 0o644)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("FONTCONFIG_FILE", file)
}
