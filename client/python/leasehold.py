"""A thin client of Leasehold's HTTP API. It needs Python 3.8 and nothing else.

    with Client("http://127.0.0.1:7711", token) as c:
        lease = c.run_lease_acquire(key="deploy", wait_secs=30)
        ...
        c.run_lease_release(lease["lease_id"])

Without a with statement, open begins the session and close ends it. Servers are
http://localhost:port, https://host or unix:///path of a daemon's socket. A refusal is a
Refusal, whose code says what happened. Nobody renews a lease by itself: call
lease_renew at a third of its TTL, for instance in a thread: threads may share a client.
All calls of a client are one holder, which gets its own lease again ("reentrant": True).
To have two threads exclude one another, give each a name of its own: as_="one".
A fork acts in the session of its parent, and its close does not end it.

A call whose connection breaks, or that the server cannot answer now, is sent again until
outage (seconds) is over. A call that is sent again with the same call_key has one effect.
A call that ends by a time-out or by Ctrl-C is cancelled: what it was granted is given back,
and what it enqueued is removed. Its other effects stay, such as what kv_set wrote. All of
its effects stay if the server is not reached; the text of the time-out says so. If no
server answers, or only a proxy does, with a status from 500 on, the exception is Unanswered
if the call may have taken effect, and otherwise that of the last connection. If the session
has ended, as after 15 minutes without a call, the next call opens another, and what was
held before is lost.

Generated from the OpenAPI document by client/generate: do not edit.
"""

import http.client
import json
import os
import random
import re
import socket
import threading
import time
import urllib.parse
import uuid
from typing import Any


class Refusal(Exception):
    """The server refused: code says what, status is HTTP's, data is the whole answer."""

    def __init__(self, status, data):
        super().__init__(data.get("message") or data.get("detail") or data.get("title") or f"HTTP status {status}")
        self.status, self.code, self.data = status, data.get("code", ""), data

    def __reduce__(self):  # so that a pool of processes can hand it to its parent
        return type(self), (self.status, self.data)


class Unanswered(ConnectionError):
    """A call was sent, and no server has answered: it may have taken effect."""


class _Socket(http.client.HTTPConnection):
    def __init__(self, path, timeout):
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


_UNSURE = "; the call may have taken effect, so look before you repeat it"
_LAST = 5  # how long, in seconds, the last calls of somebody who leaves may take


def _part(text):
    return _names(text, [str(text)])


def _path(text):
    return _names(text, str(text).lstrip("/").split("/"))


def _names(text, names):
    if text in (None, "") or {".", ".."} & set(names):  # it would be the path of another call
        raise ValueError(f"{text!r} must not be empty, or contain . or .. as a name")
    return "/".join(urllib.parse.quote(name, safe="") for name in names)


def _object(text):
    try:
        answered = json.loads(text)
    except ValueError:
        return {}  # a proxy's refusal need not be JSON
    return answered if isinstance(answered, dict) else {}


def _unchanged(version):
    return {"If-None-Match": "*"} if version == 0 else {"If-Match": f'"{version}"'}


def _given(arguments):
    return {k: v for k, v in arguments.items() if v is not None}


