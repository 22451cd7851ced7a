// What is known of the run that is looked at, kept fresh. Events say what has changed;
// what they do not say, such as how long a lease was extended, is asked for again, page
// by page, less often the more there is.

import { follow, get, Lost, ofRun } from "./api.js";

const maxEvents = 5000; // kept here
const maxPages = 60; // of leases: 60 000
const back = 2000; // revisions to begin before the last

// numbered is the text by which a path is sorted, as in leasehold tree: W10 comes after W2.
const numbered = (path) => path === "root" ? "" : path.replace(/[0-9]+/g, (n) => n.padStart(20, "0") + String.fromCharCode(n.length)).replaceAll("→", "\0");

export class Model extends EventTarget {
  run = "";
  runs = []; // {run, ended}
  actors = [];
  leases = new Map(); // by scope, layer, key and token
  queues = [];
  events = []; // the newest last
  added = 0; // events ever
  loaded = new Set(); // what has come at least once
  link = "connecting";
  rates = new Map(); // by queue: {came, went} for each second

  #stop = new AbortController();
  #since = 0;
  #heard = 0;
  #due = new Map(); // what is to be asked for, and when
  #keys = new Map(); // leases that an event was about
  #sweep = 0;
  #hide;

  constructor() {
    super();
    // A browser opens few connections to a server. A page that nobody sees gives its
    // stream back, and goes on where it was when it is seen again.
    document.addEventListener("visibilitychange", () => {
      clearTimeout(this.#hide);
      if (document.hidden) this.#hide = setTimeout(() => this.#pause?.abort(), 20_000);
      else this.dispatchEvent(new Event("seen"));
    });
  }

  #pause;

  // look turns to a run.
  look(run) {
    this.#stop.abort();
    this.#stop = new AbortController();
    Object.assign(this, { run, actors: [], leases: new Map(), queues: [], events: [], added: 0, loaded: new Set(), rates: new Map() });
    this.#since = 0;
    this.#due = new Map([["tree", 0], ["leases", 0], ["queues", 0]]);
    this.#keys.clear();
    this.#tell("run");
    if (!run) return;
    const signal = this.#stop.signal;
    this.#stream(signal);
    this.#ask(signal);
  }

  #tell(what) {
    this.dispatchEvent(new CustomEvent("change", { detail: what }));
  }

