package launcher_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold/dispatch/client"
	"github.com/leasehold/leasehold/dispatch/launcher"
	"github.com/leasehold/leasehold/dispatch/server"
)

var errBroken = errors.New("the connection broke")

// A daemon is what a link connects to.
type daemon struct {
	mu       sync.Mutex
	away     error // why there is no connection
	dials    int
	attached int
	refuses  error // to attach
	calls    []string
	breaks   int // so many connections break, each at its next call
	busy     int // so many calls are refused
	refusal  client.Refusal
	still    int // so many connections answer nothing, each from its next call on
	told     []bool
	open     int  // connections
	hangs    bool // whoever connects gets no answer
}

func (d *daemon) dial(ctx context.Context) (launcher.Connection, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.dials++
	if d.hangs {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	if d.away != nil {
		return nil, d.away
	}
	d.open++
	return &line{daemon: d, closed: make(chan struct{})}, nil
}

func (d *daemon) attach(context.Context, launcher.Connection) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.attached++
	return d.refuses
}

func (d *daemon) tell(lost bool) { d.told = append(d.told, lost) }

type line struct {
	*daemon
	broken bool // and stays so
	stands bool // as broken
	closed chan struct{}
}

func (l *line) Call(ctx context.Context, tool string, _ any) (client.Answer, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.stands && l.still > 0 {
		l.stands = true
		l.still--
	}
	if l.stands {
		l.mu.Unlock()
		defer l.mu.Lock()
		select {
		case <-ctx.Done():
			return client.Answer{}, context.Cause(ctx)
		case <-l.closed:
			return client.Answer{}, errBroken
		}
	}
	if !l.broken && l.breaks > 0 {
		l.broken = true
		l.breaks--
	}
	if l.broken {
		return client.Answer{}, errBroken
	}
	if l.busy > 0 {
		l.busy--
		return client.Answer{}, &l.refusal
	}
	l.calls = append(l.calls, tool)
	return client.Answer{Object: []byte(`{}`)}, nil
}

func (l *line) Close() error {
	close(l.closed)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open--
	return nil
}

func linked(t *testing.T, d *daemon, hurry <-chan struct{}) *launcher.Link {
	l := launcher.NewLink(d.dial, d.attach, d.tell, hurry)
	if err := l.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	return l
}

// A call that breaks off is made again, on a connection that attached first.
func TestBrokenCallIsMadeAgainAfterAttaching(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &daemon{}
		l := linked(t, d, nil)
		d.breaks = 1
		if err := l.Call(t.Context(), "report"); err != nil {
			t.Fatal(err)
		}
		if d.attached != 1 || len(d.calls) != 1 || d.open != 1 || fmt.Sprint(d.told) != "[true false]" {
			t.Errorf("attached %d times, calls %v, %d connections, told %v", d.attached, d.calls, d.open, d.told)
		}
	})
}

// A connection is lost once, however many calls it takes with it.
func TestAConnectionIsLostOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &daemon{still: 1}
		l := linked(t, d, nil)
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := l.Wait(t.Context(), "orders"); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		if err := l.Call(t.Context(), "report"); err != nil {
			t.Error(err)
		}
		wg.Wait()
		if d.dials != 2 || d.open != 1 || len(d.calls) != 2 || fmt.Sprint(d.told) != "[true false]" {
			t.Errorf("%d dials, %d connections, calls %v, told %v", d.dials, d.open, d.calls, d.told)
		}
	})
}

// Who gives up a call leaves the connection to the others. A call that waits may take longer
// than a daemon that is away.
func TestACallThatIsGivenUpLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &daemon{still: 1}
		l := linked(t, d, nil)
		ctx, cancel := context.WithTimeout(t.Context(), 2*launcher.Patience)
		defer cancel()
		if err := l.Wait(ctx, "orders"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v", err)
		}
		if d.dials != 1 || d.open != 1 || d.told != nil {
			t.Errorf("%d dials, %d connections, told %v", d.dials, d.open, d.told)
		}
	})
}

// A daemon that comes back within the patience is all that the calls notice.
func TestCallsWaitForDaemonThatComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &daemon{}
		l := linked(t, d, nil)
		d.breaks, d.away = 1, errors.New("no such file")
		time.AfterFunc(launcher.Patience-time.Second, func() {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.away = nil
		})
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				if err := l.Call(t.Context(), "report"); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if len(d.calls) != 20 || d.attached != 1 {
			t.Errorf("%d calls, attached %d times", len(d.calls), d.attached)
		}
	})
}

