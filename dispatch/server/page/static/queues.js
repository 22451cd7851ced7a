// The queues: how many tasks are in which state, how fast they come and go, and what is
// dead.

import { act, ofRun } from "./api.js";
import { ask } from "./ask.js";
import { ago, count, facts, h, put, replace, reshape, span, state } from "./dom.js";
import { Grid } from "./grid.js";
import { Bar, Panel } from "./parts.js";

const lookOf = (q) => (q.paused ? { shape: "pause", tone: "wait" } : q.in_progress ? { shape: "play", tone: "good" } : { shape: "ring", tone: "calm" });
const wordOf = (q) => (q.paused ? "paused" : q.in_progress ? "working" : q.ready ? "waiting" : "quiet");

function perSecond(n) {
  return n === 0 ? "0" : n < 0.1 ? (n * 60).toFixed(1) + "/min" : (n < 10 ? n.toFixed(1) : Math.round(n)) + "/s";
}

export class QueuesView {
  title = "Queues";

  constructor(model, params, ui) {
    Object.assign(this, { model, params, ui });
    this.bar = new Bar({ name: "queues", find: "Find a queue", params, changed: () => this.draw(), filters: [["all", "All"], ["busy", "Busy"], ["dead", "Dead letters"], ["paused", "Paused"]] });
    this.grid = new Grid({
      name: "queues", label: "Queues",
      columns: [{ name: "what", title: "Queue", class: "c-main" }, { name: "state", title: "State", class: "c-state" }, { name: "ready", title: "Ready", class: "c-num n1" }, { name: "busy", title: "Busy", class: "c-num n2" }, { name: "later", title: "Delayed", class: "c-num n3" }, { name: "dead", title: "Dead", class: "c-num n4" }, { name: "rate", title: "In and out", class: "c-rate" }],
      key: (q) => q.queue, make, fill: (c, q) => fill(c, q, this.model.rate(q.queue)), open: (q, byKey) => this.select(q.queue, byKey),
    });
    this.panel = new Panel(() => this.select(""));
    this.element = h("div", { class: "view" }, this.bar.element, h("div", { class: "split" }, this.grid.element, this.panel.element));
    this.draw();
  }

  changed(what) {
    if (what === "queues") this.draw();
  }

  tick() {
    this.grid.draw();
    if (this.shown && this.rates) {
      const r = this.model.rate(this.shown);
      put(this.rates, perSecond(r.came) + " in, " + perSecond(r.went) + " out, in the last minute");
    }
  }

  stop() {
    this.grid.stop();
  }

  draw() {
    const { find, show } = this.bar;
    const all = this.model.queues;
    const rows = all.filter((q) => (!find || q.queue.toLowerCase().includes(find)) && (show === "busy" ? q.in_progress || q.ready : show === "dead" ? q.dead : show === "paused" ? q.paused : true));
    this.bar.say(rows.length === all.length ? count(all.length, "queue", "queues") : rows.length + " of " + count(all.length, "queue", "queues"));
    this.grid.show(rows, !this.model.loaded.has("queues") ? "Loading" : all.length ? "No queue matches." : "No queue has tasks.");
    const at = this.params.get("at");
    this.grid.choose(at);
    const q = all.find((x) => x.queue === at);
    if (at && this.shown !== at) this.detail(at);
    else if (at && JSON.stringify(q) !== this.was) this.refresh(q);
  }

  select(name, focus) {
    if (name) this.params.set("at", name);
    else this.params.delete("at");
    this.ui.changed();
    if (!name) {
      this.shown = "";
      this.draw();
      return this.grid.focus();
    }
    this.draw();
    if (focus || this.ui.narrow()) this.panel.focus();
  }

  detail(name) {
    this.shown = name;
    this.counts = h("div", { class: "counts" });
    this.tasks = h("div", {});
    this.rates = h("p", { class: "hint" });
    const q = this.model.queues.find((x) => x.queue === name);
    this.which = q?.dead ? "dead" : "live";
    this.choice = h("select", { id: "tasks-state", onchange: (e) => {
      this.which = e.target.value;
      this.list();
    } }, [["live", "Not finished"], ["ready", "Ready"], ["delayed", "Delayed"], ["in_progress", "In progress"], ["dead", "Dead"], ["failed", "Failed"], ["completed", "Completed"], ["cancelled", "Cancelled"]].map(([value, title]) => h("option", { value, selected: value === this.which }, title)));
    this.panel.open(name, this.counts, this.rates, h("div", { class: "field row-field" }, h("label", { for: "tasks-state" }, "Tasks"), this.choice), this.tasks);
    this.tick();
    this.refresh(q);
  }

  refresh(q) {
    this.was = JSON.stringify(q);
    if (!q) return replace(this.counts, h("p", { class: "hush" }, "The queue has no tasks."));
    const acts = this.ui.acts();
    replace(this.counts, state(lookOf(q), wordOf(q)),
      acts ? h("div", { class: "buttons" }, q.paused ? h("button", { type: "button", class: "plain", onclick: () => this.resume(q) }, "Resume queue") : h("button", { type: "button", class: "plain", onclick: () => this.pause(q) }, "Pause queue"),
        q.dead ? h("button", { type: "button", class: "plain", onclick: () => this.redrive(q) }, "Redrive dead tasks") : "") : "",
      q.paused_reason ? h("p", {}, q.paused_reason) : "", facts(["Ready", String(q.ready)], ["In progress", String(q.in_progress)], ["Delayed", String(q.delayed)], ["Dead", String(q.dead)], ["Completed", String(q.completed)], ["Failed", String(q.failed)], ["Cancelled", String(q.cancelled)]));
    this.list();
  }

