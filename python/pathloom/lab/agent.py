"""The agent: carries the transfers of a run between the hosts of a lab, over the TCP of their kernels.

The agent is a separate process (`python -m pathloom.lab.agent`). It reads a plan as JSON from its standard input, and
ends when its input does. It writes lines of JSON to its standard output: `{"zero_ns": …}`, time 0 by the monotonic
clock; `{"now_ns": …}` from time to time; the result last. A socket belongs to the namespace in which it was made, so
one process serves all hosts. Its one clock lets a transfer that waits for others start as soon as the last of them is
done, and FCT needs no synchronised clocks.

The FCT of a transfer begins when its application has data, which is when it connects. It ends when the receiving
application has the last byte.
"""

from __future__ import annotations

import errno
import heapq
import itertools
import json
import os
import resource
import select
import socket
import struct
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from pathloom.lab.orders import Key, OrderConnection, OrdersError
from pathloom.lab.system import NETNS, set_namespace
from pathloom.lab.transfers import CHUNK_BYTES, Transfer, count, window_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pathloom.lab.parallel import Streams
    from pathloom.lab.routed.central import Bindings

EPHEMERAL = (32_768, 28_232)
"""First source port and number of source ports, as in the simulator."""
LOW_WATER_BYTES = 1 << 15
"""A receiver is woken when it has this many bytes, or the rest of the transfer."""
REPORT_NS = 500_000_000
LEAD_NS = 50_000_000
"""Time between the start of the last listener and time 0."""
UNSENT_BYTES = 1 << 16
"""Unsent bytes in a socket whose flow the controller may hold. They are sent even while the flow is held."""
WELCOME_S = 10.0
PACES_KEPT_NS = 14_500_000_000
"""How long rates of a lost controller are kept. The check runs every `RECONNECT_NS`, so none lasts longer than 15 s."""
RECONNECT_NS = 500_000_000
"""Time between two attempts to connect to a lost controller."""
FRAME_BYTES, PAYLOAD_BYTES = 1514, 1448
"""Sizes of a full frame. Kernels count payload when they pace; the controller's rates count frames."""
_SO_MAX_PACING_RATE, _TCP_NOTSENT_LOWAT = 47, 25
_NO_PACE = (1 << 64) - 1
_PACKETS = memoryview(bytearray(CHUNK_BYTES))
FlowStep = tuple[int, int, list[tuple[int, int, int]]]
"""A step of a series: its end and when it was recorded, in nanoseconds; number, received bytes and window by flow."""
DESCRIPTORS = 1 << 17
"""Limit of open files that the agent asks for; each active flow needs two."""
_NONE_LEFT = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_IN_USE = (errno.EADDRINUSE, errno.EADDRNOTAVAIL)
_NOT_YET = (errno.EAGAIN, errno.EINPROGRESS, errno.EINTR)


