package main

import (
	"encoding/json"
	"net/http"
	"sync"
)

// A ledger is a resource that knows only one thing of Leasehold: tokens rise. A payment
// cannot be undone, so the ledger makes it only once.
//
//   - It refuses a token that is less than one it has seen for the job: that worker has
//     lost its claim.
//   - It does not pay a job twice: the worker that paid the job died before it could
//     report that.
type ledger struct {
	mu       sync.Mutex
	seen     map[int]uint64 // by job: the greatest token
	paid     map[int]job
	balance  int
	stale    int // requests that were refused
	repeated int // requests for jobs that were already paid
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
