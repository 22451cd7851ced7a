package queue_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/google/uuid"

	"github.com/leasehold/leasehold/queue"
)

var seed = flag.Uint64("seed", 0, "seed of the concurrent tests; 0: a new one")

func newSeed(t *testing.T) uint64 {
	s := cmp.Or(*seed, rand.Uint64())
	t.Logf("-seed=%d", s)
	return s
}

// What goroutines did to a task, and what they were told.
type taskOp struct {
	kind  string // claim, heartbeat, submit, nack, cancel, expire
	task  uuid.UUID
	token uint64
}

type taskAnswer struct {
	ok      bool
	attempt int
	state   queue.State // that a refusal tells of
}

// A taskState is all that the histories need of a task: the token of its claim,
// 0 while there is none, and how it ended.
type taskState struct {
	token, last uint64
	attempts    int
	final       queue.State
}

// taskModel says which sequences of operations a task may see. Claims and
// expiries are partitioned by task, as nothing that happens to one concerns
// another.
var taskModel = porcupine.Model{
	Partition: func(history []porcupine.Operation) (parts [][]porcupine.Operation) {
		at := make(map[uuid.UUID]int)
		for _, op := range history {
			id := op.Input.(taskOp).task
			if _, ok := at[id]; !ok {
				at[id] = len(parts)
				parts = append(parts, nil)
			}
			parts[at[id]] = append(parts[at[id]], op)
		}
		return parts
	},
	Init: func() any { return taskState{} },
	Step: func(state, input, output any) (bool, any) {
		s, op, a := state.(taskState), input.(taskOp), output.(taskAnswer)
		mine := s.final == 0 && s.token == op.token
		switch op.kind {
		case "claim": // tokens rise, and each claim is one attempt more
			ok := s.final == 0 && s.token == 0 && op.token > s.last && a.attempt == s.attempts+1
			return ok, taskState{token: op.token, last: op.token, attempts: a.attempt}
		case "expire": // it may: at an instant that the test knows it cannot come before
			if mine {
				s.token = 0
			}
			return true, s
		case "heartbeat":
			return a.ok == mine, s
		case "nack":
			if mine {
				s.token = 0
			}
			return a.ok == mine, s
		case "submit": // the same again is answered alike
			again := s.final == queue.Completed && s.last == op.token
			if mine {
				s.token, s.final = 0, queue.Completed
			}
			return a.ok == (mine || again), s
		case "cancel":
			if s.final == 0 {
				s.token, s.final = 0, queue.Cancelled
			}
			return a.state == s.final, s
		}
		return false, s
	},
	Equal: func(a, b any) bool { return a == b },
	DescribeOperation: func(input, output any) string {
		return fmt.Sprintf("%+v → %+v", input, output)
	},
}

// submitSomehow submits one task alone or in a batch, in which it is twice, so
// that the second is the same again, beside one that is refused.
func (h *house) submitSomehow(w worker, alone bool, c queue.Claimed) error {
	if alone {
		_, err := h.Submit(h.t.Context(), w.Holder, h.run, c.ID, c.Token, queue.Completed, json.RawMessage(`1`))
		return err
	}
	s := queue.Submission{ID: c.ID, Token: c.Token, State: queue.Completed, Result: json.RawMessage(`1`)}
	answers, err := h.SubmitMany(h.t.Context(), w.Holder, h.run, []queue.Submission{{ID: c.ID, Token: 1 << 40, State: queue.Failed}, s, s})
	if err != nil {
		return err
	}
	if answers[0].Err == nil {
		return errors.New("submitted with a token that was never given")
	}
	if (answers[1].Err == nil) != (answers[2].Err == nil) {
		return fmt.Errorf("answered %w, and %w to the same", answers[1].Err, answers[2].Err)
	}
	return answers[1].Err
}

