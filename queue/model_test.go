package queue_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/leasehold/leasehold/engine/call"
	"github.com/leasehold/leasehold/queue"
	"github.com/leasehold/leasehold/registry"
)

var rounds = "30"

// TestRandomOperationsAgainstAModel does at random what can be done to a queue,
// and compares every answer, and after every operation every task, with a model
// that has no indexes, no rows and no leases: a map of tasks.
//
// How many rounds is -rapid.checks, of how many operations -rapid.steps, and a
// failure prints the flags that repeat it.
func TestRandomOperationsAgainstAModel(t *testing.T) {
	for name, value := range map[string]string{"rapid.checks": rounds, "rapid.steps": "100"} { // stories are long here
		if f := flag.Lookup(name); f.Value.String() == f.DefValue {
			if err := f.Value.Set(value); err != nil {
				t.Fatal(err)
			}
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		rapid.SyncTest(t, func(t *rapid.T) {
			h := newHouse(t, func(o *queue.Options) { o.Retention, o.DeadRetention = keepModel, 2*keepModel })
			m := &model{T: t, h: h, tasks: make(map[uuid.UUID]*modelTask), requests: make(map[string]*modelRequest)}
			for i := range 3 {
				m.workers = append(m.workers, h.worker(fmt.Sprint("W", i)))
			}
			defer m.end()
			t.Repeat(map[string]func(*rapid.T){
				"":           m.check,
				"enqueue":    m.enqueueSome,
				"fill":       m.enqueueMany,
				"claim":      m.claim,
				"claim more": m.claim,
				"send again": m.sendAgain,
				"wait":       m.wait,
				"wait too":   m.wait,
				"stop wait":  m.stopWaiting,
				"heartbeat":  m.heartbeat,
				"submit":     m.submit,
				"submit all": m.submitMany,
				"give back":  m.giveBack,
				"cancel":     m.cancel,
				"redrive":    m.redrive,
				"die":        m.die,
				"time":       m.pass,
				"crash":      m.crash,
			})
		})
	})
}

// A model is what must be true of the queues, told in the plainest way.
type model struct {
	*rapid.T // of the round, or of the operation under way
	h        *house
	workers  []worker
	tasks    map[uuid.UUID]*modelTask
	requests map[string]*modelRequest
	waiters  []*waiting // in the order of asking
	turn     int        // counts the instants at which tasks became ready
	calls    int        // that had a name
}

type modelTask struct {
	queue.Task // of its state only what is set here
	number     int
	payload    string
	turn       int    // of a ready one: those of an earlier turn go first
	owner      worker // of one in progress
	ttl        time.Duration
	deadline   time.Time
	tokens     []uint64 // all that were issued for it, of any worker
}

type modelRequest struct {
	ask   queue.Claim
	given map[uuid.UUID]uint64
}

type waiting struct {
	worker
	ask    queue.Claim
	until  time.Time
	cancel context.CancelFunc
	answer chan answer
}

type answer struct {
	tasks []queue.Claimed
	err   error
}

var modelQueues = []string{"a", "b"}

func (m *model) pick(t *rapid.T, label string) *modelTask {
	if len(m.tasks) == 0 {
		t.Skip("no task")
	}
	list := slices.SortedFunc(maps.Values(m.tasks), func(a, b *modelTask) int { return a.number - b.number })
	return list[rapid.IntRange(0, len(list)-1).Draw(t, label)]
}

// now is the turn of what becomes ready in the operation under way.
func (m *model) now() int { m.turn++; return m.turn }

func (m *model) enqueueSome(t *rapid.T) {
	for range rapid.IntRange(1, 4).Draw(t, "tasks") {
		m.enqueue(t)
	}
}

