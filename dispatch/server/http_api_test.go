package server_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/server"
	"github.com/leasehold/leasehold/dispatch/server/api"
	"github.com/leasehold/leasehold/dispatch/server/wire"
	"github.com/leasehold/leasehold/queue"
)

// A program is a client of the API, whose every answer is held against the
// document.
type program struct {
	*web
	t       *testing.T
	session string
	book    document
}

func newProgram(t *testing.T, w *web) *program {
	t.Helper()
	return &program{web: w, t: t, book: readDocument(t)}
}

// another is a program of another actor.
func (p *program) another(name string) *program {
	p.t.Helper()
	w := &web{daemon: p.daemon, client: p.client, token: p.daemon.token(p.t, name)}
	return &program{web: w, t: p.t, book: p.book}
}

// An answer is what a request got.
type answer struct {
	status int
	header http.Header
	body   string
	object map[string]any
}

func (a answer) text(name string) string { s, _ := a.object[name].(string); return s }

func (p *program) open() *program {
	p.t.Helper()
	a := p.ask("POST", "/sessions", "")
	if a.status != http.StatusCreated || a.text("session") == "" {
		p.t.Fatalf("open a session: %d %s", a.status, a.body)
	}
	p.session = a.text("session")
	return p
}

// request is one of the API: a line of header for each pair.
func (p *program) request(ctx context.Context, method, path, body string, header ...string) *http.Request {
	p.t.Helper()
	r, err := http.NewRequestWithContext(ctx, method, "http://localhost"+api.Prefix+path, strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	askFirst(r)
	r.Header.Set("Authorization", "Bearer "+p.token)
	if p.session != "" {
		r.Header.Set("Leasehold-Session", p.session)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	return r
}

// ask sends a request and checks that the answer is one that the document has.
func (p *program) ask(method, path, body string, header ...string) answer {
	p.t.Helper()
	resp, err := p.client.Do(p.request(p.t.Context(), method, path, body, header...))
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	a := answer{status: resp.StatusCode, header: resp.Header, body: string(b)}
	if len(b) > 0 {
		if err := json.Unmarshal(b, &a.object); err != nil {
			p.t.Errorf("%s %s: no JSON: %s", method, path, b)
		}
	}
	p.book.check(p.t, method, path, a)
	return a
}

// want is ask, where the status is known.
func (p *program) want(status int, method, path, body string, header ...string) answer {
	p.t.Helper()
	a := p.ask(method, path, body, header...)
	if a.status != status {
		p.t.Errorf("%s %s %s: %d, want %d: %s", method, path, body, a.status, status, a.body)
	}
	return a
}

func number(x any) string { return strconv.FormatFloat(x.(float64), 'f', -1, 64) }

func TestAPILeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := newProgram(t, newWeb(t, server.Options{})).open()
		two := one.another("two").open()

		got := one.want(201, "POST", "/leases", `{"key":"port 80","reason":"deploy","ttl_secs":600}`)
		one.want(200, "POST", "/leases", `{"key":"port 80"}`)
		held := two.want(409, "POST", "/leases", `{"key":"port 80"}`)
		if held.text("code") != "LEASE_HELD" || held.header.Get("Content-Type") != "application/problem+json" || !strings.Contains(held.text("detail"), "held by actor") {
			t.Errorf("held: %v %s", held.header, held.body)
		}
		waited := two.want(202, "POST", "/leases", `{"key":"port 80","wait_secs":5}`)
		if waited.text("ticket") == "" || waited.object["position"] != 1.0 {
			t.Errorf("waited: %s", waited.body)
		}
		one.want(200, "POST", "/leases/"+got.text("lease_id")+"/renew", `{"ttl_secs":1200}`)
		one.want(409, "POST", "/leases/11111111-1111-1111-1111-111111111111/renew", `{}`)
		list := two.want(200, "GET", "/leases?scope=run&limit=10", "")
		if !strings.Contains(list.body, `"key":"port 80"`) {
			t.Errorf("list: %s", list.body)
		}
		check := `{"scope":"run","key":"port 80","token":` + number(got.object["token"]) + `}`
		if a := two.want(200, "POST", "/leases/check", check); a.object["current"] != true {
			t.Errorf("check: %s", a.body)
		}
		one.want(200, "DELETE", "/leases/"+got.text("lease_id"), "")
		two.want(201, "POST", "/leases", `{"key":"port 80","ticket":"`+waited.text("ticket")+`"}`)
		one.want(200, "DELETE", "/leases/"+got.text("lease_id"), "")

		two.want(201, "POST", "/leases/many", `{"leases":[{"scope":"run","key":"b"},{"scope":"run","key":"port 90"}]}`)
		one.want(202, "POST", "/leases/many", `{"leases":[{"scope":"run","key":"b"}],"wait_secs":1}`)
		one.want(409, "POST", "/leases/many", `{"leases":[{"scope":"run","key":"c"},{"scope":"run","key":"port 90"}]}`)
		one.want(201, "POST", "/leases", `{"key":"c"}`) // nothing was held in part

		lost := two.want(201, "POST", "/leases", `{"key":"port 81","ttl_secs":1}`)
		time.Sleep(2 * time.Second)
		one.want(201, "POST", "/leases", `{"key":"port 81"}`)
		two.want(410, "POST", "/leases/"+lost.text("lease_id")+"/renew", `{}`)
	})
}

// What a session has done and was told of is forgotten as soon as it cannot be cancelled:
// a session that lives for long costs no more than what it does just now.
func TestAPIForgetsWhatItsClientHas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProgram(t, newWeb(t, server.Options{})).open()
		for i := range 50 {
			p.want(201, "POST", "/leases", `{"key":"k`+strconv.Itoa(i)+`"}`)
			time.Sleep(time.Second)
		}
		if n := server.KnownCalls(p.Server); n == 0 || n > 5 {
			t.Errorf("of 50 calls, one a second, %d are known", n)
		}
	})
}

func TestAPISessionHoldsWhatItIsGranted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := newProgram(t, newWeb(t, server.Options{Transport: server.Transport{HTTPIdle: time.Minute}})).open()
		two := one.another("two").open()

		if a := one.want(200, "GET", "/session", ""); a.object["idle_secs"] != 60.0 {
			t.Errorf("session: %s", a.body)
		}
		one.want(201, "POST", "/leases", `{"key":"a","ttl_secs":3600}`)
		for range 5 { // for as long as it is heard from, it holds
			time.Sleep(50 * time.Second)
			one.want(200, "POST", "/session/heartbeat", "")
			two.want(409, "POST", "/leases", `{"key":"a"}`)
		}
		time.Sleep(50 * time.Second)
		two.want(409, "POST", "/leases", `{"key":"a"}`)
		time.Sleep(11 * time.Second)
		two.want(201, "POST", "/leases", `{"key":"a","ttl_secs":3600}`)
		one.want(404, "POST", "/session/heartbeat", "")
		one.want(404, "POST", "/leases", `{"key":"a"}`)

		two.want(204, "DELETE", "/session", "")
		one.open().want(201, "POST", "/leases", `{"key":"a"}`)
		two.want(404, "GET", "/session", "")
	})
}

