package metrics

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/event"
)

// MaxQueues is how many names of queues get their own label. The tasks of the
// others are counted under OtherQueues, which cannot be the name of a queue.
const (
	MaxQueues   = 100
	OtherQueues = "…"
)

// Options of a Set. The zero value is for production.
type Options struct {
	Version string // of the daemon
	// Event is called with each event when it is counted. It must be as fast as
	// an [engine.Observer]. It may be nil.
	Event func(event.Event)
}

// A Set is the metrics of a process. It is safe for concurrent use.
type Set struct {
	opts     Options
	registry *prometheus.Registry
	counts   counts

	mu     sync.Mutex
	states map[*state]bool
	labels map[string]string // names of queues with their own label
}

// An Engine is an engine that can be observed.
type Engine interface {
	engine.Engine
	Observe(engine.Observer)
}

// New returns a Set that observes nothing yet.
func New(o Options) *Set {
	s := &Set{opts: o, registry: prometheus.NewRegistry(), states: make(map[*state]bool), labels: make(map[string]string)}
	s.counts.register(s.registry)
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "leasehold_build_info", Help: "1; version is that of the daemon.", ConstLabels: prometheus.Labels{"version": o.Version},
	})
	build.Set(1)
	s.registry.MustRegister(build, amounts{s}, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return s
}

// Attach counts what happens in a state, and what it contains, until it is
// detached. It must be called before the engine is used.
func (s *Set) Attach(eng Engine) (detach func()) {
	st := newState(s, eng)
	eng.Observe(engine.Observer{Prefixes: st.prefixes(), Changed: st.changed, Committed: s.counts.committed})
	s.mu.Lock()
	s.states[st] = true
	s.mu.Unlock()
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.states, st)
	}
}

// Called counts a call of a tool.
func (s *Set) Called(tool string, refused bool) {
	outcome := "answered"
	if refused {
		outcome = "refused"
	}
	s.counts.calls.WithLabelValues(tool, outcome).Inc()
}

// Handler serves the metrics.
func (s *Set) Handler() http.Handler {
	return promhttp.HandlerFor(s.registry, promhttp.HandlerOpts{MaxRequestsInFlight: maxScrapes, Timeout: scrapeTimeout})
}

// Bounds of scrapes.
const (
	maxScrapes    = 4
	scrapeTimeout = 5 * time.Second
)

// label returns the label of a queue.
func (s *Set) label(queue string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if label, ok := s.labels[queue]; ok {
		return label
	}
	if len(s.labels) >= MaxQueues {
		return OtherQueues
	}
	s.labels[queue] = queue
	return queue
}

// attached returns the observed states.
func (s *Set) attached() (list []*state) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for st := range s.states {
		list = append(list, st)
	}
	return list
}

// scrapeContext limits the reads of a scrape.
func scrapeContext() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), scrapeTimeout)
}
