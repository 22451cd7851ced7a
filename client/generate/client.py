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
