package tools_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/server/tools"
	"github.com/leasehold/leasehold/dispatch/server/wire"
	"github.com/leasehold/leasehold/dispatch/work"
	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/kvstore"
	"github.com/leasehold/leasehold/layer"
	"github.com/leasehold/leasehold/queue"
	"github.com/leasehold/leasehold/registry"
)

// secrets are the fields in answers of operators' tools that no text contains.
var secrets = map[string]string{
	"operator_actor_add": "token", "operator_actor_token": "token", "operator_token_issue": "token", "operator_token_rotate": "token", "operator_launch_next": "launch", "operator_launch_join": "plan",
}

// checkText checks that the text of an answer or refusal contains everything
// that its object contains. caller.call calls it for every tool call.
func (h *house) checkText(tool string, object map[string]any, text string) {
	h.t.Helper()
	if missing := missingIn(text, object); len(missing) > 0 && !slices.Equal(missing, []string{secrets[tool]}) {
		h.t.Errorf("the text of %s does not say %v of the object %v:\n%s", tool, missing, object, text)
	}
	if secret, ok := object[secrets[tool]].(string); ok && strings.Contains(text, secret) {
		h.t.Errorf("%s tells a secret in its text: %s", tool, text)
	}
}

// checkOrder checks that what an agent must not miss comes before what can be long.
func (h *house) checkOrder(tool string, object []byte) {
	h.t.Helper()
	long := ""
	for name, value := range wire.Members(object) {
		switch {
		case long != "" && slices.Contains([]string{"notices", "next", "truncated"}, string(name)):
			h.t.Errorf("%s has %s after %s, of which a client may show the beginning alone: %s", tool, name, long, object)
		case value[0] == '[' && string(name) != "notices":
			long = string(name)
		}
	}
}

// Gemini CLI shows its model answers of up to 40 000 characters in full.
func TestAListingIsShownInFull(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		root := h.actor(dispatch.Root, "", "boss")
		for n := range 100 {
			root.ok("kv_set", args{"path": fmt.Sprintf("/shared/%0100d", n), "value": strings.Repeat("x", 700)})
		}
		for _, a := range []args{{"glob": "/shared/**"}, {"glob": "/shared/**", "values": true}} {
			list, err := root.Call(h.ctx, "kv_list", a)
			if size := max(len(list.Text), len(list.Object)); err != nil || size > 40_000 {
				t.Errorf("%v: %d bytes, %v", a, size, err)
			}
		}
	})
}

// Qwen Code shows its model the first 2 kB of a long answer, and Cline little more: the
// line of a refusal still says what is refused, how many notices there are, and of what.
func TestTheLineNamesAllThatIsLostForLongReasons(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		boss, w1, w2 := h.actor(dispatch.Root, "", "boss"), h.actor(dispatch.Worker, "", "W1"), h.actor(dispatch.Worker, "", "W2")
		w2.ok("run_lease_acquire", args{"key": "deploy"})
		key := func(n int) string { return fmt.Sprintf("file:src/app/number-%d.ts", n) }
		for n := range dispatch.MaxNotices {
			w1.ok("run_lease_acquire", args{"key": key(n)})
		}
		why := strings.Repeat(`it is "mine", `, 18)
		for n := range dispatch.MaxNotices {
			boss.ok("lease_revoke", args{"scope": "run", "key": key(n), "reason": why})
		}
		answer, _ := w1.Call(h.ctx, "run_lease_acquire", args{"key": "deploy"})
		line, rest, _ := strings.Cut(answer.Text, "\n")
		words := []string{`lease "deploy" held by actor`, "call again with wait_secs", fmt.Sprint(dispatch.MaxNotices, " notices: "), "acquire what you lost again"}
		for n := range dispatch.MaxNotices {
			words = append(words, fmt.Sprintf(`you lost lease %q (revoked by root: "it is`, key(n)))
		}
		for _, want := range words {
			if begin := line[:min(2048, len(line))]; !strings.Contains(begin, want) {
				t.Fatalf("the first 2 kB lack %q: %s", want, begin)
			}
		}
		if n := strings.Count(rest, strings.Trim(strconv.Quote(strconv.Quote(why)), `"`)); n != dispatch.MaxNotices {
			t.Errorf("the whole reason is %d times in the JSON: %s", n, rest)
		}
	})
}