func (m *model) drawTask(t *rapid.T) queue.NewTask {
	return queue.NewTask{
		Run: m.h.run, Queue: rapid.SampledFrom(modelQueues).Draw(t, "queue"),
		Priority: rapid.SampledFrom([]int{0, 0, 5, 9}).Draw(t, "priority"), MaxAttempts: rapid.IntRange(1, 3).Draw(t, "attempts"),
		Delay:   time.Duration(rapid.SampledFrom([]int{0, 0, 0, 500, 3000}).Draw(t, "delay")) * time.Millisecond,
		Key:     rapid.SampledFrom([]string{"", "", "", "k", "l"}).Draw(t, "key"),
		Payload: json.RawMessage(rapid.SampledFrom([]string{"1", "2", " 2 ", string(jsonOf(5000))}).Draw(t, "payload")),
	}
}

// text is a payload as it is kept.
func text(payload json.RawMessage) string { return strings.TrimSpace(string(payload)) }

// known is the task that has the idempotency key of n, or nil.
func (m *model) known(n queue.NewTask) *modelTask {
	for _, task := range m.tasks {
		if n.Key != "" && task.Key == n.Key && task.Queue == n.Queue {
			return task
		}
	}
	return nil
}

func (m *model) enqueue(t *rapid.T) {
	n := m.drawTask(t)
	got, err := m.h.Enqueue(t.Context(), n)
	if task := m.known(n); task != nil && task.payload != text(n.Payload) {
		if !errors.Is(err, queue.ErrKeyReused) {
			t.Fatalf("enqueue under the key of %s: %s %v", task.ID, got.ID, err)
		}
		return
	}
	m.entered(t, n, got, err)
	m.served(t)
}

// entered is a task that was enqueued, now or before under the same key.
func (m *model) entered(t *rapid.T, n queue.NewTask, got queue.Task, err error) {
	was := m.known(n)
	if err != nil || m.tasks[got.ID] != was || was != nil && was.payload != text(n.Payload) {
		t.Fatalf("enqueue: %s %v", got.ID, err)
	}
	if was != nil {
		return
	}
	task := &modelTask{Task: queue.Task{
		ID: got.ID, Queue: n.Queue, Priority: n.Priority, MaxAttempts: n.MaxAttempts, Key: n.Key,
		State: queue.Ready, EnqueuedAt: time.Now(),
	}, payload: text(n.Payload), turn: m.now()}
	task.number = task.turn
	if n.Delay > 0 {
		task.State, task.DueAt = queue.Delayed, time.Now().Add(n.Delay)
	}
	m.tasks[task.ID] = task
}

// enqueueMany enqueues all, or none if one has a key of another payload: of a
// task that is there, or of one before it.
func (m *model) enqueueMany(t *rapid.T) {
	var list []queue.NewTask
	for range rapid.IntRange(1, 4).Draw(t, "tasks") {
		list = append(list, m.drawTask(t))
	}
	if rapid.IntRange(0, 3).Draw(t, "deep") == 0 && list[0].Key == "" { // a long line
		for range 90 {
			list = append(list, list[0])
		}
	}
	got, err := m.h.EnqueueMany(t.Context(), list)
	payloads := make(map[string]string) // by queue and key
	for _, n := range list {
		key := n.Queue + n.Key
		if task := m.known(n); task != nil {
			payloads[key] = task.payload
		}
		if was, ok := payloads[key]; n.Key != "" && ok && was != text(n.Payload) {
			if !errors.Is(err, queue.ErrKeyReused) || len(got) > 0 {
				t.Fatalf("enqueued under a key in use: %v %v", got, err)
			}
			return
		}
		payloads[key] = text(n.Payload)
	}
	if err != nil || len(got) != len(list) {
		t.Fatalf("enqueue: %d tasks of %d, %v", len(got), len(list), err)
	}
	for i, n := range list {
		m.entered(t, n, got[i], nil)
	}
	m.served(t)
}

func (m *model) drawClaim(t *rapid.T) (worker, queue.Claim) {
	return rapid.SampledFrom(m.workers).Draw(t, "worker"), queue.Claim{
		Queues:    rapid.SampledFrom([][]string{{"a"}, {"b"}, {"a", "b"}, {"b", "a"}}).Draw(t, "queues"),
		Count:     rapid.SampledFrom([]int{1, 1, 2, 10}).Draw(t, "count"),
		TTL:       time.Duration(rapid.IntRange(1, 5).Draw(t, "ttl")) * time.Second,
		RequestID: rapid.SampledFrom([]string{"", "", "r", "s"}).Draw(t, "request"),
	}
}

