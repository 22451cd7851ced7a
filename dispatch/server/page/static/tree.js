// The tree: who there is, how each is doing and where it works.

import { act } from "./api.js";
import { ask } from "./ask.js";
import { count, day, facts, h, put, reshape, shape, state } from "./dom.js";
import { Grid } from "./grid.js";
import { history } from "./model.js";
import { Bar, happened, Panel } from "./parts.js";

const lookOfState = {
  connected: { shape: "full", tone: "good" }, away: { shape: "half", tone: "wait" }, idle: { shape: "ring", tone: "calm" }, ended: { shape: "dash", tone: "faint" },
  pending: { shape: "wait", tone: "wait" }, running: { shape: "play", tone: "good" }, succeeded: { shape: "check", tone: "good" },
  failed: { shape: "warn", tone: "bad" }, timed_out: { shape: "warn", tone: "bad" }, spawn_failed: { shape: "warn", tone: "bad" }, lost: { shape: "warn", tone: "bad" }, cancelled: { shape: "cross", tone: "bad" },
};

function wordOf(a) {
  if (a.stopping) return "stopping";
  if (!a.status) return a.state;
  return a.status === "running" && a.state !== "connected" ? "running, " + a.state : a.status.replaceAll("_", " ");
}

function lookOf(a) {
  return lookOfState[a.status || a.state] || lookOfState.idle;
}

// place says where an actor works, the end first: beginnings are alike.
function place(a) {
  return [a.directory && a.directory.split("/").slice(-2).join("/"), a.branch].filter(Boolean).join(" · ");
}

function holds(c) {
  return c.scope === "queue" ? "task " + c.key.slice(0, 8) + " of " + c.queue : c.key;
}

export class TreeView {
  title = "Tree";

  constructor(model, params, ui) {
    Object.assign(this, { model, params, ui });
    this.closed = new Set();
    this.bar = new Bar({
      name: "tree", find: "Find an actor, directory or branch", params, changed: () => this.draw(),
      filters: [["living", "Living"], ["waiting", "Waiting"], ["all", "All"]],
    });
    this.grid = new Grid({
      name: "tree", label: "Actors", tree: true,
      columns: [{ name: "who", title: "Actor", class: "c-main" }, { name: "state", title: "State", class: "c-state" }, { name: "leases", title: "Leases", class: "c-num" }, { name: "where", title: "Location", class: "c-where" }],
      key: (row) => row.actor.actor_id, make, fill,
      open: (row, byKey) => this.select(row.actor.path, byKey),
      twist: (row) => {
        const path = row.actor.path;
        if (!this.closed.delete(path)) this.closed.add(path);
        this.draw();
      },
    });
    this.panel = new Panel(() => this.select(""));
    this.element = h("div", { class: "view" }, this.bar.element, h("div", { class: "split" }, this.grid.element, this.panel.element));
    this.draw();
  }

  changed(what) {
    if (what === "tree") this.draw();
  }

  tick() {}

  stop() {
    this.grid.stop();
    this.reading?.abort();
  }

  draw() {
    const { find, show } = this.bar;
    const all = this.model.actors;
    const below = new Map();
    for (const a of all) {
      const up = a.path === "root" ? null : a.path.includes("→") ? a.path.slice(0, a.path.lastIndexOf("→")) : "root";
      if (!below.has(up)) below.set(up, []);
      below.get(up).push(a);
    }
    const fits = (a) => (show === "all" || (show === "waiting" ? a.waiting > 0 : a.state !== "ended")) &&
      (!find || [a.path, a.directory, a.branch, a.agent, wordOf(a), String(a.pid || "")].join("\n").toLowerCase().includes(find));
    const kept = new Map(); // whether an actor or one below it fits
    let n = 0;
    const keeps = (a) => {
      let some = fits(a);
      if (some) n++;
      for (const b of below.get(a.path) || []) some = keeps(b) || some;
      kept.set(a, some);
      return some;
    };
    const tops = below.get(null) || [];
    for (const a of tops) keeps(a);
    const rows = [];
    const walk = (a, depth) => {
      if (!kept.get(a)) return;
      const under = (below.get(a.path) || []).filter((b) => kept.get(b));
      const open = !!find || !this.closed.has(a.path);
      rows.push({ actor: a, depth, many: under.length, open, dim: !fits(a) });
      if (open) for (const b of under) walk(b, depth + 1);
    };
    for (const a of tops) walk(a, 0);
    this.bar.say(n === all.length ? count(n, "actor", "actors") : n.toLocaleString() + " of " + count(all.length, "actor", "actors"));
    this.grid.show(rows, !this.model.loaded.has("tree") ? "Loading" : find || show === "waiting" ? "No actor matches." : all.length ? "All actors have ended. Choose All to see them." : "No agent has joined this run yet. One that starts with Leasehold in its configuration appears here.");
    const chosen = this.params.get("at");
    this.grid.choose(all.find((a) => a.path === chosen)?.actor_id);
    if (chosen && (!this.panel.isOpen || this.shown !== chosen || this.drawn !== this.model.actors)) this.detail(chosen);
    this.drawn = this.model.actors;
  }