// An answer whose form has no room for a notice does not use it up.
func TestALossIsToldInAnAnswerOfAnyForm(t *testing.T) {
	for first, body := range map[string]string{
		"GET /store/shared/none": ``,
		"POST /tasks/next":       `{"queues":["q"],"ttl_secs":60}`, // 204 if there is nothing to tell
		"HEAD /leases":           ``,
		"POST /leases":           `{"key":"a"}`,
	} {
		t.Run(first, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				one := newProgram(t, newWeb(t, server.Options{})).open()
				two := one.another("two").open()
				one.want(201, "POST", "/leases", `{"key":"a","ttl_secs":1}`)
				time.Sleep(2 * time.Second)
				two.want(201, "POST", "/leases", `{"key":"a","ttl_secs":60}`)
				method, path, _ := strings.Cut(first, " ")
				resp, err := one.client.Do(one.request(t.Context(), method, path, body, "Content-Type", "application/json"))
				if err != nil {
					t.Fatal(err)
				}
				defer resp.Body.Close()
				told, err := io.ReadAll(resp.Body)
				if err != nil {
					t.Fatal(err)
				}
				told = append(told, one.want(200, "GET", "/leases", "").body...)
				if strings.Count(string(told), "LEASE_LOST") != 1 {
					t.Errorf("%d, and the loss is not told once: %s", resp.StatusCode, told)
				}
			})
		})
	}
}

// A program that says that no model reads its answers is told what its session loses, and
// not what an earlier session of its actor lost.
func TestAProgramIsNotToldForAModel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProgram(t, newWeb(t, server.Options{})).open()
		p.want(201, "POST", "/leases", `{"key":"earlier"}`)
		time.Sleep(20 * time.Minute) // the session is idle, and ends
		p.open()
		p.want(201, "POST", "/leases", `{"key":"own","ttl_secs":1}`, "Leasehold-Messages", "leave")
		time.Sleep(2 * time.Second)
		if told := p.want(200, "GET", "/leases", "", "Leasehold-Messages", "leave").body; !strings.Contains(told, `"own"`) || strings.Contains(told, `"earlier"`) {
			t.Errorf("the program is told %s", told)
		}
		if told := p.want(200, "GET", "/leases", "").body; strings.Contains(told, `"own"`) || !strings.Contains(told, `"earlier"`) {
			t.Errorf("the model is told %s", told)
		}
	})
}

// A session that is deleted ends, also if another of its requests arrives in that
// instant: that one must not resume it.
func TestADeletedSessionIsNotResumed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProgram(t, newWeb(t, server.Options{}))
		rounds := 500
		if testing.Short() {
			rounds = 100
		}
		for range rounds {
			p.open()
			p.want(201, "POST", "/leases", `{"key":"a"}`)
			var both sync.WaitGroup
			both.Go(func() { p.want(204, "DELETE", "/session", "") })
			for range 8 {
				both.Go(func() { p.ask("GET", "/session", "") }) // 200 or 404
			}
			both.Wait()
			p.want(404, "GET", "/session", "")
			p.session = ""
		}
	})
}

// A call that runs while another request ends its session is carried out, or answered as
// every call is after that: so a program knows that it can open another session and make the
// call there.
func TestACallWhoseSessionEndsIsToldSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProgram(t, newWeb(t, server.Options{}))
		holder := p.another("holder").open()
		holder.want(201, "POST", "/leases", `{"key":"taken","ttl_secs":86400}`)
		for range 100 {
			p.open()
			var all sync.WaitGroup
			for n, call := range []struct{ method, path, body string }{
				{"POST", "/leases", `{"key":"taken","wait_secs":50}`},
				{"POST", "/leases", `{"key":"free","mode":"shared"}`},
				{"POST", "/queues/q/tasks", `{"payload":1}`},
				{"POST", "/tasks/next", `{"queues":["none"],"ttl_secs":60,"wait_secs":50}`},
				{"GET", "/leases", ""},
			} {
				all.Go(func() {
					a := p.ask(call.method, call.path, call.body)
					if ended := a.status == 404 && a.header.Get("Leasehold-Session") == "ended"; !ended && (n == 0 || n == 3 || a.status >= 300) {
						t.Errorf("%s %s is answered %d %s", call.method, call.path, a.status, a.body)
					}
				})
			}
			all.Go(func() {
				time.Sleep(time.Microsecond)
				p.want(204, "DELETE", "/session", "")
			})
			all.Wait()
			p.session = ""
		}
	})
}

// A proxy may send a request a second time, long after its answer. Nobody reads the
// answer to that, so it takes nothing that the program has given back since.
func TestARequestWithAKeyAcquiresOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProgram(t, newWeb(t, server.Options{})).open()
		held := func() (ids []string) {
			var list struct {
				Leases []struct {
					ID string `json:"lease_id"`
				}
			}
			if err := json.Unmarshal([]byte(p.want(200, "GET", "/leases?scope=run", "").body), &list); err != nil {
				t.Fatal(err)
			}
			for _, l := range list.Leases {
				ids = append(ids, l.ID)
			}
			return ids
		}
		for path, body := range map[string]string{"/leases": `{"key":"a"}`, "/leases/many": `{"leases":[{"scope":"run","key":"a"},{"scope":"run","key":"b"}]}`} {
			p.want(201, "POST", path, body, "Idempotency-Key", path)
			for _, id := range held() {
				p.want(200, "DELETE", "/leases/"+id, "")
			}
			if a := p.ask("POST", path, body, "Idempotency-Key", path); a.text("code") != "LEASE_LOST" || !strings.Contains(a.text("detail"), "with a new request_id (or Idempotency-Key), before") || len(held()) > 0 {
				t.Errorf("%s again: %d %s; it holds %q", path, a.status, a.body, held())
			}
		}
	})
}

// Without a session a lease would be held by all programs with the same token.
func TestAPIGrantsOnlyToASession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProgram(t, newWeb(t, server.Options{}))
		for _, path := range []string{"/leases", "/layer/leases", "/tasks/next"} {
			a := p.want(400, "POST", path, `{}`)
			if a.text("argument") != "Leasehold-Session" {
				t.Errorf("%s: %s", path, a.body)
			}
		}
		p.want(201, "POST", "/queues/q/tasks", `{"payload":1}`)
		stolen := p.another("two")
		stolen.session = p.open().session
		stolen.want(404, "GET", "/session", "")
		stolen.want(404, "POST", "/leases", `{"key":"a"}`)
	})
}