func requestOf(w worker, id string) string { return w.Session.String() + id }

func (m *model) claim(t *rapid.T) {
	w, ask := m.drawClaim(t)
	got, err := w.ask(ask)
	if standing, ok := m.repeated(t, w, ask, err); ok {
		if len(standing) > 0 || err != nil {
			m.same(t, standing, got)
			return
		}
		if len(got) == 0 {
			return // still remembered, and nothing of it is left
		}
	}
	if err != nil {
		t.Fatalf("claim: %v", err)
	}
	m.claimed(t, w, ask, got)
	m.remember(w, ask, got)
}

// claimed is what a claim took: the first that were ready, as many as it may have. Of those
// that have the same turn, any may be the next.
func (m *model) claimed(t *rapid.T, w worker, ask queue.Claim, got []queue.Claimed) {
	want := m.readyIn(ask.Queues)
	most, size := min(len(want), ask.Count), 0
	if len(got) > most {
		t.Fatalf("claimed %d of %d, of %d ready", len(got), ask.Count, len(want))
	}
	for i, c := range got {
		task := m.tasks[c.ID]
		if task == nil || task.State != queue.Ready || task.Priority != want[i].Priority || task.turn != want[i].turn {
			t.Fatalf("claimed %v as number %d, want %v", task, i, want[i])
		}
		if size += len(task.payload); size > queue.MaxClaimBytes && i > 0 {
			t.Fatalf("the first %d of %d claimed have %d bytes", i+1, len(got), size)
		}
		m.began(t, w, ask, c)
	}
	isLeft := func(n *modelTask) bool {
		next := want[len(got)]
		return n.State == queue.Ready && n.Priority == next.Priority && n.turn == next.turn && size+len(n.payload) > queue.MaxClaimBytes
	}
	if len(got) < most && (len(got) == 0 || !slices.ContainsFunc(want, isLeft)) {
		t.Fatalf("claimed %d of %d, of %d ready: the next one has room, too", len(got), ask.Count, len(want))
	}
}

// sendAgain is a client whose answer was lost. It sends its call again, maybe to
// the next daemon, and gets the same answer. Or it cancels the call: then it was
// never made.
func (m *model) sendAgain(t *rapid.T) {
	w, ask := m.drawClaim(t)
	ask.RequestID = ""
	n := m.drawTask(t)
	n.Key = ""
	claims, crash := rapid.Bool().Draw(t, "claims"), rapid.IntRange(0, 3).Draw(t, "crash") == 0
	m.calls++
	ctx, name := w.named(fmt.Sprint(m.calls)), fmt.Sprint(m.calls)
	if !claims {
		got, err := m.h.Enqueue(ctx, n)
		m.entered(t, n, got, err)
		m.served(t)
		if crash {
			m.crash(t)
		}
		if again, err := m.h.Enqueue(ctx, n); err != nil || again.ID != got.ID {
			t.Fatalf("enqueued again: %s %v, want %s", again.ID, err, got.ID)
		}
		if rapid.Bool().Draw(t, "cancelled") {
			w.undo(name)
			if task := m.tasks[got.ID]; task.Attempt == 0 {
				delete(m.tasks, got.ID)
			}
		}
		return
	}
	got, err := w.askCtx(ctx, ask)
	if err != nil {
		t.Fatalf("claim: %v", err)
	}
	m.claimed(t, w, ask, got)
	if len(got) == 0 {
		return // sent again, it may find some
	}
	if crash {
		m.crash(t)
	}
	again, err := w.askCtx(ctx, ask)
	if err != nil {
		t.Fatalf("claim again: %v", err)
	}
	var ids []uuid.UUID
	for _, c := range got {
		ids = append(ids, c.ID)
	}
	m.same(t, ids, again)
	if rapid.Bool().Draw(t, "cancelled") {
		w.undo(name)
		for _, id := range ids {
			m.tasks[id].State = queue.Ready // at its place, and no execution has begun
			m.tasks[id].Attempt--
		}
		m.served(t)
	}
}