  #linked(state) {
    if (this.link === state) return;
    this.link = state;
    this.#tell("link");
  }

  async findRuns() {
    const runs = [];
    let after;
    do {
      const page = await get("/runs", { actors: false, after });
      runs.push(...page.runs);
      after = page.next;
    } while (after);
    this.runs = runs.map((r) => ({ run: r.run, began: r.created_at, ended: r.ended_at }));
    this.runs.sort((a, b) => !!a.ended - !!b.ended || (numbered(a.run) < numbered(b.run) ? -1 : 1));
    this.#tell("runs");
    return this.runs;
  }

  // refreshRuns finds the runs again if the living ones, or the number of those that have
  // ended, are not what they were. There may be thousands that have ended.
  async refreshRuns() {
    const { runs, ended = 0, next } = await get("/runs", { actors: false, ended: false });
    const living = new Set(this.runs.filter((r) => !r.ended).map((r) => r.run));
    const same = !next && runs.length === living.size && runs.every((r) => living.has(r.run));
    if (!same || living.size + ended !== this.runs.length) await this.findRuns();
  }

  // want asks for something soon.
  want(what, within = 250) {
    const at = Date.now() + within;
    if ((this.#due.get(what) ?? Infinity) > at) this.#due.set(what, at);
  }

  async #stream(signal) {
    for (let wait = 500; !signal.aborted; wait = Math.min(wait * 2, 8000)) {
      if (document.hidden && this.link === "asleep") await new Promise((done) => this.addEventListener("seen", done, { once: true }));
      if (signal.aborted) return;
      const stop = new AbortController();
      this.#pause = stop;
      const cut = () => stop.abort();
      signal.addEventListener("abort", cut);
      // A stream says something every 15 s. One that does not has been lost.
      const watch = setInterval(() => Date.now() - this.#heard > 40_000 && stop.abort(), 5000);
      this.#heard = Date.now();
      try {
        if (!this.#since) this.#since = await this.#begin(signal);
        await follow(this.run, this.#since, {
          open: () => {
            wait = 500;
            this.#linked("live");
            this.want("leases", 0);
          },
          heard: () => {
            this.#heard = Date.now();
            this.#linked("live"); // if it was only a request that was lost
          },
          event: (e) => this.#happened(e),
        }, stop.signal);
      } catch (err) {
        if (signal.aborted) return;
        if (err.status === 401) return this.#linked("out");
        if (err.code === "COMPACTED" || err.code === "INVALID_ARGUMENT") this.#since = 0; // the state may be another one
        if (err.status === 404) return this.#tell("gone");
      } finally {
        clearInterval(watch);
        signal.removeEventListener("abort", cut);
      }
      if (signal.aborted) return;
      if (document.hidden && stop.signal.aborted) {
        this.#linked("asleep");
        continue;
      }
      this.#linked("lost");
      await new Promise((done) => setTimeout(done, wait));
    }
  }

  // begin reads the latest events, and gives where the stream goes on.
  async #begin(signal) {
    let page = await ofRun(this.run, "/events", { back }, signal);
    for (let n = 0; ; n++) {
      for (const e of page.events) this.#happened(e, true);
      if (!page.more || n === 20) break;
      page = await ofRun(this.run, "/events", { since: page.next }, signal);
    }
    this.loaded.add("events");
    this.#tell("events");
    return page.next;
  }

  #happened(e, old = false) {
    this.#since = Math.max(this.#since, e.revision);
    this.events.push(e);
    this.added++;
    if (this.events.length > maxEvents * 1.2) this.events.splice(0, this.events.length - maxEvents);
    if (e.queue) this.#counted(e);
    if (old) return;
    this.#tell("events");
    const kind = e.event;
    if (e.key && (kind.startsWith("lease_"))) {
      if (kind === "lease_released" || kind === "lease_expired" || kind === "lease_revoked") {
        if (this.leases.delete(leaseId(e))) this.#tell("leases");
      }
      this.#keys.set(e.scope + "\n" + (e.layer || "") + "\n" + e.key, e);
      this.want("keys", 120);
      this.want("tree", 800);
    } else if (e.queue) {
      this.want("queues", 400);
    } else if (kind.startsWith("actor_") || kind.startsWith("session_")) {
      this.want("tree", 300);
    }
  }

  #counted(e) {
    const came = e.event === "task_enqueued";
    const went = e.event === "task_completed" || e.event === "task_failed" || e.event === "task_dead" || e.event === "task_cancelled";
    if (!came && !went) return;
    let rate = this.rates.get(e.queue);
    if (!rate) this.rates.set(e.queue, (rate = new Map()));
    const second = Math.floor(Date.parse(e.at) / 1000);
    const at = rate.get(second) || { came: 0, went: 0 };
    at[came ? "came" : "went"]++;
    rate.set(second, at);
    if (rate.size > 180) for (const s of rate.keys()) if (s < second - 120) rate.delete(s);
  }

  // rate gives what came and went per second in the last minute, and in each of its
  // sixths.
  rate(queue) {
    const now = Math.floor(Date.now() / 1000);
    const steps = Array.from({ length: 12 }, () => ({ came: 0, went: 0 }));
    let came = 0;
    let went = 0;
    for (const [s, n] of this.rates.get(queue) || []) {
      if (s <= now - 60 || s > now) continue;
      came += n.came;
      went += n.went;
      const step = steps[Math.min(11, Math.floor((s - (now - 60)) / 5))];
      step.came += n.came;
      step.went += n.went;
    }
    return { came: came / 60, went: went / 60, steps };
  }

  async #ask(signal) {
    const again = { tree: 10_000, leases: 5000, queues: 5000 };
    while (!signal.aborted) {
      await new Promise((done) => setTimeout(done, 100));
      if (document.hidden && this.loaded.size > 3) continue;
      for (const [what, at] of this.#due) {
        if (Date.now() < at || signal.aborted) continue;
        this.#due.delete(what);
        const began = performance.now();
        try {
          await this["_" + what](signal);
        } catch (err) {
          if (signal.aborted) return;
          if (err.status === 401) return this.#linked("out");
          if (err.status === 404) return this.#tell("gone");
          if (err instanceof Lost) this.#linked("lost");
        }
        // What took long is asked for less often.
        if (again[what]) this.want(what, Math.max(again[what], 8 * (performance.now() - began)));
      }
    }
  }

  async _tree(signal) {
    const actors = [];
    let after;
    do {
      const { runs, next } = await ofRun(this.run, "", { after }, signal);
      for (const r of runs) actors.push(...r.actors);
      after = next;
    } while (after);
    this.actors = actors.sort((a, b) => (numbered(a.path) < numbered(b.path) ? -1 : 1));
    this.loaded.add("tree");
    this.#tell("tree");
  }

  // _keys looks again at the leases that events were about. Many at once are left to
  // the next look at all.
  async _keys(signal) {
    const keys = [...this.#keys.values()];
    this.#keys.clear();
    if (keys.length > 6) return this.want("leases", this.leases.size > 2000 ? 1500 : 0);
    await Promise.all(keys.map(async (e) => {
      const found = held(await ofRun(this.run, "/leases", { scope: e.scope, layer: e.layer, prefix: e.key, limit: 100 }, signal)).filter((l) => (l.key || l.name) === e.key && (l.layer || "") === (e.layer || ""));
      const ids = new Set(found.map(leaseId));
      for (const l of this.leases.values()) {
        if (l.title === e.key && l.scope === e.scope && (l.layer || "") === (e.layer || "") && !ids.has(l.id)) this.leases.delete(l.id);
      }
      for (const l of found) this.#has(l);
    }));
    this.#tell("leases");
  }

  async _leases(signal) {
    const sweep = ++this.#sweep;
    let after;
    for (let n = 0; n < maxPages; n++) {
      const page = await ofRun(this.run, "/leases", { after }, signal);
      for (const l of held(page)) this.#has(l, sweep);
      after = page.next;
      if (!after) break;
      this.#tell("leases");
      await new Promise((done) => setTimeout(done, 30));
    }
    const now = Date.now();
    for (const [id, l] of this.leases) if (l.sweep !== sweep && now - l.seen > 1000) this.leases.delete(id);
    this.loaded.add("leases");
    this.#tell("leases");
  }

  #has(l, sweep) {
    const id = leaseId(l);
    const was = this.leases.get(id);
    const now = Date.now();
    l.id = id;
    l.title = l.key || l.name || "";
    l.until = now + l.expires_in_ms;
    l.since = now - l.held_ms;
    l.seen = now;
    l.sweep = sweep ?? was?.sweep;
    l.words = (l.title + "\n" + l.holder.path + "\n" + (l.holder.as || "") + "\n" + (l.reason || "") + "\n" + (l.layer || "")).toLowerCase();
    this.leases.set(id, l);
  }

  async _queues(signal) {
    const all = [];
    let after;
    for (let n = 0; n < 10; n++) {
      const page = await ofRun(this.run, "/queues", { after, limit: 1000 }, signal);
      all.push(...page.queues);
      if (!page.more) break;
      after = page.queues.at(-1).queue;
    }
    this.queues = all;
    this.loaded.add("queues");
    this.#tell("queues");
  }
}

// held gives the leases of a page, and the keys that nobody holds and that are kept for
// the first in line.
function held({ leases, reserved = [] }) {
  return leases.concat(reserved.map((r) => ({ ...r, holder: { path: "reserved for " + r.for }, mode: "", held_ms: 0, ttl_ms: r.expires_in_ms, in_line: 0, waiters: [] })));
}

export function leaseId(l) {
  return [l.scope, l.layer || "", l.key || l.name, l.token].join("\n");
}

// history gives the last events of a lease or an actor. Events are kept in order, so
// those of a long run are read from the first one on.
export async function history(run, args, signal) {
  let list = [];
  let since;
  for (let n = 0; n < 40; n++) {
    const page = await ofRun(run, "/events", { ...args, since }, signal);
    list = list.concat(page.events).slice(-200);
    since = page.next;
    if (!page.more) break;
  }
  return list;
}
