// What several views have: the bar above a list, and the panel beside it.

import { clock, h, put, replace, reshape, set, state } from "./dom.js";

// A bar has a search, filters of which one is chosen, and how much is shown.
export class Bar {
  constructor({ name, find, filters, sorts, params, changed }) {
    this.params = params;
    this.found = h("p", { class: "found" });
    const set = (key, value, standard) => {
      if (value && value !== standard) params.set(key, value);
      else params.delete(key);
      changed();
    };
    this.search = h("input", { type: "search", id: name + "-find", placeholder: find, autocomplete: "off", spellcheck: "false" });
    this.search.value = params.get("find") || "";
    this.search.addEventListener("input", () => set("find", this.search.value, ""));
    const chosen = params.get("show") || filters?.[0][0];
    this.choices = filters && h("fieldset", { class: "choices" }, h("legend", { class: "unseen" }, "Show"),
      filters.map(([value, title]) => {
        const id = name + "-" + value;
        return [h("input", { type: "radio", class: "unseen", name: name + "-show", id, value, checked: value === chosen, onchange: () => set("show", value, filters[0][0]) }), h("label", { for: id }, title)];
      }));
    const sort = sorts && h("select", { id: name + "-sort", onchange: (e) => set("sort", e.target.value, sorts[0][0]) },
      sorts.map(([value, title]) => h("option", { value, selected: value === params.get("sort") }, title)));
    this.element = h("div", { class: "bar", role: "search" },
      h("label", { for: name + "-find", class: "unseen" }, find), this.search, this.choices,
      sort && h("div", { class: "sort" }, h("label", { for: name + "-sort" }, "Sort"), sort), this.found);
  }

  get find() {
    return (this.params.get("find") || "").trim().toLowerCase();
  }

  get show() {
    return this.params.get("show") || "";
  }

  get sort() {
    return this.params.get("sort") || "";
  }

  say(text) {
    put(this.found, text);
  }
}

// A Panel shows one thing alone, beside the list or, on a narrow screen, over it.
export class Panel {
  constructor(closed) {
    this.closed = closed;
    this.title = h("h2", { tabindex: "-1", id: "panel-title" });
    this.content = h("div", { class: "content" });
    this.element = h("aside", { class: "panel", hidden: true, "aria-labelledby": "panel-title" },
      h("div", { class: "panel-head" }, this.title, h("button", { type: "button", class: "quiet", onclick: () => this.close() }, "Close")), this.content);
    this.element.addEventListener("keydown", (e) => {
      if (e.key === "Escape") this.close();
    });
  }

  open(title, ...content) {
    put(this.title, title);
    replace(this.content, ...content.flat(Infinity).filter(Boolean));
    this.element.hidden = false;
  }

  get isOpen() {
    return !this.element.hidden;
  }

  focus() {
    this.title.focus();
  }

  close() {
    this.element.hidden = true;
    this.closed();
  }
}

// How each kind of event looks.
const looks = [
  [/granted|handed_over|claimed|completed|revived|adopted/, { shape: "check", tone: "good" }],
  [/waiting|delayed/, { shape: "wait", tone: "wait" }],
  [/expired|dead|failed|refused|deadlock|overruled|file_changed/, { shape: "warn", tone: "bad" }],
  [/revoked|cancelled/, { shape: "cross", tone: "bad" }],
  [/released|ended|wait_ended/, { shape: "ring", tone: "calm" }],
  [/returned|redriven|offered/, { shape: "half", tone: "wait" }],
];

export function lookOf(kind) {
  return looks.find(([what]) => what.test(kind))?.[1] || { shape: "diamond", tone: "calm" };
}

export function kindWord(kind) {
  return kind.replaceAll("_", " ");
}

// happened is a list of events, the newest first.
export function happened(events, nothing) {
  if (!events.length) return h("p", { class: "hush" }, nothing);
  return h("ol", { class: "happened" }, events.toReversed().slice(0, 100).map((e) => h("li", {}, h("time", { datetime: e.at }, clock(e.at)), state(lookOf(e.event), kindWord(e.event)), h("p", {}, e.text))));
}

// A meter shows what is left of a time, as a bar and in words.
export function meter() {
  const fill = h("span", { class: "fill" });
  const words = h("span", { class: "words" });
  const el = h("span", { class: "meter" }, h("span", { class: "track", "aria-hidden": "true" }, fill), words);
  return Object.assign(el, { fill, words });
}

export function measure(el, part, words, tone) {
  const scale = `scaleX(${Math.max(0, Math.min(1, part)).toFixed(3)})`;
  if (el.fill.style.transform !== scale) el.fill.style.transform = scale;
  put(el.words, words);
  set(el, "data-tone", tone);
}

export { reshape };
