"""Path assignments over HTTP, for a program that claims paths on behalf of others."""

from __future__ import annotations

import http.client
import json
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from pathloom.errors import bad_input, reason
from pathloom.srv import places
from pathloom.streams.policies import Route

PATIENCE_S = 2.0
"""Longest wait for an answer of the controller. A connection waits for the answer."""


class Unreachable(Exception):
    """The controller cannot be reached, or does not answer."""


class Refused(Exception):
    """The controller refuses a request; the text says why."""

    def __init__(self, status: int, why: str) -> None:
        """`status` is the HTTP status."""
        super().__init__(why)
        self.status = status


@dataclass(frozen=True, slots=True)
class ControllerAddress:
    """Address at which a controller serves applications on hosts."""

    address: str
    port: int
    token: str | None = None
    others: tuple[ControllerAddress, ...] = ()
    """The addresses of further controllers of the same fabric."""

    @classmethod
    def parse(cls, text: str, token: str | None = None) -> ControllerAddress:
        """Reads ADDRESS:PORT or `srv:NAME`, or several ones with commas. Raises `PathloomError`, `ToolError`.

        >>> ControllerAddress.parse("10.0.0.254:8080").port
        8080
        >>> [other.port for other in ControllerAddress.parse("10.0.0.1:80,10.0.0.2:81").others]
        [81]
        """
        first, *others = [cls._one(one, token) for one in places(text)]
        return replace(first, others=tuple(others))

    @classmethod
    def _one(cls, text: str, token: str | None) -> ControllerAddress:
        address, _, port = text.rpartition(":")
        if (
            not address
            or any(one in address for one in "/?#@ ")
            or not port.isdecimal()
            or not 1 <= int(port) <= 65_535
        ):
            raise bad_input(f"--controller `{text}`: expected ADDRESS:PORT such as 10.0.0.254:8080")
        return cls(address.strip("[]"), int(port), token)

    def __str__(self) -> str:
        """ADDRESS:PORT."""
        return f"[{self.address}]:{self.port}" if ":" in self.address else f"{self.address}:{self.port}"


def route(row: Mapping[str, Any]) -> Route:
    """Returns a path as the controller measured it: the rate that others leave free, and the round trip."""
    available = row["available_bps"]
    rate_bps = row["rate_bps"] if available is None else available
    # A full path still counts with 1 bit/s.
    return Route(max(float(rate_bps), 1.0), float(row["round_trip_s"]))


class _Moved(Exception):
    """Another controller leads."""

    def __init__(self, place: ControllerAddress) -> None:
        """`place` is its address."""
        super().__init__(f"the leader is {place}")
        self.place = place


class Paths:
    """A connection to the service, from one address of this host. Only one thread may use it at a time."""

    def __init__(self, place: ControllerAddress, source: str | None) -> None:
        """`source`: address of the host; the controller identifies a host by the address of the connection."""
        self._headers = {"Content-Type": "application/json"}
        if place.token is not None:
            self._headers["Authorization"] = f"Bearer {place.token}"
        self._own = (source, 0) if source is not None else None
        self._places = [place, *place.others]
        self._line = self._open(place)

    def _open(self, place: ControllerAddress) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(place.address, place.port, timeout=PATIENCE_S, source_address=self._own)

    def close(self) -> None:
        """Ends the connection."""
        self._line.close()

    def assign(
        self, src: str, dst: str, count: int, lifetime_s: int | None = None, search: str | None = None
    ) -> Mapping[str, Any]:
        """Requests paths between two hosts. Returns the assignment, with its `id` and `paths`."""
        asked: dict[str, Any] = {"src": src, "dst": dst, "count": count}
        if lifetime_s is not None:
            asked["lifetime_s"] = lifetime_s
        if search is not None:
            asked["search"] = search
        return self._call("POST", "/v1/assignments", asked)

    def assignment(self, assignment: int) -> Mapping[str, Any]:
        """Returns an assignment, with the `users` of each path."""
        return self._call("GET", f"/v1/assignments/{assignment}")

    def claim(
        self,
        assignment: int,
        src: str,
        dst: str,
        src_port: int,
        *,
        path: int | None = None,
        dst_port: int | None = None,
        opens_to: int | None = None,
    ) -> list[str]:
        """Claims a path for the connection from this port. Returns the switches on the path.

        With `dst_port`, the connection already exists and moves to the path at once. `opens_to` is the destination port
        of a future connection. It gets its path soon, even if the controller does not see its first packet.
        """
        asked: dict[str, Any] = {"src": src, "dst": dst, "src_port": src_port}
        if dst_port is not None:
            asked["dst_port"] = dst_port
        if opens_to is not None:
            asked["opens_to"] = opens_to
        if path is not None:
            asked["path"] = path
        return list(self._call("POST", f"/v1/assignments/{assignment}/claims", asked)["switches"])

    def release(self, assignment: int) -> None:
        """Releases an assignment; its connections keep their paths."""
        self._call("DELETE", f"/v1/assignments/{assignment}")

    def _call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
        """Sends a request to the controller that leads, and returns the answer. Raises `Unreachable`, `Refused`."""
        problem = Unreachable("no controller leads")
        for place in [None, *self._places]:
            if place is not None:
                self._line.close()
                self._line = self._open(place)
            try:
                return self._ask(method, path, body)
            except _Moved as moved:
                try:
                    self._line.close()
                    self._line = self._open(moved.place)
                    return self._ask(method, path, body)
                except (_Moved, Unreachable) as error:
                    problem = Unreachable(str(error))
            except Unreachable as error:
                problem = error
            if len(self._places) == 1:
                break
        raise problem from None

    def _ask(self, method: str, path: str, body: Mapping[str, Any] | None) -> Mapping[str, Any]:
        """Asks one controller. Raises `Unreachable`, `Refused`, and `_Moved` if it names the leader."""
        text = None if body is None else json.dumps(body)
        # The controller closes idle connections, so a request on an old connection is repeated once.
        for last in (self._line.sock is None, True):
            try:
                self._line.request(method, path, text, self._headers)
                answer = self._line.getresponse()
                status, content = answer.status, answer.read()
                location = answer.headers.get("Location")
                break
            except (OSError, http.client.HTTPException) as error:
                self._line.close()
                if last:
                    raise Unreachable(reason(error)) from None
        try:
            found = json.loads(content)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise Unreachable(f"it answers {status} without JSON")
        if status == http.client.TEMPORARY_REDIRECT and location is not None:
            where = urllib.parse.urlsplit(location)
            raise _Moved(ControllerAddress(where.hostname or "", where.port or http.client.HTTP_PORT))
        if status >= 500:
            raise Unreachable(str(found.get("detail", status)))
        if status >= 400:
            raise Refused(status, str(found.get("detail", status)))
        return found