class Agent:
    """All transfers of one run."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self.duration_ns: int = plan["duration_ns"]
        self.end_ns = self.duration_ns * (1 + plan["drain"])
        self.namespaces: dict[str, str] = plan["namespaces"]
        self.transfers = [
            Transfer(index, spec, len(set(spec["after"]))) for index, spec in enumerate(plan["flows"])
        ]  # fmt: skip
        self.waiting: dict[int, list[Transfer]] = {}
        for transfer in self.transfers:
            for other in set(transfer.spec["after"]):
                self.waiting.setdefault(other, []).append(transfer)
        self.due: list[tuple[int, int]] = [
            (spec["start_ns"], index) for index, spec in enumerate(plan["flows"]) if not spec["after"]
        ]
        heapq.heapify(self.due)
        self.open: set[Transfer] = set()
        self.expected: dict[Key, Transfer] = {}
        self.listeners: dict[int, tuple[socket.socket, str, int]] = {}
        self.sockets: dict[int, tuple[Transfer, socket.socket]] = {}
        self.mptcp: bool = plan.get("mptcp", False)
        self.pace_bps: int | None = plan.get("pace_bps")
        self.sample_ns: list[int] = list(plan.get("sample_ns", ()))
        self.samples: list[int] = []
        self.step_ns: int = plan.get("step_ns") or 0
        self.steps: list[FlowStep] = []
        self.received_before = [0] * len(self.transfers)
        self.epoll = select.epoll()
        self.zero_ns = 0
        self._descriptors: dict[str, int] = {}
        self.place: str | None = plan.get("orders")
        self.orders: OrderConnection | None = None
        self.reconnect_at_ns = 0
        self.lost_ns = -1
        self.leases: list[tuple[int, int, Transfer]] = []
        self.tickets = itertools.count()
        self.streams = self._parallel_streams(plan.get("streams"))
        self.bindings: Bindings | None = None
        if plan.get("bindings"):
            from pathloom.lab.routed.central import Bindings  # Most runs do not need it.

            self.bindings = Bindings(plan["bindings"])
        self.held: set[Transfer] = set()

    def _parallel_streams(self, settings: dict[str, Any] | None) -> Streams | None:
        if settings is None:
            return None
        # Its imports take longer than all others, and most runs do not need it.
        from pathloom.lab.parallel import Streams

        return Streams(self, settings, self.namespaces)

    def now_ns(self) -> int:
        """Returns the time of the run."""
        return time.monotonic_ns() - self.zero_ns

    def run(self) -> dict[str, Any]:
        """Carries out the plan; returns the result."""
        for address, port in sorted(self._listening()):
            self._listen(address, port)
        self.epoll.register(sys.stdin.fileno(), select.EPOLLHUP | select.EPOLLERR)
        if self.streams is not None:
            self.epoll.register(self.streams.fileno(), select.EPOLLIN)
        self._await_welcome()
        self.zero_ns = time.monotonic_ns() + LEAD_NS
        _say({"zero_ns": self.zero_ns})
        report_ns, stopped = 0, False
        while True:
            now = self.now_ns()
            if now >= report_ns:
                _say({"now_ns": max(now, 0), "open": len(self.open)})
                report_ns = now + REPORT_NS
            self._take_notes(now)
            if now >= self.duration_ns and not stopped:
                stopped = True
                self._stop_long_lived()
            self._reconnect(now)
            self._end_leases(now)
            self._open_overdue(now)
            while self.due and self.due[0][0] <= now:
                _, index = heapq.heappop(self.due)
                if self.may_start(self.transfers[index].spec, stopped):
                    self._start(self.transfers[index])
            if now >= self.end_ns or (stopped and not self.open and not self.due):
                break
            limits = [report_ns, self.end_ns, *([] if stopped else [self.duration_ns])]
            limits += [*(lease[0] for lease in self.leases[:1]), *self.sample_ns[:1], *self._step_ends_ns()]
            limits += [at_ns for part in (self.streams, self.bindings) if part for at_ns in part.deadlines_ns()]
            next_ns = min([*limits, self.due[0][0]] if self.due else limits)
            for descriptor, events in self.epoll.poll(max(next_ns - self.now_ns(), 0) / 1e9, 512):
                self._serve(descriptor, events)
        end_ns = min(self.now_ns(), self.end_ns)
        for transfer in list(self.open):
            self._close(transfer)
        self._take_last_notes(end_ns)
        rows = [transfer.row() for transfer in self.transfers]
        no_path = self.streams.problem if self.streams is not None else None
        bound = self.bindings.result() if self.bindings is not None else None
        result = {"flows": rows, "end_ns": end_ns, "samples": self.samples, "steps": self.steps}
        return {**result, "no_path": no_path, "bindings": bound}

    def _open_overdue(self, now: int) -> None:
        """Opens streams whose paths are late, and lets a scheme over routers do what is due."""
        if self.streams is not None:
            self.streams.open_overdue(now)
        if self.bindings is not None:
            self.bindings.advance(now, self.open)

    def may_start(self, spec: dict[str, Any], stopped: bool) -> bool:
        """Returns whether a flow may start: it waited for others, or the plan starts it within the duration.

        A long-lived flow must also start before the run has stopped.
        """
        if spec["after"]:
            return True
        return spec["start_ns"] < self.duration_ns and not (stopped and spec["size_bytes"] is None)

    def _take_notes(self, now: int) -> None:
        """Takes samples that are due, and records the step of the series that has ended, with any missed steps."""
        while self.sample_ns and self.sample_ns[0] <= now:
            self.sample_ns.pop(0)
            self._sample()
        if any(now >= end for end in self._step_ends_ns()):
            self._note_step(now, now // self.step_ns * self.step_ns)

    def _take_last_notes(self, end_ns: int) -> None:
        """Takes the samples that are left, and records the last step if more than a tenth of it has passed."""
        for _ in self.sample_ns:
            self._sample()
        for step_end_ns in self._step_ends_ns():
            if end_ns > step_end_ns - 0.9 * self.step_ns:
                self._note_step(end_ns, step_end_ns)

    def _step_ends_ns(self) -> list[int]:
        """Returns the end of the next step of the series; empty without a series."""
        return [(self.steps[-1][0] if self.steps else 0) + self.step_ns] if self.step_ns else []

    def _note_step(self, now: int, end: int) -> None:
        """Records what each application has received since the last step, and the windows of senders."""
        self._receive_all(self.open)
        rows = []
        for transfer in self.transfers:
            received = transfer.received - self.received_before[transfer.index]
            window = window_bytes(transfer)
            if received or window:
                rows.append((transfer.index, received, window))
                self.received_before[transfer.index] = transfer.received
        self.steps.append((end, now, rows))

    def _receive_all(self, transfers: Iterable[Transfer]) -> None:
        """Reads what has arrived for some transfers, which may end them."""
        for part in [part for transfer in transfers for part in transfer.connections]:
            if part.receiver is not None:
                self._receive(part, part.receiver)

    def _sample(self) -> None:
        """Records the bytes that all applications have received so far."""
        self._receive_all(self.open)
        self.samples.append(sum(transfer.received for transfer in self.transfers))

    def _listening(self) -> set[tuple[str, int]]:
        """Returns addresses and ports to listen on. Subflows join at every address of a host."""
        asked = {(transfer.spec["dst_address"], transfer.spec["dst_port"]) for transfer in self.transfers}
        if not self.mptcp:
            return asked
        of_host: dict[str, list[str]] = {}
        for address, namespace in self.namespaces.items():
            of_host.setdefault(namespace, []).append(address)
        return {(other, port) for address, port in asked for other in of_host[self.namespaces[address]]}

    def _socket(self, address: str) -> socket.socket:
        """Makes a socket of the host with this address."""
        namespace = self.namespaces[address]
        if namespace not in self._descriptors:
            self._descriptors[namespace] = os.open(NETNS / namespace, os.O_RDONLY | os.O_CLOEXEC)
        set_namespace(self._descriptors[namespace])
        made = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK, self.protocol)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        return made

    def _listen(self, address: str, port: int) -> None:
        listener = self._socket(address)
        listener.bind((address, port))
        listener.listen(4096)
        self.listeners[listener.fileno()] = (listener, address, port)
        self.epoll.register(listener.fileno(), select.EPOLLIN)

    def _start(self, transfer: Transfer) -> None:
        transfer.start_ns = self.now_ns()
        self.open.add(transfer)
        if self.streams is not None:
            return self.streams.start(transfer, self.now_ns())
        if self.bindings is not None and self.bindings.open(
            transfer, self.now_ns(), lambda port: self._open_from(transfer, port, self.connect)
        ):
            return None
        return self.bind(transfer, transfer.spec["src_port"], self.connect)

    def bind(self, part: Transfer, first: int, then: Callable[[Transfer], bool] = lambda _: True) -> None:
        """Binds a socket to the port `first`, or to the next free one, and calls `then`.

        If `then` returns False, the kernel already uses the five-tuple, and the next port is tried.
        """
        port = first
        while True:
            if self._open_from(part, port, then):
                return None
            port = EPHEMERAL[0] + (port - EPHEMERAL[0] + 1) % EPHEMERAL[1]
            if port == first:
                part.transfer.error = "no source port is free"
                return self._close(part.transfer)

    def _open_from(self, part: Transfer, port: int, then: Callable[[Transfer], bool]) -> bool:
        """Binds a socket to a port, and calls `then`. Returns False if the port or the five-tuple is in use."""
        spec = part.spec
        key = (spec["src_address"], port, spec["dst_address"], spec["dst_port"])
        return key not in self.expected and self._bind(part, key) and (part.sender is None or then(part))

    def _bind(self, part: Transfer, key: Key) -> bool:
        """Binds a socket to the source of a five-tuple. Returns False if its port is in use."""
        try:
            sender = self._socket(key[0])
        except OSError as error:
            self.fail(part, error.errno or errno.EMFILE)
            return True
        sender.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, part.spec["dscp"] << 2)
        if self.place is not None:
            sender.setsockopt(socket.IPPROTO_TCP, _TCP_NOTSENT_LOWAT, UNSENT_BYTES)
        try:
            sender.bind((key[0], key[1]))
        except OSError as error:
            sender.close()
            if error.errno not in _IN_USE:
                self.fail(part, error.errno or errno.EINVAL)
            return error.errno not in _IN_USE
        part.sender, part.src_port, part.dst_port = sender, key[1], key[3]
        self.expected[key] = part
        return True

    def connect(self, part: Transfer) -> bool:
        """Connects a bound socket; False if the kernel has its five-tuple in use, and the socket is closed then."""
        sender, key = part.sender, part.key
        assert sender is not None
        try:
            self._announce(part, key)
            number = sender.connect_ex((key[2], key[3]))
        except OSError as error:
            number = error.errno or errno.EINVAL
        if number in _IN_USE:
            sender.close()
            part.sender = None
            self.expected.pop(key)
            return False
        if self.pace_bps is not None:
            self._pace(part, None)
        if number not in (0, errno.EINPROGRESS):
            self.fail(part, number)
            return True
        self.sockets[sender.fileno()] = (part, sender)
        self.epoll.register(sender.fileno(), select.EPOLLOUT)
        return True

    def _serve(self, descriptor: int, events: int) -> None:
        if descriptor in self.listeners:
            return self._accept(*self.listeners[descriptor])
        if descriptor == sys.stdin.fileno():
            raise SystemExit(1)  # The reader of the result is gone.
        if self.orders is not None and descriptor == self.orders.fileno():
            return self._follow()
        if self.streams is not None and descriptor == self.streams.fileno():
            return self.streams.open_claimed()
        found = self.sockets.get(descriptor)
        if found is None:
            return None
        part, its = found
        if its is part.sender:
            return self._send(part, its, events)
        return self._receive(part, its)

    def _accept(self, listener: socket.socket, address: str, port: int) -> None:
        while True:
            try:
                receiver, peer = listener.accept()
            except OSError as error:
                if error.errno in _NONE_LEFT:
                    raise  # Otherwise epoll would report the listener for ever.
                return
            part = self.expected.get((peer[0], peer[1], address, port))
            if part is None or part.receiver is not None:
                receiver.close()
                continue
            receiver.setblocking(False)
            part.receiver = receiver
            self._set_low_water(part.transfer, receiver)
            self.sockets[receiver.fileno()] = (part, receiver)
            self.epoll.register(receiver.fileno(), select.EPOLLIN)

    def _send(self, part: Transfer, sender: socket.socket, events: int) -> None:
        if part in self.held and not self.enforced:
            # A held socket is polled for errors only. Its last event may have come together with the order to hold it.
            if events & (select.EPOLLERR | select.EPOLLHUP):
                self.fail(part, sender.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) or errno.EPIPE)
            return
        try:
            while room := part.room():
                part.sent += sender.send(_PACKETS[:room])
            sender.shutdown(socket.SHUT_WR)
            self._ignore(sender)
        except OSError as error:
            if error.errno not in _NOT_YET:
                self.fail(part, error.errno or errno.EIO)

    def _receive(self, part: Transfer, receiver: socket.socket) -> None:
        transfer, ended = part.transfer, False
        try:
            while got := receiver.recv_into(_PACKETS, CHUNK_BYTES, socket.MSG_TRUNC):
                part.note_received(got)
                if got < CHUNK_BYTES:
                    break
            ended = got == 0
        except OSError as error:
            if error.errno not in _NOT_YET:
                return self.fail(part, error.errno or errno.EIO)
        if transfer.delivered:
            return self._finish(transfer)
        if ended:
            return self._ignore(receiver)  # Other streams carry the rest.
        return self._set_low_water(transfer, receiver)

    def _ignore(self, end: socket.socket) -> None:
        """Stops polling a socket that has sent or received all of its bytes."""
        if self.sockets.pop(end.fileno(), None) is not None:
            self.epoll.unregister(end.fileno())

    def _finish(self, transfer: Transfer) -> None:
        transfer.finish_ns = self.now_ns()
        self._close(transfer)
        for other in self.waiting.get(transfer.index, ()):
            other.waits_for -= 1
            if other.waits_for == 0:
                heapq.heappush(self.due, (transfer.finish_ns + other.spec["start_ns"], other.index))

    @staticmethod
    def _set_low_water(transfer: Transfer, receiver: socket.socket) -> None:
        rest = LOW_WATER_BYTES if transfer.size is None else min(LOW_WATER_BYTES, transfer.size - transfer.received)
        receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, rest)

    # --- orders of the controller

    @property
    def protocol(self) -> int:
        """Protocol of the sockets."""
        return socket.IPPROTO_MPTCP if self.mptcp else socket.IPPROTO_TCP

    @property
    def enforced(self) -> bool:
        """Whether the agent of the hosts paces and holds. Then this process only records how long flows are held."""
        return self.orders is not None and self.orders.enforced

    def _await_welcome(self) -> None:
        """Connects to the controller, if there is one, and waits for its first message. Raises `OrdersError`."""
        if self.place is None:
            return
        self._connect_to_controller()
        deadline = time.monotonic() + WELCOME_S
        while self.orders is not None and self.orders.announce is None:
            if time.monotonic() > deadline:
                raise OrdersError(f"the controller did not answer within {WELCOME_S:g} s")
            if select.select([self.orders], [], [], 0.1)[0]:
                self.orders.read()

    def _connect_to_controller(self) -> None:
        assert self.place is not None
        self.orders, self.lost_ns = OrderConnection(self.place, self.namespaces), -1
        self.epoll.register(self.orders.fileno(), select.EPOLLIN)

    def _reconnect(self, now: int) -> None:
        """Connects to a lost controller again. Lifts its rates if it is lost for longer than `PACES_KEPT_NS`."""
        if self.place is None or self.orders is not None or now < self.reconnect_at_ns:
            return
        self.reconnect_at_ns = now + RECONNECT_NS
        if 0 <= self.lost_ns < now - PACES_KEPT_NS:
            self.lost_ns = -1
            for part in [part for transfer in self.open for part in transfer.connections if part.paced]:
                self._pace(part, None)
        try:
            self._connect_to_controller()
        except (OSError, OrdersError) as error:
            sys.stderr.write(f"no controller: {error}\n")

    def _disconnect(self, error: OrdersError) -> None:
        sys.stderr.write(f"{error}\n")
        if self.orders is not None:
            self.epoll.unregister(self.orders.fileno())
            self.orders.close()
        self.orders, self.lost_ns = None, self.now_ns()
        self.reconnect_at_ns = self.lost_ns + RECONNECT_NS

    def _announce(self, transfer: Transfer, key: Key) -> None:
        if self.orders is None or not self.orders.announce or not transfer.spec["dscp"]:
            return
        try:
            self.orders.announce_transfer(key, transfer.size)
        except OrdersError as error:
            self._disconnect(error)

    def _announce_end(self, transfer: Transfer) -> None:
        if self.orders is None or not self.orders.announce or not transfer.spec["dscp"]:
            return
        try:
            self.orders.finish_transfer(transfer.key)
        except OrdersError as error:
            self._disconnect(error)

    def _follow(self) -> None:
        """Carries out the orders of the controller. Orders for closed connections are ignored."""
        assert self.orders is not None
        try:
            orders = self.orders.read()
        except OrdersError as error:
            return self._disconnect(error)
        for verb, key, value in orders:
            transfer = self.expected.get(key)
            if transfer is None or transfer.sender is None:
                continue
            if verb == "hold":
                self._hold(transfer, value)
            elif verb == "release":
                self._release(transfer)
            else:
                self._pace(transfer, value)
        return None

    def _pace(self, transfer: Transfer, rate_bps: int | None) -> None:
        """Makes the kernel pace a connection at the lower rate of controller and plan; None lifts the controller's."""
        if self.enforced:
            rate_bps = None
        transfer.paced = rate_bps is not None
        if transfer.sender is None:
            return
        bounds = [bound for bound in (rate_bps, self.pace_bps) if bound is not None]
        payload = max(min(bounds) * PAYLOAD_BYTES // (8 * FRAME_BYTES), 1) if bounds else _NO_PACE
        transfer.sender.setsockopt(socket.SOL_SOCKET, _SO_MAX_PACING_RATE, struct.pack("=Q", payload))

    def _hold(self, transfer: Transfer, lease_ms: int) -> None:
        now_ns = self.now_ns()
        transfer.held_until_ns = now_ns + lease_ms * 1_000_000
        heapq.heappush(self.leases, (transfer.held_until_ns, next(self.tickets), transfer))
        if transfer.sender is not None and transfer.sender.fileno() in self.sockets:
            if transfer not in self.held:
                transfer.held_since_ns = now_ns
            self.held.add(transfer)
            if not self.enforced:
                self.epoll.modify(transfer.sender.fileno(), 0)

    def _release(self, transfer: Transfer) -> None:
        if transfer in self.held:
            self.held.discard(transfer)
            transfer.held_ns += self.now_ns() - transfer.held_since_ns
            its = transfer.sender
            if its is not None and its.fileno() in self.sockets and not self.enforced:
                self.epoll.modify(its.fileno(), select.EPOLLOUT)

    def _end_leases(self, now: int) -> None:
        while self.leases and self.leases[0][0] <= now:
            transfer = heapq.heappop(self.leases)[2]
            # The lease may have been renewed since.
            if transfer.held_until_ns <= now:
                transfer.leases_ended += transfer in self.held
                self._release(transfer)

    def _stop_long_lived(self) -> None:
        long_lived = [one for one in self.open if one.size is None]
        self._receive_all(long_lived)
        for transfer in long_lived:
            self._close(transfer)

    def fail(self, part: Transfer, number: int) -> None:
        """Ends a transfer with an error of the system."""
        part.transfer.error = os.strerror(number)
        self._close(part.transfer)

    def _close(self, transfer: Transfer) -> None:
        """Ends a transfer at once. Bytes that are not delivered yet are discarded."""
        self.open.discard(transfer)
        transfer.end_ns = self.now_ns()
        for part in transfer.connections:
            self._close_connection(part)
        if self.bindings is not None:
            self.bindings.close(transfer, transfer.end_ns)
        if self.streams is not None:
            self.streams.close(transfer)

    def _close_connection(self, part: Transfer) -> None:
        self._release(part)
        if self.expected.pop(part.key, None) is not None:
            self._announce_end(part)
        ends = [end for end in (part.sender, part.receiver) if end is not None]
        for end in ends:
            self._ignore(end)
            count(part, end)
        for end in ends:
            if part.transfer.finish_ns < 0:
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            end.close()
        part.sender = part.receiver = None


def _say(line: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def allow_descriptors() -> None:
    """Raises the limit of open files. Each flow needs two, so the usual limit of 1024 is enough for 500 flows."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    for wanted in (max(most, DESCRIPTORS), most):
        with suppress(OSError, ValueError):
            return resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, wanted))
    return None


def main() -> None:
    """Reads a plan, carries it out, and writes the result."""
    allow_descriptors()
    agent = Agent(json.loads(sys.stdin.readline()))
    _say(agent.run())


if __name__ == "__main__":
    main()
