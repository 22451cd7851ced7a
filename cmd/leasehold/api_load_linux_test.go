package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

var (
	apiClientCount = flag.Int("api.clients", 60, "HTTP clients that mix leases and tasks")
	apiFor         = flag.Duration("api.for", time.Second, "how long they do")
)

// Many clients mix leases and tasks: they get expected answers alone, and the daemon's
// memory does not grow with what is over.
func TestManyHTTPClients(t *testing.T) {
	newDir(t)
	url := serveHTTP(t).url
	const perActor = 200 // an actor has 256 sessions over HTTP
	tokens := actorsOfRun(t, (*apiClientCount+perActor-1)/perActor)
	var reader struct{ Token string }
	asOperator(t, "operator_token_issue", map[string]any{"name": "reader", "role": "reader"}, &reader)
	ctx, cancel := context.WithTimeout(t.Context(), *apiFor+time.Minute)
	defer cancel()
	l := &load{t: t, ctx: ctx, url: url + "/api/v1", answers: make(map[string]int), byRoute: make(map[string][]time.Duration)}
	var wg sync.WaitGroup
	memory := make(chan []memoryUse, 1)
	for i := range *apiClientCount {
		wg.Go(func() {
			transport := new(http.Transport) // of a program: a connection that it keeps
			defer transport.CloseIdleConnections()
			c := &apiClient{load: l, token: tokens[i/perActor], http: &http.Client{Transport: transport}}
			c.session = c.open()
			for end := time.Now().Add(*apiFor); time.Now().Before(end) && ctx.Err() == nil; {
				c.step()
			}
			c.flush()
		})
	}
	go func() { // ends before the clients do
		var list []memoryUse
		for range samples {
			time.Sleep(*apiFor / (samples + 1))
			list = append(list, usageOf(t, url, reader.Token))
		}
		memory <- list
	}()
	wg.Wait()
	t.Logf("%d clients, %d requests in %v: %v", *apiClientCount, len(l.calls), *apiFor, l.answers)
	t.Logf("p50 %v, p99 %v; of an empty handler %v, %v",
		percentile(l.calls, 50), percentile(l.calls, 99), percentile(l.empty, 50), percentile(l.empty, 99))
	used := <-memory
	for i, u := range used {
		t.Logf("after %-6v live heap %4d MB, resident %4d MB, %d goroutines", *apiFor*time.Duration(i+1)/(samples+1), u.live>>20, u.resident>>20, u.goroutines)
	}
	for _, route := range slices.Sorted(maps.Keys(l.byRoute)) {
		took := l.byRoute[route]
		t.Logf("%-16s %6d requests, p50 %v, p99 %v", route, len(took), percentile(took, 50), percentile(took, 99))
	}
	if early, late := used[samples/3], used[samples-1]; late.live > early.live*13/10+slack || late.resident > early.resident*13/10+fill {
		t.Errorf("memory has grown: %+v, then %+v", early, late)
	}
	if len(l.calls) < *apiClientCount {
		t.Errorf("%d clients made %d requests", *apiClientCount, len(l.calls))
	}
}

// samples is how many times the memory is looked at.
const samples = 11

// A memoryUse is what a daemon uses.
type memoryUse struct {
	live       int // bytes of the heap that the collector found in use the last time
	resident   int // bytes
	goroutines int
}

// usageOf reads the metrics of a daemon.
func usageOf(t *testing.T, url, token string) (u memoryUse) {
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/metrics", http.NoBody)
	if err != nil {
		t.Error(err)
		return u
	}
	r.Header.Set("Authorization", "Bearer "+token)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Error(err)
		return u
	}
	defer resp.Body.Close()
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), " ")
		x, _ := strconv.ParseFloat(value, 64)
		switch name {
		case "go_memstats_next_gc_bytes":
			u.live = int(x / 2) // the collector runs when the heap has doubled
		case "process_resident_memory_bytes":
			u.resident = int(x)
		case "go_goroutines":
			u.goroutines = int(x)
		}
	}
	if u.live == 0 || u.resident == 0 || u.goroutines == 0 {
		t.Errorf("the metrics do not tell the memory: %s, %+v", resp.Status, u)
	}
	return u
}

// A load is what all clients do, and were answered.
type load struct {
	t   *testing.T
	ctx context.Context
	url string

	mu           sync.Mutex
	answers      map[string]int // by route and status
	calls, empty []time.Duration
	byRoute      map[string][]time.Duration
}

const (
	// fill is by how much memory grows until the tables and the cache of the store are
	// full, and the collector has as much again.
	fill = 160 << 20

	// slack is by how much the live heap may differ between two collections.
	slack = 8 << 20
)

