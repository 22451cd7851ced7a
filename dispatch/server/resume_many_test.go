package server_test

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/leasehold/leasehold/dispatch/server"
	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/clock"
)

// A client makes many calls at once when the daemon has just been restarted. They are
// in one session, so they wait for no room for others, and none is refused for want of it.
func TestManyCallsResumeTheirSessionOnce(t *testing.T) {
	for range 10 { // they meet only now and then
		synctest.Test(t, func(t *testing.T) {
			fs := vfs.NewMem()
			opts := server.Options{Transport: server.Transport{ActorHTTPSessions: 2}}
			w := newWebOf(t, newDaemonOn(t, fs, clock.Clock{}, opts))
			session := w.open(t)
			w.close()
			w.daemon = newDaemonOn(t, fs, clock.Clock{}, opts)
			w.listen(t)
			began := time.Now()
			var calls sync.WaitGroup
			busy := make(chan struct{})
			calls.Go(func() { // the daemon knows the first of them only after this
				_ = w.eng.View(t.Context(), func(engine.Tx) error {
					close(busy)
					for range 100_000 {
						runtime.Gosched()
					}
					return nil
				})
			})
			<-busy
			for i := range 100 {
				calls.Go(func() {
					resp, body := w.do(t, "POST", acquireLine(i, fmt.Sprint("key", i)), session...)
					if resp.StatusCode != 200 || strings.Contains(body, `"isError":true`) {
						t.Errorf("%s %s", resp.Status, body)
					}
				})
			}
			calls.Wait()
			if took := time.Since(began); took > time.Second {
				t.Errorf("they took %v", took)
			}
		})
	}
}

// After a restart of the daemon, another client of the actor opens a session before the first
// one has come back to its own. There is room for one, but the first one keeps its session.
func TestANewSessionTakesNoneFromAClientThatComesBack(t *testing.T) {
	for name, limits := range map[string]server.Transport{
		"the bound of an actor": {ActorHTTPSessions: 1}, "the bound of all": {HTTPSessions: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fs := vfs.NewMem()
				opts := server.Options{Transport: limits}
				w := newWebOf(t, newDaemonOn(t, fs, clock.Clock{}, opts))
				session := w.open(t)
				w.close()
				w.daemon = newDaemonOn(t, fs, clock.Clock{}, opts)
				w.listen(t)
				w.open(t)
				if resp, body := w.do(t, "POST", ping, session...); resp.StatusCode != 200 {
					t.Errorf("it comes back: %s %s", resp.Status, body)
				}
				if resp, body := w.do(t, "POST", initialize); resp.StatusCode != 503 {
					t.Errorf("a third session: %s %s", resp.Status, body)
				}
			})
		})
	}
}
