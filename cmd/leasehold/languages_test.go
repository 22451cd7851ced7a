package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasehold/leasehold/client"
)

// The generated clients do what a program needs: they lease, are refused with a code, do a
// task once, keep values, and give back what they hold.
func TestClientsInOtherLanguages(t *testing.T) {
	t.Parallel()
	d := startMeasured(t)
	daemon, err := url.Parse(d.url)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/below/", http.StripPrefix("/below", httputil.NewSingleHostReverseProxy(daemon)))
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "<html>bad gateway</html>", http.StatusBadGateway)
	})
	mux.HandleFunc("/quoted/", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, `"bad gateway"`, http.StatusBadGateway)
	})
	// Here each call meets a daemon that goes away and comes back.
	var tries sync.Map
	again := http.StripPrefix("/broken", httputil.NewSingleHostReverseProxy(daemon))
	mux.HandleFunc("/broken/", func(w http.ResponseWriter, r *http.Request) {
		tried, _ := tries.LoadOrStore(r.Header.Get("Idempotency-Key"), new(atomic.Int32))
		switch tried.(*atomic.Int32).Add(1) {
		case 1, 3:
			panic(http.ErrAbortHandler)
		case 2:
			http.Error(w, "<html>bad gateway</html>", http.StatusBadGateway)
		case 4:
			http.Error(w, `{"code":"UNAVAILABLE"}`, http.StatusServiceUnavailable)
		default:
			again.ServeHTTP(w, r)
		}
	})
	mux.HandleFunc("/gone/", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	// Here a lease is granted, and nobody gets the answer.
	mux.Handle("/lost/", http.StripPrefix("/lost", httputil.NewSingleHostReverseProxy(daemon)))
	var lost sync.Map
	mux.HandleFunc("POST /lost/api/v1/leases", func(_ http.ResponseWriter, r *http.Request) {
		if _, before := lost.LoadOrStore(r.Header.Get("Idempotency-Key"), true); before {
			t.Error("a call that its caller has given up was sent again")
		}
		asked, err := http.NewRequestWithContext(context.WithoutCancel(r.Context()), r.Method, d.url+"/api/v1/leases", r.Body)
		if err != nil {
			t.Error(err)
			return
		}
		asked.Header, asked.ContentLength = r.Header.Clone(), r.ContentLength
		if answer, err := http.DefaultClient.Do(asked); err != nil {
			t.Error(err)
		} else if _, err := io.Copy(io.Discard, answer.Body); err != nil || answer.Body.Close() != nil {
			t.Errorf("the answer: %v", err)
		}
		<-r.Context().Done()
	})
	// Here a write is made, and the proxy does not know it.
	for _, status := range []int{http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout} {
		below := fmt.Sprintf("/%d", status)
		tired := httputil.NewSingleHostReverseProxy(daemon)
		tired.ModifyResponse = func(answer *http.Response) error {
			if answer.Request.Method == http.MethodPut {
				return errors.New("the proxy has lost its patience")
			}
			return nil
		}
		tired.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, _ error) {
			http.Error(w, "<html>the proxy knows nothing</html>", status)
		}
		mux.Handle(below+"/", http.StripPrefix(below, tired))
	}
	// Here a wait is broken off after it took longer than the client's outage.
	var broken sync.Map
	waited := http.StripPrefix("/waited", httputil.NewSingleHostReverseProxy(daemon))
	mux.HandleFunc("/waited/", func(w http.ResponseWriter, r *http.Request) {
		if _, before := broken.LoadOrStore(r.Header.Get("Idempotency-Key"), true); !before {
			time.Sleep(shortOutage)
			http.Error(w, "<html>bad gateway</html>", http.StatusBadGateway)
			return
		}
		waited.ServeHTTP(w, r)
	})
	busy := http.StripPrefix("/busy", httputil.NewSingleHostReverseProxy(daemon))
	mux.Handle("/busy/", busy)
	mux.HandleFunc("PUT /busy/", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, `{"code":"UNAVAILABLE","detail":"the server that leads cannot be reached; try again"}`, http.StatusServiceUnavailable)
	})
	// Here a proxy wants a browser to sign in elsewhere, which is not to get the token.
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		t.Error("a client sends its call to where a proxy sends browsers")
	}))
	t.Cleanup(elsewhere.Close)
	mux.Handle("/moved/", http.RedirectHandler(elsewhere.URL, http.StatusTemporaryRedirect))
	proxy := httptest.NewServer(mux)
	t.Cleanup(proxy.Close)
	nobody := httptest.NewServer(nil)
	nobody.Close()
	untrusted := httptest.NewTLSServer(nil)
	t.Cleanup(untrusted.Close)
	t.Run("go", func(t *testing.T) {
		for below, unsure := range map[string]bool{"/500": true, "/502": true, "/503": true, "/504": true, "/busy": false} {
			c, err := client.Open(t.Context(), client.Options{Servers: []string{proxy.URL + below}, Token: newActor(t, "go-run"+below[1:], "root", "root"), Outage: time.Nanosecond})
			if err != nil {
				t.Fatal(err)
			}
			err = c.Store(t.Context(), "/shared/plan", 1)
			if err == nil || strings.Contains(err.Error(), "may have taken effect") != unsure {
				t.Errorf("%s: %v", below, err)
			}
			_ = c.Close() // its outage is over at once
		}
		_, err := client.Open(t.Context(), client.Options{Servers: []string{proxy.URL + "/moved"}, Token: newActor(t, "go-run", "root", "root")})
		if refusal, ok := errors.AsType[*client.Error](err); !ok || refusal.Status != http.StatusTemporaryRedirect {
			t.Errorf("/moved: %v", err)
		}
	})
	for language, script := range map[string][]string{
		"python3": {"-c", pythonProgram},
		"node":    {"--input-type=module", "-e", nodeProgram},
	} {
		t.Run(language, func(t *testing.T) {
			binary, err := exec.LookPath(language)
			if err != nil {
				t.Skip(language + " is not here")
			}
			run := language + "-run"
			one, two := newActor(t, run, "root", "root"), newActor(t, run, "w", "worker")
			dir, err := filepath.Abs(filepath.Join("..", "..", "client"))
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), binary, script...)
			cmd.Env = append(cmd.Environ(), "URL="+d.url, "NOBODY="+nobody.URL, "UNTRUSTED="+untrusted.URL, "PROXY="+proxy.URL, "SOCKET=unix://"+inDir(t, "s"), "ONE="+one, "TWO="+two,
				"PYTHONPATH="+filepath.Join(dir, "python"), "PYTHONDONTWRITEBYTECODE=1", "MODULE="+filepath.Join(dir, "javascript", "leasehold.js"))
			if out, err := cmd.CombinedOutput(); err != nil || strings.TrimSpace(string(out)) != "LEASE_HELD STALE_TOKEN completed 42 502" {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}

const shortOutage = 3 * time.Second // the programs have it, too

const pythonProgram = `
import os, pickle, signal, socket, ssl, threading
from leasehold import Client, Refusal, Unanswered
env = os.environ
said = []
with Client(env["URL"], env["ONE"]) as one, Client(env["SOCKET"], env["TWO"]) as two:
    lease = one.run_lease_acquire(key="deploy", reason="tests")
    one.lease_renew(lease["lease_id"], ttl_secs=90)
    try:
        two.run_lease_acquire(key="deploy")
    except Refusal as e:
        assert e.status == 409 and "root" in str(e), (e.status, str(e))
        there = pickle.loads(pickle.dumps(e))  # in the parent of a process of a pool
        assert (str(there), there.status, there.data) == (str(e), e.status, e.data), there
        said.append(there.code)
    assert one.run_lease_release(lease["lease_id"])["released"]
    lease = two.run_lease_acquire(key="deploy")
    try:
        one.task_enqueue("q", payload=1, require_leases=[{"scope": "run", "key": "deploy", "token": lease["token"] - 1}])
    except Refusal as e:
        said.append(e.code)
    task = one.task_enqueue("q", payload={"n": 41}, call_key="once")
    assert one.task_enqueue("q", payload={"n": 41}, call_key="once") == task
    claimed, = two.task_claim(queues=["q"], ttl_secs=30, count=2)["tasks"]
    two.task_complete(claimed["task_id"], token=claimed["token"], result=claimed["payload"]["n"] + 1)
    assert two.task_claim(queues=["q"], ttl_secs=30) is None
    done = one.task_result(task["task_id"], wait_secs=1)
    said += [done["state"], str(done["result"])]
    one.kv_set("/shared/plan", value=[1, 2])
    assert two.kv_get("/shared/plan")["entry"]["value"] == [1, 2]
    one.kv_set("/shared/plan", value=None)
    assert two.kv_get("/shared/plan")["entry"]["value"] is None
    version = one.kv_cas("/shared/count", expected_version=0, value=1)["version"]
    assert two.kv_cas("/shared/count", expected_version=version, value=2, call_key="count")["version"] == version + 1
    assert two.kv_cas("/shared/count", expected_version=version, value=2, call_key="count")["version"] == version + 1
    for stale in (lambda: one.kv_cas("/shared/count", expected_version=version, value=3),
                  lambda: one.kv_cas("/shared/count", expected_version=0, value=3),
                  lambda: one.kv_delete("/shared/count", expected_version=version),
                  lambda: one.kv_delete("/shared/count", expected_version=0)):
        try:
            stale()
            assert False, "not refused"
        except Refusal as e:
            assert e.status == 412 and e.code == "VERSION_MISMATCH" and e.data["version"] == version + 1, e.data
    try:
        Client(env["URL"], env.get("NO_TOKEN")).open()
        assert False, "not refused"
    except Refusal as e:
        assert e.code == "UNAUTHENTICATED", e.data
    try:
        one.task_enqueue(None, payload=1)
        assert False, "not refused"
    except ValueError:
        pass
    try:
        one.kv_cas("/shared/count", expected_version=None, value=3)
        assert False, "not refused"
    except Refusal as e:
        assert e.code == "INVALID_ARGUMENT", e.data
    assert one.kv_get("/shared/count")["entry"]["value"] == 2
    one.kv_delete("/shared/count", expected_version=version + 1)
    one.kv_delete("/shared/count")
    try:
        one.kv_delete("/shared/../../session")
        assert False, "not refused"
    except ValueError:
        one.session_get()
    try:
        one.actor_status("w/x")
    except Refusal as e:
        assert "w→x" in str(e), e
    try:
        one.kv_set("/shared/large", value="x" * (5 << 20))
    except Refusal as e:
        assert e.code == "LIMIT", e
    # A fork neither reads the answers of its parent nor ends its session.
    lease = one.run_lease_acquire(key="forked")
    connection = one._idle[0].sock.getsockname()
    own = False
    if not os.fork():
        try:
            one.lease_renew(lease["lease_id"])
            own = one._idle[0].sock.getsockname() != connection
            one.close()
        finally:
            os._exit(0 if own else 1)
    assert os.wait()[1] == 0
    one.lease_renew(lease["lease_id"])
with Client(env["PROXY"] + "/below/", env["ONE"]) as below:
    below.kv_get("/shared/plan")
    below.session_end()
kept = Client(env["URL"], env["ONE"]).open()
lease = kept.open().run_lease_acquire(key="kept", ttl_secs=3600)
kept.lease_renew(lease["lease_id"])
kept.close()
with Client(env["URL"], env["TWO"]) as two:
    two.run_lease_release(two.run_lease_acquire(key="kept")["lease_id"])
with Client(env["PROXY"] + "/broken", env["ONE"]) as broken:
    broken.run_lease_acquire(key="broken")
try:
    Client(env["PROXY"] + "/moved", env["ONE"]).kv_get("/shared/plan")
    assert False, "not refused"
except Refusal as e:
    assert e.status == 307, e
gone = Client(env["PROXY"] + "/gone", env["ONE"], outage=0)
try:
    gone.kv_set("/shared/plan", value=1)
    assert False, "not refused"
except Unanswered as e:
    assert "may have taken effect" in str(e), e
try:
    gone.kv_get("/shared/plan")
    assert False, "not refused"
except Unanswered as e:
    assert False, e
except ConnectionError:
    pass
for status in "500", "502", "503", "504":
    unknown = Client(env["PROXY"] + "/" + status, env["ONE"], outage=0)
    try:
        unknown.kv_set("/shared/unknown", value=status)
        assert False, "not refused"
    except Unanswered as e:
        assert "may have taken effect" in str(e) and status in str(e), e
    assert unknown.kv_get("/shared/unknown")["entry"]["value"] == status
try:
    Client(env["PROXY"] + "/busy", env["ONE"], outage=0).kv_set("/shared/plan", value=1)
    assert False, "not refused"
except Refusal as e:
    assert e.code == "UNAVAILABLE" and "may have taken" not in str(e), e
Client(env["PROXY"] + "/waited", env["ONE"], outage=3).kv_set("/shared/waited", value=1)
try:
    Client(env["UNTRUSTED"], env["ONE"], outage=3600).kv_set("/shared/plan", value=1)
    assert False, "not refused"
except ssl.SSLCertVerificationError:
    pass
with socket.socket() as nobody:
    nobody.bind(("127.0.0.1", 0))
    try:
        Client("http://127.0.0.1:%d" % nobody.getsockname()[1], env["ONE"], outage=0).kv_set("/shared/plan", value=1)
        assert False, "not refused"
    except ConnectionRefusedError:
        pass
# Threads that share a client get their own answers, while the session ends as well.
with Client(env["URL"], env["ONE"]) as shared:
    wrong = []
    def read(path, value):
        try:
            shared.kv_set(path, value=value)
            for n in range(25):
                if value == 0 and n == 5:
                    shared.session_end()
                got = shared.kv_get(path)["entry"]["value"]
                if got != value:
                    wrong.append((path, got))
        except Exception as e:
            wrong.append(e)
    threads = [threading.Thread(target=read, args=("/shared/thread%d" % n, n)) for n in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong, wrong
    shared.session_end()
    shared.run_lease_release(shared.run_lease_acquire(key="reopened")["lease_id"])
# A thread may call while another waits, and neither breaks the connection of the other.
with Client(env["URL"], env["ONE"], outage=0) as shared, Client(env["URL"], env["TWO"]) as two:
    lease, got = two.run_lease_acquire(key="waited"), []
    waiter = threading.Thread(target=lambda: got.append(shared.run_lease_acquire(key="waited", wait_secs=50)))
    waiter.start()
    while not shared.lease_list(prefix="waited")["leases"][0].get("waiters"):
        pass
    for _ in range(5):
        shared.lease_list()
    two.run_lease_release(lease["lease_id"])
    waiter.join()
    assert got and got[0]["token"] > lease["token"], got
# A call that is interrupted leaves nothing behind, also if it was answered.
signal.signal(signal.SIGINT, signal.default_int_handler)
def interrupt():
    with Client(env["URL"], env["TWO"]) as c:
        try:
            while True:
                c.run_lease_release(c.run_lease_acquire(key="lost")["lease_id"])
        except Refusal as e:
            assert e.code == "LEASE_HELD", e
    os.kill(os.getpid(), signal.SIGINT)
with Client(env["PROXY"] + "/lost", env["ONE"]) as lost, Client(env["URL"], env["TWO"]) as two:
    threading.Thread(target=interrupt).start()
    try:
        lost.run_lease_acquire(key="lost", ttl_secs=3600, wait_secs=50)
        assert False, "not interrupted"
    except KeyboardInterrupt:
        two.run_lease_acquire(key="lost", wait_secs=50)
    lost.kv_get("/shared/plan")
    lost._drop()
    lost._timeout = 0.5
    try:
        lost.run_lease_acquire(key="late", ttl_secs=3600)
        assert False, "no time-out"
    except socket.timeout as e:
        assert "may have taken effect" in str(e), e
        two.run_lease_acquire(key="late", wait_secs=50)
with Client(env["URL"], env["ONE"]) as other:
    other.run_lease_acquire(key="deploy")
try:
    Client(env["PROXY"], env["ONE"], outage=0).task_get("x")
except Refusal as e:
    said.append(str(e.status))
try:
    Client(env["PROXY"] + "/quoted", env["ONE"], outage=0).task_get("x")
except Refusal as e:
    assert e.status == 502, e
try:
    Client(env["URL"], "root\n" + env["ONE"])
    assert False, "not refused"
except ValueError as e:
    assert "several lines" in str(e), e
for url in "http://leases.example", "http://10.0.0.1:7711", "http://127.0.0.1.example/", "http://localhost@leases.example/":
    try:
        Client(url, "x")
        raise SystemExit("taken: " + url)
    except ValueError as e:
        assert "would show the token" in str(e), e
Client(env["URL"], env["ONE"] + "\n").lease_list()
for url in "127.0.0.1:7711", "localhost:7711", "http:/x", "unix://":
    try:
        Client(url, "x")
        assert False, url
    except ValueError as e:
        assert url in str(e), e
print(*said)
`

const nodeProgram = `
import assert from "node:assert";
const { Client, Refusal, Unanswered } = await import(process.env.MODULE);
const client = async (token) => {
  const c = new Client({ url: process.env.URL, token });
  await c.open();
  return c;
};
const refused = (call) => call.then(() => assert.fail("not refused"), (e) => {
  assert(e instanceof Refusal, e);
  return e.code;
});
const [one, two] = [await client(process.env.ONE), await client(process.env.TWO)];
const said = [];
assert.equal(await refused(client(process.env.NO_TOKEN)), "UNAUTHENTICATED");
await assert.rejects(client("“token”"), TypeError); // no header can have it
await assert.rejects(one.kv_set({ path: "/shared/plan", value: 1 }, { idempotencyKey: "№ 1" }), TypeError);
const twice = new Client({ url: new URL(process.env.URL), token: process.env.TWO });
await Promise.all([twice.open(), twice.open()]);
await twice.run_lease_acquire({ key: "twice", keep_alive: true });
await twice.open();
await twice.close();
assert.deepEqual((await one.lease_list({ prefix: "twice" })).leases, []);
let lease = await one.run_lease_acquire({ key: "deploy", reason: "tests" });
await one.lease_renew({ lease_id: lease.lease_id, ttl_secs: 90 });
said.push(await refused(two.run_lease_acquire({ key: "deploy" })));
assert((await one.run_lease_release({ lease_id: lease.lease_id })).released);
lease = await two.run_lease_acquire({ key: "deploy" });
const gate = { scope: "run", key: "deploy", token: lease.token - 1 };
said.push(await refused(one.task_enqueue({ queue: "q", payload: 1, require_leases: [gate] })));
const task = await one.task_enqueue({ queue: "q", payload: { n: 41 } }, { idempotencyKey: "once" });
assert.deepEqual(await one.task_enqueue({ queue: "q", payload: { n: 41 } }, { idempotencyKey: "once" }), task);
const { tasks: [claimed] } = await two.task_claim({ queues: ["q"], ttl_secs: 30, count: 2 });
await two.task_complete({ task_id: claimed.task_id, token: claimed.token, result: claimed.payload.n + 1 });
assert.equal(await two.task_claim({ queues: ["q"], ttl_secs: 30 }), null);
const done = await one.task_result({ task_id: task.task_id, wait_secs: 1 });
said.push(done.state, done.result);
await one.kv_set({ path: "/shared/plan", value: [1, 2] });
assert.deepEqual((await two.kv_get({ path: "/shared/plan" })).entry.value, [1, 2]);
const { version } = await one.kv_cas({ path: "/shared/count", expected_version: 0, value: 1 });
const count = { path: "/shared/count", expected_version: version };
assert.equal((await two.kv_cas({ ...count, value: 2 }, { idempotencyKey: "count" })).version, version + 1);
assert.equal((await two.kv_cas({ ...count, value: 2 }, { idempotencyKey: "count" })).version, version + 1);
for (const stale of [
  () => one.kv_cas({ ...count, value: 3 }),
  () => one.kv_cas({ ...count, expected_version: 0, value: 3 }),
  () => one.kv_delete(count),
  () => one.kv_delete({ ...count, expected_version: 0 }),
]) {
  await assert.rejects(stale(), (e) => e.status === 412 && e.code === "VERSION_MISMATCH" && e.data.version === version + 1);
}
await assert.rejects(one.kv_cas({ path: "/shared/count", value: 3 }), TypeError);
assert.equal(await refused(one.kv_cas({ ...count, expected_version: null, value: 3 })), "INVALID_ARGUMENT");
assert.equal(await refused(one.kv_set({ ...count, value: 3 })), "INVALID_ARGUMENT");
assert.equal((await one.kv_get({ path: "/shared/count" })).entry.value, 2);
await one.kv_delete({ ...count, expected_version: version + 1 });
await one.kv_delete({ path: "/shared/count" });
await assert.rejects(one.kv_delete({ path: "/shared/../../session" }), TypeError);
await one.session_get();
assert.equal(await refused(one.lease_list({ prefx: "x" })), "INVALID_ARGUMENT");
await assert.rejects(one.lease_list({ prefix: "\ud800" }), URIError);
await assert.rejects(one.actor_status({ actor: "w/x" }), /w→x/);
await assert.rejects(one.task_result({ task_id: "" }), TypeError);
await assert.rejects(one.task_enqueue({ queue: null, payload: 1 }), TypeError);
assert.equal((await one.lease_list({ scope: null, prefix: null, limit: null })).leases[0].key, "deploy");
await assert.rejects(one.kv_set({ path: "/shared/plan", value: { n: NaN } }), TypeError);
const below = new Client({ url: process.env.PROXY + "/below/", token: process.env.ONE });
await below.kv_get({ path: "/shared/plan" });
await below.open();
await below.session_end();
await below.close();
const broken = new Client({ url: process.env.PROXY + "/broken", token: process.env.ONE });
await broken.open();
await broken.run_lease_acquire({ key: "broken" });
await broken.close();
const moved = new Client({ url: process.env.PROXY + "/moved", token: process.env.ONE });
await assert.rejects(moved.kv_get({ path: "/shared/plan" }), (e) => e instanceof Refusal && e.status === 307);
const gone = new Client({ url: process.env.PROXY + "/gone", token: process.env.ONE, outage: 0 });
await assert.rejects(gone.kv_set({ path: "/shared/plan", value: 1 }), (e) => e instanceof Unanswered && /may have taken effect/.test(e));
await assert.rejects(gone.kv_get({ path: "/shared/plan" }), (e) => e instanceof Unanswered && !/may have taken effect/.test(e));
for (const status of ["500", "502", "503", "504"]) {
  const unknown = new Client({ url: process.env.PROXY + "/" + status, token: process.env.ONE, outage: 0 });
  await assert.rejects(unknown.kv_set({ path: "/shared/unknown", value: status }), (e) => e instanceof Unanswered && /may have taken effect/.test(e) && e.message.includes(status));
  assert.equal((await unknown.kv_get({ path: "/shared/unknown" })).entry.value, status);
}
const busy = new Client({ url: process.env.PROXY + "/busy", token: process.env.ONE, outage: 0 });
assert.equal(await refused(busy.kv_set({ path: "/shared/plan", value: 1 })), "UNAVAILABLE");
const nobody = new Client({ url: process.env.NOBODY, token: process.env.ONE, outage: 0 });
await assert.rejects(nobody.kv_set({ path: "/shared/plan", value: 1 }), (e) => e instanceof Unanswered && !/may have taken effect/.test(e));
for (const url of ["http://leases.example", "http://10.0.0.1:7711", "http://127.0.0.1.example/", "http://localhost@leases.example/"]) {
  assert.throws(() => new Client({ url, token: "x" }), /would show the token/);
}
await new Client({ url: process.env.PROXY + "/waited", token: process.env.ONE, outage: 3 }).kv_set({ path: "/shared/waited", value: 1 });
const untrusted = new Client({ url: process.env.UNTRUSTED, token: process.env.ONE, outage: 3600 });
await assert.rejects(untrusted.kv_set({ path: "/shared/plan", value: 1 }), (e) => e instanceof Unanswered && /certificate/.test(e) && !/may have taken effect/.test(e));
const waits = nobody.kv_set({ path: "/shared/plan", value: 1 }, { signal: AbortSignal.abort() });
await assert.rejects(waits, { name: "AbortError" });
// Calls that share a client are sent again in one new session after theirs has ended.
const over = await client(process.env.ONE);
await over.session_end();
await Promise.all(["r1", "r2", "r3"].map((key) => over.run_lease_acquire({ key })));
await over.close();
await Promise.all(["r1", "r2", "r3"].map((key) => two.run_lease_acquire({ key })));
// A call that is given up leaves nothing behind, also if it was answered.
const lost = new Client({ url: process.env.PROXY + "/lost", token: process.env.ONE });
await lost.open();
const stop = new AbortController();
const call = lost.run_lease_acquire({ key: "lost", ttl_secs: 3600, wait_secs: 50 }, { signal: stop.signal });
const free = () => two.run_lease_acquire({ key: "lost" }).then((l) => two.run_lease_release({ lease_id: l.lease_id }).then(() => true), (e) => {
  assert.equal(e.code, "LEASE_HELD");
  return false;
});
while (await free());
stop.abort();
await assert.rejects(call, { name: "AbortError" });
await two.run_lease_acquire({ key: "lost", wait_secs: 50 });
const hasty = new Client({ url: process.env.PROXY + "/lost", token: process.env.ONE, timeout: 5 });
await hasty.open();
await assert.rejects(hasty.run_lease_acquire({ key: "late", ttl_secs: 3600 }), { name: "TimeoutError", message: /may have taken effect/ });
await two.run_lease_acquire({ key: "late", wait_secs: 50 });
await lost.kv_get({ path: "/shared/plan" });
await lost.close();
await one.close();
await two.close();
const other = await client(process.env.ONE);
await other.run_lease_acquire({ key: "deploy" });
await other.close();
assert.throws(() => new Client({ url: process.env.URL, token: "root\n" + process.env.ONE }), /several lines/);
await new Client({ url: process.env.URL, token: process.env.ONE + "\n" }).lease_list();
for (const url of ["127.0.0.1:7711", "localhost:7711", "http:/x", "unix:///s", undefined]) {
  assert.throws(() => new Client({ url, token: "x" }), TypeError(url + " must be http://localhost:port or https://host"));
}
await new Client({ url: process.env.PROXY, token: "x", outage: 0 }).task_get({ task_id: "x" }).then(
  () => assert.fail("not refused"), (e) => { assert(e instanceof Refusal, e); said.push(e.status); });
console.log(...said);
`
