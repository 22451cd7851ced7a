package metrics

import (
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/event"
	"github.com/leasehold/leasehold/queue"
	"github.com/leasehold/leasehold/registry"
)

// A state counts the content of one engine.
type state struct {
	set *Set
	eng engine.Engine

	mu       sync.Mutex
	held     [2]int // leases, by scope
	waiting  [2]int // places in lines, by scope
	sessions int
	depth    map[string]*depth    // by label
	ready    map[queue.Named]bool // queues with a label that have ready tasks
}

// A depth is the number of tasks under a label.
type depth struct{ ready, delayed, inProgress, dead int64 }

func newState(s *Set, eng engine.Engine) *state {
	return &state{set: s, eng: eng, depth: make(map[string]*depth), ready: make(map[queue.Named]bool)}
}

func (*state) prefixes() []string {
	return []string{event.Prefix, registry.LeasePrefix, registry.PlacePrefix, queue.AccountPrefix, dispatch.SessionPrefix}
}

// changed counts the change of a row.
func (st *state) changed(was, is engine.Row) {
	key := is.Key
	if key == "" {
		key = was.Key
	}
	switch {
	case strings.HasPrefix(key, event.Prefix):
		if e, ok := event.Parse(is); ok {
			st.set.count(&e)
			if st.set.opts.Event != nil {
				st.set.opts.Event(e)
			}
		}
	case strings.HasPrefix(key, registry.LeasePrefix):
		st.add(&st.held, key, registry.Held(was), registry.Held(is))
	case strings.HasPrefix(key, registry.PlacePrefix):
		st.add(&st.waiting, key, was.Key != "", is.Key != "")
	case strings.HasPrefix(key, queue.AccountPrefix):
		st.queued(key, was.Value, is.Value)
	case (was.Key == "") != (is.Key == ""):
		st.mu.Lock()
		defer st.mu.Unlock()
		if is.Key != "" {
			st.sessions++
		} else {
			st.sessions--
		}
	}
}

// add counts one that was added or removed. Claims on tasks are leases too, but
// are counted as tasks.
func (st *state) add(to *[2]int, key string, was, is bool) {
	if was == is {
		return
	}
	scope := registry.ScopeOf(engine.Row{Key: key})
	i := 0
	switch {
	case strings.HasPrefix(scope, layerScope+":"):
		i = 1
	case !strings.HasPrefix(scope, runScope+":"):
		return
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	if is {
		to[i]++
	} else {
		to[i]--
	}
}

// queued counts the change of a queue's tasks.
func (st *state) queued(key, was, is string) {
	before, run, ok := queue.StatsOf(engine.Row{Key: key, Value: was})
	after, _, ok2 := queue.StatsOf(engine.Row{Key: key, Value: is})
	if !ok || !ok2 {
		return
	}
	label := st.set.label(after.Queue)
	st.mu.Lock()
	defer st.mu.Unlock()
	d := st.depth[label]
	if d == nil {
		d = new(depth)
		st.depth[label] = d
	}
	add := func(to *int64, was, is uint64) { *to += int64(is) - int64(was) }
	add(&d.ready, before.ReadyTotal(), after.ReadyTotal())
	add(&d.delayed, before.Delayed, after.Delayed)
	add(&d.inProgress, before.InProgress, after.InProgress)
	add(&d.dead, before.Dead, after.Dead)
	of := queue.Named{Run: run, Queue: after.Queue}
	switch {
	case after.ReadyTotal() == 0:
		delete(st.ready, of)
	case label != OtherQueues:
		st.ready[of] = true
	}
}

// maxAges is the number of queues with ready tasks for which a scrape reads the
// oldest task.
const maxAges = 256

// ages returns the age of the oldest ready task under each label.
func (st *state) ages() map[string]time.Duration {
	st.mu.Lock()
	list := make([]queue.Named, 0, min(maxAges, len(st.ready)))
	for of := range st.ready {
		if len(list) == maxAges {
			break
		}
		list = append(list, of)
	}
	st.mu.Unlock()
	ctx, cancel := scrapeContext()
	defer cancel()
	since, now, err := queue.Oldest(ctx, st.eng, list)
	if err != nil {
		return nil // the engine reports its failure elsewhere
	}
	ages := make(map[string]time.Duration)
	for of, at := range since {
		label := st.set.label(of.Queue)
		ages[label] = max(ages[label], now.Sub(at))
	}
	return ages
}

// amounts collects the amounts of all states.
type amounts struct{ set *Set }

var (
	heldDesc       = prometheus.NewDesc("leasehold_leases_held", "Leases that are held.", []string{"scope"}, nil)
	waitersDesc    = prometheus.NewDesc("leasehold_lease_waiters", "Places in the lines for leases, also of parties between two calls.", []string{"scope"}, nil)
	sessionsDesc   = prometheus.NewDesc("leasehold_sessions", "Sessions that have not ended.", nil, nil)
	partitionsDesc = prometheus.NewDesc("leasehold_partitions_led", "Partitions of the state that this daemon leads; 1 for a state on its own disk.", nil, nil)
	tasksDesc      = prometheus.NewDesc("leasehold_queue_tasks", "Tasks by state.", []string{"queue", "state"}, nil)
	ageDesc        = prometheus.NewDesc("leasehold_queue_oldest_ready_seconds", "Since when the oldest of the ready tasks was enqueued; 0: none is ready.", []string{"queue"}, nil)
)

func (amounts) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{heldDesc, waitersDesc, sessionsDesc, partitionsDesc, tasksDesc, ageDesc} {
		to <- d
	}
}

func (a amounts) Collect(to chan<- prometheus.Metric) {
	var held, waiting [2]int
	sessions := 0
	queues := make(map[string]depth)
	ages := make(map[string]time.Duration)
	states := a.set.attached()
	for _, st := range states {
		st.mu.Lock()
		for i := range held {
			held[i] += st.held[i]
			waiting[i] += st.waiting[i]
		}
		sessions += st.sessions
		for label, d := range st.depth {
			sum := queues[label]
			queues[label] = depth{sum.ready + d.ready, sum.delayed + d.delayed, sum.inProgress + d.inProgress, sum.dead + d.dead}
		}
		st.mu.Unlock()
		for label, age := range st.ages() {
			ages[label] = max(ages[label], age)
		}
	}
	gauge := func(d *prometheus.Desc, n float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, n, labels...)
	}
	for i, scope := range scopes {
		gauge(heldDesc, float64(held[i]), scope)
		gauge(waitersDesc, float64(waiting[i]), scope)
	}
	gauge(sessionsDesc, float64(sessions))
	gauge(partitionsDesc, float64(len(states)))
	for label, d := range queues {
		gauge(tasksDesc, float64(d.ready), label, "ready")
		gauge(tasksDesc, float64(d.delayed), label, "delayed")
		gauge(tasksDesc, float64(d.inProgress), label, "in_progress")
		gauge(tasksDesc, float64(d.dead), label, "dead")
		if label != OtherQueues {
			gauge(ageDesc, ages[label].Seconds(), label)
		}
	}
}
