package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"time"

	"github.com/leasehold/leasehold/client"
)

// A demo runs the service and causes faults.
type demo struct {
	Servers []string
	Token   func(ctx context.Context, name string) (string, error) // makes an actor; "root" is the lead of the others
	Length  time.Duration                                          // how long jobs are generated
	Out     io.Writer
}

const replicas, workers = 3, 4

// A report is the result of a demo that found no fault.
type report struct {
	status
	Paid, Balance    int
	Stale, Repeated  int // requests that the ledger refused, and for jobs already paid
	Kills, Pauses    int
	Revokes, Crashes int
	Generators       int // leases under which jobs were generated
}

func (r report) String() string {
	return fmt.Sprintf(`%d jobs were done, each once, and none is left; paid: %d
faults caused: kills %d, crashes %d, pauses %d, revoked leases %d
generators, one after the other: %d
payments refused because the claim was lost: %d; requested again, and not made twice: %d
`, r.Paid, r.Balance, r.Kills, r.Crashes, r.Pauses, r.Revokes, r.Generators, r.Stale, r.Repeated)
}

func demonstrate(ctx context.Context, d demo) (r report, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	book := newLedger()
	payments := httptest.NewServer(book)
	defer payments.Close()

	token, err := d.Token(ctx, "root") // the other actors need the root
	if err != nil {
		return r, err
	}
	var cast []*part
	front := &balancer{}
	for i := range replicas + workers {
		p := &part{kind: "replica", name: fmt.Sprintf("replica-%d", i+1)}
		if i >= replicas {
			p.kind, p.name = "worker", fmt.Sprintf("worker-%d", i-replicas+1)
		} else if p.listen, err = freeAddress(); err != nil {
			return r, err
		} else {
			front.replicas = append(front.replicas, "http://"+p.listen)
		}
		if p.token, err = d.Token(ctx, p.name); err != nil {
			return r, err
		}
		p.servers, p.ledger = strings.Join(d.Servers, ","), payments.URL
		cast = append(cast, p)
	}
	var running sync.WaitGroup
	for _, p := range cast {
		running.Go(func() { p.keep(ctx) })
	}
	defer running.Wait()
	defer cancel()

	lead, err := client.Open(ctx, client.Options{Servers: d.Servers, Token: token})
	if err != nil {
		return r, err
	}
	defer func() { _ = lead.Close() }() // an error does not matter: the session ends anyway

	service := httptest.NewServer(front)
	defer service.Close()
	r.harass(ctx, d.Length, cast, lead, d.Out, service.URL)
	if err := ask(ctx, http.MethodPost, service.URL+"/stop", nil); err != nil {
		return r, err
	}
	fmt.Fprintln(d.Out, "no more jobs are generated; the workers finish what is left")
	told := make(map[string]bool) // the replicas that have reported
	for !r.over() || len(told) < replicas {
		if err := ask(ctx, http.MethodGet, service.URL+"/status", &r.status); err != nil {
			return r, err
		}
		told[r.Replica] = true
		time.Sleep(20 * time.Millisecond)
	}
	for _, p := range cast {
		r.Crashes += p.crashed()
	}
	if err := r.check(book); err != nil {
		return r, err
	}
	fmt.Fprint(d.Out, r)
	return r, nil
}

// harass kills and pauses processes and revokes leases, at random, for a while.
func (r *report) harass(ctx context.Context, length time.Duration, cast []*part, lead *client.Client, out io.Writer, service string) {
	var pauses sync.WaitGroup
	defer pauses.Wait()
	end := time.After(length)
	next, show := time.NewTicker(150*time.Millisecond), time.NewTicker(time.Second)
	defer next.Stop()
	defer show.Stop()
	for {
		select {
		case <-end:
			return
		case <-ctx.Done():
			return
		case <-show.C:
			var s status
			if ask(ctx, http.MethodGet, service+"/status", &s) == nil {
				fmt.Fprintf(out, "%s says: %s generates, %d generated, %d done, %d in work\n", s.Replica, s.Generator, s.Generated, s.Completed, s.InProgress)
			}
		case <-next.C:
			p := cast[rand.IntN(len(cast))]
			switch rand.IntN(4) {
			case 0, 1:
				if p.pause() {
					r.Pauses++
					pauses.Go(func() {
						time.Sleep(ttl/4 + rand.N(ttl*3/2))
						p.resume()
					})
				}
			case 2:
				if p.kill() {
					r.Kills++
				}
			case 3:
				in := map[string]any{"scope": "run", "key": "generator", "reason": "to see what happens"}
				if lead.Do(ctx, http.MethodPost, "/leases/revoke", in, nil) == nil {
					r.Revokes++
				}
			}
		}
	}
}

// check compares the ledger with what the service reports.
func (r *report) check(book *ledger) (err error) {
	book.mu.Lock()
	defer book.mu.Unlock()
	fault := func(format string, args ...any) { err = errors.Join(err, fmt.Errorf(format, args...)) }
	r.Paid, r.Balance, r.Stale, r.Repeated = len(book.paid), book.balance, book.stale, book.repeated
	if r.Failed+r.Dead > 0 || r.Completed != r.Paid {
		fault("%d jobs are completed, %d failed and %d dead; %d are paid", r.Completed, r.Failed, r.Dead, r.Paid)
	}
	// A generator that died may have enqueued a job without counting it.
	if r.Paid != r.Generated && r.Paid != r.Generated+1 {
		fault("%d jobs were generated, and %d are paid", r.Generated, r.Paid)
	}
	sum, last := 0, uint64(0)
	for number := 1; number <= r.Paid; number++ {
		j, ok := book.paid[number]
		if !ok {
			fault("job %d of %d was never paid", number, r.Paid)
			continue
		}
		sum += amountOf(number)
		switch {
		case j.Generator < last:
			fault("job %d was made under lease %d, after one of lease %d: two replicas generated", number, j.Generator, last)
		case j.Generator > last:
			r.Generators++
		}
		last = j.Generator
	}
	if sum != r.Balance {
		fault("%d are paid, and %d were due", r.Balance, sum)
	}
	return err
}

// ask asks the service.
func ask(ctx context.Context, method, url string, answer any) error {
	req, err := http.NewRequestWithContext(ctx, method, url, http.NoBody)
	if err != nil {
		return err
	}
	for failures := 0; ; failures++ {
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		switch {
		case err != nil:
			return err
		case resp.StatusCode == http.StatusOK && answer != nil:
			return json.Unmarshal(body, answer)
		case resp.StatusCode == http.StatusOK:
			return nil
		case failures == 100: // all replicas were killed or stopped at once, a hundred times
			return fmt.Errorf("%s %s: %s: %s", method, url, resp.Status, body)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func freeAddress() (string, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return ln.Addr().String(), ln.Close()
}
