"""A study's page behind a server of this machine, with new points while a sweep runs.

Only this machine can reach it: it listens on the loopback address, and refuses requests under any
other name (a page elsewhere that has a name of its own point here is turned away). There are two
addresses, the page and its data; no part of a request becomes the name of a file.
"""

from __future__ import annotations

import hashlib
import json
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock
from urllib.parse import urlsplit

from crosstack.errors import InputError, Problem
from crosstack.explore.store import DATABASE
from crosstack.report.pages.study_page import study_data, study_html
from crosstack.report.pages.study_table import store_table

LOOPBACK = "127.0.0.1"
NAMES = (LOOPBACK, "localhost")
PORTS = range(0, 65536)
HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class StudyServer(ThreadingHTTPServer):
    """Serves the page of a store: ``with StudyServer(path, port) as s: s.serve_forever()``.

    The store is read again for each request after it has changed; port 0 is any that is free.

    Raises
    ------
    InputError
        If there is no store, or the port is taken.
    """

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, store: Path, port: int = 0) -> None:
        if port not in PORTS:
            raise InputError(Problem("port", f"got {port}; allowed: 0 to {PORTS[-1]}."))
        self.store = store
        self._lock = Lock()
        self._seen: tuple[object, ...] | None = None
        self._tag, self._data = "", b""
        store_table(store)  # a store that cannot be read is said at once, not to the browser
        try:
            super().__init__((LOOPBACK, port), _Handler)
        except OSError as error:
            reason = error.strerror or str(error)
            raise InputError(Problem("port", f"{port} cannot be used: {reason}.")) from None

    @property
    def address(self) -> str:
        """Where a browser finds the page."""
        return f"http://{LOOPBACK}:{self.server_address[1]}/"

    def data(self) -> tuple[str, bytes]:
        """Return the points as JSON, and a tag that changes with them."""
        with self._lock:
            seen = _state(self.store)
            if seen != self._seen:
                table = store_table(self.store)
                text = json.dumps(study_data(table), allow_nan=False, separators=(",", ":"))
                self._data = text.encode()
                self._tag = f'"{hashlib.sha256(self._data).hexdigest()[:32]}"'
                self._seen = seen
            return self._tag, self._data

    def hosts(self) -> set[str]:
        """Return what a request may call this server."""
        return {f"{name}:{self.server_address[1]}" for name in NAMES}


def _state(store: Path) -> tuple[object, ...]:
    """Return what changes whenever the store has more rows: its file's size and time."""
    try:
        status = (store / DATABASE).stat()
    except OSError:  # it is gone, perhaps for a moment
        return ()
    return status.st_size, status.st_mtime_ns


class _Handler(BaseHTTPRequestHandler):
    """Answers GET and HEAD of the page and of its data."""

    server: StudyServer
    server_version = "crosstack"
    sys_version = ""
    timeout = 30

    def do_GET(self) -> None:
        """Answer with a body."""
        self._answer(body=True)

    def do_HEAD(self) -> None:
        """Answer without one."""
        self._answer(body=False)

    def log_message(self, format: str, *arguments: object) -> None:
        """Say nothing; the terminal belongs to the sweep."""

    def _found(self) -> tuple[HTTPStatus, str, bytes, str]:
        """Return the status, type and content of what is asked for, and its tag."""
        if self.headers.get("Host", "") not in self.server.hosts():
            return HTTPStatus.FORBIDDEN, "text/plain", b"only for this machine\n", ""
        try:
            path = urlsplit(self.path).path
        except ValueError:  # half an address in brackets
            return HTTPStatus.BAD_REQUEST, "text/plain", b"no address\n", ""
        if path == "/":  # the page as the store is now; later points come as data
            page = study_html(store_table(self.server.store), live=True).encode()
            return HTTPStatus.OK, "text/html; charset=utf-8", page, ""
        if path != "/data.json":
            return HTTPStatus.NOT_FOUND, "text/plain", b"no such page\n", ""
        tag, data = self.server.data()
        if self.headers.get("If-None-Match") == tag:
            return HTTPStatus.NOT_MODIFIED, "application/json", b"", tag
        return HTTPStatus.OK, "application/json", data, tag

    def _answer(self, *, body: bool) -> None:
        try:
            status, kind, content, tag = self._found()
        except InputError as error:  # the store is gone, perhaps for a moment
            status, kind, tag = HTTPStatus.SERVICE_UNAVAILABLE, "text/plain", ""
            content = f"{error}\n".encode()
        self.send_response(status)
        own = {"Content-Type": kind, "Content-Length": str(len(content))}
        for name, value in (own | HEADERS | ({"ETag": tag} if tag else {})).items():
            self.send_header(name, value)
        self.end_headers()
        if body:
            self.wfile.write(content)