// A daemon that stays away is waited for once, however many calls there are.
func TestDaemonThatStaysAwayIsWaitedForOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &daemon{}
		l := linked(t, d, nil)
		d.breaks, d.away = 1, errors.New("no such file")
		began := time.Now()
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() {
				err := l.Call(t.Context(), "report")
				if !errors.Is(err, launcher.ErrDaemonGone) || !strings.Contains(err.Error(), "no such file") {
					t.Errorf("error %v, want one that says that the daemon is gone, and why", err)
				}
			})
		}
		wg.Wait()
		if took := time.Since(began); took != launcher.Patience {
			t.Errorf("all had failed after %v, want %v", took, launcher.Patience)
		}
	})
}

// Once the run is killed a daemon that is away is not waited for much longer.
func TestHurryShortensTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, hurry := &daemon{}, make(chan struct{})
		l := linked(t, d, hurry)
		d.breaks, d.away = 1, errors.New("no such file")
		began := time.Now()
		time.AfterFunc(time.Second, func() { close(hurry) })
		if err := l.Call(t.Context(), "report"); !errors.Is(err, launcher.ErrDaemonGone) {
			t.Error(err)
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

// A daemon that stands still is waited for as one that is away: its connection is lost, and
// calls are made again on another. When the run has been killed, that does not take long.
func TestADaemonThatStandsStillIsAway(t *testing.T) {
	for name, killed := range map[string]bool{"in time": false, "killed": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, hurry := &daemon{still: 1}, make(chan struct{})
				l := linked(t, d, hurry)
				patience := launcher.Patience
				if killed {
					patience = launcher.LastPatience
					close(hurry)
				}
				began := time.Now()
				if err := l.Call(t.Context(), "report"); err != nil || len(d.calls) != 1 || d.attached != 1 {
					t.Errorf("%v, calls %v, attached %d times", err, d.calls, d.attached)
				}
				if took := time.Since(began); took != patience {
					t.Errorf("the first connection was given up after %v, want %v", took, patience)
				}
				d.still, d.away = 1, errors.New("no such file")
				if err := l.Call(t.Context(), "report"); !errors.Is(err, launcher.ErrDaemonGone) {
					t.Errorf("error %v of a call that nobody has served", err)
				}
				if took := time.Since(began); took != 3*patience {
					t.Errorf("the daemon was given up after %v, want %v", took, 3*patience)
				}
				d = &daemon{breaks: 1, hangs: true}
				l = launcher.NewLink(d.dial, d.attach, d.tell, hurry)
				if err := l.Call(t.Context(), "report"); err == nil || err.Error() != "the daemon stayed away" {
					t.Errorf("error %v of a daemon that lets nobody connect", err)
				}
			})
		})
	}
}

// Who gives up waiting for a connection does not end the wait of others, nor
// has to wait for those who try.
func TestOneWhoGivesUpLeavesTheOthersWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &daemon{}
		l := linked(t, d, nil)
		d.breaks, d.away = 1, errors.New("no such file")
		time.AfterFunc(20*time.Second, func() {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.away = nil
		})
		var wg sync.WaitGroup
		for n := range 3 {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(n+1)*time.Second)
				defer cancel()
				began := time.Now()
				if err := l.Call(ctx, "short"); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("error %v", err)
				}
				if took := time.Since(began); took != time.Duration(n+1)*time.Second {
					t.Errorf("the caller with %d s gave up after %v", n+1, took)
				}
			})
		}
		synctest.Wait() // one of them connects for all
		if err := l.Call(t.Context(), "long"); err != nil {
			t.Error(err)
		}
		wg.Wait()
	})
}

