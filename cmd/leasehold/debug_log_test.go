package main

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	programs "github.com/leasehold/leasehold/client"
)

// The log at level debug tells each grant and loss of a lease or claim: of what, with
// which token, to whom or from whom, and why. It tells no secret.
func TestGrantsAndLossesAreInTheDebugLog(t *testing.T) {
	t.Parallel()
	d := startMeasured(t, "--log-level", "debug")
	token := newActor(t, "load", "root", "root")
	one, two := d.open(t, token), d.open(t, newActor(t, "load", "w", "worker"))

	held := take(t, one, "held")
	second := d.handOver(held, two)
	var revoked any
	asOperator(t, "operator_lease_revoke", map[string]any{"run": "load", "key": "held", "scope": "run", "reason": "needed"}, &revoked)
	<-second.Context().Done()

	var lost struct {
		LeaseID string `json:"lease_id"`
	}
	if err := one.Do(t.Context(), http.MethodPost, "/leases", map[string]any{"key": "lost", "ttl_secs": 1}, &lost); err != nil {
		t.Fatal(err)
	}
	task, err := one.Enqueue(t.Context(), programs.NewTask{Queue: "q", Payload: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := two.Do(t.Context(), http.MethodPost, "/tasks/next", map[string]any{"queues": []string{"q"}, "ttl_secs": 60}, nil); err != nil {
		t.Fatal(err)
	}
	if err := two.Close(); err != nil { // its session ends, and with it the claim
		t.Fatal(err)
	}

	want := map[string]string{
		"held": "lease_granted root, lease_waiting w by root, lease_released root: released, lease_handed_over w, lease_revoked w: revoked by operator: \"needed\"",
		"lost": "lease_granted root, lease_expired root: expired",
		task:   "task_enqueued root, task_claimed w, task_returned w: session ended",
	}
	got := make(map[string]string)
	withToken := 0
	for i := 0; i < strings.Count(strings.Join([]string{want["held"], want["lost"], want[task]}, ", "), ", ")+1; {
		var line string
		select {
		case line = <-d.log:
		case <-t.Context().Done():
			t.Fatalf("the log tells %q", got)
		}
		for _, secret := range []string{token, lost.LeaseID} {
			if strings.Contains(line, secret) {
				t.Errorf("the log tells a secret: %s", line)
			}
		}
		var e struct {
			Level, Message, Event, Key, Actor, By, Cause, Reason string
			Token                                                uint64
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Errorf("%s: %v", line, err)
		}
		if e.Message != "event" || want[e.Key] == "" {
			continue
		}
		i++
		text := e.Event + " " + e.Actor
		if e.By != "" {
			text += " by " + e.By
		}
		if e.Cause != "" {
			text += ": " + e.Cause
		}
		if e.Reason != "" {
			text += " (" + e.Reason + ")"
		}
		got[e.Key] = strings.TrimPrefix(got[e.Key]+", "+text, ", ")
		if e.Level != "debug" {
			t.Errorf("not at level debug: %s", line)
		}
		if e.Token > 0 {
			withToken++
		} else if slices.Contains([]string{"lease_granted", "lease_handed_over", "lease_released", "lease_revoked", "lease_expired", "task_claimed", "task_returned"}, e.Event) {
			t.Errorf("without a token: %s", line)
		}
	}
	for key, events := range want {
		if got[key] != events {
			t.Errorf("%s: the log tells\n%s, not\n%s", key, got[key], events)
		}
	}
}
