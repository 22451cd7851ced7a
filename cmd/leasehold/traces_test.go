package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	span "go.opentelemetry.io/otel/trace"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	programs "github.com/leasehold/leasehold/client"
	"github.com/leasehold/leasehold/engine/traceparent"
)

// One trace leads from the program that enqueues through the daemon, which is killed
// meanwhile, to the handlers of two attempts. The first batch is refused for now, and
// comes again.
func TestOneTraceFromTheEnqueueToTheHandler(t *testing.T) {
	t.Parallel()
	c := startCollector(t)
	newDir(t)
	d := serveHTTP(t, "OTEL_EXPORTER_OTLP_ENDPOINT="+c.URL, "OTEL_EXPORTER_OTLP_HEADERS=authorization=Bearer%20of-the-collector",
		"OTEL_BSP_SCHEDULE_DELAY=20", "OTEL_RESOURCE_ATTRIBUTES=deployment.environment.name=test")
	token := actorsOfRun(t, 1)[0]
	spans, tracer := program()

	ctx, ours := tracer.Start(t.Context(), "the enqueuer")
	first := d.open(t, token)
	id, err := first.Enqueue(ctx, programs.NewTask{Queue: "q", Payload: 1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := first.Enqueue(t.Context(), programs.NewTask{Queue: "other", Payload: 1}); err != nil { // a trace of its own
		t.Fatal(err)
	}
	ours.End()
	c.await("enqueue q")
	d.kill()
	d = serveHTTP(t, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT="+c.URL+"/v1/traces", "OTEL_BSP_SCHEDULE_DELAY=20")

	worker := d.open(t, token)
	ctx, stop := context.WithCancel(t.Context())
	worked := make(chan error, 1)
	go func() {
		worked <- worker.Work(ctx, programs.Worker{Queues: []string{"q"}, Handle: func(ctx context.Context, task *programs.Task) (any, error) {
			_, s := tracer.Start(ctx, fmt.Sprint("handler ", task.Attempt))
			defer s.End()
			if task.Attempt == 1 {
				return nil, errors.New("not yet")
			}
			return "done", nil
		}})
	}()
	if o, err := worker.Wait(t.Context(), id); err != nil || o.State != "completed" {
		t.Fatal(o, err)
	}
	stop()
	if err := <-worked; err != nil {
		t.Fatal(err)
	}
	d.stop() // which sends what is left

	trace := ours.SpanContext().TraceID().String()
	all := c.of(trace)
	for _, s := range spans.Ended() {
		all = append(all, told{s.Name(), s.SpanContext().SpanID().String(), s.Parent().SpanID().String(), s.StartTime(), s.EndTime()})
		if s.SpanContext().TraceID().String() != trace {
			t.Errorf("%s is of another trace", s.Name())
		}
	}
	if got, want := drawn(all, ""), `
the enqueuer
  enqueue q
    wait q
    claim q
      handler 1
      nack q
    wait q
    claim q
      handler 2
      submit q
`[1:]; got != want {
		t.Errorf("the trace is\n%s and not\n%s", got, want)
	}
	for _, s := range all {
		if s.end.Before(s.begin) || s.begin.Before(time.Now().Add(-time.Hour)) {
			t.Errorf("%s is from %v to %v", s.name, s.begin, s.end)
		}
	}
	c.check()
}

// Whoever speaks HTTP or MCP himself takes part, too, and what is no trace context stops
// no call but is refused where it is an argument.
func TestTracesOverHTTPAndMCP(t *testing.T) {
	t.Parallel()
	c := startCollector(t)
	newDir(t)
	d := serveHTTP(t, "OTEL_EXPORTER_OTLP_ENDPOINT="+c.URL, "OTEL_BSP_SCHEDULE_DELAY=20")
	token := actorsOfRun(t, 1)[0]
	worker := d.open(t, token)
	const from, state = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "vendor=t61rcWkgMzE,other=1"
	for _, header := range []string{from, "00-none", strings.Repeat("x", 4000)} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, d.url+"/api/v1/queues/q/tasks", strings.NewReader(`{"payload":1}`))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+token)
		r.Header.Set("Traceparent", header)
		r.Header.Set("Tracestate", state)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusCreated {
			t.Errorf("with the header %.20q: %s", header, resp.Status)
		}
	}
	many := func(traceparent string) error {
		in := map[string]any{"tasks": []any{map[string]any{"queue": "q", "payload": 1, "traceparent": traceparent, "tracestate": state}}}
		return worker.Do(t.Context(), http.MethodPost, "/tasks/many", in, nil)
	}
	if err := errors.Join(many(from), many("")); err != nil {
		t.Error(err)
	}
	if err := many(from + " " + state); programs.CodeOf(err) != "INVALID_ARGUMENT" {
		t.Errorf("a task with two texts in one: %v", err)
	}
	if err := many("00-none"); programs.CodeOf(err) != "INVALID_ARGUMENT" || !strings.Contains(err.Error(), "traceparent") {
		t.Errorf("a task with no trace context: %v", err)
	}
	shim, _ := startShim(t)
	shim.handshake()
	shim.send(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"task_enqueue","arguments":{"queue":"mcp","payload":1},"_meta":{"traceparent":"` + from + `","tracestate":"` + state + `"}}}`)
	if a := shim.answer(7); a.Error != nil {
		t.Error(a.Error)
	}
	script := testProgram(t, "call", "task_enqueue", "queue=script", "payload=1")
	script.Env = append(script.Env, "TRACEPARENT="+from, "TRACESTATE="+state, "LEASEHOLD_TOKEN="+token)
	if out, err := script.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	var got struct{ Tasks []programs.Task }
	if err := worker.Do(t.Context(), http.MethodPost, "/tasks/next", map[string]any{"queues": []string{"q"}, "ttl_secs": 60, "count": 9}, &got); err != nil {
		t.Fatal(err)
	}
	traces := make(map[string]int)
	for _, task := range got.Tasks {
		if !traceparent.Valid(task.Traceparent) {
			t.Errorf("a claim has the trace context %q", task.Traceparent)
			continue
		}
		trace := strings.Split(task.Traceparent, "-")[1]
		traces[trace]++
		if want := map[bool]string{true: state, false: ""}[trace == strings.Split(from, "-")[1]]; task.Tracestate != want {
			t.Errorf("a claim of the trace %s has the state %q, not %q", trace, task.Tracestate, want)
		}
	}
	if trace := strings.Split(from, "-")[1]; len(traces) != 4 || traces[trace] != 2 {
		t.Errorf("five tasks are of the traces %v; two go on with %s", traces, trace)
	}
	c.await("enqueue mcp")
	c.await("enqueue script")
	if err := worker.Do(t.Context(), http.MethodPost, "/tasks/next", map[string]any{"queues": []string{"script"}, "ttl_secs": 60}, &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Tasks) != 1 || !strings.Contains(got.Tasks[0].Traceparent, strings.Split(from, "-")[1]) || got.Tasks[0].Tracestate != state {
		t.Errorf("the task of a script: %+v", got.Tasks)
	}
	d.stop()
	for _, s := range c.of(strings.Split(from, "-")[1]) {
		if strings.HasPrefix(s.name, "enqueue") && s.parent != strings.Split(from, "-")[2] {
			t.Errorf("%s has the parent %s", s.name, s.parent)
		}
	}
}

// Without its variables, and with some that it cannot follow, the daemon sends nothing,
// and passes on what it is given.
func TestNoTracesAreSentUnasked(t *testing.T) {
	t.Parallel()
	for _, env := range [][]string{
		{},
		{"OTEL_EXPORTER_OTLP_ENDPOINT=URL", "OTEL_SDK_DISABLED=true"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT=URL", "OTEL_TRACES_EXPORTER=none"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT=URL", "OTEL_EXPORTER_OTLP_PROTOCOL=grpc"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT=ftp://nowhere"},
	} {
		t.Run(strings.Join(env, " "), func(t *testing.T) {
			c := startCollector(t)
			newDir(t)
			for i := range env {
				env[i] = strings.ReplaceAll(env[i], "URL", c.URL)
			}
			d := serveHTTP(t, env...)
			worker := d.open(t, actorsOfRun(t, 1)[0])
			_, tracer := program()
			ctx, ours := tracer.Start(t.Context(), "the enqueuer")
			if _, err := worker.Enqueue(ctx, programs.NewTask{Queue: "q", Payload: 1}); err != nil {
				t.Fatal(err)
			}
			var got struct{ Tasks []programs.Task }
			if err := worker.Do(t.Context(), http.MethodPost, "/tasks/next", map[string]any{"queues": []string{"q"}, "ttl_secs": 60}, &got); err != nil {
				t.Fatal(err)
			}
			if len(got.Tasks) != 1 || got.Tasks[0].Traceparent != traceparent.Of(ctx) {
				t.Errorf("the worker is given %v, not %s", got.Tasks, traceparent.Of(ctx))
			}
			ours.End()
			d.stop()
			if n := len(c.spans); n > 0 {
				t.Errorf("%d spans were sent", n)
			}
		})
	}
}

// program is a program's own tracer, and the spans that it has ended.
func program() (*tracetest.SpanRecorder, span.Tracer) {
	r := tracetest.NewSpanRecorder()
	return r, trace.NewTracerProvider(trace.WithSpanProcessor(r)).Tracer("test")
}

// A collector takes spans as others do, by OTLP over HTTP.
type collector struct {
	*testing.T
	*httptest.Server
	mu       sync.Mutex
	came     chan struct{} // has one in it when spans came
	requests int
	spans    []*otlp.Span
	services map[string]bool
	keys     map[string]bool // Authorization
}

func startCollector(t *testing.T) *collector {
	t.Helper()
	c := &collector{T: t, came: make(chan struct{}, 1), services: make(map[string]bool), keys: make(map[string]bool)}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var data otlp.TracesData
		if err == nil {
			err = proto.Unmarshal(body, &data)
		}
		if err != nil || r.URL.Path != "/v1/traces" || r.Header.Get("Content-Type") != "application/x-protobuf" {
			t.Errorf("%s %s, %s: %v", r.Method, r.URL.Path, r.Header.Get("Content-Type"), err)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.keys[r.Header.Get("Authorization")] = true
		if c.requests++; c.requests == 1 {
			http.Error(w, "not now", http.StatusServiceUnavailable)
			return
		}
		for _, rs := range data.ResourceSpans {
			for _, a := range rs.Resource.GetAttributes() {
				c.services[a.Key+"="+a.Value.GetStringValue()] = true
			}
			for _, ss := range rs.ScopeSpans {
				c.spans = append(c.spans, ss.Spans...)
			}
		}
		select {
		case c.came <- struct{}{}:
		default:
		}
	}))
	t.Cleanup(c.Close)
	return c
}

// await waits until a span of a name has come.
func (c *collector) await(name string) {
	c.Helper()
	ctx, cancel := context.WithTimeout(c.Context(), patience)
	defer cancel()
	for {
		c.mu.Lock()
		there := slices.ContainsFunc(c.spans, func(s *otlp.Span) bool { return s.Name == name })
		c.mu.Unlock()
		if there {
			return
		}
		select {
		case <-c.came:
		case <-ctx.Done():
			c.Fatalf("no span %q came", name)
		}
	}
}

// of are the spans of a trace, each of which has come once.
func (c *collector) of(trace string) (list []told) {
	c.mu.Lock()
	defer c.mu.Unlock()
	seen := make(map[string]bool)
	for _, s := range c.spans {
		id := fmt.Sprintf("%x", s.SpanId)
		if seen[id] {
			c.Errorf("span %s came twice", s.Name)
		}
		seen[id] = true
		if fmt.Sprintf("%x", s.TraceId) == trace {
			list = append(list, told{s.Name, id, fmt.Sprintf("%x", s.ParentSpanId), time.Unix(0, int64(s.StartTimeUnixNano)), time.Unix(0, int64(s.EndTimeUnixNano))})
		}
	}
	return list
}

func (c *collector) check() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.keys["Bearer of-the-collector"] {
		c.Errorf("it is asked with %v", c.keys)
	}
	if !c.services["service.name=leasehold"] || !c.services["deployment.environment.name=test"] {
		c.Errorf("spans are of %v", c.services)
	}
}

// A told span is one as the test compares it.
type told struct {
	name, id, parent string
	begin, end       time.Time
}

// hasParent reports whether it is not the first of its trace.
func (s told) hasParent() bool { return strings.Trim(s.parent, "0") != "" }

// drawn is the spans below one as a tree, in the order in which they began.
func drawn(list []told, below string) string {
	var text strings.Builder
	slices.SortStableFunc(list, func(a, b told) int { return a.begin.Compare(b.begin) })
	for _, s := range list {
		parent := s.parent
		if !s.hasParent() {
			parent = ""
		}
		if parent != below {
			continue
		}
		text.WriteString(s.name + "\n")
		for line := range strings.Lines(drawn(slices.Clone(list), s.id)) {
			text.WriteString("  " + line)
		}
	}
	return text.String()
}
