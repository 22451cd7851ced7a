package server

import (
	"io"
	"sync/atomic"
	"time"
)

// An Ear reads a connection of [RemoteProtocol] and notices whether anything is heard.
// TCP notices if the machine at the other end is gone ([Silence]). But that can be the
// machine of a proxy or of a tunnel, which answers for a client or a server that it has
// lost. So clients send a [Ping] in intervals and the server answers, and either side takes
// a minute of silence for the end of the connection. A client's session outlives that
// for a short while.
type Ear struct {
	From io.Reader

	listening atomic.Bool // a Read waits
	heard     atomic.Bool // one has returned since the last look
}

func (e *Ear) Read(p []byte) (int, error) {
	e.listening.Store(true)
	n, err := e.From.Read(p)
	e.listening.Store(false)
	e.heard.Store(true)
	return n, err
}

// Ping is answered by a server of any version. Who reads the connection drops the answer,
// because it has made no call with that id. The pings also keep a proxy from closing an
// idle connection.
var Ping = []byte(`{"jsonrpc":"2.0","id":"leasehold-alive","method":"ping"}` + "\n")

// A connection is looked at in intervals, so a machine that stood still does not take
// that time for the silence of the other end.
const (
	lookEvery  = 5 * time.Second
	ceaseAfter = 12 // looks without a sign of life; 30 s are for a large message that goes before
)

// Watch returns true after a minute in which somebody listened and heard nothing, and false
// when over is closed. Every 5 s it calls look, which must not block, with how many such
// intervals in a row were silent.
func (e *Ear) Watch(over <-chan struct{}, look func(silent int)) bool {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for silent := 0; silent < ceaseAfter; look(silent) {
		select {
		case <-tick.C:
		case <-over:
			return false
		}
		if e.heard.Swap(false) || !e.listening.Load() {
			silent = 0
		} else {
			silent++
		}
	}
	return true
}
