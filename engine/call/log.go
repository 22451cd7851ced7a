package call

import (
	"sync"

	"github.com/leasehold/leasehold/engine"
)

// A Log knows which answers of a session are recorded, and which of them its
// client has received. The next transaction that records an answer of the
// session deletes the rows of the latter. The zero Log is ready to use. With a
// nil Log, answers are kept until they are due.
type Log struct {
	mu        sync.Mutex
	recorded  map[string]struct{} // keys of answers that may not have been delivered
	delivered map[string]struct{} // keys of rows to be deleted
	full      bool                // recorded is incomplete
}

// maxLog is the greatest size of each map of a Log. Answers beyond it are
// deleted when they are due.
const maxLog = 4096

// note records that c has an answer.
func (l *Log) note(c Call) {
	if l == nil || c.Name == "" {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.recorded == nil {
		l.recorded, l.delivered = make(map[string]struct{}), make(map[string]struct{})
	}
	if len(l.recorded) >= maxLog {
		l.full = true
		return
	}
	l.recorded[c.nameKey()] = struct{}{}
}

// recordedAs reports whether there may be an answer under a name.
func (l *Log) recordedAs(key string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, ok := l.recorded[key]
	return ok || l.full
}

// Delivered records that the client has received the answer of c.
func (l *Log) Delivered(c Call) {
	if l == nil || c.Name == "" {
		return
	}
	key := c.nameKey()
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.recorded[key]; !ok {
		return
	}
	delete(l.recorded, key)
	if len(l.delivered) < maxLog {
		l.delivered[key] = struct{}{}
	}
}

func (l *Log) isDelivered(key string) bool {
	if l == nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	_, ok := l.delivered[key]
	return ok
}

// sweep deletes the answers that have been delivered. If the transaction fails,
// their rows stay until they are due.
func (l *Log) sweep(tx engine.Tx) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for key := range l.delivered {
		tx.Delete(key)
	}
	clear(l.delivered)
}
