// The leases: who holds what, until when, and who waits for it.

import { act } from "./api.js";
import { ask } from "./ask.js";
import { count, day, facts, h, put, replace, shape, span, state } from "./dom.js";
import { Grid } from "./grid.js";
import { history } from "./model.js";
import { Bar, happened, measure, meter, Panel } from "./parts.js";

const soon = 10_000;

function partLeft(l, now) {
  return (l.until - now) / (l.ttl_ms || 60_000);
}

function left(l, now) {
  const ms = l.until - now;
  return ms <= 0 ? "past its end" : span(ms) + " left";
}

function toneOf(l, now) {
  if (l.keep_alive) return "kept";
  const ms = l.until - now;
  return ms <= 0 ? "over" : ms < soon ? "soon" : "";
}

const byName = (a, b) => (a.title < b.title ? -1 : a.title > b.title ? 1 : a.id < b.id ? -1 : 1);
const sorts = {
  "": byName,
  left: (a, b) => a.until - b.until || byName(a, b),
  line: (a, b) => b.in_line - a.in_line || byName(a, b),
  held: (a, b) => a.since - b.since || byName(a, b),
};

export class LeasesView {
  title = "Leases";

  constructor(model, params, ui) {
    Object.assign(this, { model, params, ui });
    this.bar = new Bar({
      name: "leases", find: "Find a key, holder or reason", params, changed: () => this.draw(),
      filters: [["all", "All"], ["wanted", "Contended"], ["soon", "Expiring"], ["shared", "Shared"]],
      sorts: [["", "Key"], ["left", "Time left"], ["line", "Waiting"], ["held", "Held longest"]],
    });
    this.grid = new Grid({
      name: "leases", label: "Leases",
      columns: [{ name: "what", title: "Key", class: "c-main" }, { name: "holder", title: "Holder", class: "c-holder" }, { name: "time", title: "Time left", class: "c-time" }, { name: "line", title: "Waiting", class: "c-line" }],
      key: (l) => l.id, make, fill, open: (l, byKey) => this.select(l.id, byKey),
    });
    this.panel = new Panel(() => this.select(""));
    this.element = h("div", { class: "view" }, this.bar.element, h("div", { class: "split" }, this.grid.element, this.panel.element));
    this.draw();
  }

  changed(what) {
    if (what === "leases") this.draw();
    if (what === "events" && this.shown) this.more();
  }

  tick() {
    this.grid.draw();
    this.times?.();
    if (this.bar.show === "soon") this.draw();
  }

  stop() {
    this.grid.stop();
    this.reading?.abort();
  }

  draw() {
    const { find, show, sort } = this.bar;
    const now = Date.now();
    const rows = [];
    for (const l of this.model.leases.values()) {
      if (find && !l.words.includes(find)) continue;
      if (show === "wanted" ? !l.in_line : show === "soon" ? l.keep_alive || l.until - now > soon : show === "shared" ? l.mode !== "shared" : false) continue;
      rows.push(l);
    }
    rows.sort(sorts[sort] || byName);
    const all = this.model.leases.size;
    this.bar.say(rows.length === all ? count(all, "lease", "leases") : rows.length.toLocaleString() + " of " + count(all, "lease", "leases"));
    this.grid.show(rows, !this.model.loaded.has("leases") ? "Loading" : all ? "No lease matches." : "Nothing is held at the moment.");
    const at = this.params.get("at");
    this.grid.choose(at);
    if (at) {
      const l = this.model.leases.get(at);
      if (this.shown !== at) this.detail(at);
      else if (l !== this.drawn) this.refresh(l);
    }
  }

  select(id, focus) {
    if (id) this.params.set("at", id);
    else this.params.delete("at");
    this.ui.changed();
    if (!id) {
      this.shown = this.times = undefined;
      this.draw();
      return this.grid.focus();
    }
    this.draw();
    if (focus || this.ui.narrow()) this.panel.focus();
  }

  detail(id) {
    const [scope, layer, key, token] = id.split("\n");
    this.shown = id;
    this.known = this.told = undefined; // until the history of this one has come
    this.of = { scope, layer, key, token };
    this.now = h("div", {});
    this.past = h("div", {}, h("p", { class: "hush" }, "Loading"));
    this.panel.open(key, this.now, h("h3", {}, "History"), this.past);
    this.refresh(this.model.leases.get(id));
    this.reading?.abort();
    this.reading = new AbortController();
    history(this.model.run, { key, scope, layer }, this.reading.signal).then((events) => {
      this.known = events;
      this.told = this.model.added;
      this.past.replaceChildren(happened(events, "Nothing is recorded."));
    }, () => {});
  }