// emptyRoute is that of a handler that does nothing.
const emptyRoute = "GET /healthz"

// expected are the statuses of each route while nobody errs.
var expected = map[string][]int{
	"POST /sessions": {201}, "GET /healthz": {200}, "GET /queues": {200},
	"POST /leases": {200, 201, 202, 409}, "DELETE /leases/": {200}, "POST /renew": {200},
	"POST /tasks": {201}, "POST /tasks/next": {200, 204}, "POST /complete": {200}, "POST /nack": {200},
}

// A apiClient is one program.
type apiClient struct {
	*load
	token, session string
	http           *http.Client
	took           map[string][]time.Duration // by route
	got            map[string]int
}

func (c *apiClient) open() string {
	var opened struct{ Session string }
	c.do("POST /sessions", http.MethodPost, "/sessions", "", &opened)
	return opened.Session
}

func (c *apiClient) do(route, method, path, body string, answer any) (status int) {
	base, empty := c.url, route == emptyRoute
	if empty {
		base = strings.TrimSuffix(c.url, "/api/v1")
	}
	r, err := http.NewRequestWithContext(c.ctx, method, base+path, strings.NewReader(body))
	if err != nil {
		c.t.Error(err)
		return 0
	}
	r.Header.Set("Authorization", "Bearer "+c.token)
	if c.session != "" {
		r.Header.Set("Leasehold-Session", c.session)
	}
	began := time.Now()
	resp, err := c.http.Do(r)
	if err != nil {
		c.t.Errorf("%s: %v", route, err)
		return 0
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Errorf("%s: %v", route, err)
	}
	took := time.Since(began)
	if c.got == nil {
		c.got, c.took = make(map[string]int), make(map[string][]time.Duration)
	}
	c.took[route] = append(c.took[route], took)
	c.got[fmt.Sprint(route, " ", resp.StatusCode)]++
	if !slices.Contains(expected[route], resp.StatusCode) {
		c.t.Errorf("%s: %d %s", route, resp.StatusCode, b)
	}
	if answer != nil && resp.StatusCode < 202 {
		if err := json.Unmarshal(b, answer); err != nil {
			c.t.Errorf("%s: %v: %s", route, err, b)
		}
	}
	return resp.StatusCode
}

// step is what a program does at a time.
func (c *apiClient) step() {
	switch rand.IntN(10) {
	case 0:
		c.do("GET /healthz", http.MethodGet, "/healthz", "", nil)
	case 1:
		c.do("GET /queues", http.MethodGet, "/queues", "", nil)
	case 2, 3, 4:
		var l struct {
			LeaseID string `json:"lease_id"`
		}
		wait := 0.0
		if rand.IntN(50) == 0 { // whoever has waited in vain keeps a place for a while, and there are bounds of those
			wait = rand.Float64() / 10
		}
		body := fmt.Sprintf(`{"key":"key %d","ttl_secs":60,"wait_secs":%g}`, rand.IntN(500), wait)
		if status := c.do("POST /leases", http.MethodPost, "/leases", body, &l); status == http.StatusCreated || status == http.StatusOK {
			c.do("POST /renew", http.MethodPost, "/leases/"+l.LeaseID+"/renew", `{}`, nil)
			c.do("DELETE /leases/", http.MethodDelete, "/leases/"+l.LeaseID, "", nil)
		}
	case 5, 6, 7:
		c.do("POST /tasks", http.MethodPost, "/queues/q/tasks", `{"payload":{"n":1}}`, nil)
	default:
		var got struct {
			Tasks []struct {
				TaskID string `json:"task_id"`
				Token  uint64
			}
		}
		c.do("POST /tasks/next", http.MethodPost, "/tasks/next", `{"queues":["q"],"ttl_secs":60,"count":2,"wait_secs":0.01}`, &got)
		for _, task := range got.Tasks {
			if token := strconv.FormatUint(task.Token, 10); rand.IntN(20) == 0 {
				c.do("POST /nack", http.MethodPost, "/tasks/"+task.TaskID+"/nack", `{"token":`+token+`,"reason":"not now","delay_secs":0}`, nil)
			} else {
				c.do("POST /complete", http.MethodPost, "/tasks/"+task.TaskID+"/complete", `{"token":`+token+`}`, nil)
			}
		}
	}
}

func (c *apiClient) flush() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for route, took := range c.took {
		c.byRoute[route] = append(c.byRoute[route], took...)
		if route == emptyRoute {
			c.empty = append(c.empty, took...)
		} else {
			c.calls = append(c.calls, took...)
		}
	}
	for what, n := range c.got {
		c.answers[what] += n
	}
}