// TestConcurrentHistoriesAreThoseOfOneTaskAtATime lets goroutines claim, beat,
// submit, nack, cancel and lose tasks on the real clock, and finds for each task
// an order of all that happened in which one thing happened after the other.
//
// An expiry is nobody's call. It is in the history as an operation that began
// at the deadline that was promised last, and has no end: so a claim that ended
// before its deadline has no explanation.
func TestConcurrentHistoriesAreThoseOfOneTaskAtATime(t *testing.T) {
	s := newSeed(t)
	h := newHouse(t)
	defer h.close()
	began := time.Now()
	clock := func() int64 { return int64(time.Since(began)) }

	var mu sync.Mutex
	var history []porcupine.Operation
	promised := make(map[uint64]int64) // deadlines, by token
	tokenOf := make(map[uint64]uuid.UUID)
	record := func(client int, op taskOp, call int64, a taskAnswer) {
		mu.Lock()
		defer mu.Unlock()
		history = append(history, porcupine.Operation{ClientId: client, Input: op, Output: a, Call: call, Return: clock()})
	}

	const clients, tasks = 8, 80
	var left atomic.Int64
	left.Store(tasks)
	var ids []uuid.UUID
	for range tasks / 2 {
		batch := []queue.NewTask{
			{Run: h.run, Queue: "q", Payload: json.RawMessage("1"), MaxAttempts: 100},
			{Run: h.run, Queue: "q", Payload: json.RawMessage("2"), MaxAttempts: 100},
		}
		for _, task := range h.enqueueMany(batch...) {
			ids = append(ids, task.ID)
		}
	}
	owner := h.worker("W") // tokens are what tells claims apart
	var wg sync.WaitGroup
	for client := range clients {
		rnd := rand.New(rand.NewPCG(s, uint64(client)))
		w := owner.again()
		wg.Go(func() {
			var held []queue.Claimed
			for left.Load() > 0 && clock() < int64(2500*time.Millisecond) {
				if len(held) > 10 {
					held = held[1:]
				}
				switch n := rnd.IntN(10); {
				case n < 4 || len(held) == 0:
					call := clock()
					wait := time.Duration(rnd.IntN(2)*rnd.IntN(40)) * time.Millisecond
					got, err := w.ask(queue.Claim{TTL: time.Second, Count: 1 + rnd.IntN(2), Wait: wait})
					if err != nil {
						t.Error(err)
						return
					}
					for _, c := range got {
						mu.Lock()
						promised[c.Token], tokenOf[c.Token] = call+int64(time.Second), c.ID
						mu.Unlock()
						record(client, taskOp{"claim", c.ID, c.Token}, call, taskAnswer{ok: true, attempt: c.Attempt})
					}
					held = append(held, got...)
				case n == 4:
					id, call := ids[rnd.IntN(tasks)], clock()
					if rnd.IntN(20) > 0 {
						continue
					}
					got, err := h.Cancel(t.Context(), h.run, id)
					if err != nil {
						t.Error(err)
						return
					}
					record(client, taskOp{kind: "cancel", task: id}, call, taskAnswer{ok: true, state: got.State})
				default:
					c := held[rnd.IntN(len(held))]
					op, call := taskOp{task: c.ID, token: c.Token}, clock()
					var err error
					switch n {
					case 5, 6:
						op.kind = "heartbeat"
						_, err = h.Heartbeat(t.Context(), w.Holder, h.run, c.ID, c.Token, 0)
						if err == nil {
							mu.Lock()
							promised[c.Token] = max(promised[c.Token], call+int64(time.Second))
							mu.Unlock()
						}
					case 7:
						op.kind = "nack"
						delay := time.Duration(rnd.IntN(3)) * time.Millisecond
						_, err = h.Nack(t.Context(), w.Holder, h.run, c.ID, c.Token, &delay, "")
					default:
						if rnd.IntN(12) > 0 { // so that they do not end too soon
							time.Sleep(time.Duration(rnd.IntN(10)) * time.Millisecond)
							continue
						}
						op.kind = "submit"
						err = h.submitSomehow(w, rnd.IntN(2) == 0, c)
						if err == nil {
							left.Add(-1)
						}
					}
					var stale *queue.StaleError
					if err != nil && !errors.As(err, &stale) {
						t.Error(err)
						return
					}
					record(client, op, call, taskAnswer{ok: err == nil})
				}
			}
		})
	}
	wg.Wait()
	end := clock()
	calls := len(history)
	for token, at := range promised {
		if at < end {
			history = append(history, porcupine.Operation{
				ClientId: clients + int(token), Input: taskOp{"expire", tokenOf[token], token}, Output: taskAnswer{}, Call: at, Return: end + 1,
			})
		}
	}
	slices.SortStableFunc(history, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
	switch got, info := porcupine.CheckOperationsVerbose(taskModel, history, 20*time.Second); got {
	case porcupine.Illegal:
		path := t.ArtifactDir() + "/history.html"
		_ = porcupine.VisualizePath(taskModel, info, path)
		t.Errorf("a history that no order explains: %s", path)
	case porcupine.Unknown:
		t.Error("the history is too long to be judged")
	}
	t.Logf("%d calls, %d claims, %d expiries that may have been", calls, len(promised), len(history)-calls)
}
