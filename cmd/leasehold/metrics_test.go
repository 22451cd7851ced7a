package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	prometheus "github.com/prometheus/common/model"

	programs "github.com/leasehold/leasehold/client"
	"github.com/leasehold/leasehold/dispatch/metrics"
)

// What is scraped from a daemon is what was done there, and no more series come with
// more runs and queues.
func TestMetrics(t *testing.T) {
	t.Parallel()
	d := startMeasured(t)
	token := newActor(t, "load", "root", "root")
	one, two := d.open(t, token), d.open(t, newActor(t, "load", "w", "worker"))
	before := d.scrape()

	held := take(t, one, "held")
	second := d.handOver(held, two)
	d.equal(d.scrape(), "leasehold_leases_held", labels{"scope": "run"}, 1)
	if err := second.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	lost := map[string]any{"key": "lost", "ttl_secs": 1}
	var lapsed struct {
		LeaseID string `json:"lease_id"`
	}
	for range 2 { // the second finds its own, and gets it again
		if err := one.Do(t.Context(), http.MethodPost, "/leases", lost, &lapsed); err != nil {
			t.Fatal(err)
		}
	}
	d.until("leasehold_lease_ends_total", labels{"scope": "run", "cause": "expired"})
	if err := two.Do(t.Context(), http.MethodPost, "/leases", map[string]any{"key": "other"}, nil); err != nil {
		t.Fatal(err)
	}
	if err := one.Do(t.Context(), http.MethodPost, "/leases", map[string]any{"key": "other"}, nil); programs.CodeOf(err) != "LEASE_HELD" {
		t.Fatal(err)
	}
	gated := map[string]any{"payload": 1, "require_leases": []any{map[string]any{"scope": "run", "key": "lost", "token": held.Token()}}}
	if err := one.Do(t.Context(), http.MethodPost, "/queues/q/tasks", gated, nil); programs.CodeOf(err) != "STALE_TOKEN" {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := one.Enqueue(t.Context(), programs.NewTask{Queue: "q", Payload: 1}); err != nil {
			t.Fatal(err)
		}
	}
	var claimed struct {
		Tasks []struct {
			TaskID string `json:"task_id"`
			Token  uint64
		}
	}
	if err := one.Do(t.Context(), http.MethodPost, "/tasks/next", map[string]any{"queues": []string{"q"}, "count": 2, "ttl_secs": 60}, &claimed); err != nil || len(claimed.Tasks) != 2 {
		t.Fatal(claimed, err)
	}
	if err := one.Do(t.Context(), http.MethodPost, "/tasks/"+claimed.Tasks[0].TaskID+"/complete", map[string]any{"token": claimed.Tasks[0].Token}, nil); err != nil {
		t.Fatal(err)
	}

	now := d.scrape()
	run := labels{"scope": "run"}
	d.equal(now, "leasehold_leases_held", run, 1)
	d.equal(now, "leasehold_lease_waiters", run, 0)
	d.equal(now, "leasehold_lease_grants_total", labels{"scope": "run", "how": "free"}, 3)
	d.equal(now, "leasehold_lease_grants_total", labels{"scope": "run", "how": "handed_over"}, 1)
	d.equal(now, "leasehold_lease_ends_total", labels{"scope": "run", "cause": "released"}, 2)
	d.equal(now, "leasehold_lease_ends_total", labels{"scope": "run", "cause": "expired"}, 1)
	d.equal(now, "leasehold_lease_wait_seconds", run, 1)
	d.equal(now, "leasehold_lease_hold_seconds", run, 3)
	d.equal(now, "leasehold_gated_writes_refused_total", nil, 1)
	d.equal(now, "leasehold_deadlocks_total", nil, 0)
	d.equal(now, "leasehold_partitions_led", nil, 1)
	d.equal(now, "leasehold_sessions", nil, 2)
	q := func(state string) labels { return labels{"queue": "q", "state": state} }
	d.equal(now, "leasehold_queue_tasks", q("ready"), 1)
	d.equal(now, "leasehold_queue_tasks", q("in_progress"), 1)
	d.equal(now, "leasehold_task_events_total", labels{"queue": "q", "event": "enqueued"}, 3)
	d.equal(now, "leasehold_task_events_total", labels{"queue": "q", "event": "claimed"}, 2)
	d.equal(now, "leasehold_task_events_total", labels{"queue": "q", "event": "completed"}, 1)
	if age := d.value(now, "leasehold_queue_oldest_ready_seconds", labels{"queue": "q"}); age <= 0 {
		t.Errorf("the oldest task is %v s old", age)
	}
	if n, was := d.value(now, "leasehold_commit_seconds", nil), d.value(before, "leasehold_commit_seconds", nil); n < was+10 {
		t.Errorf("%v commits, %v before", n, was)
	}

	// A renewal after the deadline, and a wait that would have no end.
	d.equal(now, "leasehold_lease_late_renewals_total", run, 0)
	if err := one.Do(t.Context(), http.MethodPost, "/leases/"+lapsed.LeaseID+"/renew", map[string]any{"ttl_secs": 60}, nil); err != nil {
		t.Fatal(err)
	}
	first, other := take(t, one, "first"), take(t, two, "second")
	ctx, giveUp := context.WithCancel(t.Context())
	waited := make(chan struct{})
	go func() {
		defer close(waited)
		_, err := one.Acquire(ctx, "second", programs.LeaseOptions{})
		if err == nil {
			t.Error("a lease that is held was granted")
		}
	}()
	d.until("leasehold_lease_waiters", run)
	if err := two.Do(t.Context(), http.MethodPost, "/leases", map[string]any{"key": "first", "wait_secs": 20}, nil); programs.CodeOf(err) != "DEADLOCK" {
		t.Fatal(err)
	}
	giveUp()
	<-waited
	now = d.scrape()
	d.equal(now, "leasehold_lease_late_renewals_total", run, 1)
	d.equal(now, "leasehold_deadlocks_total", nil, 1)
	d.equal(now, "leasehold_leases_held", run, 4)
	for _, l := range []*programs.Lease{first, other} {
		if err := l.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
	}

	for i := range 250 {
		worker := d.open(t, newActor(t, fmt.Sprint("run-", i), "root", "root"))
		take(t, worker, fmt.Sprint("key ", i))
		for n := range 4 {
			if _, err := worker.Enqueue(t.Context(), programs.NewTask{Queue: fmt.Sprintf("q-%d-%d", i, n), Payload: 1}); err != nil {
				t.Fatal(err)
			}
		}
		if err := worker.Close(); err != nil {
			t.Fatal(err)
		}
	}
	series := 0
	values := make(map[string]bool)
	for _, f := range d.scrape() {
		series += len(f.Metric)
		for _, m := range f.Metric {
			for _, l := range m.Label {
				values[l.GetValue()] = true
				if slices.Contains([]string{"run", "key", "actor", "session", "path"}, l.GetName()) || strings.Contains(l.GetValue(), "key ") {
					t.Errorf("%s has the label %s", f.GetName(), l)
				}
			}
		}
	}
	t.Logf("%d series with %d values after 1000 queues in 250 runs", series, len(values))
	if !values[metrics.OtherQueues] || len(values) > metrics.MaxQueues+200 || series > 10*metrics.MaxQueues+400 {
		t.Errorf("%d series with %d values: %v", series, len(values), slices.Sorted(maps.Keys(values)))
	}
	d.refuses(token)
}