// repeated finds what an earlier claim of the same request was given and still
// has.
func (m *model) repeated(t *rapid.T, w worker, ask queue.Claim, err error) (standing []uuid.UUID, ok bool) {
	was := m.requests[requestOf(w, ask.RequestID)]
	if ask.RequestID == "" || was == nil {
		return nil, false
	}
	for id, token := range was.given {
		if task := m.tasks[id]; task != nil && task.holds(w, token) {
			standing = append(standing, id)
		}
	}
	same := slices.Equal(was.ask.Queues, ask.Queues) && was.ask.Count == ask.Count && was.ask.TTL == ask.TTL
	if errors.Is(err, call.ErrReused) {
		if same {
			t.Fatalf("the same request is refused: %v", err)
		}
		return nil, true
	}
	if !same && len(standing) > 0 {
		t.Fatal("another request under the id is taken")
	}
	return standing, true
}

func (task *modelTask) holds(w worker, token uint64) bool {
	return task.State == queue.InProgress && task.tokens[len(task.tokens)-1] == token && task.owner.Session == w.Session
}

func (m *model) same(t *rapid.T, want []uuid.UUID, got []queue.Claimed) {
	var ids []uuid.UUID
	for _, c := range got {
		ids = append(ids, c.ID)
		if task := m.tasks[c.ID]; task == nil || c.Token != task.tokens[len(task.tokens)-1] {
			t.Fatalf("told of %v again with token %d", c.ID, c.Token)
		}
	}
	byID := func(a, b uuid.UUID) int { return bytes.Compare(a[:], b[:]) }
	slices.SortFunc(ids, byID)
	slices.SortFunc(want, byID)
	if !slices.Equal(ids, want) {
		t.Fatalf("told of %v again, want %v", ids, want)
	}
}

func (m *model) remember(w worker, ask queue.Claim, got []queue.Claimed) {
	if ask.RequestID == "" || len(got) == 0 {
		return
	}
	r := &modelRequest{ask, make(map[uuid.UUID]uint64)}
	for _, c := range got {
		r.given[c.ID] = c.Token
	}
	m.requests[requestOf(w, ask.RequestID)] = r
}

// readyIn are the ready tasks of queues, in the order in which they are to be
// claimed. Those of one turn may come in any.
func (m *model) readyIn(queues []string) (list []*modelTask) {
	for _, task := range m.tasks {
		if task.State == queue.Ready && slices.Contains(queues, task.Queue) {
			list = append(list, task)
		}
	}
	slices.SortFunc(list, func(a, b *modelTask) int {
		return cmp.Or(b.Priority-a.Priority, a.turn-b.turn)
	})
	return list
}

func (m *model) began(t *rapid.T, w worker, ask queue.Claim, c queue.Claimed) {
	task := m.tasks[c.ID]
	for _, other := range m.tasks {
		if slices.Contains(other.tokens, c.Token) {
			t.Fatalf("token %d was issued before", c.Token)
		}
	}
	task.State, task.owner, task.ttl, task.deadline = queue.InProgress, w, ask.TTL, time.Now().Add(ask.TTL)
	task.Attempt++
	task.tokens = append(task.tokens, c.Token)
	if string(c.Payload) != task.payload || c.Attempt != task.Attempt || c.ExpiresIn != ask.TTL || c.Queue != task.Queue {
		t.Fatalf("claimed %+v, want %+v", c, task)
	}
}

func (m *model) wait(t *rapid.T) {
	w, ask := m.drawClaim(t)
	if ask.RequestID = ""; len(m.readyIn(ask.Queues)) > 0 || len(m.waiters) > 5 {
		t.Skip("nothing to wait for")
	}
	ask.Wait = time.Duration(rapid.IntRange(1, 20).Draw(t, "wait")) * time.Second
	if rapid.IntRange(0, 3).Draw(t, "named") == 0 {
		ask.RequestID = uuid.NewString()
	}
	ctx, cancel := context.WithCancel(context.Background())
	p := &waiting{w, ask, time.Now().Add(ask.Wait), cancel, make(chan answer, 1)}
	go func() {
		tasks, err := w.askCtx(ctx, ask)
		p.answer <- answer{tasks, err}
	}()
	m.waiters = append(m.waiters, p)
	m.served(t)
}

