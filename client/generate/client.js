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
// by itself: call lease_renew at a third of its ttl. A program that is killed keeps its
// leases until their ttl is over. All calls of a client are one holder, which gets its own
// lease again (reentrant: true). To have two exclude one another, give each an "as" of its
// own. A call whose connection breaks is sent once more.
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

export class Client {
  #url;
  #token;
  #session;

  constructor({ url, token }) {
    if (!/^https?:\/\/[^/]/i.test(url)) throw new TypeError(`${url} must be http://host:port or https://host`);
    this.#url = url.replace(/\/$/, "");
    this.#token = token.trim();
    if (/[\r\n]/.test(this.#token)) throw new TypeError("the token has several lines: leasehold actor add prints it on the last one");
    for (const [name, operation] of Object.entries(operations)) {
      this[name] = (args = {}, call = {}) => this.#call(operation, args, call);
    }
  }

  async open() {
    this.#session = (await this.session_open()).session;
  }

  async close() {
    try {
      if (this.#session) await this.session_end();
    } catch (e) {
      if (e.status !== 401 && e.status !== 404) throw e; // it has ended already
    }
    this.#session = undefined;
  }

  async #call([method, route, inQuery, condition], args, call) {
    const body = { ...args };
    const take = (name) => {
      const value = body[name];
      delete body[name];
      return value;
    };
    const part = (name) => {
      const value = take(name);
      if (value === undefined) throw new TypeError(`${name} must be given`);
      return String(value);
    };
    let path = route.replace(/{(\w+)}/g, (_, name) => {
      const given = part(name);
      const names = name === "path" ? given.replace(/^\/+/, "").split("/") : [given]; // only an entry's has several
      if (given === "" || names.includes(".") || names.includes("..")) { // it would be the path of another call
        throw new TypeError(`${name} must not be empty, or contain . or .. as a name`);
      }
      return names.map(encodeURIComponent).join("/");
    });
    const query = [];
    for (const name of method === "GET" ? Object.keys(body) : inQuery) { // the server refuses unknown ones
      const value = take(name);
      if (value !== undefined) query.push(`${name}=${encodeURIComponent(typeof value === "string" ? value : JSON.stringify(value))}`);
    }
    if (query.length > 0) path += `?${query.join("&")}`;
    const headers = { Authorization: `Bearer ${this.#token}`, Accept: "application/json" };
    if (this.#session) headers["Leasehold-Session"] = this.#session;
    if (condition) {
      const version = condition.required ? part("expected_version") : take("expected_version");
      if (version !== undefined) Object.assign(headers, String(version) === "0" ? { "If-None-Match": "*" } : { "If-Match": `"${version}"` });
    }
    if (method !== "GET") headers["Idempotency-Key"] = call.idempotencyKey ?? crypto.randomUUID();
    const request = { method, headers, signal: call.signal };
    if (method !== "GET" && Object.keys(body).length > 0) {
      headers["Content-Type"] = "application/json";
      request.body = JSON.stringify(body, (name, value) => {
        if (typeof value !== "number" || Number.isFinite(value)) return value;
        throw new TypeError(`${name} must not contain ${value}`); // it would be null
      });
    }
    let response, text;
    for (let last = false; text === undefined; last = true) {
      try {
        response = await fetch(this.#url + path, request);
        text = await response.text();
      } catch (e) {
        if (!last && !call.signal?.aborted) continue; // its connection may be that of a daemon that has ended since
        // Its answer may have been read already, so the server does not know that nobody has it.
        if (method === "POST") this.call_cancel({ key: headers["Idempotency-Key"] }).catch(() => {});
        throw e;
      }
    }
    let answer = null;
    try {
      if (text !== "") answer = JSON.parse(text);
    } catch (e) {
      if (response.ok) throw e; // a proxy's refusal need not be JSON
    }
    if (!response.ok || response.status === 202) throw new Refusal(response.status, answer ?? {});
    return answer;
  }
}