// A wait whose program goes away leaves nothing behind, and a stream that is lost
// ends its session.
func TestAPIClientThatGoesAwayHoldsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := newProgram(t, newWeb(t, server.Options{})).open()
		two, three := one.another("two").open(), one.another("three").open()
		lease := one.want(201, "POST", "/leases", `{"key":"a"}`)

		ctx, leave := context.WithCancel(t.Context())
		var gone sync.WaitGroup
		gone.Go(func() {
			resp, err := two.client.Do(two.request(ctx, "POST", "/leases", `{"key":"a","wait_secs":50}`))
			if err == nil {
				resp.Body.Close()
				t.Errorf("answered %s", resp.Status)
			}
		})
		synctest.Wait()
		leave()
		gone.Wait()
		synctest.Wait() // until the daemon has seen that it left; until then it may be granted the lease
		one.want(200, "DELETE", "/leases/"+lease.text("lease_id"), "")
		three.want(201, "POST", "/leases", `{"key":"a","ttl_secs":3600}`)

		ctx, leave = context.WithCancel(t.Context())
		resp, err := three.client.Do(three.request(ctx, "GET", "/session/notices", "", "Accept", "text/event-stream"))
		if err != nil {
			t.Fatal(err)
		}
		first := make([]byte, 512)
		gone.Go(func() {
			for n := 0; !strings.Contains(string(first[:n]), "\n\nevent: notice\ndata: {"); {
				more, err := resp.Body.Read(first[n:])
				if n += more; err == nil && n == len(first) {
					err = io.ErrShortBuffer // else it would be read on for ever
				}
				if err != nil {
					t.Errorf("stream: %v after %q", err, first[:n])
					return
				}
			}
		})
		one.want(202, "POST", "/leases", `{"key":"a","wait_secs":1}`)
		gone.Wait() // it read that the lease is wanted
		leave()
		resp.Body.Close()
		time.Sleep(5 * time.Second)
		one.want(201, "POST", "/leases", `{"key":"a"}`)
	})
}

// A program that has closed the connection of a call, or has read an answer that did not
// reach whoever waited for it, cancels the call by its key.
func TestAPICancelsACallByItsKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := newProgram(t, newWeb(t, server.Options{})).open()
		two := one.another("two").open()
		key := func(k string) []string { return []string{"Idempotency-Key", k} }

		one.want(201, "POST", "/leases", `{"key":"a"}`, key("1/ä")...)
		two.want(204, "DELETE", "/calls/1%2F%C3%A4", "") // it is not two's
		two.want(409, "POST", "/leases", `{"key":"a"}`)
		one.want(204, "DELETE", "/calls/1/%C3%A4", "") // as clients write it that leave a slash in a path
		two.want(201, "POST", "/leases", `{"key":"a"}`)

		var waits sync.WaitGroup
		waits.Go(func() {
			one.want(409, "POST", "/leases", `{"key":"a","wait_secs":50}`, key("2")...)
		})
		synctest.Wait()
		one.want(204, "DELETE", "/calls/2", "")
		waits.Wait()
		if list := one.want(200, "GET", "/leases?scope=run", ""); strings.Contains(list.body, `"waiting_ms"`) {
			t.Errorf("a cancelled call waits: %s", list.body)
		}

		made := one.want(201, "POST", "/queues/q/tasks", `{"payload":1}`)
		one.want(200, "POST", "/tasks/next", `{"queues":["q"],"ttl_secs":3600}`, key("3")...)
		one.want(204, "DELETE", "/calls/3", "")
		if task := one.want(200, "GET", "/tasks/"+made.text("task_id"), ""); task.text("state") != "ready" {
			t.Errorf("after the claim was cancelled: %s", task.body)
		}

		gone := one.want(201, "POST", "/queues/q/tasks", `{"payload":2}`, key("4")...)
		one.want(204, "DELETE", "/calls/4", "")
		one.want(404, "GET", "/tasks/"+gone.text("task_id"), "")
		one.want(204, "DELETE", "/calls/none", "")
		one.want(400, "DELETE", "/calls/"+strings.Repeat("k", 257), "")
	})
}

// A payload arrives as it was sent, but for white space outside of its strings.
func TestAPIPayloadsStayAsTheyCame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProgram(t, newWeb(t, server.Options{})).open()
		for i, payload := range []string{`"<a href=\"x\">&amp;</a>"`, `{"a":{"b":[1.50,"\u2028é"]},"a b":null}`, `100000000000000000001`, `"\ud83d\ude00"`} {
			spaced := " " + strings.ReplaceAll(payload, `":`, "\" :\n\t") + " "
			queue := "q" + strconv.Itoa(i)
			p.want(201, "POST", "/queues/"+queue+"/tasks", `{"payload":`+spaced+`}`)
			p.want(201, "POST", "/tasks/many", "\n{ \"tasks\" : [ {\"payload\":"+spaced+",\"queue\":\""+queue+"\"} ] }\n")
			claim := p.want(200, "POST", "/tasks/next", `{"queues":["`+queue+`"],"ttl_secs":60,"count":2}`)
			if strings.Count(claim.body, `"payload":`+payload+`,`) != 2 {
				t.Errorf("%s comes as %s", payload, claim.body)
			}
		}
	})
}

func TestAPITasks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := newProgram(t, newWeb(t, server.Options{}))
		worker := one.another("worker").open()

		worker.want(204, "POST", "/tasks/next", `{"queues":["q"],"ttl_secs":60}`)
		made := one.want(201, "POST", "/queues/q/tasks", `{"payload":{"n":1}}`, "Idempotency-Key", "first")
		again := one.want(201, "POST", "/queues/q/tasks", `{"payload":{"n":1}}`, "Idempotency-Key", "first")
		if made.text("task_id") != again.text("task_id") || made.header.Get("Location") != "/api/v1/tasks/"+made.text("task_id") {
			t.Errorf("sent twice: %s, %s", made.body, again.body)
		}
		one.want(409, "POST", "/queues/q/tasks", `{"payload":{"n":2}}`, "Idempotency-Key", "first")

		claim := worker.want(200, "POST", "/tasks/next", `{"queues":["q"],"ttl_secs":60}`)
		var got struct {
			Tasks []struct {
				TaskID string `json:"task_id"`
				Token  json.Number
			}
		}
		if err := json.Unmarshal([]byte(claim.body), &got); err != nil || len(got.Tasks) != 1 {
			t.Fatalf("claim: %s", claim.body)
		}
		task := "/tasks/" + got.Tasks[0].TaskID
		token := `{"token":` + got.Tasks[0].Token.String()
		worker.want(200, "POST", task+"/heartbeat", token+`}`)
		worker.want(400, "POST", task+"/complete", token+`,"status":"failed"}`)
		worker.want(400, "POST", task+"/complete", token+`,"error":1}`)
		worker.want(200, "POST", task+"/complete", token+`,"result":{"ok":true}}`)
		worker.want(409, "POST", task+"/fail", token+`,"error":"late"}`)
		worker.want(409, "POST", task+"/heartbeat", token+`}`)
		if a := one.want(200, "GET", task+"/result?wait_secs=1", ""); a.text("state") != "completed" {
			t.Errorf("result: %s", a.body)
		}
		one.want(200, "GET", task, "")
		one.want(404, "GET", "/tasks/11111111-1111-1111-1111-111111111111", "")
		one.want(200, "GET", "/queues?limit=5", "")

		// A claim that has expired is gone for good, whatever its holder does.
		one.want(201, "POST", "/queues/q/tasks", `{"payload":2}`)
		claim = worker.want(200, "POST", "/tasks/next", `{"queues":["q"],"ttl_secs":2}`)
		_ = json.Unmarshal([]byte(claim.body), &got)
		time.Sleep(10 * time.Minute)
		token = `{"token":` + got.Tasks[0].Token.String() + `}`
		worker = worker.open()
		worker.want(410, "POST", "/tasks/"+got.Tasks[0].TaskID+"/heartbeat", token)
		worker.want(410, "POST", "/tasks/"+got.Tasks[0].TaskID+"/complete", token)
	})
}

