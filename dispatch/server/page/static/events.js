// The events of the run, the newest first, as they happen.

import { clock, count, day, facts, h, put, reshape } from "./dom.js";
import { Grid } from "./grid.js";
import { Bar, kindWord, lookOf, Panel } from "./parts.js";

const groups = {
  leases: /^lease_|^deadlock|^write_/, losses: /expired|revoked|refused|overruled|deadlock|dead$|failed|file_changed/, tasks: /^task_|^queue_/, actors: /^actor_|^session_|^message_/,
};

export class EventsView {
  title = "Events";

  constructor(model, params, ui) {
    Object.assign(this, { model, params, ui });
    this.bar = new Bar({ name: "events", find: "Find in events", params, changed: () => this.draw(true), filters: [["all", "All"], ["leases", "Leases"], ["tasks", "Tasks"], ["actors", "Actors"], ["losses", "Losses"]] });
    this.hold = h("button", { type: "button", class: "plain", "aria-pressed": "false", onclick: () => this.pause() }, "Pause");
    this.bar.element.insertBefore(this.hold, this.bar.found);
    this.grid = new Grid({
      name: "events", label: "Events, newest first",
      columns: [{ name: "at", title: "Time", class: "c-at" }, { name: "kind", title: "Event", class: "c-kind" }, { name: "text", title: "What happened", class: "c-text" }],
      key: (e) => String(e.revision), make, fill, open: (e, byKey) => this.select(e, byKey),
    });
    this.panel = new Panel(() => {
      this.grid.choose();
      this.grid.focus();
    });
    this.element = h("div", { class: "view" }, this.bar.element, h("div", { class: "split" }, this.grid.element, this.panel.element));
    this.draw(true);
  }

  changed(what) {
    if (what === "run" || what === "events") this.draw(what === "run");
  }

  tick() {}

  stop() {
    this.grid.stop();
  }

  pause() {
    this.paused = !this.paused;
    this.hold.setAttribute("aria-pressed", String(this.paused));
    put(this.hold, this.paused ? "Go on" : "Pause");
    this.draw(true);
  }

  draw(anew) {
    if (this.paused && !anew) return;
    const { find, show } = this.bar;
    const group = groups[show];
    const fits = (e) => (!group || group.test(e.event)) && (!find || (e.text + " " + e.event).toLowerCase().includes(find));
    const all = this.model.events;
    let grow = 0;
    if (anew || !this.rows) this.rows = all.filter(fits).reverse();
    else {
      const fresh = this.model.added - this.drawn;
      const some = all.slice(Math.max(0, all.length - fresh)).filter(fits).reverse();
      grow = some.length;
      this.rows = some.concat(this.rows).slice(0, 5000);
    }
    this.drawn = this.model.added;
    this.bar.say(this.paused ? "paused" : count(this.rows.length, "event", "events"));
    this.grid.show(this.rows, !this.model.loaded.has("events") ? "Loading" : all.length ? "No event matches." : "Nothing has happened yet.", grow);
  }

  select(e, byKey) {
    this.grid.choose(String(e.revision));
    this.panel.open(kindWord(e.event), h("p", {}, e.text), facts(["When", day(e.at)], ["Revision", String(e.revision)], ["Key", e.key && h("code", {}, e.key)], ["Layer", e.layer], ["Queue", e.queue], ["Task", e.task_id && h("code", {}, e.task_id)],
      ["Actor", e.path], ["Sub-agent", e.as], ["By", e.by], ["Token", e.token && String(e.token)], ["Cause", e.cause], ["Reason", e.reason]),
    h("div", { class: "buttons" }, e.path && h("a", { class: "button plain", href: this.ui.link("tree", { at: e.path, show: "all" }) }, "Show the actor"), e.key && h("a", { class: "button plain", href: this.ui.link("leases", { find: e.key }) }, "Show the lease"), e.queue && h("a", { class: "button plain", href: this.ui.link("queues", { at: e.queue }) }, "Show the queue")));
    if (byKey || this.ui.narrow()) this.panel.focus();
  }
}

function make() {
  return { at: h("time", {}), kind: h("span", {}), text: h("span", { class: "text" }) };
}

function fill(c, e) {
  put(c.at, clock(e.at));
  c.at.dateTime = e.at;
  if (!c.kind.lastChild) c.kind.append("");
  reshape(c.kind, lookOf(e.event), kindWord(e.event));
  put(c.text, e.text);
}
