// The page from its sign-in on: which run and which view are looked at, and whether
// what is shown is live.

import { me, signIn, signOut } from "./api.js";
import { h, put, say, whenDrawn } from "./dom.js";
import { EventsView } from "./events.js";
import { LeasesView } from "./leases.js";
import { LogsView } from "./logs.js";
import { Model } from "./model.js";
import { QueuesView } from "./queues.js";
import { TreeView } from "./tree.js";

const views = { tree: TreeView, leases: LeasesView, queues: QueuesView, events: EventsView, logs: LogsView };
const titles = { tree: "Tree", leases: "Leases", queues: "Queues", events: "Events", logs: "Logs" };
const el = (id) => document.getElementById(id);
const main = el("main");
const model = new Model();
const narrow = matchMedia("(max-width: 900px)");

let who = null;
let view = null; // the one that is shown
let name = "";
let params = new URLSearchParams();

const ui = {
  acts: () => who?.role === "operator",
  narrow: () => narrow.matches,
  changed: () => history.replaceState(null, "", link(name, Object.fromEntries([...params].filter(([k]) => k !== "run")))),
  link,
};

// link is the address of a view of the run that is looked at.
function link(to, args = {}) {
  const q = new URLSearchParams({ run: model.run, ...args });
  return "#/" + to + "?" + q;
}

async function begin() {
  const code = new URLSearchParams(location.hash.slice(1)).get("code");
  if (code) {
    history.replaceState(null, "", location.pathname + location.search); // it is good once, and nobody needs to see it
    try {
      return enter(await signIn({ code }));
    } catch (err) {
      const known = await me().catch(() => null);
      return known ? enter(known) : strange(err.message);
    }
  }
  try {
    const known = await me();
    return known ? enter(known) : strange("");
  } catch (err) {
    strange(err.message);
  }
}

// strange is the page of somebody who is not signed in.
function strange(why) {
  leave();
  const wrong = h("p", { class: "wrong", role: "alert" }, why);
  const token = h("input", { id: "token", type: "password", autocomplete: "off", required: true });
  main.replaceChildren(h("div", { class: "door" }, h("h1", {}, "Sign in to Leasehold"),
    h("p", {}, "Run this on the machine of the daemon. It opens this page, signed in."), h("pre", { class: "command" }, "leasehold open"), wrong,
    h("details", {}, h("summary", {}, "Use a token instead"), h("form", { onsubmit: async (e) => {
      e.preventDefault();
      try {
        enter(await signIn({ token: token.value.trim() }));
      } catch (err) {
        wrong.textContent = err.message;
      }
    } }, h("div", { class: "field" }, h("label", { for: "token" }, "Token of an operator or reader"), token, h("p", { class: "hint" }, "leasehold token issue makes one.")), h("button", { type: "submit", class: "main" }, "Sign in")))));
  document.title = "Sign in, Leasehold";
}

function leave() {
  who = null;
  view?.stop();
  view = null;
  model.look("");
  for (const id of ["top", "tabs"]) el(id).hidden = true;
}

async function enter(identity) {
  who = identity;
  for (const id of ["top", "tabs"]) el(id).hidden = false;
  put(el("who"), who.role === "reader" ? "Reader, cannot act" : "Operator");
  el("tabs").replaceChildren(...Object.keys(views).map((v) => h("a", { id: "tab-" + v }, h("span", {}, titles[v]), h("span", { class: "badge", hidden: true }))));
  try {
    await model.findRuns();
  } catch (err) {
    return strange(err.message);
  }
  turn();
}

// turn shows what the address says.
function turn() {
  if (!who) return;
  const [, to, q] = /^#\/([a-z]+)(?:\?(.*))?$/.exec(location.hash) || [];
  params = new URLSearchParams(q || "");
  const wanted = params.get("run") || new URLSearchParams(location.search).get("run") || model.run || lastRun() || model.runs[0]?.run || "";
  const run = model.runs.some((r) => r.run === wanted) ? wanted : model.runs[0]?.run || "";
  if (run !== model.run) {
    model.look(run);
    keepRun(run);
  }
  drawRuns();
  const next = views[to] ? to : "tree";
  const changes = name !== next || !view;
  name = next;
  view?.stop();
  if (!run) {
    view = null;
    main.replaceChildren(h("div", { class: "door" }, h("h1", {}, "No run yet"), h("p", {}, "A run begins when an agent connects. Connect your agents with"), h("pre", { class: "command" }, "leasehold setup"), h("p", {}, "and they appear here.")));
  } else {
    view = new views[name](model, params, ui);
    main.replaceChildren(h("h1", { class: "unseen" }, titles[name] + " of run " + run), view.element);
  }
  for (const v of Object.keys(views)) {
    const a = el("tab-" + v);
    a.href = link(v);
    if (v === name) a.setAttribute("aria-current", "page");
    else a.removeAttribute("aria-current");
  }
  document.title = titles[name] + (run ? ", " + run : "") + ", Leasehold";
  if (changes && document.activeElement?.closest?.("#tabs")) say(titles[name]);
  badges();
}

