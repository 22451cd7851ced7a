// The HTTP API, as the page that is signed in.

const keyName = "leasehold-key";

let key = read();

function read() {
  try {
    return localStorage.getItem(keyName) || "";
  } catch {
    return "";
  }
}

function keep(value) {
  key = value;
  try {
    if (value) localStorage.setItem(keyName, value);
    else localStorage.removeItem(keyName);
  } catch {
    // Without storage the page is signed in for as long as it is open.
  }
}

// A Refused is an answer that is a problem, in the words of the daemon.
export class Refused extends Error {
  constructor(status, problem) {
    super(problem.detail || problem.title || "the daemon answered " + status);
    this.status = status;
    this.code = problem.code;
  }
}

// Lost is thrown if there was no answer.
export class Lost extends Error {}

async function request(method, path, body, more = {}) {
  const headers = { ...more.headers };
  if (key) headers["Leasehold-Page"] = key;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let answer;
  try {
    answer = await fetch(path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body), signal: more.signal, cache: "no-store", redirect: "error" });
  } catch (err) {
    if (err.name === "AbortError") throw err;
    throw new Lost("the daemon does not answer");
  }
  if (answer.ok) return answer;
  const problem = await answer.json().catch(() => ({}));
  throw new Refused(answer.status, problem);
}

function query(args) {
  const q = new URLSearchParams();
  for (const [name, value] of Object.entries(args || {})) {
    if (value !== undefined && value !== "" && value !== null) q.set(name, value);
  }
  const text = q.toString();
  return text && "?" + text;
}

const runPath = (run) => "/api/v1/runs/" + encodeURIComponent(run);

export async function get(path, args, signal) {
  return (await request("GET", "/api/v1" + path + query(args), undefined, { signal })).json();
}

export async function ofRun(run, path, args, signal) {
  return (await request("GET", runPath(run) + path + query(args), undefined, { signal })).json();
}

export async function act(run, path, body) {
  const answer = await request("POST", runPath(run) + path, body);
  return answer.status === 204 ? {} : answer.json();
}

// signIn shows a one-time code, or a token, and gives who the page is from then on.
export async function signIn(given) {
  const me = await (await request("POST", "/page/session", given)).json();
  keep(me.key);
  return me;
}

// me gives who the page is signed in as; null: it is not.
export async function me() {
  if (!key) return null;
  try {
    return await (await request("GET", "/page/session")).json();
  } catch (err) {
    if (err.status !== 401) throw err;
    keep("");
    return null;
  }
}

export async function signOut() {
  try {
    await request("DELETE", "/page/session");
  } finally {
    keep("");
  }
}

// follow reads the events of a run as they happen, and calls on with each. It returns
// when the stream ends; the caller comes back with the last revision, and misses none.
// EventSource cannot send the key.
export async function follow(run, since, on, signal) {
  const headers = { Accept: "text/event-stream" };
  if (since) headers["Last-Event-ID"] = String(since);
  const answer = await request("GET", runPath(run) + "/events/stream", undefined, { headers, signal });
  on.open();
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    on.heard();
    const frames = (rest + value).split("\n\n");
    rest = frames.pop();
    for (const frame of frames) {
      let kind = "";
      let data = "";
      for (const line of frame.split("\n")) {
        if (line.startsWith("event: ")) kind = line.slice(7);
        else if (line.startsWith("data: ")) data += line.slice(6);
      }
      if (kind === "error") throw new Refused(0, { detail: JSON.parse(data).message, code: JSON.parse(data).code });
      if (data) on.event(JSON.parse(data));
    }
  }
}