// missingIn returns the fields of an object that its text lacks, both as a word
// of its first line and in the JSON of its second.
func missingIn(text string, object map[string]any) (missing []string) {
	line, rest, more := strings.Cut(text, "\n")
	if line == "" {
		missing = append(missing, "a line for people")
	}
	said := map[string]any{}
	if more {
		dec := json.NewDecoder(strings.NewReader(rest))
		if err := dec.Decode(&said); err != nil || dec.More() || strings.Contains(rest, "\n") {
			return []string{fmt.Sprintf("JSON in the second line and nothing else (%v)", err)}
		}
	}
	for name, value := range object {
		if other, ok := said[name]; !ok && !inWords(line, value) || ok && !reflect.DeepEqual(value, other) {
			missing = append(missing, name)
		}
		delete(said, name)
	}
	for name := range said {
		missing = append(missing, "without "+name)
	}
	slices.Sort(missing)
	return missing
}

// inWords reports whether a line contains a text or a number as a separate word.
func inWords(line string, value any) bool {
	var word string
	switch v := value.(type) {
	case string:
		if quoted := strconv.Quote(v); v == "" || strings.Contains(line, quoted) {
			return v != ""
		}
		word = strings.ReplaceAll(v, "\n", " ")
	case float64:
		word = strconv.FormatFloat(v, 'f', -1, 64)
	default:
		return false
	}
	return regexp.MustCompile(`(^|[^\pL\pN])` + regexp.QuoteMeta(word) + `($|[^\pL\pN])`).MatchString(line)
}

// The text of a refusal also contains everything. This test covers every error
// with a code and all its data, some of which no other test produces.
func TestTheTextOfARefusalHasAllItsData(t *testing.T) {
	id, at := uuid.New(), time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	by := registry.Holder{Actor: uuid.New(), Path: "S1→W2", Party: "a \"b\" & <c>\nd"}
	held := registry.HeldError{Waiters: 2, Lease: registry.Lease{
		Scope: "run:r", Key: "out.json\n", Holder: by, Times: registry.Times{ExpiresIn: 27*time.Second + 1}, KeepAlive: true, Shared: true, Reason: "building",
	}}
	task := queue.Task{ID: id, State: queue.Dead}
	codes := make(map[string]bool)
	for _, err := range []error{
		&held, &registry.WaitError{HeldError: held, Position: 3, Ticket: id},
		&registry.LostError{Notice: registry.Notice{Scope: "layer:x", Key: "x", LeaseID: id, Token: 7, Reason: "expired", At: at, SupersededBy: "W2"}},
		registry.ErrNotHolder, registry.ErrRequestIDReused, registry.ErrSessionEnded, queue.ErrKeyReused,
		&queue.StaleError{Task: task, Token: 4},
		&registry.StaleError{
			Requirement:   registry.Requirement{Scope: "run:r", Key: "x", Token: 4},
			TokenStanding: registry.TokenStanding{Held: true, Lease: registry.Lease{Key: "x/**", Holder: by, Token: 5}},
		},
		&registry.LimitError{Which: "leases", Max: 9}, &work.BudgetError{Available: work.USD(2.5)},
		&registry.ArgumentError{Argument: "name", Problem: "must be\ngiven"},
		&kvstore.VersionError{Version: 12}, &layer.ForbiddenError{Who: "W1", Verb: "write", Path: "/ref/x", Next: "ask"}, &layer.UnknownPeerError{ID: id},
		&dispatch.ForbiddenError{What: "no"}, &dispatch.DrainingError{What: "the run", Reason: "enough"},
		&dispatch.EndedError{Path: "W1", Run: "r", By: "root", Cause: "enough", At: at, Held: []work.LeaseName{{Scope: "run", Key: "x"}}},
		dispatch.ErrNotFound, dispatch.ErrExists, dispatch.ErrUnauthenticated, queue.ErrNotFound, queue.ErrNoQueue,
		engine.ErrFull, engine.ErrClosed, errors.New("no idea"),
	} {
		reply := tools.RefusalOf(err).Reply()
		var object map[string]any
		if err := json.Unmarshal(reply.Object, &object); err != nil {
			t.Fatal(err)
		}
		if missing := missingIn(reply.Text(), object); len(missing) > 0 {
			t.Errorf("%T: the text does not say %v:\n%s", err, missing, reply.Text())
		}
		codes[object["code"].(string)] = true
		if !reply.IsError {
			t.Errorf("%T is no error", err)
		}
	}
	if len(codes) < 14 {
		t.Errorf("only %d codes: %v", len(codes), codes)
	}
}

