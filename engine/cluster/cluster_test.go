package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine/clock"
	"github.com/leasehold/leasehold/engine/cluster"
)

// A world is a database and the servers that meet there. It knows at each instant who
// answers for what.
type world struct {
	*testing.T
	mu         sync.Mutex
	gone       error      // why the database does not answer; nil: it does
	hangs      bool       // it neither answers nor refuses
	refuses    bool       // it lets nobody lead
	flaky      *rand.Rand // whether it answers, and has done what it was asked, is random; nil: it answers
	servers    map[uuid.UUID]*cluster.Server
	partitions []cluster.Partition

	houses []*house
	moves  int          // how often a partition was taken
	dead   atomic.Value // the server whose process is known to have ended
}

// A house is one server.
type house struct {
	w      *world
	name   string
	member *cluster.Member
	stop   context.CancelFunc
	done   chan struct{}

	mu     sync.Mutex
	fail   chan struct{} // closed when what it leads fails
	frozen chan struct{} // not nil while it is paused
	leads  map[int64]*cluster.Term
	seen   int64        // of the last partition that it was to lead
	slow   atomic.Int64 // how long an answer to a beat takes, in nanoseconds
	linger atomic.Int64 // how long it takes to end the lead of partition 0
	log    []string
}

func newWorld(t *testing.T, partitions int) *world {
	w := &world{T: t, servers: make(map[uuid.UUID]*cluster.Server)}
	for n := range partitions {
		w.partitions = append(w.partitions, cluster.Partition{Number: int64(n)})
	}
	return w
}

func (w *world) start(name string) *house {
	h := &house{w: w, name: name, done: make(chan struct{}), fail: make(chan struct{}), leads: make(map[int64]*cluster.Term)}
	h.member = cluster.NewMember(cluster.Options{
		Database: h, Address: name, Lead: h.lead, Clock: clock.Go(),
		Gone: func(s cluster.Server) bool { return s.Address == w.dead.Load() },
		Tell: func(s cluster.Server) {
			for _, other := range w.houses {
				if other.name == s.Address {
					other.member.Poke()
				}
			}
		},
		Logf: func(format string, args ...any) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.log = append(h.log, fmt.Sprintf(format, args...))
		},
	})
	ctx, stop := context.WithCancel(context.Background())
	h.stop = stop
	w.houses = append(w.houses, h)
	go func() {
		defer close(h.done)
		_ = h.member.Run(ctx)
	}()
	return h
}

var errGone = errors.New("no database")

