package server

import (
	"encoding/binary"
	"sync"
	"time"

	"github.com/leasehold/leasehold/engine/call"
)

// marked has the running calls that their clients have marked, and so can send
// again over another connection.
type marked struct {
	mu    sync.Mutex
	calls map[string]*markedCall // by the call's key

	// Which calls their clients have sent again, and when: by the call's key and
	// fingerprint. They count as long as an answer is kept. If again is full, it takes the
	// place of earlier.
	again, earlier map[string]time.Time
}

// maxAgain is how many calls are always remembered as sent again.
const maxAgain = 4096

type markedCall struct {
	in   *requests
	r    *request
	done chan struct{}
}

// hold keeps other requests of r's call waiting while the call may be undone, so
// that none of them is told what is just being taken back. One that runs already
// has prevented that.
func (k *marked) hold(t *requests, r *request) (leave func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if key := r.name.Key(); r.name.Recorded() && k.calls[key] == nil {
		return k.addLocked(key, &markedCall{t, r, make(chan struct{})})
	}
	return func() {}
}

// enter makes r the only running call of its name. An earlier one, on a
// connection that its client has given up, is cut off, and enter waits for its
// end, so that r finds what it did.
//
// But r may be the copy that its client has given up: a server that stood still
// passes it on when it goes on, and the client has sent the call again over
// another server meanwhile. So r yields to a call that waits on a newer
// connection, where its client reads the answer. It also yields if its own
// connection is over, and if its client has sent the call again since, over HTTP or
// another server: it might have gone on, and a rule that records no answer would not
// notice. Otherwise r waits, even if its connection ends meanwhile: two copies that run
// at the same time could undo what the other has answered.
//
// A different request with the Idempotency-Key of a call that somebody waits for is
// no copy: enter cancels it, and it is refused.
func (k *marked) enter(t *requests, r *request) (leave func()) {
	key := r.name.Key()
	k.mu.Lock()
	earlier := k.calls[key]
	if earlier != nil && r.name.Differs(earlier.r.name) && earlier.in.answers(earlier.r) {
		k.mu.Unlock()
		r.cancel(call.ErrReused)
		return func() {}
	}
	late := r.ctx.Err() != nil || t.conn > 0 && earlier != nil && earlier.in.conn > t.conn && earlier.in.answers(earlier.r)
	if k.overtakenLocked(r.name) || earlier != nil && late {
		k.mu.Unlock()
		t.yield(r)
		return func() {}
	}
	leave = k.addLocked(key, &markedCall{t, r, make(chan struct{})})
	k.mu.Unlock()
	if earlier != nil {
		earlier.in.cutOff(earlier.r, errSentAgain)
		<-earlier.done // it is cut off, so it ends
	}
	return leave
}

// overtakenLocked reports whether a request arrives after another of its call that the
// client has sent later.
func (k *marked) overtakenLocked(c call.Call) bool {
	key, now := string(binary.BigEndian.AppendUint64([]byte(c.Key()), c.Print)), time.Now()
	if c.SentFirst() {
		at, ok := k.again[key]
		if !ok {
			at, ok = k.earlier[key]
		}
		return ok && now.Sub(at) < call.Keep
	}
	if len(k.again) >= maxAgain {
		k.again, k.earlier = nil, k.again
	}
	if k.again == nil {
		k.again = make(map[string]time.Time)
	}
	k.again[key] = now
	return false
}

func (k *marked) addLocked(key string, own *markedCall) (leave func()) {
	if k.calls == nil {
		k.calls = make(map[string]*markedCall)
	}
	k.calls[key] = own
	return func() {
		k.mu.Lock()
		if k.calls[key] == own {
			delete(k.calls, key)
		}
		k.mu.Unlock()
		close(own.done)
	}
}
