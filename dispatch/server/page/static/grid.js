// A list of any length, of which the rows that can be seen are there, and the one that
// has the keyboard. It is a grid for assistive technology: rows are numbered, and the
// arrow keys go from row to row.

import { h, put, set, whenDrawn } from "./dom.js";

const spare = 6; // rows above and below those that can be seen

export class Grid {
  rows = [];
  #shown = new Map(); // elements by the row's key
  #active = null; // key of the row that has the keyboard
  #at = new Map(); // index by key
  #height = 0;

  // options: label, columns [{name, title, class}], make(row) → cells, fill(cells, row, element),
  // key(row), open(row), name; tree: rows have depth and open.
  constructor(options) {
    this.o = options;
    this.head = h("div", { role: "row", class: "row head", "aria-rowindex": 1 }, options.columns.map((c, i) => h("div", { role: "columnheader", class: "cell " + c.class, "aria-colindex": i + 1 }, c.title)));
    this.space = h("div", { role: "rowgroup", class: "space" });
    this.empty = h("p", { class: "hush", hidden: true });
    this.body = h("div", { role: options.tree ? "treegrid" : "grid", class: "grid " + options.name, "aria-label": options.label, "aria-colcount": options.columns.length, "aria-readonly": "true" },
      h("div", { role: "rowgroup", class: "heads" }, this.head), this.space);
    this.element = h("div", { class: "list" }, this.body, this.empty);
    this.draw = whenDrawn(() => this.#draw());
    this.body.addEventListener("scroll", this.draw, { passive: true });
    this.body.addEventListener("keydown", (e) => this.#key(e));
    this.space.addEventListener("focusin", (e) => {
      const row = e.target.closest(".row");
      if (row) this.#active = row.dataset.key;
    });
    this.space.addEventListener("click", (e) => {
      const at = this.#at.get(e.target.closest(".row")?.dataset.key);
      if (at === undefined) return;
      this.#go(at, true);
      if (e.target.closest(".twist")) options.twist(this.rows[at]);
      else options.open?.(this.rows[at]);
    });
    this.watch = new ResizeObserver(() => {
      this.#height = 0; // rows are of another height where there is less room
      for (const el of this.#shown.values()) el.at = -1;
      this.draw();
    });
    this.watch.observe(this.body);
  }

  stop() {
    this.watch.disconnect();
  }

  // show shows other rows. With grow, so many were added above, and what is looked at
  // stays where it is.
  show(rows, nothing, grow = 0) {
    this.rows = rows;
    this.#at = new Map();
    for (let i = 0; i < rows.length; i++) this.#at.set(this.o.key(rows[i]), i);
    if (this.#active === null || !this.#at.has(this.#active)) {
      const lost = this.#shown.get(this.#active)?.contains(document.activeElement);
      this.#active = rows.length ? this.o.key(rows[Math.min(this.#last || 0, rows.length - 1)]) : null;
      if (lost && this.#active !== null) this.#refocus = true;
    }
    set(this.body, "aria-rowcount", rows.length + 1);
    this.body.hidden = !rows.length;
    this.empty.hidden = !!rows.length;
    put(this.empty, nothing || "");
    this.grow = (this.grow || 0) + grow;
    this.draw();
  }

  #last = 0;
  #refocus = false;

  focus() {
    if (this.#active !== null) this.#go(this.#at.get(this.#active), true);
  }

  // choose marks the row that is looked at alone.
  choose(key) {
    this.chosen = key;
    this.draw();
  }

  #rowHeight() {
    if (!this.#height) this.#height = parseFloat(getComputedStyle(this.body).getPropertyValue("--row")) || 44;
    return this.#height;
  }

  #draw() {
    const tall = this.#rowHeight();
    if (!this.body.isConnected) return;
    if (this.grow && this.body.scrollTop > tall) this.body.scrollTop += this.grow * tall;
    this.grow = 0;
    const headTall = this.head.offsetHeight;
    const top = this.body.scrollTop;
    const first = Math.max(0, Math.floor(top / tall) - spare);
    const end = Math.min(this.rows.length, Math.ceil((top + this.body.clientHeight - headTall) / tall) + spare);
    this.space.style.height = this.rows.length * tall + "px";
    const wanted = new Map();
    for (let i = first; i < end; i++) wanted.set(this.o.key(this.rows[i]), i);
    const active = this.#at.get(this.#active);
    if (active !== undefined) wanted.set(this.#active, active);
    const free = [];
    for (const [key, el] of this.#shown) {
      if (wanted.has(key)) continue;
      free.push(el);
      this.#shown.delete(key);
    }
    const order = [];
    for (const [key, i] of wanted) {
      let el = this.#shown.get(key);
      if (!el) {
        el = free.pop() || this.#make();
        el.dataset.key = key;
        this.#shown.set(key, el);
      }
      order.push([i, el]);
      if (el.at !== i) {
        el.at = i;
        el.style.transform = `translateY(${i * tall}px)`;
        set(el, "aria-rowindex", i + 2);
      }
      const row = this.rows[i];
      set(el, "tabindex", key === this.#active ? 0 : -1);
      set(el, "aria-selected", key === this.chosen ? "true" : "false");
      if (this.o.tree) {
        set(el, "aria-level", row.depth + 1);
        set(el, "aria-expanded", row.many ? String(row.open) : null);
      }
      this.o.fill(el.cells, row, el);
    }
    for (const el of free) el.remove();
    // In the order of the list, for those who read the page without seeing it.
    order.sort((a, b) => a[0] - b[0]);
    let before = null;
    for (const [, el] of order.reverse()) {
      if (el.parentNode !== this.space || el.nextSibling !== before) this.space.insertBefore(el, before);
      before = el;
    }
    if (this.#refocus) {
      this.#refocus = false;
      this.#shown.get(this.#active)?.focus({ preventScroll: true });
    }
  }

  #make() {
    const cells = this.o.make();
    const el = h("div", { role: "row", class: "row", tabindex: -1 }, this.o.columns.map((c, i) => h("div", { role: "gridcell", class: "cell " + c.class, "aria-colindex": i + 1 }, cells[c.name])));
    el.cells = cells;
    return el;
  }

  // go gives the keyboard to a row.
  #go(i, focus) {
    if (i === undefined || !this.rows.length) return;
    i = Math.max(0, Math.min(this.rows.length - 1, i));
    this.#last = i;
    this.#active = this.o.key(this.rows[i]);
    const tall = this.#rowHeight();
    const head = this.head.offsetHeight;
    const top = i * tall;
    if (top < this.body.scrollTop) this.body.scrollTop = top;
    else if (top + tall > this.body.scrollTop + this.body.clientHeight - head) this.body.scrollTop = top + tall - this.body.clientHeight + head;
    this.#draw();
    if (focus) this.#shown.get(this.#active)?.focus({ preventScroll: true });
  }

  #key(e) {
    if (e.altKey || e.ctrlKey || e.metaKey || !e.target.classList.contains("row")) return;
    const at = this.#at.get(this.#active) ?? 0;
    const page = Math.max(1, Math.floor(this.body.clientHeight / this.#rowHeight()) - 2);
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, PageDown: at + page, PageUp: at - page, Home: 0, End: this.rows.length - 1 }[e.key];
    const row = this.rows[at];
    if (to !== undefined) this.#go(to, true);
    else if (e.key === "Enter" || e.key === " ") this.o.open?.(row, true);
    else if (this.o.tree && (e.key === "ArrowRight" || e.key === "ArrowLeft")) {
      const opens = e.key === "ArrowRight";
      if (row.many && row.open !== opens) this.o.twist(row);
      else if (opens && row.many) this.#go(at + 1, true);
      else if (!opens) this.#go(this.rows.findLastIndex((r, i) => i < at && r.depth < row.depth), true);
    } else return;
    e.preventDefault();
  }
}