// in runs what a server asks of the database, unless that or the server stands still.
func (h *house) in(ctx context.Context, do func(w *world)) error {
	h.awake()
	h.w.mu.Lock()
	defer h.w.mu.Unlock()
	if h.w.hangs {
		h.w.mu.Unlock()
		<-ctx.Done()
		h.w.mu.Lock()
		return ctx.Err()
	}
	if h.w.gone != nil {
		return h.w.gone
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if h.w.fails() {
		return errGone
	}
	do(h.w)
	if h.w.fails() {
		return errGone
	}
	return nil
}

// fails reports whether the database does not answer this time. The caller holds mu.
func (w *world) fails() bool { return w.flaky != nil && w.flaky.IntN(3) == 0 }

func (h *house) Register(ctx context.Context, s cluster.Server) error {
	return h.in(ctx, func(w *world) { w.servers[s.ID] = &s })
}

func (h *house) Beat(ctx context.Context, id uuid.UUID, _ int64) (look cluster.Look, there bool, err error) {
	err = h.in(ctx, func(w *world) {
		if w.servers[id] != nil {
			there = true
			w.servers[id].Beats++
		}
		for _, id := range slices.SortedFunc(maps.Keys(w.servers), func(a, b uuid.UUID) int { return slices.Compare(a[:], b[:]) }) {
			look.Servers = append(look.Servers, *w.servers[id])
		}
		look.Partitions = slices.Clone(w.partitions)
	})
	time.Sleep(time.Duration(h.slow.Load()))
	h.awake() // it may have been paused with the answer on its way
	return look, there, err
}

func (h *house) Remove(ctx context.Context, id uuid.UUID, beats int64) error {
	return h.in(ctx, func(w *world) {
		if s := w.servers[id]; s != nil && s.Beats == beats {
			delete(w.servers, id)
		}
	})
}

func (h *house) Drain(ctx context.Context, id uuid.UUID) error {
	return h.in(ctx, func(w *world) {
		if s := w.servers[id]; s != nil {
			s.Draining = true
		}
	})
}

func (h *house) Leave(ctx context.Context, id uuid.UUID) error {
	return h.in(ctx, func(w *world) { delete(w.servers, id) })
}

func (h *house) Release(ctx context.Context, partition int64, leader uuid.UUID) error {
	return h.in(ctx, func(w *world) {
		if p := &w.partitions[partition]; p.Leader == leader {
			p.Leader = uuid.Nil
		}
	})
}

// lead takes the lead as an engine does.
func (h *house) lead(ctx context.Context, p cluster.Partition, term *cluster.Term) error {
	taken, refused := false, false
	err := h.in(ctx, func(w *world) {
		if refused = w.refuses; refused {
			return
		}
		now := &w.partitions[p.Number]
		if now.Epoch == p.Epoch && w.servers[now.Leader] == nil {
			now.Epoch, now.Leader, taken = now.Epoch+1, term.ID, true
			w.moves++
		}
	})
	if refused {
		return errors.New("permission denied")
	}
	if err != nil || !taken {
		return err
	}
	h.mu.Lock()
	h.leads[p.Number], h.seen = term, p.Seen
	fail := h.fail
	h.mu.Unlock()
	select {
	case <-ctx.Done():
		if p.Number == 0 {
			time.Sleep(time.Duration(h.linger.Load()))
		}
	case <-fail:
		err = errGone
	}
	h.mu.Lock()
	delete(h.leads, p.Number)
	h.mu.Unlock()
	return err
}

// giveUp makes everything that the server leads fail.
func (h *house) giveUp() {
	h.mu.Lock()
	defer h.mu.Unlock()
	close(h.fail)
	h.fail = make(chan struct{})
}

// pause stops what the server does, as SIGSTOP would, until resume.
func (h *house) pause() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.frozen = make(chan struct{})
}

func (h *house) resume() {
	h.mu.Lock()
	defer h.mu.Unlock()
	close(h.frozen)
	h.frozen = nil
}

func (h *house) awake() {
	h.mu.Lock()
	frozen := h.frozen
	h.mu.Unlock()
	if frozen != nil {
		<-frozen
	}
}

// answers reports whether the server would answer for a partition now. The database
// does not know what a paused server would say when it is resumed, so it is asked.
func (h *house) answers(partition int64) bool {
	h.mu.Lock()
	term := h.leads[partition]
	h.mu.Unlock()
	if term == nil {
		return false
	}
	said := make(chan error, 1)
	go func() { said <- term.Confirm() }()
	synctest.Wait()
	select {
	case err := <-said:
		return err == nil
	default: // it waits
		return false
	}
}

// check fails if two answer for a partition. It gives how many each answers for.
func (w *world) check() map[string]int {
	w.Helper()
	synctest.Wait() // a hand-over at this instant is over
	counts := make(map[string]int)
	for n := range w.partitions {
		var by []string
		for _, h := range w.houses {
			if h.answers(int64(n)) {
				by = append(by, h.name)
				counts[h.name]++
			}
			if to, self, _ := h.member.Leader(int64(n)); to.Address == h.name && !self {
				w.Errorf("%s passes clients of partition %d on to itself", h.name, n)
			}
		}
		if len(by) > 1 {
			w.Errorf("partition %d is answered for by %v", n, by)
		}
	}
	return counts
}

