package server_test

import (
	"context"
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

// A client deletes its session, and one of its requests arrives while the calls are
// cancelled. The request does not resume the session, which would then not end.
func TestARequestResumesNoSessionThatEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWeb(t, server.Options{})
		ends := make(chan (<-chan struct{}), 1)
		var se *dispatchSession
		w.AddTestTool("block", func(ctx context.Context, by *dispatchSession) string {
			slow, cancel := context.WithCancel(ctx)
			defer cancel()
			for range 300_000 { // they end after slow, one after the other
				_, stop := context.WithCancel(slow)
				defer stop()
			}
			se = by
			ends <- slow.Done()
			<-slow.Done()
			return ""
		})
		session := w.open(t)
		var calls sync.WaitGroup
		calls.Go(func() { w.do(t, "POST", block, session...) })
		ending := <-ends
		calls.Go(func() {
			if resp, body := w.do(t, "DELETE", "", session...); resp.StatusCode != 204 {
				t.Errorf("DELETE: %s %s", resp.Status, body)
			}
		})
		<-ending
		if resp, body := w.do(t, "POST", ping, session...); resp.StatusCode != 404 {
			t.Errorf("a request meanwhile: %s %s", resp.Status, body)
		}
		calls.Wait()
		synctest.Wait()
		if se.Context().Err() == nil {
			t.Error("the session goes on")
		}
	})
}

// The room of a session is free once, however its end becomes known.
func TestTheRoomOfASessionIsFreeOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWeb(t, server.Options{Transport: server.Transport{ActorHTTPSessions: 2}})
		w.open(t)
		w.do(t, "DELETE", "", w.open(t)...)
		synctest.Wait()
		w.open(t)
		if resp, body := w.do(t, "POST", initialize); resp.StatusCode != 503 {
			t.Errorf("a third session: %s %s", resp.Status, body)
		}
	})
}

// A program comes back to its session after a restart of the daemon, is refused, and is
// gone: the session ends when it has been idle.
func TestASessionEndsThatWasResumedForARefusedRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := vfs.NewMem()
		p := newProgram(t, newWebOf(t, newDaemonOn(t, fs, clock.Clock{}, server.Options{}))).open()
		p.want(201, "POST", "/leases", `{"key":"k","ttl_secs":60,"keep_alive":true}`)
		p.close()
		p.daemon = newDaemonOn(t, fs, clock.Clock{}, server.Options{})
		p.listen(t)
		p.want(403, "GET", "/runs/r/events/stream", "") // which is an operator's
		time.Sleep(time.Hour)
		p.another("other").open().want(201, "POST", "/leases", `{"key":"k"}`)
	})
}