class Client:
    """One session. What it is granted ends with close, or, if its process dies before, by its TTL."""

    def __init__(self, url, token, timeout: float = 65, outage: float = 30):
        self._url, self._token, self._timeout, self._outage = urllib.parse.urlsplit(url), (token or "").strip(), timeout, outage
        if len(self._token.splitlines()) > 1:
            raise ValueError("the token has several lines: leasehold actor add prints it on the last one")
        if not (self._url.path if self._url.scheme == "unix" else self._url.scheme in ("http", "https") and self._url.hostname):
            raise ValueError(f"{url!r} must be http://localhost:port, https://host or unix:///path")
        if self._url.scheme == "http" and not re.fullmatch(r"localhost|127(\.\d+){3}|::1", self._url.hostname or ""):
            raise ValueError(f"{url!r} would show the token to everybody on the way: use https://")
        self._session = None
        self._opening = threading.Lock()
        self._idle, self._process = [], os.getpid()  # connections that no call uses

    def __enter__(self):
        return self.open()

    def __exit__(self, *_):
        self.close()

    def open(self):
        """Open the session, unless it is open, and return the client. A with statement does it."""
        self._open(None)
        return self

    def close(self):
        """End the session, and give back what it holds."""
        try:
            if self._session and self._opener == os.getpid():  # a fork uses the session of its parent
                self._call("DELETE", "/api/v1/session", {}, None, None, limits=(_LAST, _LAST))
        except Refusal as e:
            if e.status not in (401, 404):  # it has ended already
                raise
        finally:
            self._session = None
            self._drop()

    def _open(self, ended):
        with self._opening:
            if self._session == ended:  # otherwise another thread was faster
                self._session, self._opener = self.session_open()["session"], os.getpid()

    def _drop(self):
        idle, self._idle = self._idle, []
        for conn in idle:
            conn.close()

    def _cancel(self, key):
        # Nobody gets the answer of this call, and what it was granted would last for its TTL.
        try:
            self._call("DELETE", "/api/v1/calls/" + _part(key), {}, None, None, limits=(_LAST, 0))
        except (OSError, ValueError, http.client.HTTPException, Refusal):
            pass

    def _connect(self, timeout):
        if self._process != os.getpid():  # a fork would read its parent's answers
            self._process, self._idle = os.getpid(), []
        try:
            conn = self._idle.pop()
            conn.sock.settimeout(timeout)
            return conn
        except IndexError:
            pass
        u = self._url
        if u.scheme == "unix":
            conn = _Socket(urllib.parse.unquote(u.path), timeout)
        else:
            kind = http.client.HTTPSConnection if u.scheme == "https" else http.client.HTTPConnection
            conn = kind(u.hostname or "", u.port, timeout=timeout)
        conn.connect()
        return conn

    def _answer(self, method, path, data, headers, timeout, outage) -> Any:
        failures, sent, unsure, give_up = 0, False, False, 0.0
        while True:
            failure = conn = answer = text = refused = None
            try:
                conn = self._connect(timeout)
                sent = True
                try:
                    conn.request(method, path, data, headers)
                except BrokenPipeError:
                    pass  # a body that is too large is refused before it was read
                answer = conn.getresponse()
                text = answer.read()
                if conn.sock:  # which it has if the server keeps it open
                    self._idle.append(conn)
                if answer.status < 500:
                    return answer, text
                refused = Refusal(answer.status, _object(text))
                if refused.code and answer.status != 503:
                    return answer, text
                # Without a code it is a proxy's, which need not know what the server did.
                unsure = unsure or not refused.code
            except BaseException as e:
                if conn:
                    conn.close()
                self._drop()  # they may have broken, too
                passing = isinstance(e, (OSError, http.client.HTTPException)) and not isinstance(e, (socket.timeout, ValueError))
                if isinstance(e, socket.timeout) and sent and method != "GET":
                    raise socket.timeout(f"no answer within {timeout} s" + _UNSURE) from e
                if not passing:  # a wrong certificate is a ValueError, too
                    raise
                failure, unsure = e, unsure or sent
            failures += 1
            if failures == 1:  # the call may have waited for long before
                give_up = time.monotonic() + outage
            # The first connection to break may have been that of a daemon that has ended since.
            if time.monotonic() >= give_up and (failures > 1 or not failure):
                if unsure and method != "GET":
                    raise Unanswered(f"no server answers: {failure or refused}" + _UNSURE) from failure
                if failure is None:
                    return answer, text
                raise failure
            if failures > 1 or not failure:
                time.sleep(random.uniform(0.5, 1) * min(0.02 * 2 ** min(failures, 6), 1))

    # An answer is Any for a type checker, which would infer that each may be None.
    def _call(self, method, path, query, body, key, condition=None, limits=None) -> Any:
        route = path
        if self._url.scheme != "unix":
            path = self._url.path.rstrip("/") + path
        given = {k: v if isinstance(v, str) else json.dumps(v) for k, v in _given(query).items()}
        if given:
            path += "?" + urllib.parse.urlencode(given)
        headers = {"Authorization": "Bearer " + self._token, "Accept": "application/json", **(condition or {})}
        session = self._session
        if session:
            headers["Leasehold-Session"] = session
        if method != "GET":  # so that it can be sent again
            headers["Idempotency-Key"] = key or str(uuid.uuid4())
        data = None
        if body is not None:
            data = json.dumps(body).encode()
            headers["Content-Type"] = "application/json"
        try:
            answer, text = self._answer(method, path, data, headers, *limits or (self._timeout, self._outage))
        except BaseException:
            if method == "POST":
                self._cancel(headers["Idempotency-Key"])
            raise
        if session and not limits and answer.headers.get("Leasehold-Session") == "ended" and route != "/api/v1/session":
            self._open(session)
            return self._call(method, route, query, body, headers.get("Idempotency-Key"), condition, (self._timeout, self._outage))
        if answer.status >= 300 or answer.status == 202:
            raise Refusal(answer.status, _object(text))
        return json.loads(text) if text else None

    def actor_list(self, *, after=None, limit=None, call_key=None):
        "See who works with you."
        return self._call("GET", f"/api/v1/actors", _given({"after": after, "limit": limit}), None, call_key)

    def actor_wait(self, *, wait_secs, actors, mode=None, call_key=None):
        "Wait for actors to finish."
        return self._call("POST", f"/api/v1/actors/wait", {}, {"actors": actors, "wait_secs": wait_secs, **_given({"mode": mode})}, call_key)

    def actor_status(self, actor, *, call_key=None):
        "See the status of an actor."
        return self._call("GET", f"/api/v1/actors/{_part(actor)}", {}, None, call_key)

    def actor_cancel(self, actor, *, reason, call_key=None):
        "Stop an actor."
        return self._call("POST", f"/api/v1/actors/{_part(actor)}/cancel", {}, {"reason": reason}, call_key)

    def call_cancel(self, key, *, call_key=None):
        "Cancel a call by its Idempotency-Key."
        return self._call("DELETE", f"/api/v1/calls/{_part(key)}", {}, None, call_key)

    def lease_acquire(self, *, name, as_=None, keep_alive=None, mode=None, reason=None, request_id=None, ticket=None, ttl_secs=None, wait_secs=None, call_key=None):
        "Lease something of your layer."
        return self._call("POST", f"/api/v1/layer/leases", {}, {"name": name, **_given({"as": as_, "keep_alive": keep_alive, "mode": mode, "reason": reason, "request_id": request_id, "ticket": ticket, "ttl_secs": ttl_secs, "wait_secs": wait_secs})}, call_key)

    def lease_list(self, *, scope=None, prefix=None, after=None, limit=None, call_key=None):
        "See who holds what."
        return self._call("GET", f"/api/v1/leases", _given({"scope": scope, "prefix": prefix, "after": after, "limit": limit}), None, call_key)

    def run_lease_acquire(self, *, as_=None, keep_alive=None, key=None, mode=None, path=None, reason=None, request_id=None, ticket=None, ttl_secs=None, wait_secs=None, call_key=None):
        "Lease something of the run."
        return self._call("POST", f"/api/v1/leases", {}, _given({"as": as_, "keep_alive": keep_alive, "key": key, "mode": mode, "path": path, "reason": reason, "request_id": request_id, "ticket": ticket, "ttl_secs": ttl_secs, "wait_secs": wait_secs}), call_key)

    def lease_check(self, *, token, scope, key=None, path=None, call_key=None):
        "Check a token."
        return self._call("POST", f"/api/v1/leases/check", {}, {"scope": scope, "token": token, **_given({"key": key, "path": path})}, call_key)

    def lease_get(self, *, scope, key=None, path=None, call_key=None):
        "See a lease."
        return self._call("GET", f"/api/v1/leases/held", {"scope": scope, **_given({"key": key, "path": path})}, None, call_key)

    def lease_history(self, *, scope, key=None, path=None, since=None, limit=None, call_key=None):
        "See what happened to a lease."
        return self._call("GET", f"/api/v1/leases/history", {"scope": scope, **_given({"key": key, "path": path, "since": since, "limit": limit})}, None, call_key)

    def lease_acquire_many(self, *, leases, as_=None, keep_alive=None, reason=None, request_id=None, ticket=None, ttl_secs=None, wait_secs=None, call_key=None):
        "Take several leases at once."
        return self._call("POST", f"/api/v1/leases/many", {}, {"leases": leases, **_given({"as": as_, "keep_alive": keep_alive, "reason": reason, "request_id": request_id, "ticket": ticket, "ttl_secs": ttl_secs, "wait_secs": wait_secs})}, call_key)

    def lease_revoke(self, *, scope, reason, holder=None, key=None, layer=None, path=None, call_key=None):
        "Take a lease away."
        return self._call("POST", f"/api/v1/leases/revoke", {}, {"reason": reason, "scope": scope, **_given({"holder": holder, "key": key, "layer": layer, "path": path})}, call_key)

    def run_lease_release(self, lease_id, *, call_key=None):
        "Release a lease of the run."
        return self._call("DELETE", f"/api/v1/leases/{_part(lease_id)}", {}, None, call_key)

    def lease_get_by_id(self, lease_id, *, call_key=None):
        "See a lease of yours."
        return self._call("GET", f"/api/v1/leases/{_part(lease_id)}", {}, None, call_key)

    def lease_history_by_id(self, lease_id, *, since=None, limit=None, call_key=None):
        "See what happened to a lease of yours."
        return self._call("GET", f"/api/v1/leases/{_part(lease_id)}/history", _given({"since": since, "limit": limit}), None, call_key)

    def lease_transfer(self, lease_id, *, to, call_key=None):
        "Offer a lease to another actor."
        return self._call("POST", f"/api/v1/leases/{_part(lease_id)}/offer", {}, {"to": to}, call_key)

    def lease_renew(self, lease_id, *, as_=None, ttl_secs=None, call_key=None):
        "Keep a lease for longer."
        return self._call("POST", f"/api/v1/leases/{_part(lease_id)}/renew", {}, _given({"as": as_, "ttl_secs": ttl_secs}), call_key)

    def actor_message(self, *, to, text, reply_to=None, call_key=None):
        "Write to another agent."
        return self._call("POST", f"/api/v1/messages", {}, {"text": text, "to": to, **_given({"reply_to": reply_to})}, call_key)

    def actor_inbox(self, *, wait_secs=None, call_key=None):
        "Read your messages."
        return self._call("POST", f"/api/v1/messages/next", {}, _given({"wait_secs": wait_secs}), call_key)

    def queue_stats(self, *, queue=None, after=None, limit=None, call_key=None):
        "See the queues."
        return self._call("GET", f"/api/v1/queues", _given({"queue": queue, "after": after, "limit": limit}), None, call_key)

    def queue_dead(self, queue, *, after=None, limit=None, call_key=None):
        "See dead tasks."
        return self._call("GET", f"/api/v1/queues/{_part(queue)}/dead", _given({"after": after, "limit": limit}), None, call_key)

    def queue_redrive(self, queue, *, task_ids=None, call_key=None):
        "Try dead tasks again."
        return self._call("POST", f"/api/v1/queues/{_part(queue)}/redrive", {}, _given({"task_ids": task_ids}), call_key)

    def task_list(self, queue, *, state=None, after=None, limit=None, call_key=None):
        "See tasks."
        return self._call("GET", f"/api/v1/queues/{_part(queue)}/tasks", _given({"state": state, "after": after, "limit": limit}), None, call_key)

    def task_enqueue(self, queue, *, payload, delay_secs=None, idempotency_key=None, max_attempts=None, priority=None, require_leases=None, require_mode=None, run_at=None, call_key=None):
        "Put a task in a queue."
        return self._call("POST", f"/api/v1/queues/{_part(queue)}/tasks", {}, {"payload": payload, **_given({"delay_secs": delay_secs, "idempotency_key": idempotency_key, "max_attempts": max_attempts, "priority": priority, "require_leases": require_leases, "require_mode": require_mode, "run_at": run_at})}, call_key)

    def actor_report(self, *, result, call_key=None):
        "Report your result."
        return self._call("POST", f"/api/v1/report", {}, {"result": result}, call_key)

    def operator_tree(self, *, run=None, after=None, limit=None, actors=None, ended=None, call_key=None):
        "See runs and their actors."
        return self._call("GET", f"/api/v1/runs", _given({"run": run, "after": after, "limit": limit, "actors": actors, "ended": ended}), None, call_key)

    def operator_run_remove(self, run, *, call_key=None):
        "Delete a run."
        return self._call("DELETE", f"/api/v1/runs/{_part(run)}", {}, None, call_key)

    def operator_run(self, run, *, after=None, limit=None, actors=None, ended=None, call_key=None):
        "See runs and their actors."
        return self._call("GET", f"/api/v1/runs/{_part(run)}", _given({"after": after, "limit": limit, "actors": actors, "ended": ended}), None, call_key)

    def operator_actor_add(self, run, *, role, name, max_depth=None, parent=None, read_down=None, token_ttl_secs=None, call_key=None):
        "Make an actor."
        return self._call("POST", f"/api/v1/runs/{_part(run)}/actors", {}, {"name": name, "role": role, **_given({"max_depth": max_depth, "parent": parent, "read_down": read_down, "token_ttl_secs": token_ttl_secs})}, call_key)

    def operator_actor_end(self, run, *, path, reason=None, call_key=None):
        "End an actor."
        return self._call("POST", f"/api/v1/runs/{_part(run)}/actors/end", {}, {"path": path, **_given({"reason": reason})}, call_key)

    def operator_actor_token(self, run, *, path, token_ttl_secs=None, call_key=None):
        "Issue a new token."
        return self._call("POST", f"/api/v1/runs/{_part(run)}/actors/token", {}, {"path": path, **_given({"token_ttl_secs": token_ttl_secs})}, call_key)

    def operator_events(self, run, *, since=None, back=None, wait_secs=None, limit=None, key=None, scope=None, layer=None, actor=None, call_key=None):
        "See what happened in a run."
        return self._call("GET", f"/api/v1/runs/{_part(run)}/events", _given({"since": since, "back": back, "wait_secs": wait_secs, "limit": limit, "key": key, "scope": scope, "layer": layer, "actor": actor}), None, call_key)

    def operator_leases(self, run, *, scope=None, prefix=None, after=None, limit=None, layer=None, call_key=None):
        "See the leases of a run."
        return self._call("GET", f"/api/v1/runs/{_part(run)}/leases", _given({"scope": scope, "prefix": prefix, "after": after, "limit": limit, "layer": layer}), None, call_key)

    def operator_lease_check(self, run, *, token, scope, key=None, layer=None, path=None, call_key=None):
        "Check a token."
        return self._call("POST", f"/api/v1/runs/{_part(run)}/leases/check", {}, {"scope": scope, "token": token, **_given({"key": key, "layer": layer, "path": path})}, call_key)

    def operator_lease_revoke(self, run, *, scope, reason, holder=None, key=None, layer=None, path=None, call_key=None):
        "Take a lease away."
        return self._call("POST", f"/api/v1/runs/{_part(run)}/leases/revoke", {}, {"reason": reason, "scope": scope, **_given({"holder": holder, "key": key, "layer": layer, "path": path})}, call_key)

    def operator_logs(self, run, *, path, lines=None, call_key=None):
        "See what an agent writes."
        return self._call("GET", f"/api/v1/runs/{_part(run)}/logs", {"path": path, **_given({"lines": lines})}, None, call_key)

    def operator_queue_stats(self, run, *, queue=None, after=None, limit=None, call_key=None):
        "See the queues of a run."
        return self._call("GET", f"/api/v1/runs/{_part(run)}/queues", _given({"queue": queue, "after": after, "limit": limit}), None, call_key)

    def operator_queue_pause(self, run, queue, *, reason, call_key=None):
        "Pause a queue of a run."
        return self._call("POST", f"/api/v1/runs/{_part(run)}/queues/{_part(queue)}/pause", {}, {"reason": reason}, call_key)

    def operator_queue_redrive(self, run, queue, *, task_ids=None, call_key=None):
        "Try dead tasks of a run again."
        return self._call("POST", f"/api/v1/runs/{_part(run)}/queues/{_part(queue)}/redrive", {}, _given({"task_ids": task_ids}), call_key)

    def operator_queue_resume(self, run, queue, *, call_key=None):
        "Resume a queue of a run."
        return self._call("POST", f"/api/v1/runs/{_part(run)}/queues/{_part(queue)}/resume", {}, None, call_key)

    def operator_kv(self, run, *, layer=None, glob=None, after=None, limit=None, values=None, call_key=None):
        "See the store of a layer."
        return self._call("GET", f"/api/v1/runs/{_part(run)}/store", _given({"layer": layer, "glob": glob, "after": after, "limit": limit, "values": values}), None, call_key)

    def operator_queue_list(self, run, *, queue=None, state=None, limit=None, call_key=None):
        "See the tasks of a run."
        return self._call("GET", f"/api/v1/runs/{_part(run)}/tasks", _given({"queue": queue, "state": state, "limit": limit}), None, call_key)

    def operator_task(self, run, task_id, *, call_key=None):
        "See a task of a run."
        return self._call("GET", f"/api/v1/runs/{_part(run)}/tasks/{_part(task_id)}", {}, None, call_key)

    def operator_task_cancel(self, run, task_id, *, call_key=None):
        "Cancel a task of a run."
        return self._call("POST", f"/api/v1/runs/{_part(run)}/tasks/{_part(task_id)}/cancel", {}, None, call_key)

    def session_end(self, *, call_key=None):
        "End the session, and give back what it holds."
        return self._call("DELETE", f"/api/v1/session", {}, None, call_key)

    def session_get(self, *, call_key=None):
        "See the session."
        return self._call("GET", f"/api/v1/session", {}, None, call_key)

    def session_heartbeat(self, *, call_key=None):
        "Keep the session, as every request does."
        return self._call("POST", f"/api/v1/session/heartbeat", {}, None, call_key)

    def session_open(self, *, call_key=None):
        "Open a session."
        return self._call("POST", f"/api/v1/sessions", {}, None, call_key)

    def kv_list(self, *, glob, after=None, limit=None, values=None, layer=None, call_key=None):
        "List entries."
        return self._call("GET", f"/api/v1/store", {"glob": glob, **_given({"after": after, "limit": limit, "values": values, "layer": layer})}, None, call_key)

    def kv_delete(self, path, *, override=None, layer=None, require_leases=None, require_mode=None, expected_version=None, call_key=None):
        "Delete an entry."
        return self._call("DELETE", f"/api/v1/store/{_path(path)}", _given({"override": override, "layer": layer, "require_leases": require_leases, "require_mode": require_mode}), None, call_key, _unchanged(expected_version) if expected_version is not None else None)

    def kv_get(self, path, *, layer=None, call_key=None):
        "Read an entry."
        return self._call("GET", f"/api/v1/store/{_path(path)}", _given({"layer": layer}), None, call_key)

    def kv_set(self, path, *, value, layer=None, override=None, require_leases=None, require_mode=None, call_key=None):
        "Write an entry."
        return self._call("PUT", f"/api/v1/store/{_path(path)}", {}, {"value": value, **_given({"layer": layer, "override": override, "require_leases": require_leases, "require_mode": require_mode})}, call_key)

    def kv_cas(self, path, *, expected_version, value, layer=None, override=None, require_leases=None, require_mode=None, call_key=None):
        "Write an entry if it is unchanged."
        return self._call("PUT", f"/api/v1/store/{_path(path)}", {}, {"value": value, **_given({"layer": layer, "override": override, "require_leases": require_leases, "require_mode": require_mode})}, call_key, _unchanged(expected_version))

    def task_enqueue_many(self, *, tasks, require_leases=None, require_mode=None, call_key=None):
        "Put several tasks in queues."
        return self._call("POST", f"/api/v1/tasks/many", {}, {"tasks": tasks, **_given({"require_leases": require_leases, "require_mode": require_mode})}, call_key)

    def task_claim(self, *, ttl_secs, queues, as_=None, count=None, request_id=None, wait_secs=None, call_key=None):
        "Take tasks from a queue."
        return self._call("POST", f"/api/v1/tasks/next", {}, {"queues": queues, "ttl_secs": ttl_secs, **_given({"as": as_, "count": count, "request_id": request_id, "wait_secs": wait_secs})}, call_key)

    def task_submit_many(self, *, tasks, require_leases=None, require_mode=None, call_key=None):
        "Finish several tasks."
        return self._call("POST", f"/api/v1/tasks/submit", {}, {"tasks": tasks, **_given({"require_leases": require_leases, "require_mode": require_mode})}, call_key)

    def task_get(self, task_id, *, call_key=None):
        "See a task."
        return self._call("GET", f"/api/v1/tasks/{_part(task_id)}", {}, None, call_key)

    def task_abandon(self, task_id, *, token, call_key=None):
        "Give a task back."
        return self._call("POST", f"/api/v1/tasks/{_part(task_id)}/abandon", {}, {"token": token}, call_key)

    def task_cancel(self, task_id, *, call_key=None):
        "Cancel a task."
        return self._call("POST", f"/api/v1/tasks/{_part(task_id)}/cancel", {}, None, call_key)

    def task_complete(self, task_id, *, token, require_leases=None, require_mode=None, result=None, call_key=None):
        "Finish a task."
        return self._call("POST", f"/api/v1/tasks/{_part(task_id)}/complete", {}, {"token": token, **_given({"require_leases": require_leases, "require_mode": require_mode, "result": result})}, call_key)

    def task_fail(self, task_id, *, token, error=None, require_leases=None, require_mode=None, call_key=None):
        "Finish a task."
        return self._call("POST", f"/api/v1/tasks/{_part(task_id)}/fail", {}, {"token": token, **_given({"error": error, "require_leases": require_leases, "require_mode": require_mode})}, call_key)

    def task_heartbeat(self, task_id, *, token, as_=None, ttl_secs=None, call_key=None):
        "Keep a task for longer."
        return self._call("POST", f"/api/v1/tasks/{_part(task_id)}/heartbeat", {}, {"token": token, **_given({"as": as_, "ttl_secs": ttl_secs})}, call_key)

    def task_nack(self, task_id, *, token, reason, delay_secs=None, call_key=None):
        "Have a task tried again."
        return self._call("POST", f"/api/v1/tasks/{_part(task_id)}/nack", {}, {"reason": reason, "token": token, **_given({"delay_secs": delay_secs})}, call_key)

    def task_result(self, task_id, *, wait_secs=None, call_key=None):
        "Wait for a task."
        return self._call("GET", f"/api/v1/tasks/{_part(task_id)}/result", _given({"wait_secs": wait_secs}), None, call_key)

    def operator_token_list(self, *, call_key=None):
        "See the tokens of operators and readers."
        return self._call("GET", f"/api/v1/tokens", {}, None, call_key)

    def operator_token_issue(self, *, role, name, ttl_secs=None, call_key=None):
        "Issue a token."
        return self._call("POST", f"/api/v1/tokens", {}, {"name": name, "role": role, **_given({"ttl_secs": ttl_secs})}, call_key)

    def operator_token_revoke(self, name, *, call_key=None):
        "Revoke a token."
        return self._call("DELETE", f"/api/v1/tokens/{_part(name)}", {}, None, call_key)

    def operator_token_rotate(self, name, *, call_key=None):
        "Replace a token."
        return self._call("POST", f"/api/v1/tokens/{_part(name)}/rotate", {}, None, call_key)