func (w *world) want(counts map[string]int) {
	w.Helper()
	if got := w.check(); !maps.Equal(got, counts) {
		w.Errorf("they lead %v, want %v", got, counts)
	}
}

// pass lets time pass, and looks all the time.
func (w *world) pass(d time.Duration) {
	w.Helper()
	for ; d > 0; d -= 100 * time.Millisecond {
		time.Sleep(100 * time.Millisecond)
		w.check()
	}
}

func (w *world) end() {
	for _, h := range w.houses {
		h.mu.Lock()
		if h.frozen != nil {
			close(h.frozen)
			h.frozen = nil
		}
		h.mu.Unlock()
		h.stop()
		<-h.done
	}
}

func inWorld(t *testing.T, partitions int, story func(w *world)) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, partitions)
		defer w.end()
		story(w)
	})
}

// TestPartitionsAreSharedEvenly and few move when a server joins or stops.
func TestPartitionsAreSharedEvenly(t *testing.T) {
	inWorld(t, 10, func(w *world) {
		a := w.start("a")
		w.pass(time.Second)
		w.want(map[string]int{"a": 10})
		_, _, changed := a.member.Leader(0)
		b := w.start("b")
		w.pass(2 * time.Second)
		w.want(map[string]int{"a": 5, "b": 5})
		select {
		case <-changed:
		default:
			t.Error("who waits for a leader is told of none")
		}
		w.start("c")
		w.pass(2 * time.Second)
		shares := w.check()
		if shares["c"] != 3 || shares["a"]+shares["b"] != 7 || shares["a"] < 3 || shares["b"] < 3 {
			t.Errorf("they lead %v", shares)
		}
		if w.moves != 10+5+3 {
			t.Errorf("%d were taken, and 18 had to be", w.moves)
		}
		b.stop()
		<-b.done
		w.pass(time.Second)
		w.want(map[string]int{"a": 5, "c": 5})
		if w.moves != 18+shares["b"] {
			t.Errorf("%d were taken when b stopped, which led %d", w.moves-18, shares["b"])
		}
	})
}

// TestAServerThatStopsHandsOverAtOnce without waiting for anybody's next look.
func TestAServerThatStopsHandsOverAtOnce(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		a := w.start("a")
		w.pass(time.Second)
		w.start("b")
		w.pass(2 * time.Second)
		began := time.Now()
		a.stop()
		<-a.done
		synctest.Wait()
		w.want(map[string]int{"b": 3})
		if took := time.Since(began); took > 100*time.Millisecond {
			t.Errorf("it took %v", took)
		}
	})
}

// TestAPausedServerAnswersNothingOnceItIsLate and is told so when it goes on.
func TestAPausedServerAnswersNothingOnceItIsLate(t *testing.T) {
	inWorld(t, 4, func(w *world) {
		a := w.start("a")
		w.pass(time.Second)
		w.start("b")
		w.pass(2 * time.Second)
		w.want(map[string]int{"a": 2, "b": 2})
		a.pause()
		w.pass(4 * time.Second)
		w.want(map[string]int{"b": 2}) // nobody answers for the others
		w.pass(3 * time.Second)
		w.want(map[string]int{"b": 4})
		a.resume()
		w.pass(3 * time.Second)
		w.want(map[string]int{"a": 2, "b": 2})
	})
}

// A server may be paused while the answer to its beat is on its way. When it goes on, the
// answer says only what was true when the beat was sent.
func TestAnAnswerThatComesLateIsOld(t *testing.T) {
	inWorld(t, 2, func(w *world) {
		a := w.start("a")
		w.start("b")
		a.slow.Store(int64(400 * time.Millisecond))
		for n := range 18 { // at another instant of a beat each time
			w.pass(3 * time.Second)
			time.Sleep(time.Duration(n) * 50 * time.Millisecond)
			a.pause()
			w.pass(8 * time.Second)
			a.resume()
			w.check()
		}
	})
}