  // more adds what has happened since to the history.
  more() {
    const fresh = this.model.added - (this.told ?? this.model.added);
    if (fresh <= 0) return;
    this.told = this.model.added;
    const { scope, layer, key } = this.of;
    const after = this.known.at(-1)?.revision || 0;
    const some = this.model.events.slice(-fresh).filter((e) => e.key === key && e.scope === scope && (e.layer || "") === layer && e.revision > after);
    if (!some.length) return;
    this.known = this.known.concat(some);
    this.past.replaceChildren(happened(this.known, ""));
  }

  refresh(l) {
    this.drawn = l;
    const next = l || [...this.model.leases.values()].find((x) => x.title === this.of.key && x.scope === this.of.scope && (x.layer || "") === this.of.layer);
    if (!l) {
      this.times = undefined;
      replace(this.now, state({ shape: "ring", tone: "calm" }, this.of.token ? "No longer held under this token" : "No longer reserved"),
        h("p", {}, next ? (next.for ? "It is " : "It is held by ") + next.holder.path + " now. " : "Nobody holds it now. "),
        next && !next.for ? h("button", { type: "button", class: "plain", onclick: () => this.select(next.id, true) }, "Show the new holder") : "");
      return;
    }
    if (l.for) {
      this.times = undefined;
      replace(this.now, state({ shape: "ring", tone: "calm" }, "Nobody holds it"), h("p", {}, "It is " + l.holder.path + ", which is first in line."));
      return;
    }
    const m = meter();
    m.classList.add("wide");
    this.times = () => measure(m, partLeft(l, Date.now()), left(l, Date.now()) + (l.keep_alive ? ", kept alive" : ""), toneOf(l, Date.now()));
    this.times();
    const hold = l.holder;
    replace(this.now, m,
      this.ui.acts() ? h("div", { class: "buttons" }, h("button", { type: "button", class: "danger", onclick: () => this.revoke(l) }, "Revoke lease")) : "",
      l.in_line ? h("h3", {}, count(l.in_line, "waiting", "waiting")) : "",
      l.in_line ? h("ol", { class: "line" }, l.waiters.map((w) => h("li", {}, h("span", {}, w.path + (w.as ? " (as " + w.as + ")" : "")), h("span", { class: "hint" }, span(w.waiting_ms)))), l.in_line > l.waiters.length ? h("li", { class: "hint" }, "and " + (l.in_line - l.waiters.length) + " more") : "") : "",
      facts(["Holder", hold.path], ["Sub-agent", hold.as], ["Reason", l.reason], ["Scope", l.scope === "run" ? "the run" : "layer of " + (l.layer || "root")], ["Mode", l.mode], ["Token", String(l.token)],
        ["Held", span(Date.now() - l.since)], ["Since", day(l.acquired_at)], ["Directory", hold.directory && h("code", {}, hold.directory)], ["Branch", hold.branch && h("code", {}, hold.branch)], ["Process", hold.pid && "pid " + hold.pid], ["Offered to", l.offered_to]));
  }

  revoke(l) {
    ask({
      title: "Revoke this lease?", yes: "Revoke lease", reason: "The holder is told who revoked it, and why.",
      text: "“" + l.title + "” is held by " + l.holder.path + ". " + (l.in_line ? "The first in line, " + l.waiters[0]?.path + ", gets it at once." : "Nobody is waiting for it.") + " Writes that name the old token will be refused; other writes are not stopped.",
      act: async (reason) => {
        const done = await act(this.model.run, "/leases/revoke", { scope: l.scope, key: l.title, layer: l.layer, holder: l.mode === "shared" ? l.holder.path : undefined, reason });
        this.model.want("leases", 0);
        return done.revoked ? "The lease is revoked" : "Nobody held it any more";
      },
    });
  }
}

function make() {
  const name = h("bdi", { dir: "ltr" });
  const tags = h("span", { class: "tag" });
  const why = h("span", { class: "hint why" });
  const who = h("bdi", { dir: "ltr" });
  const as = h("span", { class: "hint" });
  const line = h("span", { class: "waits-cell" }, shape("wait"), h("span", {}));
  return { what: h("span", { class: "two" }, h("span", { class: "one" }, h("span", { class: "name key end" }, name), tags), why), holder: h("span", { class: "two" }, h("span", { class: "name end" }, who), as), time: meter(), line, name, tags, why, who, as };
}

function fill(c, l) {
  const now = Date.now();
  put(c.name, l.title);
  put(c.tags, [l.scope === "layer" ? "layer " + (l.layer || "root") : "", l.mode === "shared" ? "shared" : "", l.offered_to ? "offered" : ""].filter(Boolean).join(" · "));
  put(c.why, l.reason || "");
  put(c.who, l.holder.path);
  put(c.as, l.holder.as ? "as " + l.holder.as : "");
  measure(c.time, partLeft(l, now), l.keep_alive ? "kept alive" : left(l, now), toneOf(l, now));
  c.line.hidden = !l.in_line;
  put(c.line.lastChild, count(l.in_line, "waiting", "waiting"));
}

