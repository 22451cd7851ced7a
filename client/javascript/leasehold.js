// A thin client of Leasehold's HTTP API, for Node 20 and newer, Deno and Bun. It needs
// nothing else. leasehold.d.ts has its types.
//
//   const c = new Client({ url: "http://127.0.0.1:7711", token });
//   await c.open();
//   const lease = await c.run_lease_acquire({ key: "deploy", wait_secs: 30 });
//   …
//   await c.run_lease_release({ lease_id: lease.lease_id });
//   await c.close();
//
// A refusal is thrown as a Refusal, whose code says what happened. Nobody renews a lease
// by itself: call lease_renew at a third of its TTL. A program that is killed keeps its
// leases until their TTL is over. All calls of a client are one holder, which gets its own
// lease again (reentrant: true). To have two exclude one another, give each an "as" of its
// own.
//
// A call whose connection breaks, or that the server cannot answer now, is sent again until
// outage is over. A call without an answer ends with a TimeoutError once timeout is over. It
// is cancelled, like a call that its signal ends: what it was granted is given back, and what
// it enqueued is removed. Its other effects stay, such as what kv_set wrote. All of its effects
// stay if the server is not reached; the text of the TimeoutError says so. If no server
// answers, or only a proxy does to a call that may have taken effect, an Unanswered is thrown,
// which says whether it may have. If the session has ended, as after 15 minutes without a
// call, the next call opens another, and what was held before is lost.
//
// Generated from the OpenAPI document by client/generate: do not edit.

export class Refusal extends Error {
  constructor(status, data) {
    super(data.message ?? data.detail ?? data.title ?? `HTTP status ${status}`);
    this.status = status;
    this.code = data.code ?? "";
    this.data = data;
  }
}

export class Unanswered extends Error {}

export class Client {
  #url;
  #token;
  #timeout;
  #outage;
  #session;
  #opening;