// What is done with several tasks in one call is done as with one: the enqueue all or
// none, and each submission with an answer of its own.
func TestAPISeveralTasksAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := newProgram(t, newWeb(t, server.Options{})).open()
		made := one.want(201, "POST", "/tasks/many", `{"tasks":[{"queue":"q","payload":1},{"queue":"q","payload":2,"priority":9},{"queue":"r","payload":null,"delay_secs":60}]}`, "Idempotency-Key", "first")
		again := one.want(201, "POST", "/tasks/many", `{"tasks":[{"queue":"q","payload":1},{"queue":"q","payload":2,"priority":9},{"queue":"r","payload":null,"delay_secs":60}]}`, "Idempotency-Key", "first")
		if made.body != again.body {
			t.Errorf("sent twice: %s, %s", made.body, again.body)
		}
		one.want(400, "POST", "/tasks/many", `{"tasks":[{"queue":"q","payload":1},{"queue":"no such name/","payload":2}]}`)
		one.want(400, "POST", "/tasks/many", `{"tasks":[{"queue":"q","payload":1,"run_at":"soon"}]}`)
		one.want(400, "POST", "/tasks/many", `{"tasks":[]}`)
		if a := one.want(400, "POST", "/tasks/many", `{"tasks":[{"queue":"q","payload":1},{"Queue":"q","payload":2}]}`); !strings.Contains(a.body, "tasks[1]: Queue is unknown") {
			t.Errorf("a field in another case: %s", a.body)
		}
		list := one.want(200, "GET", "/queues/q/tasks", "")
		if tasks := list.object["tasks"].([]any); len(tasks) != 2 {
			t.Errorf("ready: %s", list.body)
		}
		if list := one.want(200, "GET", "/queues/r/tasks?state=delayed", ""); len(list.object["tasks"].([]any)) != 1 {
			t.Errorf("delayed: %s", list.body)
		}
		first := one.want(200, "GET", "/queues/q/tasks?limit=1", "")
		if rest := one.want(200, "GET", "/queues/q/tasks?limit=1&after="+first.text("next"), ""); len(rest.object["tasks"].([]any)) != 1 || rest.text("next") != "" {
			t.Errorf("after %s: %s", first.body, rest.body)
		}

		claim := one.want(200, "POST", "/tasks/next", `{"queues":["q"],"ttl_secs":60,"count":10}`)
		var got struct {
			Tasks []struct {
				TaskID string `json:"task_id"`
				Token  json.Number
			}
		}
		if err := json.Unmarshal([]byte(claim.body), &got); err != nil || len(got.Tasks) != 2 {
			t.Fatalf("claim: %s", claim.body)
		}
		body := `{"tasks":[{"task_id":"` + got.Tasks[0].TaskID + `","token":` + got.Tasks[0].Token.String() + `,"status":"completed","result":{"ok":true}},` +
			`{"task_id":"` + got.Tasks[1].TaskID + `","token":999999,"status":"failed","error":"x"}]}`
		for range 2 { // the same again is answered the same
			done := one.want(200, "POST", "/tasks/submit", body).object["tasks"].([]any)
			if done[0].(map[string]any)["state"] != "completed" || done[1].(map[string]any)["refusal"].(map[string]any)["code"] != "STALE_TOKEN" {
				t.Errorf("submitted: %v", done)
			}
		}
		one.want(400, "POST", "/tasks/submit", `{"tasks":[{"task_id":"`+got.Tasks[1].TaskID+`","token":1,"status":"done"}]}`)
		one.want(400, "POST", "/tasks/submit", `{"tasks":[{"task_id":"x","token":1,"status":"failed"}]}`)
		if left := one.want(200, "GET", "/queues/q/tasks?state=in_progress", ""); !strings.Contains(left.body, got.Tasks[1].TaskID) {
			t.Errorf("the refused one is gone: %s", left.body)
		}
	})
}

// One lease is found by its key, with who waits and what happened to it.
func TestAPIOneLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := newProgram(t, newWeb(t, server.Options{})).open()
		two := one.another("two").open()
		one.want(201, "POST", "/leases", `{"key":"port 80"}`)
		one.want(201, "POST", "/leases", `{"key":"port 8080"}`)
		two.want(201, "POST", "/leases", `{"key":"port 80 too","mode":"shared"}`)
		one.want(201, "POST", "/leases", `{"key":"port 80 too","mode":"shared"}`)
		held := two.want(200, "GET", "/leases/held?scope=run&key=port+80", "").object["leases"].([]any)
		if len(held) != 1 || held[0].(map[string]any)["key"] != "port 80" || held[0].(map[string]any)["lease_id"] != nil {
			t.Errorf("held: %v", held)
		}
		if held := two.want(200, "GET", "/leases/held?scope=run&key=port+80+too", "").object["leases"].([]any); len(held) != 2 {
			t.Errorf("shared: %v", held)
		}
		if held := two.want(200, "GET", "/leases/held?scope=layer&key=port+80", "").object["leases"].([]any); len(held) != 0 {
			t.Errorf("of the layer: %v", held)
		}
		one.want(201, "POST", "/layer/leases", `{"name":"port 80","reason":"of the layer"}`)
		history := two.want(200, "GET", "/leases/history?scope=run&key=port+80", "")
		if events := history.object["events"].([]any); len(events) != 1 || !strings.Contains(history.body, "lease_granted") {
			t.Errorf("history: %s", history.body)
		}
		if events := two.want(200, "GET", "/leases/history?scope=layer&key=port+80", "").object["events"].([]any); len(events) != 1 || events[0].(map[string]any)["reason"] != "of the layer" {
			t.Errorf("history in the layer: %v", events)
		}
		two.want(400, "GET", "/leases/held?scope=all&key=a", "")
		two.want(400, "GET", "/leases/held?scope=run", "")
	})
}

