package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/leasehold/leasehold/dispatch/client"
	"github.com/leasehold/leasehold/dispatch/server"
)

var (
	pageAxe      = flag.String("page.axe", "", "axe.min.js, by which the page is checked for accessibility")
	pageLeases   = flag.Int("page.leases", 1000, "leases that the page shows under load")
	pageActors   = flag.Int("page.actors", 100, "actors that it shows")
	pageEvents   = flag.Int("page.events", 100, "events a second")
	pageFor      = flag.Duration("page.for", time.Second, "for how long")
	pageAll      = flag.Bool("page.all", false, "and pictures of everything else")
	pagePictures = flag.String("page.pictures", "", "take pictures for the book, into this directory")
)

// A site is a daemon whose page a browser looks at.
type site struct {
	t        *testing.T
	operator *client.Client
}

func newSite(t *testing.T) *site {
	t.Helper()
	newDir(t)
	startDaemon(t)
	return &site{t: t, operator: connectAgent(t, server.Hello{Operator: true})}
}

// connectAgent connects to the daemon of the test.
func connectAgent(t *testing.T, hello server.Hello) *client.Client {
	t.Helper()
	nc, err := net.Dial("unix", inDir(t, "s"))
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.Connect(t.Context(), nc, hello, "test", "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// link asks leasehold open for a link.
func (s *site) link(args ...string) string {
	s.t.Helper()
	out, err := testProgram(s.t, append([]string{"open", "--print"}, args...)...).CombinedOutput()
	if err != nil {
		s.t.Fatalf("leasehold open: %v\n%s", err, out)
	}
	return strings.TrimSpace(string(out))
}

func (s *site) do(c *client.Client, tool string, args map[string]any) json.RawMessage {
	s.t.Helper()
	answer, err := c.Call(s.t.Context(), tool, args)
	if err != nil {
		s.t.Fatalf("%s %v: %v", tool, args, err)
	}
	return answer.Object
}

func (s *site) read(object json.RawMessage, v any) {
	s.t.Helper()
	if err := json.Unmarshal(object, v); err != nil {
		s.t.Fatal(err)
	}
}

// actor makes an actor, and gives its token.
func (s *site) actor(run, name, role, parent string) string {
	s.t.Helper()
	var made struct{ Token string }
	args := map[string]any{"run": run, "name": name, "role": role}
	if parent != "" {
		args["parent"] = parent
	}
	s.read(s.do(s.operator, "operator_actor_add", args), &made)
	return made.Token
}

// works connects an actor that works in a directory.
func (s *site) works(token, directory string) *client.Client {
	s.t.Helper()
	return connectAgent(s.t, server.Hello{Token: token, Directory: directory})
}

// waits has an actor wait for a lease of the run.
func (s *site) waits(c *client.Client, key string) {
	ctx, stop := context.WithCancel(s.t.Context())
	done := make(chan struct{})
	go func() { // ends with the test
		defer close(done)
		_, _ = c.Call(ctx, "run_lease_acquire", map[string]any{"key": key, "wait_secs": 50, "ttl_secs": 600})
	}()
	s.t.Cleanup(func() { stop(); <-done })
}

// branch makes a directory that is a work tree with a branch.
func branch(t *testing.T, dir, name string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(dir, ".git"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, ".git", "HEAD"), []byte("ref: refs/heads/"+name+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

// row is a script that gives the row of a list with a text in it.
func row(text string) string {
	return fmt.Sprintf(`[...document.querySelectorAll(".space .row")].find((r) => r.textContent.includes(%q))`, text)
}

// go to a view.
func (p *tab) view(name string) {
	p.t.Helper()
	p.sees("the way to "+name, fmt.Sprintf(`document.querySelector("#tab-%s").href`, name))
	p.eval(fmt.Sprintf(`document.querySelector("#tab-%s").click()`, name), nil)
	p.sees(name, fmt.Sprintf(`document.querySelector("#tab-%s").getAttribute("aria-current") === "page"`, name))
}

// tidy fails the test if a page has logged an error.
func (p *tab) tidy() {
	p.t.Helper()
	for _, line := range p.errorsSeen() {
		p.t.Errorf("the page logged an error: %s", line)
	}
}