// A server that takes long to end one lead gives up the others meanwhile.
func TestAServerThatStopsSlowlyKeepsNothingElse(t *testing.T) {
	inWorld(t, 4, func(w *world) {
		a := w.start("a")
		a.linger.Store(int64(10 * time.Second))
		w.pass(time.Second)
		w.start("b")
		a.stop()
		w.pass(2 * time.Second)
		w.want(map[string]int{"a": 1, "b": 3})
	})
}

// What a server whose process has ended led, another leads at once.
func TestAServerThatHasEndedIsNotWaitedFor(t *testing.T) {
	inWorld(t, 2, func(w *world) {
		a, b := w.start("a"), w.start("b")
		w.pass(2 * time.Second)
		a.pause()
		w.dead.Store("a")
		time.Sleep(2 * time.Second)
		w.dead.Store("")
		for n := range w.partitions {
			if leader, self, _ := b.member.Leader(int64(n)); !self {
				t.Errorf("partition %d is led by %q", n, leader.Address)
			}
		}
	})
}

// Only because a database hangs, a server does not wait for ever for one answer.
func TestADatabaseThatHangsIsAskedAgain(t *testing.T) {
	inWorld(t, 2, func(w *world) {
		a := w.start("a")
		w.pass(time.Second)
		for _, hangs := range []bool{true, false} {
			w.mu.Lock()
			w.hangs = hangs
			w.mu.Unlock()
			w.pass(4 * time.Second)
			if a.member.Reached() == hangs {
				t.Errorf("while the database hangs or not (%v), it reaches it or not (%v)", hangs, !hangs)
			}
		}
		w.want(map[string]int{"a": 2})
	})
}

// A server that gives up before another does, because the database was away, does not take
// that one for dead: it has not looked meanwhile.
func TestAServerThatHasGivenUpRemovesNobody(t *testing.T) {
	for away := 14 * time.Second; away < 16*time.Second; away += 50 * time.Millisecond {
		inWorld(t, 2, func(w *world) {
			w.start("a")
			w.pass(300 * time.Millisecond)
			w.start("b")
			w.pass(2 * time.Second)
			w.setGone(errGone)
			time.Sleep(away)
			w.setGone(nil)
			w.pass(3 * time.Second)
			for _, h := range w.houses {
				h.mu.Lock()
				if said := strings.Join(h.log, "\n"); strings.Contains(said, "is removed") {
					t.Errorf("after %v, %s said %q", away, h.name, said)
				}
				h.mu.Unlock()
			}
		})
	}
}

// TestADrainedServerLeadsNothingAfterItWasRemoved by the others, as it was not started
// again. It leads again when it may.
func TestADrainedServerLeadsNothingAfterItWasRemoved(t *testing.T) {
	inWorld(t, 4, func(w *world) {
		a := w.start("a")
		w.start("b")
		w.pass(2 * time.Second)
		drain := func(draining bool) {
			w.mu.Lock()
			defer w.mu.Unlock()
			for _, s := range w.servers {
				if s.Address == "a" {
					s.Draining = draining
				}
			}
		}
		drain(true)
		w.pass(2 * time.Second)
		a.pause()
		w.pass(7 * time.Second)
		a.resume()
		w.pass(3 * time.Second)
		w.want(map[string]int{"b": 4})
		drain(false)
		w.pass(2 * time.Second)
		a.pause()
		w.pass(7 * time.Second)
		a.resume()
		w.pass(3 * time.Second)
		w.want(map[string]int{"a": 2, "b": 2})
	})
}

// TestAShortPauseCostsNothing but the time that it takes.
func TestAShortPauseCostsNothing(t *testing.T) {
	inWorld(t, 4, func(w *world) {
		a := w.start("a")
		w.start("b")
		w.pass(2 * time.Second)
		moves := w.moves
		a.pause()
		w.pass(4 * time.Second)
		a.resume()
		w.pass(2 * time.Second)
		w.want(map[string]int{"a": 2, "b": 2})
		if w.moves != moves {
			t.Errorf("%d moved", w.moves-moves)
		}
	})
}