// A lease is read by its id, from any session of its holder's actor and from no other
// actor. After it was lost, its id says how.
func TestAPILeaseByID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := newProgram(t, newWeb(t, server.Options{})).open()
		two := one.another("two").open()
		again := (&program{web: one.web, t: t, book: one.book}).open()
		granted := one.want(201, "POST", "/leases", `{"key":"port 80","reason":"deploy","ttl_secs":60}`)
		id := granted.text("lease_id")
		for _, p := range []*program{one, again} {
			time.Sleep(time.Second + 100*time.Nanosecond)
			l := p.want(200, "GET", "/leases/"+id, "")
			for _, name := range []string{"lease_id", "key", "scope", "token", "reason", "acquired_at", "expires_at"} {
				if l.object[name] != granted.object[name] {
					t.Errorf("%s is %v, and was %v when the lease was granted", name, l.object[name], granted.object[name])
				}
			}
		}
		two.want(202, "POST", "/leases", `{"key":"port 80","wait_secs":1}`)
		if l := one.want(200, "GET", "/leases/"+id, ""); l.object["in_line"] != 1.0 {
			t.Errorf("with one in line: %s", l.body)
		}
		layers := one.want(201, "POST", "/layer/leases", `{"name":"out.json"}`).text("lease_id")
		if l := one.want(200, "GET", "/leases/"+layers, ""); l.text("name") != "out.json" || l.text("scope") != "layer" || l.text("layer") != "root" {
			t.Errorf("of the layer: %s", l.body)
		}
		if h := one.want(200, "GET", "/leases/"+layers+"/history", ""); len(h.object["events"].([]any)) != 1 || !strings.Contains(h.body, "out.json") {
			t.Errorf("history in the layer: %s", h.body)
		}
		two.want(409, "GET", "/leases/"+id, "")
		two.want(409, "GET", "/leases/"+id+"/history", "")
		one.want(409, "GET", "/leases/11111111-1111-1111-1111-111111111111", "")
		one.want(400, "GET", "/leases/x", "")
		one.want(400, "GET", "/leases/x/history", "")

		time.Sleep(2 * time.Minute) // nobody is in line any more, and it lapses
		if l := one.want(410, "GET", "/leases/"+id, ""); l.text("reason") != "expired" {
			t.Errorf("lapsed: %s", l.body)
		}
		one.want(200, "POST", "/leases/"+id+"/renew", `{}`)
		one.want(200, "GET", "/leases/"+id, "")
		time.Sleep(2 * time.Minute)
		two.want(201, "POST", "/leases", `{"key":"port 80"}`)
		if l := one.want(410, "GET", "/leases/"+id, ""); l.text("superseded_by") != "two" {
			t.Errorf("lost: %s", l.body)
		}
		h := one.want(200, "GET", "/leases/"+id+"/history?limit=100", "")
		for _, event := range []string{"lease_granted", "lease_expired", "lease_revived"} {
			if !strings.Contains(h.body, event) {
				t.Errorf("the history has no %s: %s", event, h.body)
			}
		}
	})
}

func TestAPIStoreHasVersions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProgram(t, newWeb(t, server.Options{}))
		p.want(404, "GET", "/store/shared/plan", "")
		made := p.want(200, "PUT", "/store/shared/plan", `{"value":{"a":1}}`, "If-None-Match", "*")
		p.want(412, "PUT", "/store/shared/plan", `{"value":2}`, "If-None-Match", "*")
		got := p.want(200, "GET", "/store/shared/plan", "")
		if got.header.Get("ETag") == "" || got.header.Get("ETag") != made.header.Get("ETag") {
			t.Errorf("ETag %q, and %q when it was made", got.header.Get("ETag"), made.header.Get("ETag"))
		}
		p.want(200, "PUT", "/store/shared/plan", `{"value":2}`, "If-Match", got.header.Get("ETag"))
		p.want(412, "PUT", "/store/shared/plan", `{"value":3}`, "If-Match", got.header.Get("ETag"))
		p.want(412, "DELETE", "/store/shared/plan", "", "If-Match", got.header.Get("ETag"))
		p.want(400, "PUT", "/store/shared/plan", `{"value":3}`, "If-Match", "W/x")
		p.want(400, "POST", "/leases/check", `{}`, "If-Match", `"1"`)
		p.want(200, "GET", "/store?glob=/shared/**&values=true", "")
		p.want(403, "PUT", "/store/ref/x", `{"value":1}`)
		p.want(200, "DELETE", "/store/shared/plan", "")
	})
}

func TestAPIRefusesByName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProgram(t, newWeb(t, server.Options{})).open()
		big, large := `{"key":"`+strings.Repeat("x", wire.MaxMessage)+`"}`, strings.Repeat("x", queue.MaxPayload)
		claimed := p.want(201, "POST", "/queues/q/tasks", `{"payload":1}`).text("task_id")
		token := regexp.MustCompile(`"token":(\d+)`).FindStringSubmatch(p.want(200, "POST", "/tasks/next", `{"queues":["q"],"ttl_secs":60}`).body)[1]
		for _, c := range []struct {
			status             int
			method, path, body string
			says               string
			header             []string
		}{
			{400, "POST", "/leases", `{"key":"a","tll_secs":1}`, "tll_secs", nil},
			{400, "POST", "/leases", `{"key":"a","ttl_secs":0}`, "1 to 86400", nil},
			{400, "POST", "/leases?key=b", `{"key":"a"}`, "key must be given once, in the path, the query or the body", nil},
			{400, "POST", "/leases", `{"key":"a","key":"a"}`, "key must be given once, in the path, the query or the body", nil},
			{400, "POST", "/leases", `{"key":`, "not JSON", nil},
			{400, "POST", "/leases", `[]`, "JSON object", nil},
			{400, "POST", "/leases", ``, "must be given", nil},
			{400, "POST", "/leases", `{"key":"a"}`, "256", []string{"Idempotency-Key", strings.Repeat("k", 257)}},
			{400, "GET", "/leases?limit=x", ``, "a whole number", nil},
			{400, "GET", "/leases?limit=1&limit=2", ``, "given once", nil},
			{400, "GET", "/leases?nonsense=1", ``, "nonsense", nil},
			{400, "GET", "/leases?%zz", ``, "query", nil},
			{400, "GET", "/leases?prefix=%ff", ``, "prefix must be valid UTF-8", nil},
			{400, "PUT", "/store/shared/%ff", `{"value":1}`, "path must be valid UTF-8", nil},
			{400, "PUT", "/store/shared//x", `{"value":1}`, "path must be canonical: /shared/x", nil},
			{400, "GET", "/store/shared/a%20b//x", ``, "path must be canonical: /shared/a b/x", nil},
			{400, "DELETE", "/store/shared/../../session", ``, "must be canonical: /api/v1/session", nil},
			{400, "GET", "/tasks//result", ``, "must be canonical: /api/v1/tasks/result", nil},
			{400, "GET", "/tasks/x", ``, "task_id", nil},
			{401, "POST", "/leases", `{"key":"a"}`, "token", []string{"Authorization", "Bearer no"}},
			{403, "GET", "/leases", ``, "origin", []string{"Origin", "https://evil.example"}},
			{403, "POST", "/leases/revoke", `{"key":"a","scope":"run","reason":"x"}`, "", nil},
			{404, "GET", "/nothing", ``, "openapi.json", nil},
			{404, "POST", "/leases", `{"key":"a"}`, "Leasehold-Session", []string{"Leasehold-Session", "lhs_no"}},
			{405, "PATCH", "/leases", `{}`, "GET, HEAD, POST", nil},
			{413, "POST", "/leases", big, "4 MiB", nil},
			{413, "POST", "/queues/q/tasks", `{"payload":"` + large + `"}`, "bytes of a payload", nil},
			{413, "POST", "/tasks/many", `{"tasks":[{"queue":"q","payload":"` + large + `"}]}`, "bytes of", nil},
			{413, "PUT", "/store/shared/x", `{"value":"` + large + `"}`, "bytes in a value", nil},
			{413, "POST", "/report", `{"result":"` + large + `"}`, "bytes in a result", nil},
			{413, "POST", "/messages", `{"to":"root","text":"` + large + `"}`, "bytes in a message", nil},
			{413, "POST", "/tasks/" + claimed + "/complete", `{"token":` + token + `,"result":"` + large + `"}`, "bytes of a result", nil},
			{415, "POST", "/leases", `{"key":"a"}`, "application/json", []string{"Content-Type", "text/plain"}},
			{415, "POST", "/leases", `{"key":"a"}`, "compressed", []string{"Content-Encoding", "gzip"}},
		} {
			a := p.want(c.status, c.method, c.path, c.body, c.header...)
			if again := a.header.Get("Retry-After"); again != "" {
				t.Errorf("%s %s %.60s: another try is to help after %s s", c.method, c.path, c.body, again)
			}
			if !strings.Contains(a.body, c.says) || a.text("code") == "" || a.header.Get("Content-Type") != "application/problem+json" {
				t.Errorf("%s %s %.60s: does not say %q as a problem: %.300s", c.method, c.path, c.body, c.says, a.body)
			}
		}
	})
}