  async list() {
    const name = this.shown;
    const which = this.which;
    try {
      const { tasks } = await ofRun(this.model.run, "/tasks", { queue: name, state: which, limit: 100 });
      if (this.shown !== name || this.which !== which) return;
      replace(this.tasks, tasks.length ? h("ol", { class: "tasks" }, tasks.map((t) => this.task(t))) : h("p", { class: "hush" }, "None."));
      if (tasks.length === 100) this.tasks.append(h("p", { class: "hint" }, "These are the first 100."));
    } catch (err) {
      if (this.shown === name && this.which === which) this.tasks.replaceChildren(h("p", { class: "wrong" }, err.message));
    }
  }

  task(t) {
    const last = t.attempts.at(-1);
    const open = t.state === "ready" || t.state === "delayed" || t.state === "in_progress";
    return h("li", {}, h("div", { class: "task-head" }, h("code", { title: t.task_id }, t.task_id.slice(0, 8)), state(lookOfTask[t.state] || lookOfTask.ready, t.state.replaceAll("_", " ")), h("span", { class: "hint" }, "attempt " + t.attempt + " of " + t.max_attempts)),
      h("p", { class: "hint" }, [t.state === "in_progress" && last ? "with " + last.path + (last.as ? " (as " + last.as + ")" : "") + " for another " + span(t.expires_in_ms || 0) : "", last?.cause, "from " + t.enqueued_by + ", " + ago(t.enqueued_at)].filter(Boolean).join("; ")),
      this.ui.acts() ? h("div", { class: "buttons" }, open ? h("button", { type: "button", class: "danger small", "data-task": t.task_id + "c", "aria-label": "Cancel task " + t.task_id.slice(0, 8), onclick: () => this.cancel(t) }, "Cancel") : "",
        t.state === "dead" ? h("button", { type: "button", class: "plain small", "data-task": t.task_id + "r", "aria-label": "Redrive task " + t.task_id.slice(0, 8), onclick: () => this.redrive({ queue: t.queue }, t) }, "Redrive") : "") : "");
  }

  done() {
    this.model.want("queues", 0);
    this.list();
  }

  cancel(t) {
    ask({
      title: "Cancel this task?", yes: "Cancel task", text: "Task " + t.task_id + " of " + t.queue + " will not run again. A worker that has it now is refused when it submits.",
      act: async () => {
        const done = await act(this.model.run, "/tasks/" + t.task_id + "/cancel", {});
        this.done();
        return "The task is " + done.state;
      },
    });
  }

  redrive(q, t) {
    ask({
      title: t ? "Redrive this task?" : "Redrive dead tasks?", yes: "Redrive", danger: false,
      text: t ? "Task " + t.task_id + " gets a fresh set of attempts." : "Up to 100 dead tasks of " + q.queue + " get a fresh set of attempts. Do this after you have fixed the cause.",
      act: async () => {
        const done = await act(this.model.run, "/queues/" + encodeURIComponent(q.queue) + "/redrive", t ? { task_ids: [t.task_id] } : {});
        this.done();
        return count(done.task_ids.length, "task is", "tasks are") + " tried again";
      },
    });
  }

  pause(q) {
    ask({
      title: "Pause " + q.queue + "?", yes: "Pause queue", danger: false, reason: "Shown to whoever looks at the queue.",
      text: "Workers get no more tasks from it until it is resumed. What is in progress goes on, and tasks can still be enqueued.",
      act: async (reason) => {
        await act(this.model.run, "/queues/" + encodeURIComponent(q.queue) + "/pause", { reason });
        this.done();
        return q.queue + " is paused";
      },
    });
  }

  resume(q) {
    ask({
      title: "Resume " + q.queue + "?", yes: "Resume queue", danger: false, text: "Workers get its tasks again.",
      act: async () => {
        await act(this.model.run, "/queues/" + encodeURIComponent(q.queue) + "/resume", {});
        this.done();
        return q.queue + " is resumed";
      },
    });
  }
}

const lookOfTask = {
  ready: { shape: "ring", tone: "calm" }, delayed: { shape: "wait", tone: "wait" }, in_progress: { shape: "play", tone: "good" }, completed: { shape: "check", tone: "good" },
  failed: { shape: "warn", tone: "bad" }, dead: { shape: "warn", tone: "bad" }, cancelled: { shape: "cross", tone: "calm" },
};

function make() {
  const n = () => h("span", { class: "n" });
  const bars = Array.from({ length: 12 }, () => [h("i", { class: "in" }), h("i", { class: "out" })]);
  const words = h("span", { class: "words" });
  const rate = h("span", { class: "rate" }, h("span", { class: "spark", "aria-hidden": "true" }, bars.map(([a, b]) => h("b", {}, a, b))), words);
  return { what: h("span", { class: "name key" }), state: state(lookOfTask.ready, ""), ready: n(), busy: n(), later: n(), dead: n(), rate, bars, words };
}

function fill(c, q, rate) {
  put(c.what, q.queue);
  reshape(c.state, lookOf(q), wordOf(q));
  put(c.ready, q.ready.toLocaleString());
  put(c.busy, q.in_progress.toLocaleString());
  put(c.later, q.delayed.toLocaleString());
  put(c.dead, q.dead.toLocaleString());
  c.dead.classList.toggle("alarm", q.dead > 0);
  put(c.words, perSecond(rate.came) + " in, " + perSecond(rate.went) + " out");
  const most = Math.max(1, ...rate.steps.map((s) => Math.max(s.came, s.went)));
  rate.steps.forEach((s, i) => {
    c.bars[i][0].style.height = (s.came / most) * 100 + "%";
    c.bars[i][1].style.height = (s.went / most) * 100 + "%";
  });
}