// A daemon with a database goes on by itself when the database does, and nothing may
// restart it before that.
func TestAFailedStateIsWorthAnotherTry(t *testing.T) {
	for _, err := range []error{
		fmt.Errorf("%w: the disk is full", engine.ErrFailed),
		fmt.Errorf("%w: the database did not come back: %w", engine.ErrFailed, context.DeadlineExceeded), // which is no wait of a call
	} {
		if got := tools.RefusalOf(err).Message; !strings.Contains(got, "try again in a few seconds") || !strings.Contains(got, err.Error()) || !strings.Contains(got, "may have taken effect") {
			t.Error(got)
		}
	}
}

// The text of a reply is written into its message in parts.
func TestAMessageHasTheTextOfItsReply(t *testing.T) {
	odd := "\"\\\n\r\t\x00\x7f \u2028é→\U0001f600</b>&\\\"" // what a string of JSON must, may and need not escape
	value, _ := json.Marshal(map[string]any{odd: []string{odd}})
	for _, reply := range []tools.Reply{
		tools.Refusal{Code: "LEASE_HELD", Message: odd, Data: map[string]any{"text": odd, "value": json.RawMessage(value), "long": strings.Repeat(odd, 1000)}}.Reply(),
		tools.Refusal{Code: "LEASE_HELD"}.Reply(),
		tools.ReplyOf(value, odd, false),
	} {
		var message struct {
			Result struct {
				Content           []struct{ Text string }
				StructuredContent json.RawMessage
			}
		}
		line := reply.Line(json.RawMessage("1"))
		if err := json.Unmarshal(line, &message); err != nil || strings.Count(string(line), "\n") != 1 {
			t.Fatalf("%v in %.300q", err, line)
		}
		if text := message.Result.Content[0].Text; text != reply.Text() {
			t.Errorf("the message has the text %.300q, want %.300q", text, reply.Text())
		}
		if object := message.Result.StructuredContent; string(object) != string(reply.Object) {
			t.Errorf("the message has the object %.300s, want %.300s", object, reply.Object)
		}
	}
}

// The reply of another server has its text as it came.
func TestABriefReplyIsOneLine(t *testing.T) {
	object := json.RawMessage(`{"code":"LEASE_HELD","message":"held","holder":"W1"}`)
	for _, reply := range []tools.Reply{
		tools.Refusal{Code: "LEASE_HELD", Message: "held", Data: map[string]any{"holder": "W1"}}.Reply(),
		tools.ReplyOf(object, "held\n{\"holder\":\"W1\"}", false),
	} {
		if text := reply.Brief().Text(); text != "held" {
			t.Errorf("the text is %q", text)
		}
	}
}

// An answer that is not the end says how to go on.
func TestAnAnswerThatIsNotAllSaysHowToGoOn(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		boss := h.actor(dispatch.Root, "", "boss")
		line := func(tool string, a args) string {
			answer, err := boss.Call(h.ctx, tool, a)
			if err != nil {
				t.Fatal(err)
			}
			first, _, _ := strings.Cut(answer.Text, "\n")
			return first
		}
		if got := line("kv_wait", args{"path": "/shared/a", "wait_secs": 1}); got != "no entry; call kv_wait again to wait on" {
			t.Error(got)
		}
		boss.ok("kv_set", args{"path": "/shared/a", "value": 1})
		if got := line("kv_wait", args{"path": "/shared/a", "min_version": 2, "wait_secs": 1}); got != "/shared/a version 1, written by root; call kv_wait again to wait on" {
			t.Error(got)
		}
		if got := line("kv_wait", args{"path": "/shared/a", "min_version": 1, "wait_secs": 1}); got != "/shared/a version 1, written by root" {
			t.Error(got)
		}
		for range 101 {
			boss.ok("task_enqueue", args{"queue": "q", "payload": 1, "max_attempts": 1})
		}
		for _, count := range []int{100, 1} {
			for _, task := range boss.ok("task_claim", args{"queues": []string{"q"}, "ttl_secs": 60, "count": count})["tasks"].([]any) {
				boss.ok("task_abandon", args{"task_id": task.(map[string]any)["task_id"], "token": task.(map[string]any)["token"]})
			}
		}
		if got := line("queue_redrive", args{"queue": "q"}); got != "100 tasks redriven; queue_dead lists the dead tasks" {
			t.Error(got)
		}
		if got := line("queue_redrive", args{"queue": "q"}); got != "1 task redriven" {
			t.Error(got)
		}
	})
}
