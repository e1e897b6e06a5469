"""Serves the page and its data over HTTP. Nothing can be changed through it."""

from __future__ import annotations

import errno
import gzip
import ipaddress
import json
import socket
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

from pathloom.errors import bad_input, reason
from pathloom.show.answers import answer, answers_of_result
from pathloom.show.page_files import page_file
from pathloom.show.results import Results
from pathloom.show.sources import REPORT

STATIC = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/app.js": ("app.js", "text/javascript; charset=utf-8"),
    "/app.css": ("app.css", "text/css; charset=utf-8"),
}
LEAST_PACKED = 4096
"""Answers of more bytes than this are compressed."""
_POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_REPORT_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; frame-ancestors 'none'"
"""The report is one file, with its styles and pictures inside. It has no script."""


class PageServer(ThreadingHTTPServer):
    """Serves one result."""

    daemon_threads = True

    def __init__(self, results: Results, host: str, port: int) -> None:
        """Starts to listen. Raises `PathloomError` if that is not possible."""
        self.answers, self.report = answers_of_result(results), results.report
        self.static = {path: (page_file(name, "results").encode(), kind) for path, (name, kind) in STATIC.items()}
        self.loopback = is_loopback(host)
        try:
            super().__init__((host, port), _Handler)
        except (OSError, OverflowError, UnicodeError) as error:
            why = reason(error)
            way_out = "name another port with --port, or 0 for any"
            nowhere = getattr(error, "errno", None) == errno.EADDRNOTAVAIL
            if nowhere or isinstance(error, UnicodeError | socket.gaierror):
                way_out = "name an address of this machine with --listen, such as 127.0.0.1"
            raise bad_input(f"cannot listen on {host}:{port}: {why}; {way_out}") from None

    @property
    def url(self) -> str:
        """Address of the page."""
        host, port = str(self.server_address[0]), self.server_address[1]
        return f"http://{host}:{port}/"

    def handle_error(self, request: object, client_address: object) -> None:
        """Does nothing: a browser that disconnects is not an error."""


class _Handler(BaseHTTPRequestHandler):
    server: PageServer
    protocol_version = "HTTP/1.1"
    timeout = 60

    def setup(self) -> None:
        super().setup()
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def do_GET(self) -> None:
        """Answers a request."""
        parts = urlsplit(self.path)
        if self.server.loopback and not self._is_for_us():
            return self._problem(403, "this page is for this machine alone; open it under 127.0.0.1 or localhost")
        if parts.path in self.server.static:
            content, kind = self.server.static[parts.path]
            return self._send(200, content, kind)
        if parts.path == f"/{REPORT}" and self.server.report is not None:
            return self._send(200, self.server.report, "text/html; charset=utf-8", _REPORT_POLICY)
        status, value = answer(self.server.answers, self.path)
        text = json.dumps(value, separators=(",", ":"), allow_nan=False)
        return self._send(status, text.encode(), "application/json" if status == 200 else "application/problem+json")

    do_HEAD = do_GET  # noqa: N815

    def _is_for_us(self) -> bool:
        """Returns whether the request names the server by a loopback address. So other sites cannot read results."""
        host = urlsplit(f"//{self.headers.get('Host', '')}").hostname or ""
        return host == "localhost" or is_loopback(host)

    def _problem(self, status: int, what: str) -> None:
        self._send(status, json.dumps({"status": status, "detail": what}).encode(), "application/problem+json")

    def _send(self, status: int, content: bytes, kind: str, policy: str = _POLICY) -> None:
        packed = len(content) > LEAST_PACKED and "gzip" in self.headers.get("Accept-Encoding", "")
        content = gzip.compress(content, compresslevel=1) if packed else content
        self.send_response(status)
        if packed:
            self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Content-Security-Policy", policy)
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Cache-Control", "no-cache")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Does nothing: requests are not logged."""


def is_loopback(host: str) -> bool:
    """Returns whether an address is a loopback address, which only this machine can reach.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("10.0.0.1")
    (True, True, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