type labels map[string]string

// A measured is a daemon that is scraped.
type measured struct {
	*testing.T
	served
	scraped string
	log     chan string // its lines; those that nobody reads are dropped
}

// startMeasured starts one in a directory of its own, and serveMeasured in that of the
// test.
func startMeasured(t *testing.T, flags ...string) *measured {
	t.Helper()
	newDir(t)
	return serveMeasured(t, flags...)
}

func serveMeasured(t *testing.T, flags ...string) *measured {
	t.Helper()
	cmd := testProgram(t, append([]string{"serve", "--http", "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--log-format", "json"}, flags...)...)
	out, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	d := &measured{T: t, served: served{cmd: cmd}, log: make(chan string, 1000)}
	lines := bufio.NewScanner(out)
	for d.url == "" && lines.Scan() {
		var line struct{ Message, Address, HTTP string }
		_ = json.Unmarshal(lines.Bytes(), &line)
		if line.Address != "" && strings.Contains(line.Message, "metrics") {
			d.scraped = "http://" + line.Address + "/metrics"
		}
		d.url = regexp.MustCompile(`http://[^/]+`).FindString(line.HTTP)
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		for lines.Scan() {
			fmt.Fprintln(t.Output(), lines.Text())
			select {
			case d.log <- lines.Text():
			default:
			}
		}
	}()
	t.Cleanup(func() { _ = cmd.Process.Kill(); <-read; _ = cmd.Wait() })
	if d.url == "" || d.scraped == "" {
		t.Fatalf("the daemon serves %q and %q", d.url, d.scraped)
	}
	return d
}