  select(path, focus) {
    if (path) this.params.set("at", path);
    else this.params.delete("at");
    this.ui.changed();
    if (!path) {
      this.shown = "";
      this.draw();
      return this.grid.focus();
    }
    this.detail(path);
    this.draw();
    if (focus || this.ui.narrow()) this.panel.focus();
  }

  detail(path) {
    const a = this.model.actors.find((x) => x.path === path);
    if (!a) return;
    const list = (title, some) => some?.length && [h("h3", {}, title), h("ul", { class: "plain-list" }, some.map((c) => h("li", {}, h("code", {}, holds(c)), h("span", { class: "hint" }, c.reserved ? " reserved for " + c.holder : c.holder && c.holder !== a.path ? " held by " + c.holder : " " + c.scope))))];
    const again = this.shown === path;
    if (!again) {
      this.shown = path;
      this.past = h("div", {}, h("p", { class: "hush" }, "Loading"));
      this.reading?.abort();
      this.reading = new AbortController();
      history(this.model.run, { actor: path }, this.reading.signal).then((events) => this.past.replaceChildren(happened(events, "Nothing is recorded.")), () => {});
    }
    const ends = this.ui.acts() && a.state !== "ended";
    this.panel.open(a.path, state(lookOf(a), wordOf(a)),
      h("div", { class: "buttons" }, a.status && h("a", { class: "button plain", href: this.ui.link("logs", { at: path }) }, "Output"),
        ends && h("button", { type: "button", class: "danger", onclick: () => this.end(a) }, "End actor")),
      facts(["Role", a.role], ["Directory", a.directory && h("code", {}, a.directory)], ["Branch", a.branch && h("code", {}, a.branch)], ["Process", a.pid && "pid " + a.pid], ["Agent", [a.agent, a.model].filter(Boolean).join(", ")],
        ["Sessions", a.state !== "ended" ? String(a.sessions) : ""], ["Joined", day(a.created_at)], ["Ended", a.ended_at && day(a.ended_at) + (a.end_cause ? ", " + a.end_cause : "")],
        ["Exit code", a.exit_code], ["Signal", a.signal], ["Cause", a.cause], ["Stopping", a.stopping], ["Spent", a.spent_usd && "$" + a.spent_usd.toFixed(2)], ["Worktree", a.worktree]),
      list("Holds", a.holds), list("Waits for", a.waits_for),
      h("h3", {}, "History"), this.past);
  }

  end(a) {
    const under = this.model.actors.filter((b) => b.path !== a.path && b.state !== "ended" && (a.path === "root" || b.path.startsWith(a.path + "→"))).length;
    ask({
      title: "End " + a.path + "?", yes: "End actor", reason: "Told to those it concerns.",
      text: (a.path === "root" ? "This ends the whole run. " : "") + (under ? "The " + count(under, "actor", "actors") + " below it will end too. " : "") + "Tokens become void, sessions end, and leases go to whoever is next in line.",
      act: async (reason) => {
        await act(this.model.run, "/actors/end", { path: a.path, reason });
        this.model.want("tree", 0);
        return a.path + " has ended";
      },
    });
  }
}

function make() {
  const twist = h("span", { class: "twist", "aria-hidden": "true" }, shape("play"));
  const name = h("span", { class: "name" });
  const role = h("span", { class: "tag" });
  const rail = h("span", { class: "rail" });
  const more = h("span", { class: "hint" });
  return { who: h("span", { class: "who-cell" }, rail, twist, name, role), state: state(lookOfState.idle, ""), leases: more, where: h("span", { class: "path" }), name, role, twist, rail };
}

function fill(c, row, el) {
  const a = row.actor;
  el.classList.toggle("dim", row.dim || a.state === "ended");
  c.rail.style.width = row.depth * 22 + "px";
  c.twist.classList.toggle("open", row.many > 0 && row.open);
  c.twist.classList.toggle("none", !row.many);
  put(c.name, a.path === "root" ? "root" : a.name);
  put(c.role, a.path === "root" ? (a.name !== "root" ? a.name : "") : a.role === "sublead" ? "sub-lead" : "");
  reshape(c.state, lookOf(a), wordOf(a));
  put(c.leases, [a.leases && "holds " + a.leases, a.waiting && "waits for " + a.waiting].filter(Boolean).join(", "));
  c.leases.classList.toggle("waits", a.waiting > 0);
  put(c.where, place(a));
  c.where.title = a.directory || "";
}