// served looks at who has been answered since the last operation. What was
// ready was handed over in the order of asking; who was passed over waits for
// nothing that is there.
func (m *model) served(t *rapid.T) {
	synctest.Wait()
	var left []*waiting
	for _, p := range m.waiters {
		select {
		case a := <-p.answer:
			p.cancel()
			if a.err != nil {
				t.Fatalf("%s waited: %v", p.Path, a.err)
			}
			if len(a.tasks) == 0 {
				if time.Now().Before(p.until) {
					t.Fatalf("%s was sent away %v early", p.Path, time.Until(p.until))
				}
				continue
			}
			task := m.tasks[a.tasks[0].ID]
			if len(a.tasks) != 1 || task == nil || task.State != queue.Ready || !slices.Contains(p.ask.Queues, task.Queue) {
				t.Fatalf("%s was handed %+v: %+v", p.Path, a.tasks, task)
			}
			for _, earlier := range left {
				if slices.Contains(earlier.ask.Queues, task.Queue) {
					t.Fatalf("%s was handed a task of %s before %s, who waited for longer", p.Path, task.Queue, earlier.Path)
				}
			}
			m.began(t, p.worker, p.ask, a.tasks[0])
			m.remember(p.worker, p.ask, a.tasks)
		default:
			left = append(left, p)
		}
	}
	m.waiters = left
	for _, p := range left {
		if ready := m.readyIn(p.ask.Queues); len(ready) > 0 {
			t.Fatalf("%s waits, and %v is ready", p.Path, ready[0].ID)
		}
		if time.Now().After(p.until) {
			t.Fatalf("%s waits for too long", p.Path)
		}
	}
}

func (m *model) stopWaiting(t *rapid.T) {
	if len(m.waiters) == 0 {
		t.Skip("nobody waits")
	}
	i := rapid.IntRange(0, len(m.waiters)-1).Draw(t, "waiter")
	m.waiters[i].cancel()
	if a := <-m.waiters[i].answer; !errors.Is(a.err, context.Canceled) {
		t.Fatalf("a cancelled wait: %v %v", a.tasks, a.err)
	}
	m.waiters = slices.Delete(m.waiters, i, i+1)
}

// drawClaimed picks a task, and a token and a worker to use it with, which may
// be wrong.
func (m *model) drawClaimed(t *rapid.T) (task *modelTask, token uint64, w worker, right bool) {
	task = m.pick(t, "task")
	if len(task.tokens) == 0 {
		t.Skip("never claimed")
	}
	token = task.tokens[len(task.tokens)-1]
	if rapid.IntRange(0, 4).Draw(t, "zombie") == 0 {
		token = rapid.SampledFrom(task.tokens).Draw(t, "token")
	}
	w = rapid.SampledFrom(m.workers).Draw(t, "worker")
	if task.owner.h != nil && rapid.IntRange(0, 3).Draw(t, "owner") > 0 {
		w = task.owner
	}
	return task, token, w, task.right(token, w)
}

// right reports whether a token is of the claim that stands, and its worker's.
func (task *modelTask) right(token uint64, w worker) bool {
	return task.State == queue.InProgress && token == task.tokens[len(task.tokens)-1] && w.Actor == task.owner.Actor
}

func (m *model) refused(t *rapid.T, right bool, err error) bool {
	var stale *queue.StaleError
	if right && err != nil || !right && !errors.As(err, &stale) {
		t.Fatalf("the claim is right: %v, and the answer %v", right, err)
	}
	return !right
}