// A daemon that is there and refuses is not asked again, but for one that is
// just going or coming.
func TestRefusalToAttachEndsTheLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &daemon{refuses: &client.Refusal{Code: "NOT_FOUND", Message: "no such run"}}
		l := linked(t, d, nil)
		d.breaks = 1
		for range 2 {
			if err := l.Call(t.Context(), "report"); err == nil || err.Error() != "no such run" {
				t.Errorf("error %v", err)
			}
		}
		if d.attached != 1 {
			t.Errorf("attached %d times", d.attached)
		}
		d = &daemon{refuses: &client.Refusal{Code: "UNAVAILABLE", Message: "shutting down"}}
		l = linked(t, d, nil)
		d.breaks = 1
		time.AfterFunc(time.Second, func() {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.refuses = nil
		})
		if err := l.Call(t.Context(), "report"); err != nil {
			t.Error(err)
		}
	})
}

// Who is turned away, as an agent that would dispatch a run, learns it at once.
func TestTurnedAwayIsToldAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		d := &daemon{away: &server.HelloError{Code: "FORBIDDEN", Message: "you are an agent"}}
		l := launcher.NewLink(d.dial, d.attach, d.tell, nil)
		if err := l.Open(t.Context()); err == nil || err.Error() != "you are an agent" || time.Since(began) != 0 {
			t.Errorf("error %v after %v", err, time.Since(began))
		}
	})
}

// A call that is refused for the present is made again, on a new connection if its run may
// have gone to another server. It is not made for ever, and not at all if the refusal lasts.
func TestACallThatIsRefusedForThePresentIsMadeAgain(t *testing.T) {
	for name, test := range map[string]struct {
		refusal  client.Refusal
		passes   bool
		attached int
	}{
		"the run goes to another server": {client.Refusal{Code: "UNAVAILABLE"}, true, 3},
		"the disk is full":               {refusal("UNAVAILABLE", `{"disk_full":true}`), false, 0},
		"a limit is reached":             {refusal("LIMIT", `{"max":1}`), true, 0},
		"it is too large":                {refusal("LIMIT", `{"max":1,"too_large":true}`), false, 0},
		"it is forbidden":                {client.Refusal{Code: "FORBIDDEN"}, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := &daemon{busy: 3, refusal: test.refusal}
				l := linked(t, d, nil)
				if err := l.Call(t.Context(), "report"); (err == nil) != test.passes || d.attached != test.attached {
					t.Fatalf("%v, attached %d times", err, d.attached)
				}
				d.busy = 1 << 30
				began, patience := time.Now(), time.Duration(0)
				if test.passes {
					patience = launcher.Patience
				}
				if err := l.Call(t.Context(), "report"); !errors.As(err, new(*client.Refusal)) {
					t.Errorf("error %v", err)
				}
				if took := time.Since(began); took < patience || took > patience+time.Second {
					t.Errorf("it was made for %v", took)
				}
			})
		})
	}
}

func refusal(code, object string) client.Refusal {
	return client.Refusal{Code: code, Answer: client.Answer{Object: []byte(object)}}
}

// Others have taken all room for calls that wait. A launcher waits until it has some again,
// however long that takes: its agents are at work meanwhile. It does not wait that long for a
// daemon that cannot serve it.
func TestACallThatFindsNoRoomToWaitIsMadeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &daemon{busy: int(20 * launcher.Patience / time.Second), refusal: refusal("LIMIT", `{"max":16384}`)}
		if err := linked(t, d, nil).Wait(t.Context(), "orders"); err != nil || len(d.calls) != 1 || d.dials != 1 {
			t.Errorf("%d calls over %d connections: %v", len(d.calls), d.dials, err)
		}
		d.busy, d.refusal = 1<<30, client.Refusal{Code: "UNAVAILABLE"}
		ctx, cancel := context.WithTimeout(t.Context(), 2*launcher.Patience)
		defer cancel()
		if err := linked(t, d, nil).Wait(ctx, "orders"); !errors.As(err, new(*client.Refusal)) {
			t.Errorf("error %v of a daemon that serves nobody", err)
		}
	})
}

// A daemon that does not let the launcher attach for the present is asked again.
func TestALauncherThatIsRefusedForThePresentAttachesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := refusal("LIMIT", `{}`)
		d := &daemon{refuses: &limit}
		l := linked(t, d, nil)
		d.breaks = 1
		time.AfterFunc(time.Second, func() {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.refuses = nil
		})
		if err := l.Call(t.Context(), "report"); err != nil || len(d.calls) != 1 || d.open != 1 {
			t.Errorf("%v, calls %v, %d connections", err, d.calls, d.open)
		}
	})
}