// TestADatabaseThatComesBackFindsEverybodyWhereTheyWere as nobody could beat.
func TestADatabaseThatComesBackFindsEverybodyWhereTheyWere(t *testing.T) {
	inWorld(t, 6, func(w *world) {
		for _, name := range []string{"a", "b", "c"} {
			w.start(name)
		}
		w.pass(3 * time.Second)
		moves := w.moves
		for _, outage := range []time.Duration{time.Second, 6 * time.Second, 12 * time.Second} {
			w.setGone(errGone)
			w.pass(outage)
			if outage > 4*time.Second {
				w.want(map[string]int{})
			}
			w.setGone(nil)
			w.pass(2 * time.Second)
			w.want(map[string]int{"a": 2, "b": 2, "c": 2})
			if w.moves != moves {
				t.Errorf("after %v, %d had moved", outage, w.moves-moves)
			}
		}
		w.setGone(errGone)
		w.pass(30 * time.Second) // all give up
		w.setGone(nil)
		w.pass(10 * time.Second)
		w.want(map[string]int{"a": 2, "b": 2, "c": 2})
	})
}

// TestALongOutageIsToldNowAndThen and not twice a second, however many partitions there
// are. Its end is told once.
func TestALongOutageIsToldNowAndThen(t *testing.T) {
	const end = "cluster: the database can be used again"
	inWorld(t, 3, func(w *world) {
		a := w.start("a")
		w.pass(time.Second)
		w.setGone(errGone)
		w.pass(time.Second)
		a.giveUp() // as their engines do when a commit has failed
		w.pass(5 * time.Minute)
		if err := a.member.Trouble(); !errors.Is(err, errGone) {
			t.Errorf("its trouble is %v", err)
		}
		a.mu.Lock()
		if n := len(a.log); n < 5 || n > 20 || slices.Contains(a.log, end) {
			t.Errorf("in five minutes it said %d things: %q", n, a.log)
		}
		a.log = nil
		a.mu.Unlock()
		w.setGone(nil)
		w.pass(time.Minute)
		if err := a.member.Trouble(); err != nil {
			t.Errorf("after a minute its trouble is %v", err)
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		if !slices.Equal(a.log, []string{end}) {
			t.Errorf("when the database was back it said %q", a.log)
		}
	})
}

// A reset is an error that names the port of this side, which is another one each time.
type reset struct{ port *atomic.Int64 }

func (r reset) Error() string {
	return fmt.Sprintf("read tcp [::1]:%d->[::1]:5432: connection reset by peer", r.port.Add(1))
}

// Something before the database may accept connections and close them.
func TestAnOutageIsToldOnceThoughEachConnectionHasAnotherPort(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		a := w.start("a")
		w.pass(time.Second)
		w.setGone(reset{new(atomic.Int64)})
		w.pass(5 * time.Second)
		a.mu.Lock()
		defer a.mu.Unlock()
		if len(a.log) != 1 {
			t.Errorf("it said %q", a.log)
		}
	})
}

func TestEachOutageIsTold(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		a := w.start("a")
		w.pass(time.Second)
		var want []string
		for range 2 {
			w.setGone(errGone)
			w.pass(time.Second)
			w.setGone(nil)
			w.pass(time.Second)
			want = append(want, "cluster: the database cannot be used: no database", "cluster: the database can be used again")
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		if !slices.Equal(a.log, want) {
			t.Errorf("it said %q", a.log)
		}
	})
}

