package server_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/server"
)

func TestWelcomeSaysWhoOneIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDaemon(t, server.Options{Version: "v9"})
		d.token(t, "root")
		p := d.pipe(t)
		p.greet(server.Hello{Token: d.token(t, "W1")})
		w := p.welcome
		if !w.OK || w.Version != "v9" || w.Resumed || w.Handle == "" ||
			w.Actor.Path != "W1" || w.Actor.Role != dispatch.Worker || w.Actor.Run != "r" {
			t.Errorf("welcome: %+v %+v", w, w.Actor)
		}

		again := d.pipe(t)
		again.greet(server.Hello{Handle: w.Handle})
		if !again.welcome.Resumed || again.welcome.Actor.ID != w.Actor.ID {
			t.Errorf("welcome: %+v", again.welcome)
		}

		op := d.pipe(t)
		op.greet(server.Hello{Operator: true})
		if op.welcome.Actor.Role != dispatch.Operator || op.welcome.Handle != "" {
			t.Errorf("welcome: %+v", op.welcome)
		}
	})
}

// The name or run of a client must not become another one in JSON. Its directory only
// informs people.
func TestHelloIsSentInUTF8(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDaemon(t, server.Options{})
		d.token(t, "root")
		for hello, want := range map[server.Hello]string{
			{Run: "r", Name: "w\xff"}:                         "name must be valid UTF-8",
			{Run: "r\xff", Name: "w"}:                         "run must be valid UTF-8",
			{Run: "r", Name: "w", Directory: "/home/caf\xe9"}: "",
		} {
			_, _, err := server.Greet(d.pipe(t).nc, hello)
			if refused, ok := errors.AsType[*server.HelloError](err); ok != (want != "") || ok && (refused.Code != "INVALID_ARGUMENT" || refused.Message != want) {
				t.Errorf("%+v: %v, want %q", hello, err, want)
			}
		}
	})
}

func TestBadHelloIsRefusedByCode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDaemon(t, server.Options{})
		for hello, code := range map[string]string{
			`{"leasehold":1,"token":"lht_no"}`:                                          "UNAUTHENTICATED",
			`{"leasehold":1,"handle":"lhs_no"}`:                                         "UNAUTHENTICATED",
			`{"leasehold":1,"run":"r"}`:                                                 "INVALID_ARGUMENT",
			`{"leasehold":0,"run":"r","name":"w"}`:                                      "INVALID_ARGUMENT",
			fmt.Sprintf(`{"leasehold":%d,"run":"r","name":"w"}`, server.HelloVersion+1): "INVALID_ARGUMENT",
			`{"leasehold":1,"run":"r","name":"w","shoe_size":"9"}`:                      "INVALID_ARGUMENT",
			`hello`: "INVALID_ARGUMENT",
		} {
			p := d.pipe(t)
			p.send("%s", hello)
			line, err := p.br.ReadString('\n')
			if err != nil || !strings.Contains(line, `"code":"`+code+`"`) {
				t.Errorf("%s: %s %v, want %s", hello, line, err, code)
			}
			p.expectClosed()
		}
	})
}

func TestRefusalIsAnErrorOfGreet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDaemon(t, server.Options{})
		_, _, err := server.Greet(d.pipe(t).nc, server.Hello{Token: "lht_no"})
		if refused, ok := errors.AsType[*server.HelloError](err); !ok || refused.Code != "UNAUTHENTICATED" {
			t.Errorf("error: %v", err)
		}
	})
}

func TestWhoSaysNoHelloIsCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDaemon(t, server.Options{})
		start := time.Now()
		p := d.pipe(t)
		p.nc.Write([]byte(`{"leasehold":1,`)) // and no more
		p.expectClosed()
		if took := time.Since(start); took < 5*time.Second || took > 6*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

// While the database is away, a client is told so before it gives up, as clients do
// after 10 s. If its session opens later, that is as if the client had gone.
func TestWhoeverConnectsWhileTheDatabaseIsAwayIsToldInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		held, state := openHeld(t)
		trouble := ""
		d := &daemon{Server: server.New(state, server.Options{Trouble: func() string { return trouble }}), state: state, ctx: t.Context()}
		d.token(t, "root")
		token := d.token(t, "W1")
		first := d.pipe(t)
		first.greet(server.Hello{Token: token})

		held.held, trouble = make(chan struct{}), "its database does not answer"
		again := d.pipe(t)
		if err := again.nc.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
			t.Fatal(err)
		}
		_, _, err := server.Greet(again.nc, server.Hello{Handle: first.welcome.Handle})
		refused, ok := errors.AsType[*server.HelloError](err)
		if !ok || refused.Code != "UNAVAILABLE" || !strings.Contains(refused.Message, ": its database does not answer; try again") {
			t.Errorf("it was told: %v", err)
		}
		again.nc.Close()

		close(held.held)
		trouble = ""
		last := d.pipe(t)
		last.greet(server.Hello{Handle: first.welcome.Handle})
		time.Sleep(time.Minute)
		if last.welcome.Handle != first.welcome.Handle || !last.welcome.Resumed {
			t.Errorf("it came back to %+v", last.welcome)
		}
		last.nc.Close()
		first.nc.Close()
		d.conns.Wait()
	})
}
