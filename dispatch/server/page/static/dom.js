// What the views are made of. Texts become text nodes, never markup: agents choose
// them.

// h makes an element. Properties that begin with "on" are listeners, and undefined
// ones are left out.
export function h(tag, props = {}, ...children) {
  const el = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) el.addEventListener(name.slice(2), value);
    else if (name === "class") el.className = value;
    else el.setAttribute(name, value === true ? "" : String(value));
  }
  el.append(...children.flat(Infinity).filter((c) => c !== undefined && c !== null && c !== false).map((c) => (c instanceof Node ? c : String(c))));
  return el;
}

// put gives an element a text, if it has another.
export function put(el, text) {
  if (el.textContent !== text) el.textContent = text;
}

// replace gives an element other children. The keyboard stays on the control where it
// was, if that is there again.
export function replace(el, ...children) {
  const at = document.activeElement;
  const was = el.contains(at) ? at.outerHTML : "";
  el.replaceChildren(...children);
  if (was) [...el.querySelectorAll("a, button, select")].find((c) => c.outerHTML === was)?.focus({ preventScroll: true });
}

// set gives an element an attribute, or none.
export function set(el, name, value) {
  if (value === undefined || value === null || value === false) el.removeAttribute(name);
  else if (el.getAttribute(name) !== String(value)) el.setAttribute(name, value);
}

// The shapes of states. A state has a shape and a word, besides its colour.
const shapes = {
  full: "M8 2.5a5.5 5.5 0 1 1 0 11 5.5 5.5 0 0 1 0-11Z",
  half: "M8 2.5a5.5 5.5 0 1 1 0 11 5.5 5.5 0 0 1 0-11Zm0 1.6v7.8a3.9 3.9 0 0 0 0-7.8Z",
  ring: "M8 2.5a5.5 5.5 0 1 1 0 11 5.5 5.5 0 0 1 0-11Zm0 1.8a3.7 3.7 0 1 0 0 7.4 3.7 3.7 0 0 0 0-7.4Z",
  dash: "M3 7h10v2H3z",
  check: "m6.6 12.4-4-4L4 7l2.6 2.6L12 4.2l1.4 1.4z",
  cross: "M4.2 2.8 8 6.6l3.8-3.8 1.4 1.4L9.4 8l3.8 3.8-1.4 1.4L8 9.4l-3.8 3.8-1.4-1.4L6.6 8 2.8 4.2z",
  play: "M4.5 2.5 13 8l-8.5 5.5z",
  pause: "M4 3h3v10H4zm5 0h3v10H9z",
  wait: "M4 2h8v2L9.2 8 12 12v2H4v-2l2.8-4L4 4z",
  warn: "M8 1.8 15 14H1zm-.800 4.7v3.7h1.6V6.5zm0 4.7v1.5h1.6v-1.5z",
  diamond: "m8 1.8 6.2 6.2L8 14.2 1.8 8z",
};

export function shape(name) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", "0 0 16 16");
  svg.setAttribute("aria-hidden", "true");
  svg.setAttribute("class", "shape");
  const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  path.setAttribute("d", shapes[name] || shapes.ring);
  svg.append(path);
  return svg;
}

// state is a word with its shape.
export function state(look, word) {
  return h("span", { class: "state " + look.tone }, shape(look.shape), h("span", {}, word));
}

// reshape changes what state has made.
export function reshape(el, look, word) {
  const is = look.shape + " " + look.tone;
  if (el.dataset.is !== is) {
    el.dataset.is = is;
    el.className = "state " + look.tone;
    el.replaceChildren(shape(look.shape), h("span", {}, word));
    return;
  }
  put(el.lastChild, word);
}

// span is a duration in words as short as they can be read.
export function span(ms) {
  const s = Math.max(0, Math.round(ms / 1000));
  if (s < 60) return s + " s";
  if (s < 3600) return Math.floor(s / 60) + " min" + (s < 600 && s % 60 ? " " + (s % 60) + " s" : "");
  if (s < 86400) return Math.floor(s / 3600) + " h" + (Math.floor((s % 3600) / 60) ? " " + Math.floor((s % 3600) / 60) + " min" : "");
  return Math.floor(s / 86400) + " d " + Math.floor((s % 86400) / 3600) + " h";
}

export function ago(at) {
  return at ? span(Date.now() - Date.parse(at)) + " ago" : "";
}

const clockForm = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });
const dayForm = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium", hour12: false });

export function clock(at) {
  return clockForm.format(new Date(at));
}

export function day(at) {
  return at ? dayForm.format(new Date(at)) : "";
}

export function count(n, one, many) {
  return n.toLocaleString() + " " + (n === 1 ? one : many);
}

let later;

// say tells a screen reader something, once it has finished what it says.
export function say(text) {
  clearTimeout(later);
  later = setTimeout(() => {
    document.getElementById("said").textContent = text;
  }, 150);
}

// facts is a list of what is known. What is empty is left out.
export function facts(...pairs) {
  return h("dl", { class: "facts" }, pairs.filter(([, v]) => v !== undefined && v !== "" && v !== null).map(([k, v]) => h("div", {}, h("dt", {}, k), h("dd", {}, v))));
}

// whenDrawn runs work with the next picture, once, however often it is asked for.
export function whenDrawn(work) {
  let asked = 0;
  return () => {
    if (asked) return;
    asked = requestAnimationFrame(() => {
      asked = 0;
      work();
    });
  };
}
