"""A service of path assignments like a controller's, without a network. It records all requests."""

from __future__ import annotations

import json
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from pathloom.streams.paths import ControllerAddress

ROWS = [
    {"users": 0, "rate_bps": 100e6, "available_bps": 50e6, "round_trip_s": 0.026},
    {"users": 0, "rate_bps": 100e6, "available_bps": None, "round_trip_s": 0.120},
]
"""The controller's rows of its two paths."""


class Controller:
    """The service of a controller; each assignment has two paths."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str, Any]] = []
        self.lock = threading.Lock()
        self.users: dict[int, Counter[int]] = {}
        self.assigned = 0
        self.refusal: tuple[int, str] | None = None
        service = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                length = int(self.headers.get("Content-Length", 0))
                body = json.loads(self.rfile.read(length)) if length else None
                status, content = service.serve(self.command, self.path, body)
                text = json.dumps(content).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            do_GET = do_POST = do_DELETE = answer  # noqa: N815

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.place = ControllerAddress("127.0.0.1", self.server.server_port, "token")

    def serve(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        """Returns the answer to a call."""
        with self.lock:
            self.calls.append((method, path, body))
            words = path.split("/")[3:]
            if self.refusal is not None:
                return self.refusal[0], {"detail": self.refusal[1]}
            if method == "POST" and not words:
                self.assigned += 1
                self.users[self.assigned] = Counter()
                return 201, {"id": self.assigned, "paths": ROWS}
            users = self.users.get(int(words[0]))
            if users is None:
                return 404, {"detail": "expired"}
            if method == "GET":
                return 200, {"paths": [{"users": users[path]} for path in range(2)]}
            if method == "DELETE":
                del self.users[int(words[0])]
                return 200, {}
            users[body.get("path", 0)] += 1
            return 201, {"switches": ["e0", "c0", "e1"]}

    def claims(self) -> list[Any]:
        """Returns the connections for which paths were claimed."""
        return [body for method, path, body in self.calls if method == "POST" and path.endswith("claims")]