func take(t *testing.T, c *programs.Client, key string) *programs.Lease {
	t.Helper()
	l, err := c.TryAcquire(t.Context(), key, programs.LeaseOptions{TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// handOver releases a lease for which another client waits, and returns the lease of that.
func (d *measured) handOver(held *programs.Lease, to *programs.Client) *programs.Lease {
	d.Helper()
	waited := make(chan *programs.Lease, 1)
	go func() {
		l, err := to.Acquire(d.Context(), held.Key(), programs.LeaseOptions{})
		if err != nil {
			d.Error(err)
		}
		waited <- l
	}()
	d.until("leasehold_lease_waiters", labels{"scope": "run"})
	if err := held.Release(d.Context()); err != nil {
		d.Fatal(err)
	}
	return <-waited
}

func (d *measured) get(url, token string) (status int, body io.ReadCloser) {
	d.Helper()
	r, err := http.NewRequestWithContext(d.Context(), http.MethodGet, url, nil)
	if err != nil {
		d.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		d.Fatal(err)
	}
	return resp.StatusCode, resp.Body
}

func (d *measured) scrape() map[string]*dto.MetricFamily {
	d.Helper()
	status, body := d.get(d.scraped, "")
	defer body.Close()
	parser := expfmt.NewTextParser(prometheus.UTF8Validation)
	families, err := parser.TextToMetricFamilies(body)
	if err != nil || status != http.StatusOK {
		d.Fatal(status, err)
	}
	return families
}

// A page of a browser cannot read what needs no token, whatever name it gives to
// our address.
func TestMetricsAreNotForPages(t *testing.T) {
	t.Parallel()
	d := startMeasured(t, "--http-host", "scraped.example")
	for _, c := range []struct {
		host, origin string
		want         int
	}{
		{"localhost:7712", "", http.StatusOK},
		{"scraped.example:7712", "", http.StatusOK},
		{"rebound.example:7712", "", http.StatusForbidden},
		{"localhost:7712", "http://page.example", http.StatusForbidden},
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, d.scraped, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = c.host
		if c.origin != "" {
			r.Header.Set("Origin", c.origin)
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != c.want {
			t.Errorf("a request to %q from %q is answered %d, not %d", c.host, c.origin, resp.StatusCode, c.want)
		}
	}
}

// value is that of a series, of a histogram how often it was measured.
func (d *measured) value(families map[string]*dto.MetricFamily, name string, of labels) float64 {
	d.Helper()
	for _, m := range families[name].GetMetric() {
		got := make(labels)
		for _, l := range m.Label {
			got[l.GetName()] = l.GetValue()
		}
		if !maps.Equal(got, of) {
			continue
		}
		if m.Histogram != nil {
			return float64(m.Histogram.GetSampleCount())
		}
		return m.GetCounter().GetValue() + m.GetGauge().GetValue()
	}
	d.Errorf("there is no %s%v", name, of)
	return -1
}

func (d *measured) equal(families map[string]*dto.MetricFamily, name string, of labels, want float64) {
	d.Helper()
	if got := d.value(families, name, of); got != want {
		d.Errorf("%s%v is %v, not %v", name, of, got, want)
	}
}

// until scrapes until a series is 1.
func (d *measured) until(name string, of labels) {
	d.Helper()
	ctx, cancel := context.WithTimeout(d.Context(), patience)
	defer cancel()
	for d.value(d.scrape(), name, of) != 1 {
		select {
		case <-ctx.Done():
			d.Fatalf("%s%v does not become 1", name, of)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// refuses checks who may read the metrics at the door for everybody.
func (d *measured) refuses(token string) {
	d.Helper()
	var reader struct{ Token string }
	asOperator(d.T, "operator_token_issue", map[string]any{"name": "prometheus", "role": "reader"}, &reader)
	for token, want := range map[string]int{"": http.StatusUnauthorized, token: http.StatusForbidden, reader.Token: http.StatusOK} {
		status, body := d.get(d.url+"/metrics", token)
		body.Close()
		if status != want {
			d.Errorf("with a token of %d bytes /metrics answers %d, not %d", len(token), status, want)
		}
	}
}