// HEAD of a stream would not end: the connection would answer nothing more, and the
// notices would be lost.
func TestAPIStreamsHaveNoHEAD(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProgram(t, newWeb(t, server.Options{})).open()
		for _, path := range []string{"/session/notices", "/runs/r/events/stream"} {
			resp, err := p.client.Do(p.request(t.Context(), "HEAD", path, ""))
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if allow := resp.Header.Get("Allow"); resp.StatusCode != http.StatusMethodNotAllowed || allow != "GET" {
				t.Errorf("HEAD %s: %s, allow %q", path, resp.Status, allow)
			}
		}
	})
}

// A document is the description of the API, as far as tests look into it.
type document struct {
	Paths map[string]map[string]struct {
		OperationID string
		Parameters  []struct {
			Name, In string
			Required bool
		}
		RequestBody struct {
			Content map[string]struct{ Schema *jsonschema.Schema }
		}
		Responses map[string]struct {
			Ref     string `json:"$ref"`
			Content map[string]struct{ Schema *jsonschema.Schema }
		}
	}
	Components struct {
		Schemas map[string]*jsonschema.Schema
	}
	patterns map[string]*regexp.Regexp
}

func readDocument(t *testing.T) document {
	t.Helper()
	d, err := theDocument()
	if err != nil {
		t.Fatal(err)
	}
	return d
}

var theDocument = sync.OnceValues(func() (d document, err error) {
	if err := json.Unmarshal(api.Document("test"), &d); err != nil {
		return d, err
	}
	d.patterns = make(map[string]*regexp.Regexp)
	for path := range d.Paths {
		pattern := regexp.MustCompile(`\{(path|key)\}`).ReplaceAllString(path, `.+`) // they may have slashes
		pattern = regexp.MustCompile(`\{\w+\}`).ReplaceAllString(pattern, `[^/]+`)
		d.patterns[path] = regexp.MustCompile("^" + pattern + "$")
	}
	return d, nil
})

// check holds an answer against what the document says of its operation. What is in
// no operation must be a problem.
func (d document) check(t *testing.T, method, path string, a answer) {
	t.Helper()
	path, _, _ = strings.Cut(path, "?")
	schema, media := d.Components.Schemas["Problem"], "application/problem+json"
	for name, pattern := range d.patterns {
		op, ok := d.Paths[name][strings.ToLower(method)]
		if !ok || !pattern.MatchString(api.Prefix+path) || strings.Contains(name, "{") && d.Paths[api.Prefix+path] != nil {
			continue
		}
		response, ok := op.Responses[strconv.Itoa(a.status)]
		if !ok {
			if a.status < 400 {
				t.Errorf("%s %s answers %d, of which the document knows nothing", method, path, a.status)
			}
			continue
		}
		schema = nil
		for media = range response.Content {
			schema = response.Content[media].Schema
		}
		if schema != nil && strings.HasPrefix(schema.Ref, "#/components/schemas/") {
			schema = d.Components.Schemas[strings.TrimPrefix(schema.Ref, "#/components/schemas/")]
		}
	}
	switch {
	case schema == nil && a.body == "":
		return
	case schema == nil, a.header.Get("Content-Type") != media:
		t.Errorf("%s %s: %d of type %s, want %s: %s", method, path, a.status, a.header.Get("Content-Type"), media, a.body)
		return
	}
	resolved, err := schema.Resolve(nil)
	if err != nil {
		t.Fatalf("%s %s: schema: %v", method, path, err)
	}
	if err := resolved.Validate(a.object); err != nil {
		t.Errorf("%s %s: %d is not what the document says: %v\n%s", method, path, a.status, err, a.body)
	}
}

