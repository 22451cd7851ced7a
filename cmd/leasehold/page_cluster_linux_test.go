package main

import (
	"os"
	"strings"
	"testing"

	"github.com/leasehold/leasehold/dispatch/server"
	"github.com/leasehold/leasehold/engine/postgres/postgrestest"
)

// The page of a server that does not lead, one of three, shows what the leader knows,
// and acts there.
func TestPageThroughAnotherServer(t *testing.T) {
	t.Parallel()
	b := startChromium(t)
	dsn := postgrestest.Database(t)
	newDir(t, "LEASEHOLD_POSTGRES="+dsn)
	secret := inDir(t, "secret")
	if err := os.WriteFile(secret, []byte(strings.Repeat("s", 40)), 0o600); err != nil {
		t.Fatal(err)
	}
	serve := func(socket string, args ...string) {
		cmd := testProgram(t, append([]string{"serve", "--single-node", "--listen", "127.0.0.1:0", "--cluster-secret", secret, "--socket", socket}, args...)...)
		cmd.Stderr = t.Output()
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		awaitTrue(t, "a server listens", func() bool { return listenerOf(socket) == cmd.Process.Pid })
	}
	serve(inDir(t, "s"))
	s := &site{t: t, operator: connectAgent(t, server.Hello{Operator: true})}
	root := s.works(s.actor("far", "root", "root", ""), inDir(t, "src"))
	s.acquire(root, "led elsewhere", 600)
	serve(inDir(t, "c.s"), "--state", inDir(t, "c"))
	serve(inDir(t, "b.s"), "--state", inDir(t, "b"), "--http", "127.0.0.1:0")

	p := b.open(s.link("--socket", inDir(t, "b.s")))
	p.sees("the tree", row("root"))
	p.view("leases")
	p.sees("a lease", row("led elsewhere"))
	s.acquire(root, "taken now", 600)
	p.sees("what happens", row("taken now"))
	p.eval(row("taken now")+".click()", nil)
	p.answer("Revoke lease", "needed")
	p.sees("that it is revoked", "!"+row("taken now"))
	p.tidy()
}