// A connection ends, and the next is refused for another reason, which lasts: both are told
// while the server still hopes to keep its lead.
func TestTheReasonThatLastsIsToldAtOnce(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		a := w.start("a")
		w.pass(time.Second)
		w.setGone(errGone)
		w.pass(time.Second)
		w.setGone(errors.New("read-only"))
		w.pass(5 * time.Second)
		a.mu.Lock()
		defer a.mu.Unlock()
		if want := []string{"cluster: the database cannot be used: no database", "cluster: the database cannot be used: read-only"}; !slices.Equal(a.log, want) {
			t.Errorf("it said %q", a.log)
		}
	})
}

// A database may answer, and still keep a server from each of its partitions, for
// instance because of a missing right. That is told now and then, too.
func TestPartitionsThatCannotBeLedAreToldNowAndThen(t *testing.T) {
	inWorld(t, 12, func(w *world) {
		w.refuses = true
		a := w.start("a")
		w.pass(5 * time.Minute)
		a.mu.Lock()
		defer a.mu.Unlock()
		if n := len(a.log); n < 12 || n > 12*11 {
			t.Errorf("in five minutes it said %d things: %q", n, a.log)
		}
	})
}

// TestALeadThatLastedIsTakenAgainAtOnce when it fails, because whoever calls waits for that.
// One that fails again at once is not tried all the time.
func TestALeadThatLastedIsTakenAgainAtOnce(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		a := w.start("a")
		w.pass(10 * time.Second)
		a.giveUp()
		w.check() // it has noticed
		w.want(map[string]int{"a": 1})
		a.giveUp()
		w.check()
		w.want(map[string]int{})
		w.pass(4 * time.Second)
		w.want(map[string]int{"a": 1})
		if w.moves != 3 {
			t.Errorf("the lead was taken %d times", w.moves)
		}
	})
}

// A database may fail at each question, before or after it has done what it was asked.
// Once it answers again, each partition is led.
func TestNoPartitionIsLostWithAnAnswer(t *testing.T) {
	for seed := range uint64(30) {
		inWorld(t, 6, func(w *world) {
			for _, name := range []string{"a", "b", "c"} {
				w.start(name)
			}
			w.setFlaky(rand.New(rand.NewPCG(seed, 0)))
			w.pass(5 * time.Second)
			w.setFlaky(nil)
			w.pass(15 * time.Second)
			led := 0
			for _, n := range w.check() {
				led += n
			}
			if led != 6 {
				t.Errorf("seed %d: %d of 6 partitions are led", seed, led)
			}
		})
	}
}

// The database may name a server as the leader of a partition that it does not lead: its
// request to lead, which had no answer, has an effect late, or the database has gone back
// in time. Somebody leads it soon.
func TestAServerThatLeadsOnlyInTheDatabaseLetsGo(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		a, b := w.start("a"), w.start("b")
		w.pass(10 * time.Second)
		before := w.check()
		if before["a"]+before["b"] != 3 {
			t.Fatalf("they lead %v", before)
		}
		for _, drained := range []*house{nil, a} { // it should lead some, and none
			if drained != nil {
				w.mu.Lock()
				for _, s := range w.servers {
					s.Draining = s.Address == drained.name
				}
				w.mu.Unlock()
				w.pass(10 * time.Second)
				w.want(map[string]int{"b": 3})
			}
			w.mu.Lock()
			for _, s := range w.servers {
				for n := range w.partitions {
					if s.Address == "a" {
						w.partitions[n].Leader, w.partitions[n].Epoch = s.ID, w.partitions[n].Epoch+1
					}
				}
			}
			w.mu.Unlock()
			b.giveUp() // it is superseded, and finds out by its next commit
			w.pass(10 * time.Second)
			after := w.check()
			if after["a"]+after["b"] != 3 {
				t.Errorf("they lead %v", after)
			}
		}
	})
}

func (w *world) setFlaky(flaky *rand.Rand) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.flaky = flaky
}

func (w *world) setGone(gone error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.gone = gone
}