func TestAPIDocumentIsWhole(t *testing.T) {
	d := readDocument(t)
	ids := make(map[string]bool)
	for path, methods := range d.Paths {
		for method, op := range methods {
			if ids[op.OperationID] {
				t.Errorf("two operations are called %s", op.OperationID)
			}
			ids[op.OperationID] = true
			for _, m := range regexp.MustCompile(`\{(\w+)\}`).FindAllStringSubmatch(path, -1) {
				found := false
				for _, p := range op.Parameters {
					found = found || p.Name == m[1] && p.In == "path" && p.Required
				}
				if !found {
					t.Errorf("%s %s does not describe %s", method, path, m[1])
				}
			}
			if op.Responses["4XX"].Ref == "" {
				t.Errorf("%s %s does not describe its refusals", method, path)
			}
		}
	}
	if len(ids) < 35 {
		t.Errorf("only %d operations", len(ids))
	}

	// What is in a list has the bounds that it has alone.
	schema := func(method, path, name string) *jsonschema.Schema {
		body := d.Paths[api.Prefix+path][method].RequestBody.Content["application/json"].Schema
		if list := body.Properties[name]; list != nil && list.Items != nil {
			return list.Items
		}
		return body
	}
	for ending, refused := range map[string]string{"complete": "error", "fail": "result"} {
		if schema("post", "/tasks/{task_id}/"+ending, "").Properties[refused] != nil {
			t.Errorf("%s offers %s, which is always refused", ending, refused)
		}
	}
	for _, c := range []struct{ one, listed *jsonschema.Schema }{
		{schema("post", "/queues/{queue}/tasks", ""), schema("post", "/tasks/many", "tasks")},
		{schema("post", "/leases", ""), schema("post", "/leases/many", "leases")},
		{schema("post", "/leases", ""), schema("put", "/store/{path}", "require_leases")},
		{schema("post", "/tasks/{task_id}/nack", ""), schema("post", "/tasks/submit", "tasks")},
	} {
		for name, alone := range c.one.Properties {
			listed := c.listed.Properties[name]
			if listed == nil {
				continue
			}
			if fmt.Sprint(listed.Enum, text(listed.MinLength), text(listed.MaxLength), text(listed.Maximum)) != fmt.Sprint(alone.Enum, text(alone.MinLength), text(alone.MaxLength), text(alone.Maximum)) || listed.Description == "" {
				t.Errorf("%s is %+v in a list, and %+v alone", name, listed, alone)
			}
		}
	}
}

func text[T any](x *T) string {
	if x == nil {
		return ""
	}
	return fmt.Sprint(*x)
}

func TestAPIOperatorsAndReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProgram(t, newWeb(t, server.Options{})).open()
		as := func(name string, role dispatch.Role, ttl time.Duration) *program {
			_, token, err := p.state.IssueAccess(t.Context(), name, role, ttl)
			if err != nil {
				t.Fatal(err)
			}
			return &program{web: &web{daemon: p.daemon, client: p.client, token: token}, t: t, book: p.book}
		}
		operator, reader, brief := as("ops", dispatch.Operator, 0), as("grafana", dispatch.Reader, 0), as("brief", dispatch.Operator, time.Hour)
		p.want(201, "POST", "/leases", `{"key":"a","reason":"work"}`)
		task := p.want(201, "POST", "/queues/q/tasks", `{"payload":1}`).text("task_id")

		for _, who := range []*program{operator, reader, brief} {
			for _, path := range []string{"/runs", "/runs/r", "/runs/r/leases", "/runs/r/events?limit=10", "/runs/r/store?layer=root", "/runs/r/queues", "/runs/r/tasks", "/runs/r/tasks/" + task, "/tokens"} {
				who.want(200, "GET", path, "")
				p.want(403, "GET", path, "")
			}
			who.want(404, "GET", "/runs/none/leases", "")
			who.want(403, "GET", "/leases", "")
			who.want(403, "POST", "/queues/q/tasks", `{"payload":1}`)
		}
		for _, c := range []struct {
			status             int
			method, path, body string
		}{
			{200, "POST", "/runs/r/leases/revoke", `{"key":"a","scope":"run","reason":"needed"}`},
			{200, "POST", "/runs/r/tasks/" + task + "/cancel", `{}`},
			{201, "POST", "/runs/r/actors", `{"name":"new","role":"worker"}`},
			{201, "POST", "/runs/r/actors/token", `{"path":"new"}`},
			{200, "POST", "/runs/r/actors/end", `{"path":"new"}`},
			{201, "POST", "/tokens", `{"name":"two","role":"reader"}`},
			{400, "POST", "/tokens", `{"name":"two","role":"reader"}`},
			{201, "POST", "/tokens/two/rotate", `{}`},
			{200, "DELETE", "/tokens/two", ""},
			{404, "DELETE", "/tokens/two", ""},
		} {
			reader.want(403, c.method, c.path, c.body)
			p.want(403, c.method, c.path, c.body)
			operator.want(c.status, c.method, c.path, c.body)
		}

		// Each is done once, however often it is sent. A token that nobody got is void.
		once := func(status int, method, path, body string) (a answer) {
			t.Helper()
			for range 2 {
				a = operator.want(status, method, path, body, "Idempotency-Key", method+path)
			}
			return a
		}
		issued := once(201, "POST", "/tokens", `{"name":"three","role":"reader"}`)
		three := &program{web: &web{daemon: p.daemon, client: p.client, token: issued.text("token")}, t: t, book: p.book}
		if list := three.want(200, "GET", "/tokens", "").body; strings.Count(list, `"three"`) != 1 {
			t.Errorf("a token that was issued once: %s", list)
		}
		once(200, "DELETE", "/tokens/three", "")
		three.want(401, "GET", "/runs", "")
		operator.want(409, "POST", "/tokens", `{"name":"four","role":"reader"}`, "Idempotency-Key", "POST/tokens")

		// Runs can be listed without their actors, in pages.
		operator.actor(dispatch.NewActor{Run: "second", Name: "root", Role: dispatch.Root})
		page := operator.want(200, "GET", "/runs?actors=false&limit=1", "")
		if page.text("next") != "r" || !strings.Contains(page.body, `"actors":[]`) {
			t.Errorf("the first page of runs: %s", page.body)
		}
		page = operator.want(200, "GET", "/runs?actors=false&limit=1&after=r", "")
		if page.text("next") != "" || !strings.Contains(page.body, `"run":"second"`) || strings.Contains(page.body, `"run":"r"`) {
			t.Errorf("the second page of runs: %s", page.body)
		}
		operator.want(200, "GET", "/runs/r?actors=false", "")
		operator.want(404, "GET", "/runs/none?actors=false", "")

		// A token is void from the moment that says so.
		operator.want(200, "DELETE", "/tokens/grafana", "")
		reader.want(401, "GET", "/runs", "")
		made := brief.want(201, "POST", "/tokens/ops/rotate", `{}`)
		operator.want(401, "GET", "/runs", "")
		operator.token = made.text("token")
		operator.want(200, "GET", "/runs", "")
		time.Sleep(time.Hour)
		if a := brief.want(401, "GET", "/runs", ""); !strings.Contains(a.text("detail"), "expired") {
			t.Errorf("expired: %s", a.body)
		}

		// So is that of an actor, for whom a new one goes on with what it is.
		holding := func(a answer) *program {
			return &program{web: &web{daemon: p.daemon, client: p.client, token: a.text("token")}, t: t, book: p.book}
		}
		guest := holding(operator.want(201, "POST", "/runs/r/actors", `{"name":"guest","role":"worker","token_ttl_secs":60}`))
		session := guest.open().session
		guest.want(201, "POST", "/leases", `{"key":"of the guest","ttl_secs":86400}`)
		time.Sleep(time.Minute - time.Second)
		guest.want(200, "GET", "/leases", "")
		time.Sleep(time.Second)
		if a := guest.want(401, "GET", "/leases", ""); !strings.Contains(a.text("detail"), "expired") {
			t.Errorf("expired: %s", a.body)
		}
		guest = holding(operator.want(201, "POST", "/runs/r/actors/token", `{"path":"guest","token_ttl_secs":60}`))
		guest.session = session
		guest.want(200, "POST", "/leases", `{"key":"of the guest","ttl_secs":60}`) // still its own
		time.Sleep(time.Minute)
		guest.want(401, "GET", "/leases", "")
		operator.want(400, "POST", "/runs/r/actors/token", `{"path":"guest","token_ttl_secs":0}`)
		guest = holding(operator.want(201, "POST", "/runs/r/actors/token", `{"path":"guest"}`))
		time.Sleep(2 * time.Minute)
		guest.want(200, "GET", "/leases", "")
	})
}

