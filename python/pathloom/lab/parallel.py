"""Parallel streams of transfers in the lab: a host requests paths, and opens each stream when its claim is answered.

This part of parallel-tcp runs in hosts. The simulator has the same part in `crates/sim/src/hosts/tcp/streams.rs`.
"""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol, cast

from pathloom.lab import management
from pathloom.lab.path_claims import PathClaims
from pathloom.lab.transfers import Transfer
from pathloom.specs import keys_of
from pathloom.streams.paths import ControllerAddress
from pathloom.streams.policies import Policy, Route, assign, ratio

SCHEME = "parallel-tcp"
"""The scheme whose hosts open several streams per transfer."""
PATIENCE_NS = 1_000_000_000
"""How long a host waits for answers of the controller before it opens its streams without them, as in the simulator."""


@dataclass(frozen=True, slots=True)
class StreamSettings:
    """How hosts open streams: the keys of the scheme (`pathloom scheme show parallel-tcp`)."""

    paths: int
    streams: int
    policy: Policy
    ratio: tuple[int, ...]
    """Shares of the paths; empty if the policy determines them."""
    search: str
    a: float

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> StreamSettings:
        """The inverse of `to_dict`."""
        return cls(**{**values, "ratio": tuple(values["ratio"])})

    @classmethod
    def of_scheme(cls, scheme: str) -> StreamSettings | None:
        """The settings in the specification of a scheme, which the core has checked; None for other schemes.

        >>> StreamSettings.of_scheme("parallel-tcp:paths=2,ratio=3/1")
        StreamSettings(paths=2, streams=4, policy='optimal', ratio=(3, 1), search='breadth-first', a=0.001495)
        >>> StreamSettings.of_scheme("ecmp")
        """
        from pathloom import _core

        if scheme.partition(":")[0].strip() != SCHEME:
            return None
        keys = keys_of(scheme, next(entry for entry in _core.schemes() if entry["name"] == SCHEME))
        shares = () if keys["ratio"] == "none" else tuple(int(share) for share in keys["ratio"].split("/"))
        policy = cast(Policy, keys["policy"])
        return cls(int(keys["paths"]), int(keys["streams"]), policy, shares, keys["search"], float(keys["a"]))

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)

    @property
    def paths_requested(self) -> int:
        """Number of paths that a transfer requests."""
        return 1 if self.policy == "single" and not self.ratio else self.paths

    def spread(self, paths: Sequence[Mapping[str, Any]]) -> list[int]:
        """The path of each stream, in the order in which streams open.

        `paths` are rows of an assignment, with `rate_bps` of the slowest link and `round_trip_s`.

        >>> rows = [{"rate_bps": 10e6, "round_trip_s": 0.1}, {"rate_bps": 10e6, "round_trip_s": 0.3}]
        >>> StreamSettings.of_scheme("parallel-tcp:streams=3,paths=2,a=0.001").spread(rows)
        [1, 0, 1]
        """
        if not paths:
            return []
        routes = [Route(row["rate_bps"], row["round_trip_s"]) for row in paths]
        shares = self.ratio or ratio(self.policy, routes, self.a)
        return assign(shares[: len(paths)], self.streams)


class Sockets(Protocol):
    """What streams need of the agent."""

    transfers: list[Transfer]
    """All transfers of the run."""
    open: set[Transfer]
    """Transfers that have started and not ended."""

    def bind(self, part: Transfer, first: int) -> None:
        """Binds a socket of a stream to `first` or to the next free source port; ends the transfer if there is none."""

    def connect(self, part: Transfer) -> bool:
        """Connects a bound socket; False if its five-tuple is in use."""

    def fail(self, part: Transfer, number: int) -> None:
        """Ends the transfer with an error of the system."""


class Streams:
    """The streams of all transfers."""

    def __init__(self, sockets: Sockets, settings: Mapping[str, Any], namespaces: Mapping[str, str]) -> None:
        """`settings` as `StreamSettings.to_dict` gives them; `namespaces` has the namespace of each host address."""
        self._sockets, self._settings = sockets, StreamSettings.of(settings)
        self._claims = PathClaims(
            self._settings.paths_requested,
            self._settings.search,
            self._settings.spread,
            ControllerAddress(management.ADDRESS, management.PORT),
            namespaces,
        )
        self._waiting: set[Transfer] = set()
        self._deadlines: deque[tuple[int, Transfer]] = deque()

    @property
    def problem(self) -> str | None:
        """Why streams had no path: the first reason; None if each had one."""
        return self._claims.problem

    def fileno(self) -> int:
        """For `select`: readable when claims were answered."""
        return self._claims.fileno()

    def start(self, transfer: Transfer, now_ns: int) -> None:
        """Binds the sockets of all streams and requests their paths."""
        port = transfer.spec["src_port"]
        for _ in range(self._settings.streams):
            stream = Transfer(transfer.index, transfer.spec, 0, whole=transfer)
            transfer.streams.append(stream)
            self._sockets.bind(stream, port)
            if transfer not in self._sockets.open:
                return  # It has failed.
            port = stream.src_port
        self._waiting.update(transfer.streams)
        src, _, dst, dst_port = transfer.streams[0].key
        self._claims.request(transfer.index, src, dst, [stream.src_port for stream in transfer.streams], dst_port)
        self._deadlines.append((now_ns + PATIENCE_NS, transfer))

    def deadlines_ns(self) -> list[int]:
        """When `open_overdue` must be called next; empty for never."""
        return [self._deadlines[0][0]] if self._deadlines else []

    def open_claimed(self) -> None:
        """Opens the streams whose claims were answered."""
        for number, index in self._claims.answers():
            streams = self._sockets.transfers[number].streams
            self._open(streams if index is None else streams[index : index + 1])

    def open_overdue(self, now_ns: int) -> None:
        """Opens streams whose claims were not answered in time. They take the default routes."""
        while self._deadlines and self._deadlines[0][0] <= now_ns:
            self._open(self._deadlines.popleft()[1].streams)

    def close(self, transfer: Transfer) -> None:
        """Releases the paths of a transfer that has ended."""
        self._waiting.difference_update(transfer.streams)
        self._claims.release(transfer.index)

    def _open(self, streams: Sequence[Transfer]) -> None:
        for stream in streams:
            # Streams of a transfer that has ended, or failed here, do not wait.
            if stream in self._waiting:
                self._waiting.discard(stream)
                if not self._sockets.connect(stream):
                    self._sockets.fail(stream, errno.EADDRINUSE)
