package metrics

import (
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/leasehold/leasehold/engine/event"
	"github.com/leasehold/leasehold/registry"
)

// counts has the metrics of what happens.
type counts struct {
	grants, ends, late *prometheus.CounterVec
	waited, held       *prometheus.HistogramVec
	deadlocks          prometheus.Counter
	refused            prometheus.Counter
	tasks              *prometheus.CounterVec
	sessions           *prometheus.CounterVec
	commits            prometheus.Histogram
	calls              *prometheus.CounterVec
}

// Buckets in seconds: for waits of people and programs, and for commits.
var (
	durations = []float64{.001, .01, .1, .5, 1, 5, 15, 60, 300, 900, 3600, 14400, 86400}
	latencies = []float64{.00005, .0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, 1, 5}
)

func (c *counts) register(r *prometheus.Registry) {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "leasehold_" + name, Help: help}, labels)
		r.MustRegister(v)
		return v
	}
	histogram := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		v := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "leasehold_" + name, Help: help, Buckets: buckets}, labels)
		r.MustRegister(v)
		return v
	}
	c.grants = counter("lease_grants_total", "Leases that were granted: at once (free), to the first in line (handed_over), or to another party of their holder's actor (adopted).", "scope", "how")
	c.ends = counter("lease_ends_total", "Leases that ended, by cause.", "scope", "cause")
	c.late = counter("lease_late_renewals_total", "Renewals that came after the deadline, while nobody else had taken the lease.", "scope")
	c.waited = histogram("lease_wait_seconds", "How long a lease was waited for until it was granted; leases that were free at once are not in it.", durations, "scope")
	c.held = histogram("lease_hold_seconds", "How long leases that ended had been held.", durations, "scope")
	c.deadlocks = counter("deadlocks_total", "Requests that were refused because they would have closed a cycle.").WithLabelValues()
	c.refused = counter("gated_writes_refused_total", "Writes that were refused because a lease or claim they named was not current.").WithLabelValues()
	c.tasks = counter("task_events_total", "What happened to tasks.", "queue", "event")
	c.sessions = counter("session_events_total", "Sessions that began and ended.", "event")
	c.commits = histogram("commit_seconds", "How long writes to the state took until they were durable.", latencies).WithLabelValues().(prometheus.Histogram)
	c.calls = counter("calls_total", "Calls of tools, over MCP and HTTP, by whether they were answered or refused.", "tool", "outcome")
	for _, scope := range scopes {
		for _, how := range []string{"free", "handed_over", "adopted"} {
			c.grants.WithLabelValues(scope, how)
		}
		for _, cause := range causes {
			c.ends.WithLabelValues(scope, cause)
		}
		c.late.WithLabelValues(scope)
		c.waited.WithLabelValues(scope)
		c.held.WithLabelValues(scope)
	}
}

func (c *counts) committed(took time.Duration) { c.commits.Observe(took.Seconds()) }

// The values of labels.
const (
	runScope   = "run"
	layerScope = "layer"
)

var scopes = []string{runScope, layerScope}

var causes = []string{"released", "expired", "session_ended", "revoked", "transferred", "other"}

// causeOf returns the label for the cause of an end.
func causeOf(e *event.Event) string {
	switch e.Kind {
	case event.LeaseExpired:
		return "expired"
	case event.LeaseRevoked:
		return "revoked"
	}
	switch registry.Cause(e.Cause) {
	case registry.Released, registry.ReleasedAside, registry.ReleasedWithin:
		return "released"
	case registry.Expired:
		return "expired"
	case registry.SessionEnded:
		return "session_ended"
	case registry.Transferred:
		return "transferred"
	}
	return "other"
}

// count counts an event. An event of a layer has its path, even that of the
// root's layer.
func (s *Set) count(e *event.Event) {
	c, scope := &s.counts, runScope
	if e.Layer != "" {
		scope = layerScope
	}
	switch e.Kind {
	case event.LeaseGranted:
		c.grants.WithLabelValues(scope, "free").Inc()
	case event.LeaseHandedOver:
		c.grants.WithLabelValues(scope, "handed_over").Inc()
		c.waited.WithLabelValues(scope).Observe(e.Took.Seconds())
	case event.LeaseAdopted:
		c.grants.WithLabelValues(scope, "adopted").Inc()
	case event.LeaseReleased, event.LeaseExpired, event.LeaseRevoked:
		c.ends.WithLabelValues(scope, causeOf(e)).Inc()
		c.held.WithLabelValues(scope).Observe(e.Took.Seconds())
	case event.LeaseRevived:
		c.late.WithLabelValues(scope).Inc()
	case event.Deadlock:
		c.deadlocks.Inc()
	case event.WriteRefused:
		c.refused.Inc()
	case event.SessionBegan:
		c.sessions.WithLabelValues("began").Inc()
	case event.SessionEnded:
		c.sessions.WithLabelValues("ended").Inc()
	default:
		if what, ok := strings.CutPrefix(e.Kind.String(), "task_"); ok {
			c.tasks.WithLabelValues(s.label(e.Queue), what).Inc()
		}
	}
}
