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
