package main

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync/atomic"
	"time"
)

// A balancer passes each request to the next replica. If that one does not answer, it tries
// another.
type balancer struct {
	replicas []string // URLs
	turn     atomic.Uint64
}

// patience is how long a replica may take to answer.
const patience = 300 * time.Millisecond

func (b *balancer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	err := errors.New("there are no replicas")
	for range 2 * len(b.replicas) {
		replica := b.replicas[b.turn.Add(1)%uint64(len(b.replicas))]
		if err = pass(w, r, replica); err == nil {
			return
		}
	}
	http.Error(w, err.Error(), http.StatusBadGateway)
}

// pass lets a replica answer a request. If it returns an error, it has written nothing.
func pass(w http.ResponseWriter, r *http.Request, replica string) error {
	ctx, cancel := context.WithTimeout(r.Context(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, r.Method, replica+r.URL.RequestURI(), http.NoBody)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode == http.StatusServiceUnavailable {
		return errors.New(string(body))
	}
	w.Header().Set("Content-Type", resp.Header.Get("Content-Type"))
	w.WriteHeader(resp.StatusCode)
	_, _ = w.Write(body) // a client that gets no answer asks again
	return nil
}
