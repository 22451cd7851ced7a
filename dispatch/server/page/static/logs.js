// What launched agents write.

import { ofRun } from "./api.js";
import { count, h, put } from "./dom.js";

export class LogsView {
  title = "Logs";

  constructor(model, params, ui) {
    Object.assign(this, { model, params, ui });
    this.who = h("select", { id: "log-actor", onchange: () => {
      params.set("at", this.who.value);
      ui.changed();
      this.read();
    } });
    this.find = h("input", { type: "search", id: "log-find", placeholder: "Find a line", autocomplete: "off", oninput: () => this.draw() });
    this.follow = h("input", { type: "checkbox", id: "log-follow", checked: true });
    this.found = h("p", { class: "found" });
    this.out = h("pre", { tabindex: "0", role: "region", "aria-label": "Standard output" });
    this.err = h("pre", { tabindex: "0", role: "region", "aria-label": "Standard error" });
    this.note = h("p", { class: "hush" });
    this.errors = h("section", { class: "log" }, h("h2", {}, "Standard error"), this.err);
    this.both = h("div", { class: "logs" }, h("section", { class: "log" }, h("h2", {}, "Standard output"), this.out), this.errors);
    this.bar = h("div", { class: "bar", role: "search" }, h("div", { class: "sort" }, h("label", { for: "log-actor" }, "Agent"), this.who),
      h("label", { class: "unseen", for: "log-find" }, "Find a line"), this.find, h("div", { class: "tick" }, this.follow, h("label", { for: "log-follow" }, "Follow")), this.found);
    this.element = h("div", { class: "view" }, this.bar, this.note, this.both);
    this.fill();
    this.timer = setInterval(() => !document.hidden && this.read(), 1500);
    this.read();
  }

  changed(what) {
    if (what === "tree") this.fill();
  }

  tick() {}

  stop() {
    clearInterval(this.timer);
  }

  fill() {
    const paths = this.model.actors.filter((a) => a.status).map((a) => a.path);
    const at = this.params.get("at") || paths[0] || "";
    if (at && !paths.includes(at)) paths.unshift(at);
    const is = paths.join("\n");
    if (this.is !== is) {
      this.is = is;
      this.who.replaceChildren(...paths.map((p) => h("option", { value: p }, p)));
      this.who.value = at;
      this.read();
    }
    this.both.hidden = this.bar.hidden = !paths.length;
    if (!paths.length) put(this.note, this.model.loaded.has("tree") ? "This run has no launched agents. Agents that you start yourself write to their own terminals; leasehold dispatch launches agents and keeps their output." : "Loading");
  }

  async read() {
    const path = this.who.value;
    if (!path || this.reading) return;
    this.reading = true;
    try {
      const log = await ofRun(this.model.run, "/logs", { path, lines: 1000 });
      if (this.who.value !== path) return;
      this.log = log;
      put(this.note, "");
      this.both.hidden = false;
      this.draw();
    } catch (err) {
      this.both.hidden = true;
      put(this.note, err.message);
    } finally {
      this.reading = false;
    }
  }

  draw() {
    if (!this.log) return;
    const find = this.find.value.trim().toLowerCase();
    const { stdout, stderr, running } = this.log;
    const fits = (lines) => (find ? lines.filter((l) => l.toLowerCase().includes(find)) : lines);
    for (const [el, lines] of [[this.out, fits(stdout)], [this.err, fits(stderr)]]) {
      const text = lines.join("\n");
      if (el.textContent === text) continue;
      el.textContent = text || "";
      if (this.follow.checked) el.scrollTop = el.scrollHeight;
    }
    this.errors.hidden = !stderr.length;
    put(this.found, (running ? "running" : "ended") + ", " + count(stdout.length + stderr.length, "line", "lines"));
  }
}
