package main

import (
	"encoding/json"
	"net/http"
	"sync"
)

// A ledger is a resource that knows nothing of Leasehold but that tokens rise. A payment
// cannot be taken back, so it is made once.
//
//   - A token that is less than one it has seen for the job is of a worker that has lost
//     its claim, and is refused.
//   - A job that is paid is not paid again: whoever paid it died before it could say so.
type ledger struct {
	mu       sync.Mutex
	seen     map[int]uint64 // by job: the greatest token
	paid     map[int]job
	balance  int
	stale    int // payments that were refused
	repeated int // and those that were made before
}

type payment struct {
	Job   job    `json:"job"`
	Token uint64 `json:"token"`
}

func newLedger() *ledger { return &ledger{seen: make(map[int]uint64), paid: make(map[int]job)} }

func (l *ledger) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var p payment
	if err := json.NewDecoder(r.Body).Decode(&p); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	done, ok := l.pay(p)
	if !ok {
		http.Error(w, "the claim is lost", http.StatusConflict)
		return
	}
	answer(w, map[string]string{"done": done}, nil)
}

func (l *ledger) pay(p payment) (done string, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p.Token < l.seen[p.Job.Number] {
		l.stale++
		return "", false
	}
	l.seen[p.Job.Number] = p.Token
	if _, paid := l.paid[p.Job.Number]; paid {
		l.repeated++
		return "before", true
	}
	l.paid[p.Job.Number] = p.Job
	l.balance += p.Job.Amount
	return "now", true
}