func (m *model) heartbeat(t *rapid.T) {
	task, token, w, right := m.drawClaimed(t)
	ttl := time.Duration(rapid.IntRange(0, 6).Draw(t, "ttl")) * time.Second
	m.h.mu.Lock()
	ended := m.h.ended[w.Session]
	m.h.mu.Unlock()
	left, err := m.h.Heartbeat(t.Context(), w.Holder, m.h.run, task.ID, token, ttl)
	if right && ended {
		if !errors.Is(err, registry.ErrSessionEnded) {
			t.Fatalf("a session that has ended: %v", err)
		}
		return
	}
	if m.refused(t, right, err) {
		return
	}
	if to := time.Now().Add(cmp.Or(ttl, task.ttl)); to.After(task.deadline) {
		task.deadline, task.ttl = to, max(task.ttl, ttl)
	}
	task.owner = w
	if left != time.Until(task.deadline) {
		t.Fatalf("extended by %v, want %v", left, time.Until(task.deadline))
	}
}

func (m *model) submit(t *rapid.T) {
	task, token, w, right := m.drawClaimed(t)
	state := rapid.SampledFrom([]queue.State{queue.Completed, queue.Completed, queue.Failed}).Draw(t, "state")
	_, err := m.h.Submit(t.Context(), w.Holder, m.h.run, task.ID, token, state, json.RawMessage(`"r"`))
	m.submitted(t, task, token, w, state, right, err)
}

func (m *model) submitted(t *rapid.T, task *modelTask, token uint64, w worker, state queue.State, right bool, err error) {
	if task.State == state && token == task.tokens[len(task.tokens)-1] && w.Actor == task.owner.Actor {
		if err != nil {
			t.Fatalf("the same submit again: %v", err)
		}
		return
	}
	if !m.refused(t, right, err) {
		m.finished(task, state)
	}
}

// submitMany submits several as one worker, some of them twice, wrongly or not at
// all a submission. Each has its answer as if it came after the one before.
func (m *model) submitMany(t *rapid.T) {
	_, _, w, _ := m.drawClaimed(t)
	var list []queue.Submission
	for _, task := range m.tasks { // in no order, which nothing depends on
		if n := len(task.tokens); n > 0 && (task.owner.Actor == w.Actor || len(list) < 2) {
			list = append(list, queue.Submission{ID: task.ID, Token: task.tokens[n-1]})
		}
	}
	slices.SortFunc(list, func(a, b queue.Submission) int { return m.tasks[a.ID].number - m.tasks[b.ID].number })
	list = append(list[:min(len(list), 10)], list[:rapid.IntRange(0, 1).Draw(t, "twice")]...)
	for i := range list {
		list[i].State = rapid.SampledFrom([]queue.State{queue.Completed, queue.Completed, queue.Failed, queue.Ready}).Draw(t, "state")
		list[i].Result = json.RawMessage(`"r"`)
	}
	answers, err := m.h.SubmitMany(t.Context(), w.Holder, m.h.run, list)
	if err != nil || len(answers) != len(list) {
		t.Fatalf("%d answers to %d submissions: %v", len(answers), len(list), err)
	}
	for i, s := range list {
		task := m.tasks[s.ID]
		if s.State == queue.Ready {
			var argument *registry.ArgumentError
			if !errors.As(answers[i].Err, &argument) {
				t.Fatalf("submitted as ready: %v", answers[i].Err)
			}
			continue
		}
		m.submitted(t, task, s.Token, w, s.State, task.right(s.Token, w), answers[i].Err)
	}
}

// keepModel is how long finished tasks are kept. Days of a bubble are long, for
// the store has a timer that runs ten times in each second of them.
const keepModel = time.Minute

func (m *model) finished(task *modelTask, state queue.State) {
	keep := keepModel
	if state == queue.Dead {
		keep *= 2
	}
	task.State, task.Until = state, time.Now().Add(keep)
	if day := task.EnqueuedAt.Add(24 * time.Hour); task.Key != "" && day.After(task.Until) {
		task.Until = day
	}
}

