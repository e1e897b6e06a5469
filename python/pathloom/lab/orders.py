"""Orders of the live controller to hosts, and announcements of hosts, over one connection for all hosts of a lab.

The connection goes to the agent of the hosts (`hostd.py`), or without an agent to the controller itself. The protocol
is in docs/controller.md: lines of JSON over a Unix socket.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterable
from typing import Any

VERSION = 1
LINE_BYTES = 1 << 16
_CHUNK = 1 << 16

Key = tuple[str, int, str, int]
"""Source address and port, destination address and port of a TCP connection."""


class OrdersError(Exception):
    """The connection to the controller is lost, or the controller refused it; the text says which."""


class OrderConnection:
    """The connection to the controller. It is opened at once; reading and writing never block."""

    def __init__(self, path: str, addresses: Iterable[str]) -> None:
        """Connects and sends the addresses of the hosts. Raises `OSError` if nobody listens."""
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.connect(path)
            self._socket.setblocking(False)
        except BaseException:
            self._socket.close()
            raise
        self._unread = b""
        self._unsent = b""
        self.announce: bool | None = None
        """Whether the controller wants announcements of long transfers; None until it has said so."""
        self.enforced = False
        """Whether the kernel paces and holds, so that orders are for information."""
        self._say({"hello": {"version": VERSION, "hosts": sorted(addresses)}})

    def fileno(self) -> int:
        """Returns the descriptor, for `select`."""
        return self._socket.fileno()

    def close(self) -> None:
        """Ends the connection."""
        self._socket.close()

    def announce_transfer(self, key: Key, size_bytes: int | None) -> None:
        """Announces a transfer that is about to start. Raises `OrdersError`."""
        self._say({"announce": {"flow": _flow(key), "size_bytes": size_bytes}})

    def finish_transfer(self, key: Key) -> None:
        """Reports the end of an announced transfer. Raises `OrdersError`."""
        self._say({"finish": {"flow": _flow(key)}})

    def read(self) -> list[tuple[str, Key, Any]]:
        """Returns received orders: `hold` with its lease in ms, `release`, `pace` with its rate in bit/s or None.

        Raises `OrdersError` if the connection has ended.
        """
        try:
            while got := self._socket.recv(_CHUNK):
                self._unread += got
        except BlockingIOError:
            pass
        except OSError as error:
            raise OrdersError(f"the connection to the controller is lost: {error.strerror}") from None
        else:
            raise OrdersError("the controller closed the connection")
        *lines, self._unread = self._unread.split(b"\n")
        if len(self._unread) > LINE_BYTES:
            raise OrdersError(f"the controller sent more than {LINE_BYTES} bytes without an end of line")
        self.flush()
        return [order for line in lines if line.strip() for order in self._order(line)]

    def _order(self, line: bytes) -> list[tuple[str, Key, Any]]:
        try:
            ((verb, what),) = json.loads(line).items()
            match verb:
                case "welcome" | "wants":
                    self.announce = bool(what["announce"])
                    self.enforced = bool(what.get("enforced", self.enforced))
                case "hold":
                    return [(verb, _key(what["flow"]), int(what["lease_ms"]))]
                case "release":
                    return [(verb, _key(what["flow"]), None)]
                case "pace":
                    rate_bps = what["rate_bps"]
                    return [(verb, _key(what["flow"]), None if rate_bps is None else int(rate_bps))]
                case "refused" if self.announce is None:
                    raise OrdersError(f"the controller refused the connection: {what['why']}")
                # Other messages belong to later versions, or answer requests that this class never sends.
        except (ValueError, TypeError, KeyError, AttributeError):
            raise OrdersError(f"the controller sent an unreadable line: {line[:80]!r}") from None
        return []

    def _say(self, what: dict[str, Any]) -> None:
        self._unsent += json.dumps(what).encode() + b"\n"
        self.flush()

    def flush(self) -> None:
        """Sends what could not be sent before. Raises `OrdersError`."""
        try:
            while self._unsent:
                self._unsent = self._unsent[self._socket.send(self._unsent) :]
        except BlockingIOError:
            pass
        except OSError as error:
            raise OrdersError(f"the connection to the controller is lost: {error.strerror}") from None


def _flow(key: Key) -> dict[str, Any]:
    return {"src": key[0], "dst": key[2], "proto": int(socket.IPPROTO_TCP), "src_port": key[1], "dst_port": key[3]}


def _key(flow: dict[str, Any]) -> Key:
    return (str(flow["src"]), int(flow["src_port"]), str(flow["dst"]), int(flow["dst_port"]))