function lastRun() {
  try {
    return localStorage.getItem("leasehold-run") || "";
  } catch {
    return "";
  }
}

function keepRun(run) {
  try {
    localStorage.setItem("leasehold-run", run);
  } catch {
    // The next visit begins with the first run.
  }
}

// maxChoices is how many runs there are to choose from: the newest, the living first. Any
// other is found by its address.
const maxChoices = 100;

function drawRuns() {
  const choice = el("run");
  const newest = new Set(model.runs.toSorted((a, b) => !!a.ended - !!b.ended || (a.began < b.began) - (a.began > b.began)).slice(0, maxChoices));
  const shown = model.runs.filter((r) => newest.has(r) || r.run === model.run);
  const more = model.runs.length - shown.length;
  const list = shown.map((r) => r.run + "\n" + !!r.ended).join("\n\n") + "\n\n" + model.run + "\n\n" + more;
  if (choice.dataset.is === list) return;
  choice.dataset.is = list;
  const options = (some) => some.map((r) => h("option", { value: r.run, selected: r.run === model.run }, r.run));
  const over = shown.filter((r) => r.ended);
  choice.replaceChildren(...options(shown.filter((r) => !r.ended)), ...(over.length ? [h("optgroup", { label: "Ended" }, options(over))] : []),
    ...(more ? [h("option", { disabled: true }, more + " more: write run=NAME into the address")] : []));
  choice.value = model.run;
}

const badges = whenDrawn(() => {
  if (!who) return;
  const set = (v, n, alarm) => {
    const b = el("tab-" + v)?.lastChild;
    if (!b) return;
    put(b, n.toLocaleString());
    b.hidden = !n;
    b.classList.toggle("alarm", !!alarm);
  };
  let living = 0;
  for (const a of model.actors) if (a.state !== "ended") living++;
  set("tree", living);
  set("leases", model.leases.size);
  let dead = 0;
  let tasks = 0;
  for (const q of model.queues) {
    dead += q.dead;
    tasks += q.ready + q.in_progress + q.delayed;
  }
  set("queues", dead || tasks, dead);
});

let lostFor;

function drawLink() {
  const words = { live: "Live", connecting: "Connecting", lost: "Connection lost, trying again", asleep: "Paused", out: "Signed out" };
  el("link").dataset.is = model.link;
  put(el("link-text"), words[model.link]);
  clearTimeout(lostFor);
  if (model.link === "lost") lostFor = setTimeout(() => put(el("link-text"), "Connection lost. Run leasehold open again"), 15_000);
  if (model.link === "out") strange("You are signed out. The link lasts twelve hours.");
  else if ((model.link === "live" || model.link === "lost") && who) say(model.link === "live" ? "The page is live" : "The connection is lost");
}

// Changes are drawn with the next picture, however many there are.
const pending = new Set();
const draw = whenDrawn(() => {
  const some = [...pending];
  pending.clear();
  for (const what of some) view?.changed(what);
  badges();
});

model.addEventListener("change", ({ detail }) => {
  if (detail === "link") return drawLink();
  if (detail === "runs") return drawRuns();
  if (detail === "gone") return void model.findRuns().then(turn, () => {});
  pending.add(detail);
  draw();
});

el("run").addEventListener("change", (e) => {
  location.hash = "#/" + name + "?" + new URLSearchParams({ run: e.target.value });
});
el("out").addEventListener("click", async () => {
  await signOut().catch(() => {});
  strange("");
});
addEventListener("hashchange", () => {
  if (new URLSearchParams(location.hash.slice(1)).get("code")) return begin();
  turn();
});
document.querySelector(".skip").addEventListener("click", (e) => {
  e.preventDefault(); // the address says what is looked at
  main.focus();
});
setInterval(() => view && !document.hidden && view.tick(), 1000);
setInterval(() => who && !document.hidden && model.refreshRuns().catch(() => {}), 30_000);
setInterval(() => !document.hidden && model.run === "" && who && model.findRuns().then((runs) => runs.length && turn(), () => {}), 2000);

begin();