func (m *model) giveBack(t *rapid.T) {
	task, token, w, right := m.drawClaimed(t)
	how := rapid.IntRange(0, 2).Draw(t, "how")
	delay := time.Duration(rapid.IntRange(0, 3).Draw(t, "delay")) * time.Second
	m.calls++
	ctx := w.named(fmt.Sprint(m.calls))
	do := func() (queue.Task, error) {
		switch how {
		case 0:
			return m.h.Abandon(ctx, w.Holder, m.h.run, task.ID, token)
		case 1:
			return m.h.Nack(ctx, w.Holder, m.h.run, task.ID, token, nil, "reason")
		default:
			return m.h.Nack(ctx, w.Holder, m.h.run, task.ID, token, &delay, "")
		}
	}
	got, err := do()
	if m.refused(t, right, err) {
		return
	}
	if again, err := do(); err != nil || again.State != got.State { // its answer was lost
		t.Fatalf("given back again: %s %v, want %s", again.State, err, got.State)
	}
	m.back(task, [...]time.Duration{0, longestBackoff(task.Attempt), delay}[how], m.now())
	m.served(t)
}

func longestBackoff(attempt int) time.Duration { return time.Second << attempt }

// back is the end of an execution without a result.
func (m *model) back(task *modelTask, delay time.Duration, turn int) {
	switch {
	case task.Attempt >= task.MaxAttempts:
		m.finished(task, queue.Dead)
	case delay > 0:
		task.State, task.DueAt = queue.Delayed, time.Now().Add(delay)
	default:
		task.State, task.turn = queue.Ready, turn
	}
}

func (m *model) cancel(t *rapid.T) {
	task := m.pick(t, "task")
	if _, err := m.h.Cancel(t.Context(), uuid.New(), task.ID); !errors.Is(err, queue.ErrNotFound) {
		t.Fatalf("cancelled from another run: %v", err)
	}
	if rapid.IntRange(0, 2).Draw(t, "cancel") > 0 { // not too often, it ends all else
		return
	}
	got, err := m.h.Cancel(t.Context(), m.h.run, task.ID)
	if !task.State.Finished() {
		m.finished(task, queue.Cancelled)
	}
	if err != nil || got.State != task.State {
		t.Fatalf("cancelled: %s %v, want %s", got.State, err, task.State)
	}
}

// has reports whether a queue has a task that cannot have been forgotten yet.
func (m *model) has(name string) bool {
	for _, task := range m.tasks {
		if task.Queue == name && (!task.State.Finished() || task.State == queue.Dead) {
			return true
		}
	}
	return false
}

func (m *model) redrive(t *rapid.T) {
	name := rapid.SampledFrom(modelQueues).Draw(t, "queue")
	var named []uuid.UUID
	if len(m.tasks) > 0 && rapid.Bool().Draw(t, "named") {
		named = append(named, m.pick(t, "task").ID)
	}
	dead := make(map[uuid.UUID]*modelTask)
	for id, task := range m.tasks {
		if task.State == queue.Dead && task.Queue == name && (named == nil || slices.Contains(named, id)) {
			dead[id] = task
		}
	}
	want := min(len(dead), queue.MaxRedrive)
	turn := m.now()
	got, err := m.h.Redrive(t.Context(), m.h.run, name, named)
	if errors.Is(err, queue.ErrNoQueue) && !m.has(name) {
		return
	}
	if err != nil || len(got) != want {
		t.Fatalf("redriven: %v %v, want %d", got, err, want)
	}
	for _, id := range got {
		task := dead[id]
		if task == nil {
			t.Fatalf("redriven: %s, which is not dead in %s, or twice", id, name)
		}
		delete(dead, id)
		task.State, task.Attempt, task.turn = queue.Ready, 0, turn
	}
	m.served(t)
}

func (m *model) die(t *rapid.T) {
	i := rapid.IntRange(0, len(m.workers)-1).Draw(t, "worker")
	w := m.workers[i]
	var left []*waiting
	for _, p := range m.waiters {
		if p.Session == w.Session {
			p.cancel() // as the daemon does, before the session's record goes
			<-p.answer
			continue
		}
		left = append(left, p)
	}
	m.waiters = left
	w.die()
	turn := m.now()
	for _, task := range m.tasks {
		if task.State == queue.InProgress && task.owner.Session == w.Session {
			m.back(task, 0, turn)
		}
	}
	m.workers[i] = w.again()
	m.served(t)
}