// Whoever comes again with the id of the last event that it has misses none, and gets
// none twice.
func TestAPIEventsGoOnWhereTheyStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProgram(t, newWeb(t, server.Options{})).open()
		_, token, err := p.state.IssueAccess(t.Context(), "page", dispatch.Reader, 0)
		if err != nil {
			t.Fatal(err)
		}
		reader := &program{web: &web{daemon: p.daemon, client: p.client, token: token}, t: t, book: p.book}

		var ids []int
		var keys []string
		last, made := "", 0
		for range 3 {
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			resp, err := reader.client.Do(reader.request(ctx, "GET", "/runs/r/events/stream", "", "Last-Event-ID", last))
			if err != nil || resp.StatusCode != http.StatusOK {
				t.Fatal(err, resp)
			}
			for range 4 { // two while it is there, two while it is not
				if made++; made%4 == 3 {
					leave()
				}
				p.want(201, "POST", "/leases", `{"key":"k`+strconv.Itoa(made)+`"}`)
				if made%4 != 2 {
					continue
				}
				for lines := bufio.NewScanner(resp.Body); len(keys) < made && lines.Scan(); {
					if id, ok := strings.CutPrefix(lines.Text(), "id: "); ok {
						n, _ := strconv.Atoi(id)
						ids, last = append(ids, n), id
					}
					if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
						var e struct{ Event, Key string }
						if json.Unmarshal([]byte(data), &e) == nil && e.Event == "lease_granted" {
							keys = append(keys, e.Key)
						}
					}
				}
			}
			resp.Body.Close()
		}
		for i, key := range keys {
			if key != "k"+strconv.Itoa(i+1) {
				t.Fatalf("event %d is of %s: %v", i, key, keys)
			}
		}
		if len(keys) != 10 || !slices.IsSorted(ids) || len(slices.Compact(slices.Clone(ids))) != len(ids) {
			t.Errorf("events %v of %v", ids, keys)
		}
		for _, id := range []string{"x", "-1", "1e3", "99999999999999999999", "18446744073709551615"} { // the last is a revision to come
			if a := reader.ask("GET", "/runs/r/events/stream", "", "Last-Event-ID", id); a.status != 400 {
				t.Errorf("%s: %d %s", id, a.status, a.body)
			}
		}
		ctx, leave := context.WithCancel(t.Context())
		resp, err := reader.client.Do(reader.request(ctx, "GET", "/runs/r/events/stream", "", "Last-Event-ID", "007")) // JSON has no such number
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Errorf("007: %v %v", resp, err)
		} else {
			resp.Body.Close()
		}
		leave()
		if a := reader.ask("GET", "/runs/none/events/stream", ""); a.status != 404 {
			t.Errorf("%d %s", a.status, a.body)
		}
	})
}

func TestHealthAsksForNoToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWeb(t, server.Options{})
		for _, path := range []string{"/healthz", "/readyz"} {
			r, err := http.NewRequestWithContext(t.Context(), "GET", "http://localhost"+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := w.client.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			body, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			if resp.StatusCode != 200 || string(body) != "ok\n" {
				t.Errorf("%s: %s %s", path, resp.Status, body)
			}
		}
	})
}

// A call whose client lost its connection may be sent again. What it did is undone, or
// it is not done a second time.
func TestACallIsMadeOnceWhoeverBreaksItOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProgram(t, newWeb(t, server.Options{})).open()
		key := 0
		twice := func(status int, method, path, body string) answer {
			t.Helper()
			key++
			name := fmt.Sprint("call ", key)
			p.unread(p.request(t.Context(), method, path, body, "Idempotency-Key", name))
			synctest.Wait()
			return p.want(status, method, path, body, "Idempotency-Key", name)
		}
		if v := twice(200, "PUT", "/store/peer/self/a", `{"value":1}`).object["version"]; v != 1.0 {
			t.Errorf("a write that was sent twice made version %v", v)
		}
		twice(201, "POST", "/queues/q/tasks", `{"payload":1}`)
		if all := p.want(200, "GET", "/queues", "").body; !strings.Contains(all, `"ready":1`) {
			t.Errorf("a task that was enqueued once: %s", all)
		}
		claimed := p.want(200, "POST", "/tasks/next", `{"queues":["q"],"ttl_secs":60}`)
		task := claimed.object["tasks"].([]any)[0].(map[string]any)
		twice(200, "POST", "/tasks/"+task["task_id"].(string)+"/abandon", fmt.Sprintf(`{"token":%v}`, task["token"]))

		// What others have already seen cannot be undone.
		other := p.another("other").open()
		enqueue := func(ctx context.Context) *http.Request {
			return p.request(ctx, "POST", "/tasks/many", `{"tasks":[{"queue":"r","payload":1},{"queue":"r","payload":2}]}`, "Idempotency-Key", "claimed")
		}
		p.unread(enqueue(t.Context()), func() { other.want(200, "POST", "/tasks/next", `{"queues":["r"],"ttl_secs":600}`) })
		synctest.Wait()
		if resp, err := p.client.Do(enqueue(t.Context())); err != nil || resp.StatusCode != 201 {
			t.Errorf("an enqueue that is sent again: %v %v", resp, err)
		} else {
			resp.Body.Close()
		}
		if all := p.want(200, "GET", "/queues?queue=r", "").body; !strings.Contains(all, `"ready":1`) || !strings.Contains(all, `"in_progress":1`) {
			t.Errorf("of two tasks one is claimed: %s", all)
		}
	})
}

// unread sends a request and closes the connection when the answer comes, after
// something else has happened.
func (p *program) unread(r *http.Request, meanwhile ...func()) {
	p.t.Helper()
	nc, err := p.client.Transport.(*http.Transport).DialContext(p.t.Context(), "", "")
	if err != nil {
		p.t.Fatal(err)
	}
	defer nc.Close()
	if err := r.Write(nc); err != nil {
		p.t.Fatal(err)
	}
	synctest.Wait() // the answer is being written
	for _, happens := range meanwhile {
		happens()
	}
}