// A server that sees its database go back to an earlier epoch, as when a copy is
// restored, says so, and whoever is to lead knows the latest epoch.
func TestADatabaseThatGoesBackInTimeIsNoticed(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		a := w.start("a")
		w.pass(time.Second)
		for range 3 {
			a.giveUp()
			w.pass(5 * time.Second)
		}
		w.mu.Lock()
		latest := w.partitions[0].Epoch
		w.servers, w.partitions[0] = map[uuid.UUID]*cluster.Server{}, cluster.Partition{Epoch: 1}
		w.mu.Unlock()
		w.pass(5 * time.Second)
		w.want(map[string]int{"a": 1})
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.seen != latest || latest < 4 {
			t.Errorf("it leads what had epoch %d, and not %d", a.seen, latest)
		}
		if said := fmt.Sprintf("cluster: the database went back in time: the epoch of partition 0 is 1, and was %d", latest); !slices.Contains(a.log, said) {
			t.Errorf("it did not say %q: %q", said, a.log)
		}
	})
}

// A partition whose row somebody deleted is missed, because nobody can lead it.
func TestAPartitionWithoutARowIsMissed(t *testing.T) {
	inWorld(t, 2, func(w *world) {
		a := w.start("a")
		w.pass(time.Second)
		w.mu.Lock()
		w.partitions = w.partitions[:1]
		w.mu.Unlock()
		w.pass(time.Second)
		w.mu.Lock()
		w.partitions = w.partitions[:2] // a server that starts makes the row again
		w.mu.Unlock()
		a.mu.Lock()
		defer a.mu.Unlock()
		if said := "cluster: the database has no row of a partition that it had: number 1"; !slices.Contains(a.log, said) {
			t.Errorf("it did not say %q: %q", said, a.log)
		}
	})
}

// Two servers with one address say so. One that was restarted does not, although its
// predecessor is still registered.
func TestTwoServersWithOneAddressSaySo(t *testing.T) {
	inWorld(t, 2, func(w *world) {
		a := w.start("a")
		w.pass(time.Second)
		a.pause()
		again := w.start("a")
		time.Sleep(4 * time.Second)
		again.mu.Lock()
		if len(again.log) > 0 {
			t.Errorf("a server that was restarted said %q", again.log)
		}
		again.mu.Unlock()
		a.resume()
		time.Sleep(2 * time.Second)
		for _, h := range []*house{a, again} {
			h.mu.Lock()
			if !strings.Contains(strings.Join(h.log, "\n"), "another server has the same address, a: server ") {
				t.Errorf("it said %q", h.log)
			}
			h.mu.Unlock()
		}
	})
}

// TestNeverTwoAnswer pauses, stops and starts servers and takes the database away, at
// random.
func TestNeverTwoAnswer(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	inWorld(t, 8, func(w *world) {
		var up, paused []*house
		for n := range 60 {
			switch k := rnd.IntN(10); {
			case k < 3 && len(up) < 5 || len(up) == 0:
				up = append(up, w.start(fmt.Sprint("s", n)))
			case k < 5 && len(up) > len(paused):
				i := rnd.IntN(len(up))
				if !slices.Contains(paused, up[i]) {
					up[i].pause()
					paused = append(paused, up[i])
				}
			case k < 7 && len(paused) > 0:
				paused[0].resume()
				paused = paused[1:]
			case k == 7:
				if i := rnd.IntN(len(up)); !slices.Contains(paused, up[i]) {
					up[i].stop()
					up = slices.Delete(up, i, i+1)
				}
			case k == 8:
				w.setGone(errGone)
				w.pass(time.Duration(rnd.IntN(9000)) * time.Millisecond)
				w.setGone(nil)
			}
			w.pass(time.Duration(rnd.IntN(4000)) * time.Millisecond)
		}
		for _, h := range paused {
			h.resume()
		}
		w.pass(20 * time.Second)
		led := 0
		for _, n := range w.check() {
			led += n
		}
		if want := min(1, len(up)) * len(w.partitions); led != want {
			t.Errorf("%d partitions are led in the end, want %d", led, want)
		}
	})
}