// pass lets time pass, and stops at each instant at which something happens.
func (m *model) pass(t *rapid.T) {
	d := time.Duration(rapid.SampledFrom([]int{1, 100, 2000, 2000, 10_000, 60_000, 120_000}).Draw(t, "ms")) * time.Millisecond
	for end := time.Now().Add(d); ; {
		next := m.nextEvent()
		if next.IsZero() || next.After(end) {
			time.Sleep(time.Until(end))
			m.events(t)
			return
		}
		time.Sleep(time.Until(next) + 1)
		m.events(t)
	}
}

func (m *model) nextEvent() (next time.Time) {
	soonest := func(at time.Time) {
		if next.IsZero() || at.Before(next) {
			next = at
		}
	}
	for _, task := range m.tasks {
		switch {
		case task.State == queue.InProgress:
			soonest(task.deadline)
		case task.State == queue.Delayed:
			soonest(task.DueAt)
		case task.State.Finished():
			soonest(task.Until)
		}
	}
	for _, p := range m.waiters {
		soonest(p.until)
	}
	return next
}

// events does what is due.
func (m *model) events(t *rapid.T) {
	synctest.Wait()
	turn, now := m.now(), time.Now()
	for id, task := range m.tasks {
		switch {
		case task.State == queue.InProgress && now.After(task.deadline):
			m.back(task, longestBackoff(task.Attempt), turn)
		case task.State == queue.Delayed && now.After(task.DueAt):
			task.State, task.turn = queue.Ready, turn
		case task.State.Finished() && now.After(task.Until):
			delete(m.tasks, id)
		}
	}
	m.served(t)
}

func (m *model) crash(t *rapid.T) {
	for _, p := range m.waiters {
		p.cancel()
		<-p.answer
	}
	m.waiters = nil
	m.h.t = t
	m.h.crash()
	for _, task := range m.tasks {
		if task.State == queue.InProgress {
			task.deadline = time.Now().Add(task.ttl)
		}
	}
}

// check compares everything.
func (m *model) check(t *rapid.T) {
	m.h.t = t
	m.h.check()
	counts := map[string]queue.Stats{"a": {Queue: "a"}, "b": {Queue: "b"}}
	for id, want := range m.tasks {
		d, err := m.h.Get(t.Context(), m.h.run, id)
		if err != nil || d.State != want.State || d.Attempt != want.Attempt || string(d.Payload) != want.payload {
			t.Fatalf("task is %s after %d attempts (%v), want %s after %d", d.State, d.Attempt, err, want.State, want.Attempt)
		}
		if want.State == queue.Delayed && !d.DueAt.Equal(want.DueAt) || want.State == queue.InProgress && d.ExpiresIn != time.Until(want.deadline) ||
			want.State.Finished() && !d.Until.Equal(want.Until) {
			t.Fatalf("%s task is due %v, held until %v, kept until %v; want %+v", d.State, d.DueAt, d.ExpiresIn, d.Until, want)
		}
		s := counts[want.Queue]
		count(&s, want.Task)
		counts[want.Queue] = s
	}
	for name, want := range counts {
		if got, err := m.h.Stats(t.Context(), m.h.run, name); err != nil || got[0] != want {
			t.Fatalf("queue counts %+v (%v), want %+v", got, err, want)
		}
	}
}

func count(s *queue.Stats, t queue.Task) {
	switch t.State {
	case queue.Ready:
		s.Ready[t.Priority]++
	case queue.Delayed:
		s.Delayed++
	case queue.InProgress:
		s.InProgress++
	case queue.Completed:
		s.Completed++
	case queue.Failed:
		s.Failed++
	case queue.Dead:
		s.Dead++
	case queue.Cancelled:
		s.Cancelled++
	}
}

// end closes the house, also when the round has failed.
func (m *model) end() {
	for _, p := range m.waiters {
		p.cancel()
		<-p.answer
	}
	m.h.stop()
	<-m.h.done
	_ = m.h.eng.Close()
}
