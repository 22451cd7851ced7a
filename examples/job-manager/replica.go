package main

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/leasehold/leasehold/client"
)

// A replica answers for the whole service. It keeps no state of its own: it reads the
// state from Leasehold, and writes changes there.
type replica struct {
	*client.Client
	name string
}

func serveReplica(ctx context.Context, c *client.Client, name, listen string) error {
	r := &replica{Client: c, name: name}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /status", r.showStatus)
	mux.HandleFunc("POST /stop", r.stop)
	web := &http.Server{Addr: listen, Handler: mux, ReadHeaderTimeout: time.Second}
	parts, ctx := errgroup.WithContext(ctx)
	parts.Go(func() error {
		if err := web.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	parts.Go(func() error {
		<-ctx.Done()
		return web.Close()
	})
	parts.Go(func() error {
		return c.RunSingleton(ctx, client.Singleton{Key: "generator", TTL: ttl, Run: r.generate})
	})
	return parts.Wait()
}

// A status is the state of the service. All replicas report the same one.
type status struct {
	Replica   string `json:"replica"`   // the replica that reports it
	Generator string `json:"generator"` // the replica that generates jobs; "": none does
	Stopped   bool   `json:"stopped"`
	Generated int    `json:"generated"`

	Ready      int `json:"ready"`
	Delayed    int `json:"delayed"`
	InProgress int `json:"in_progress"`
	Completed  int `json:"completed"`
	Failed     int `json:"failed"`
	Dead       int `json:"dead"`
}

// over reports whether nothing is left to do.
func (s *status) over() bool {
	return s.Stopped && s.Generator == "" && s.Ready+s.Delayed+s.InProgress == 0
}

func (r *replica) status(ctx context.Context) (s status, err error) {
	s.Replica = r.name
	next := 1
	if _, err = r.Load(ctx, stopPath, &s.Stopped); err == nil {
		_, err = r.Load(ctx, nextPath, &next)
	}
	if err != nil {
		return s, err
	}
	s.Generated = next - 1
	var held struct {
		Leases []struct{ Holder struct{ Path string } }
	}
	if err := r.Do(ctx, "GET", "/leases/held?scope=run&key=generator", nil, &held); err != nil {
		return s, err
	}
	if len(held.Leases) > 0 {
		s.Generator = held.Leases[0].Holder.Path
	}
	var list struct{ Queues []json.RawMessage }
	if err := r.Do(ctx, "GET", "/queues?limit=1", nil, &list); err != nil || len(list.Queues) == 0 {
		return s, err
	}
	return s, json.Unmarshal(list.Queues[0], &s)
}

func (r *replica) showStatus(w http.ResponseWriter, req *http.Request) {
	s, err := r.status(req.Context())
	answer(w, s, err)
}

// stop ends the generator, on whichever replica it runs.
func (r *replica) stop(w http.ResponseWriter, req *http.Request) {
	err := r.Store(req.Context(), stopPath, true)
	answer(w, map[string]bool{"stopped": true}, err)
}

func answer(w http.ResponseWriter, v any, err error) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // a client that gets no answer asks again
}
