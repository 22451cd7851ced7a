package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"time"

	"github.com/leasehold/leasehold/client"
)

// work executes jobs. Now and then it crashes at the worst moment: after the payment, and
// before it has reported the payment.
func work(ctx context.Context, c *client.Client, ledger string) error {
	return c.Work(ctx, client.Worker{
		Queues: []string{jobs}, Concurrency: 4, TTL: ttl,
		Handle: func(ctx context.Context, t *client.Task) (any, error) {
			var j job
			if err := json.Unmarshal(t.Payload, &j); err != nil {
				return nil, client.Final(err)
			}
			time.Sleep(rand.N(20 * time.Millisecond)) // hard work
			if ctx.Err() != nil {
				return nil, ctx.Err() // the claim is lost, and another worker may have the job
			}
			done, err := pay(ctx, ledger, payment{Job: j, Token: t.Token})
			if err == nil && rand.IntN(60) == 0 {
				os.Exit(3)
			}
			return done, err
		},
	})
}

// pay asks the ledger to make a payment. The payment has the token of the worker's claim.
func pay(ctx context.Context, ledger string, p payment) (done string, err error) {
	body, err := json.Marshal(p)
	if err != nil {
		return "", err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, ledger, bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("the ledger refuses job %d: %s", p.Job.Number, resp.Status)
	}
	var answer struct{ Done string }
	return answer.Done, json.NewDecoder(resp.Body).Decode(&answer)
}