  constructor({ url, token, timeout = 65, outage = 30 }) {
    if (!/^https?:\/\/[^/]/i.test(url)) throw new TypeError(`${url} must be http://localhost:port or https://host`);
    if (!/^(https:|http:\/\/(localhost|127(\.\d+){3}|\[::1\])(:|\/|$))/i.test(url)) throw new TypeError(`${url} would show the token to everybody on the way: use https://`);
    this.#url = `${url}`.replace(/\/$/, "");
    this.#token = (token ?? "").trim();
    [this.#timeout, this.#outage] = [timeout, outage];
    if (/[\r\n]/.test(this.#token)) throw new TypeError("the token has several lines: leasehold actor add prints it on the last one");
    for (const [name, operation] of Object.entries(operations)) {
      this[name] = (args = {}, call = {}) => this.#call(operation, args, call);
    }
  }

  async open() {
    if (!this.#session) await this.#begin();
  }

  // However many calls ask for a session at once, one is opened.
  #begin() {
    this.#opening ??= this.session_open()
      .then(({ session }) => { this.#session = session; })
      .finally(() => { this.#opening = undefined; });
    return this.#opening;
  }

  async close() {
    try {
      if (this.#session) await this.#call(operations.session_end, {}, {}, leaving);
    } catch (e) {
      if (e.status !== 401 && e.status !== 404) throw e; // it has ended already
    }
    this.#session = undefined;
  }

  async #call(operation, args, call, limits) {
    const [method, route, inQuery, condition] = operation;
    const body = { ...args };
    const take = (name) => {
      const value = body[name];
      delete body[name];
      return value;
    };
    let path = route.replace(/{(\w+)}/g, (_, name) => {
      const given = String(take(name) ?? "");
      const names = name === "path" ? given.replace(/^\/+/, "").split("/") : [given]; // only an entry's has several
      if (given === "" || names.includes(".") || names.includes("..")) { // it would be the path of another call
        throw new TypeError(`${name} must not be empty, or contain . or .. as a name`);
      }
      return names.map(encodeURIComponent).join("/");
    });
    const query = [];
    for (const name of method === "GET" ? Object.keys(body) : inQuery) { // the server refuses unknown ones
      const value = take(name);
      if (value != null) query.push(`${name}=${encodeURIComponent(typeof value === "string" ? value : JSON.stringify(value))}`);
    }
    if (query.length > 0) path += `?${query.join("&")}`;
    const headers = { Authorization: `Bearer ${this.#token}`, Accept: "application/json" };
    if (this.#session) headers["Leasehold-Session"] = this.#session;
    if (condition) {
      const version = take("expected_version");
      if (condition.required && version === undefined) throw new TypeError("expected_version must be given");
      if (version !== undefined) Object.assign(headers, String(version) === "0" ? { "If-None-Match": "*" } : { "If-Match": `"${version}"` });
    }
    if (method !== "GET") headers["Idempotency-Key"] = call.idempotencyKey ?? crypto.randomUUID();
    const request = { method, headers };
    if (method !== "GET" && Object.keys(body).length > 0) {
      headers["Content-Type"] = "application/json";
      request.body = JSON.stringify(body, (name, value) => {
        if (typeof value !== "number" || Number.isFinite(value)) return value;
        throw new TypeError(`${name} must not contain ${value}`); // it would be null
      });
    }
    request.headers = new Headers(headers); // which throws if one cannot be sent
    let response, text;
    try {
      [response, text] = await this.#answer(path, request, call.signal, limits ?? { timeout: this.#timeout, outage: this.#outage });
    } catch (e) {
      // Its answer may have been read already, so the server does not know that nobody has it.
      if (method === "POST") this.#call(operations.call_cancel, { key: headers["Idempotency-Key"] }, {}, { ...leaving, outage: 0 }).catch(() => {});
      throw e;
    }
    const session = headers["Leasehold-Session"];
    if (session && !limits && response.headers.get("Leasehold-Session") === "ended" && operation !== operations.session_end) {
      if (this.#session === session) await this.#begin();
      const again = { ...call, idempotencyKey: headers["Idempotency-Key"] };
      return this.#call(operation, args, again, { timeout: this.#timeout, outage: this.#outage });
    }
    if (!response.ok || response.status === 202) throw refusalOf(response, text);
    return text === "" ? null : JSON.parse(text);
  }

  async #answer(path, request, signal, { timeout, outage }) {
    let giveUp; // set by the first failure: the call may have waited for long before
    let unsure = false;
    for (let failures = 1; ; failures++) {
      let response, text, failure, refused;
      const stop = new AbortController();
      const tooLate = `no answer within ${timeout} s${request.method === "GET" ? "" : mayBeDone}`;
      const givenUp = () => stop.abort(signal.reason);
      if (signal?.aborted) givenUp();
      signal?.addEventListener("abort", givenUp);
      const late = setTimeout(() => stop.abort(new DOMException(tooLate, "TimeoutError")), timeout * 1000);
      try {
        response = await fetch(this.#url + path, { ...request, signal: stop.signal, redirect: "manual" }); // the token is for this server
        text = await response.text();
        if (response.status < 500) return [response, text];
        refused = refusalOf(response, text);
        if (refused.code !== "" && response.status !== 503) return [response, text];
        unsure ||= refused.code === ""; // it is a proxy's, which need not know what the server did
      } catch (e) {
        if (stop.signal.aborted) throw stop.signal.reason;
        failure = e;
        const why = [e.code, e.cause?.code, e.cause?.message].join();
        unsure ||= !/refused|unreach|ENOTFOUND|EAI_AGAIN|CONNECT_TIMEOUT|certificate/i.test(why); // nothing was sent
        if (/certificate/i.test(why)) giveUp = -Infinity; // no other try helps
      } finally {
        clearTimeout(late);
        signal?.removeEventListener("abort", givenUp);
      }
      giveUp ??= performance.now() + outage * 1000;
      // The first connection to break may have been that of a daemon that has ended since.
      if (performance.now() >= giveUp && (failures > 1 || !failure || giveUp < 0)) {
        unsure &&= request.method !== "GET";
        if (refused && !unsure) return [response, text];
        const cause = failure ?? refused;
        throw new Unanswered(`no server answers at ${this.#url}: ${cause.cause?.message || cause.message}${unsure ? mayBeDone : ""}`, { cause });
      }
      if (failures > 1 || !failure) await pause(Math.min(20 * 2 ** failures, 1000) * (0.5 + Math.random() / 2), signal);
    }
  }
}

const mayBeDone = "; the call may have taken effect, so look before you repeat it";
const leaving = { timeout: 5, outage: 5 }; // for the last calls of somebody who leaves

// refusalOf returns the refusal of a response. A proxy's need not be JSON.
function refusalOf(response, text) {
  let data;
  try {
    data = JSON.parse(text);
  } catch {}
  return new Refusal(response.status, data ?? {});
}

// pause waits so many milliseconds, or until the signal ends it.
function pause(ms, signal) {
  return new Promise((resolve, reject) => {
    const givenUp = () => {
      clearTimeout(timer);
      reject(signal.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", givenUp);
      resolve();
    }, ms);
    if (signal?.aborted) return givenUp();
    signal?.addEventListener("abort", givenUp, { once: true });
  });
}

// By name: method, path, which arguments go into the query, and for If-Match whether a version must be given.
const operations = {
  actor_list: ["GET", "/api/v1/actors", ["after", "limit"]],
  actor_wait: ["POST", "/api/v1/actors/wait", []],
  actor_status: ["GET", "/api/v1/actors/{actor}", []],
  actor_cancel: ["POST", "/api/v1/actors/{actor}/cancel", []],
  call_cancel: ["DELETE", "/api/v1/calls/{key}", []],
  lease_acquire: ["POST", "/api/v1/layer/leases", []],
  lease_list: ["GET", "/api/v1/leases", ["scope", "prefix", "after", "limit"]],
  run_lease_acquire: ["POST", "/api/v1/leases", []],
  lease_check: ["POST", "/api/v1/leases/check", []],
  lease_get: ["GET", "/api/v1/leases/held", ["scope", "key", "path"]],
  lease_history: ["GET", "/api/v1/leases/history", ["scope", "key", "path", "since", "limit"]],
  lease_acquire_many: ["POST", "/api/v1/leases/many", []],
  lease_revoke: ["POST", "/api/v1/leases/revoke", []],
  run_lease_release: ["DELETE", "/api/v1/leases/{lease_id}", []],
  lease_get_by_id: ["GET", "/api/v1/leases/{lease_id}", []],
  lease_history_by_id: ["GET", "/api/v1/leases/{lease_id}/history", ["since", "limit"]],
  lease_transfer: ["POST", "/api/v1/leases/{lease_id}/offer", []],
  lease_renew: ["POST", "/api/v1/leases/{lease_id}/renew", []],
  actor_message: ["POST", "/api/v1/messages", []],
  actor_inbox: ["POST", "/api/v1/messages/next", []],
  queue_stats: ["GET", "/api/v1/queues", ["queue", "after", "limit"]],
  queue_dead: ["GET", "/api/v1/queues/{queue}/dead", ["after", "limit"]],
  queue_redrive: ["POST", "/api/v1/queues/{queue}/redrive", []],
  task_list: ["GET", "/api/v1/queues/{queue}/tasks", ["state", "after", "limit"]],
  task_enqueue: ["POST", "/api/v1/queues/{queue}/tasks", []],
  actor_report: ["POST", "/api/v1/report", []],
  operator_tree: ["GET", "/api/v1/runs", ["run", "after", "limit", "actors", "ended"]],
  operator_run_remove: ["DELETE", "/api/v1/runs/{run}", []],
  operator_run: ["GET", "/api/v1/runs/{run}", ["after", "limit", "actors", "ended"]],
  operator_actor_add: ["POST", "/api/v1/runs/{run}/actors", []],
  operator_actor_end: ["POST", "/api/v1/runs/{run}/actors/end", []],
  operator_actor_token: ["POST", "/api/v1/runs/{run}/actors/token", []],
  operator_events: ["GET", "/api/v1/runs/{run}/events", ["since", "back", "wait_secs", "limit", "key", "scope", "layer", "actor"]],
  operator_leases: ["GET", "/api/v1/runs/{run}/leases", ["scope", "prefix", "after", "limit", "layer"]],
  operator_lease_check: ["POST", "/api/v1/runs/{run}/leases/check", []],
  operator_lease_revoke: ["POST", "/api/v1/runs/{run}/leases/revoke", []],
  operator_logs: ["GET", "/api/v1/runs/{run}/logs", ["path", "lines"]],
  operator_queue_stats: ["GET", "/api/v1/runs/{run}/queues", ["queue", "after", "limit"]],
  operator_queue_pause: ["POST", "/api/v1/runs/{run}/queues/{queue}/pause", []],
  operator_queue_redrive: ["POST", "/api/v1/runs/{run}/queues/{queue}/redrive", []],
  operator_queue_resume: ["POST", "/api/v1/runs/{run}/queues/{queue}/resume", []],
  operator_kv: ["GET", "/api/v1/runs/{run}/store", ["layer", "glob", "after", "limit", "values"]],
  operator_queue_list: ["GET", "/api/v1/runs/{run}/tasks", ["queue", "state", "limit"]],
  operator_task: ["GET", "/api/v1/runs/{run}/tasks/{task_id}", []],
  operator_task_cancel: ["POST", "/api/v1/runs/{run}/tasks/{task_id}/cancel", []],
  session_end: ["DELETE", "/api/v1/session", []],
  session_get: ["GET", "/api/v1/session", []],
  session_heartbeat: ["POST", "/api/v1/session/heartbeat", []],
  session_open: ["POST", "/api/v1/sessions", []],
  kv_list: ["GET", "/api/v1/store", ["glob", "after", "limit", "values", "layer"]],
  kv_delete: ["DELETE", "/api/v1/store/{path}", ["override", "layer", "require_leases", "require_mode"], { required: false }],
  kv_get: ["GET", "/api/v1/store/{path}", ["layer"]],
  kv_set: ["PUT", "/api/v1/store/{path}", []],
  kv_cas: ["PUT", "/api/v1/store/{path}", [], { required: true }],
  task_enqueue_many: ["POST", "/api/v1/tasks/many", []],
  task_claim: ["POST", "/api/v1/tasks/next", []],
  task_submit_many: ["POST", "/api/v1/tasks/submit", []],
  task_get: ["GET", "/api/v1/tasks/{task_id}", []],
  task_abandon: ["POST", "/api/v1/tasks/{task_id}/abandon", []],
  task_cancel: ["POST", "/api/v1/tasks/{task_id}/cancel", []],
  task_complete: ["POST", "/api/v1/tasks/{task_id}/complete", []],
  task_fail: ["POST", "/api/v1/tasks/{task_id}/fail", []],
  task_heartbeat: ["POST", "/api/v1/tasks/{task_id}/heartbeat", []],
  task_nack: ["POST", "/api/v1/tasks/{task_id}/nack", []],
  task_result: ["GET", "/api/v1/tasks/{task_id}/result", ["wait_secs"]],
  operator_token_list: ["GET", "/api/v1/tokens", []],
  operator_token_issue: ["POST", "/api/v1/tokens", []],
  operator_token_revoke: ["DELETE", "/api/v1/tokens/{name}", []],
  operator_token_rotate: ["POST", "/api/v1/tokens/{name}/rotate", []],
};
