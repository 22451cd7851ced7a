"""A thin client of Leasehold's HTTP API. It needs Python 3.8 and nothing else.

    with Client("http://127.0.0.1:7711", token) as c:
        lease = c.run_lease_acquire(key="deploy", wait_secs=30)
        ...
        c.run_lease_release(lease["lease_id"])

Servers are http://host:port, https://host or unix:///path of a daemon's socket. A
refusal is a Refusal, whose code says what happened. Nobody renews a lease by itself:
call lease_renew at a third of its ttl. A client is used by one thread at a time. A fork
acts in the session of its parent, and its close does not end it. A call whose connection
breaks is sent once more. A call that is sent again with the same call_key has one effect.
One that ends by a time-out or by Ctrl-C is cancelled, so that it leaves nothing behind.

Generated from the OpenAPI document by client/generate: do not edit.
"""

import http.client
import json
import os
import socket
import urllib.parse
import uuid
from typing import Any


class Refusal(Exception):
    """The server refused: code says what, status is HTTP's, data is the whole answer."""

    def __init__(self, status, data):
        super().__init__(data.get("message") or data.get("detail") or data.get("title") or f"HTTP status {status}")
        self.status, self.code, self.data = status, data.get("code", ""), data


class _Socket(http.client.HTTPConnection):
    def __init__(self, path, timeout):
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def _part(text):
    return _names(str(text), [str(text)])


def _path(text):
    return _names(str(text), str(text).lstrip("/").split("/"))


def _names(text, names):
    if not text or {".", ".."} & set(names):  # it would be the path of another call
        raise ValueError(f"{text!r} must not be empty, or contain . or .. as a name")
    return "/".join(urllib.parse.quote(name, safe="") for name in names)


def _unchanged(version):
    return {"If-None-Match": "*"} if version == 0 else {"If-Match": f'"{version}"'}


def _given(arguments):
    return {k: v for k, v in arguments.items() if v is not None}


class Client:
    """One session. What it is granted ends with close, or, if its process dies before, by its ttl."""

    def __init__(self, url, token, timeout: float = 65):
        self._url, self._token, self._timeout = urllib.parse.urlsplit(url), token.strip(), timeout
        if len(self._token.splitlines()) > 1:
            raise ValueError("the token has several lines: leasehold actor add prints it on the last one")
        if not (self._url.path if self._url.scheme == "unix" else self._url.scheme in ("http", "https") and self._url.hostname):
            raise ValueError(f"{url!r} must be http://host:port, https://host or unix:///path")
        self._session = self._conn = None
        self._process = os.getpid()

    def __enter__(self):
        self._session, self._opener = self.session_open()["session"], os.getpid()
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        """End the session, and give back what it holds."""
        try:
            if self._session and self._opener == os.getpid():  # a fork uses the session of its parent
                self.session_end()
        except Refusal as e:
            if e.status not in (401, 404):  # it has ended already
                raise
        finally:
            self._session = None
            self._drop()

    def _drop(self):
        if self._conn:
            self._conn.close()
        self._conn = None

    def _cancel(self, key):
        # Nobody gets the answer of this call, and what it was granted would last for its ttl.
        timeout, self._timeout = self._timeout, 5
        try:
            self.call_cancel(key)
        except (OSError, ValueError, http.client.HTTPException, Refusal):
            pass
        finally:
            self._timeout = timeout
            self._drop()

    def _connect(self):
        u = self._url
        if u.scheme == "unix":
            return _Socket(urllib.parse.unquote(u.path), self._timeout)
        kind = http.client.HTTPSConnection if u.scheme == "https" else http.client.HTTPConnection
        return kind(u.hostname or "", u.port, timeout=self._timeout)

    # An answer is Any for a type checker, which would infer that each may be None.
    def _call(self, method, path, query, body, key, condition=None) -> Any:
        if self._url.scheme != "unix":
            path = self._url.path.rstrip("/") + path
        given = {k: v if isinstance(v, str) else json.dumps(v) for k, v in _given(query).items()}
        if given:
            path += "?" + urllib.parse.urlencode(given)
        headers = {"Authorization": "Bearer " + self._token, "Accept": "application/json", **(condition or {})}
        if self._session:
            headers["Leasehold-Session"] = self._session
        if method != "GET":  # so that it can be sent again
            headers["Idempotency-Key"] = key or str(uuid.uuid4())
        data = None
        if body is not None:
            data = json.dumps(body).encode()
            headers["Content-Type"] = "application/json"
        if self._process != os.getpid():  # a fork would read its parent's answers
            self._process, self._conn = os.getpid(), None
        last = False
        while True:
            try:
                self._conn = self._conn or self._connect()
                try:
                    self._conn.request(method, path, data, headers)
                except BrokenPipeError:
                    pass  # a body that is too large is refused before it was read
                answer = self._conn.getresponse()
                text = answer.read()
                break
            except BaseException as e:
                self._drop()
                broken = isinstance(e, (OSError, http.client.HTTPException)) and not isinstance(e, socket.timeout)
                if last or not broken:
                    if method == "POST":
                        self._cancel(headers["Idempotency-Key"])
                    raise
                last = True
        try:
            answered = json.loads(text) if text else None
        except ValueError:
            if answer.status < 300:
                raise
            answered = None  # a proxy's refusal need not be JSON
        if answer.status >= 300 or answer.status == 202:
            raise Refusal(answer.status, answered if isinstance(answered, dict) else {})
        return answered
