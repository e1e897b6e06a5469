"""Cables: veth pairs whose ends send at the fabric's rate from a drop-tail queue of the fabric's length.

HTB paces to within 0.3 % of the rate. A `pfifo` below it counts packets, as the fabric's buffers do. `differences`
lists the properties of the fabric's links that a lab does not keep.
"""

from __future__ import annotations

import array
import fcntl
import socket
import struct
from collections.abc import Iterable, Iterator

from pathloom.lab import delays, system
from pathloom.lab.blueprint import Blueprint, HostPort, Shape, SwitchPort
from pathloom.quantities import time_text

HOST_QUEUE_PACKETS = 1000
"""Queue of a host's interface. The fabric's buffer would be too short: a host may send many packets at once."""
BURST_S = 0.004
"""Sending time, in seconds, that a link may catch up on after the machine delayed it."""
FULL_FRAME_BYTES = 1514
LEAST_DELAY_PS = 100_000_000
"""Delays below 0.1 ms are hidden by the time that the machine itself takes for a hop, and are not mentioned."""

_SIOCETHTOOL = 0x8946
_OFFLOADS = {"rx": 0x15, "tx": 0x17, "sg": 0x19, "tso": 0x1F, "gso": 0x24, "gro": 0x2C}
"""ETHTOOL_S... commands of the offloads that are turned off (linux/ethtool.h)."""


def veth_lines(blueprint: Blueprint) -> Iterator[tuple[str, str]]:
    """Yields, for every cable, a namespace of switches and a line for `ip -batch` in it."""
    host_ends = {port.peer: (host, port) for host in blueprint.hosts for port in host.ports}
    switch_ends = {port.link: port for port in blueprint.switch_ports}
    for port in blueprint.switch_ports:
        own = host_ends.get(port.interface)
        if delays.is_long(port, own[1] if own is not None else switch_ends[port.link ^ 1]):
            yield port.namespace, f"link add {port.interface} type veth {_far_peer(port, blueprint)}"
            if own is not None:
                host, end = own
                line = f"link add {end.interface} address {end.mac} netns {host.namespace} type veth"
                yield blueprint.namespace, f"{line} {_far_peer(end, blueprint)}"
            continue
        if port.interface in host_ends:
            host, end = host_ends[port.interface]
            peer = f"{end.interface} address {end.mac} netns {host.namespace}"
        elif port.link % 2 == 0:
            other = switch_ends[port.link ^ 1]
            peer = f"{other.interface} netns {other.namespace}"
        else:
            continue
        yield port.namespace, f"link add {port.interface} type veth peer name {peer}"


def _far_peer(end: SwitchPort | HostPort, blueprint: Blueprint) -> str:
    """Returns the words for the far end of a long cable's veth pair, which is where the forwarder is."""
    return f"peer name {delays.far_end(end)} netns {blueprint.namespace}"


def up_lines(ports: Iterable[SwitchPort]) -> Iterator[str]:
    """Yields lines for `ip -batch` in the namespace of these ports that set each interface up or down."""
    yield "link set lo up"
    for port in ports:
        yield f"link set {port.interface} {'up' if port.shape.up else 'down'}"


def spread_receiving(namespace: str, processors: Iterable[int]) -> None:
    """Makes these processors receive the packets for switches. Raises `ToolError`.

    Otherwise the switches' one thread would also receive every frame that it sends, which is a third of its work.
    """
    words = [0]
    for processor in processors:
        words += [0] * (processor // 32 + 1 - len(words))
        words[processor // 32] |= 1 << processor % 32
    mask = ",".join(f"{word:08x}" for word in reversed(words))
    script = f"for file in /sys/class/net/l*/queues/rx-*/rps_cpus; do echo {mask} > $file; done"
    system.run_tool(["ip", "netns", "exec", namespace, "sh", "-c", script])


def shape_lines(interface: str, shape: Shape, queue_packets: int, missing_header_bytes: int) -> Iterator[str]:
    """Lines for `tc -batch`: one end of a cable sends at the link's rate, from a queue of `queue_packets`.

    Each packet takes the time of a packet that is longer by `missing_header_bytes`.
    """
    burst = max(round(shape.rate_bps / 8 * BURST_S), 2 * FULL_FRAME_BYTES)
    overhead = f"overhead {missing_header_bytes} " if missing_header_bytes else ""
    rate = f"rate {shape.rate_bps}bit {overhead}burst {burst} cburst {burst} quantum {FULL_FRAME_BYTES}"
    yield f"qdisc add dev {interface} root handle 1: htb default 1"
    yield f"class add dev {interface} parent 1: classid 1:1 htb {rate}"
    yield f"qdisc add dev {interface} parent 1:1 handle 10: pfifo limit {queue_packets}"


def switch_shape_lines(ports: Iterable[SwitchPort], missing_header_bytes: int) -> Iterator[str]:
    """Lines for `tc -batch` in the namespace of these ports. They must run after `add-port`, which removes queues."""
    for port in ports:
        yield from shape_lines(port.interface, port.shape, port.shape.buffer_packets, missing_header_bytes)


def turn_offloads_off(interfaces: Iterable[str]) -> None:
    """Makes interfaces of this thread's namespace carry single packets with real checksums. Raises `OSError`.

    Segmentation offload would put super-packets into queues that count packets. Open vSwitch in user space would
    forward packets whose checksum a host left to its interface.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as door:
        for interface in interfaces:
            for command in _OFFLOADS.values():
                value = array.array("B", struct.pack("=II", command, 0))
                address, _ = value.buffer_info()
                request = struct.pack("16sP16x", interface.encode(), address)
                fcntl.ioctl(door, _SIOCETHTOOL, request)


def differences(blueprint: Blueprint) -> list[str]:
    """Returns how the links of the lab differ from those of the fabric, as notes for the reader of the results."""
    lost = [shape.delay_ps for shape in blueprint.shapes if not delays.is_kept(shape.delay_ps)]
    longest = max(lost, default=0)
    if longest < LEAST_DELAY_PS:
        return []
    which = "link delays below 1 ms" if longest < delays.LEAST_PS else "link delays"
    text = time_text(longest / 1e12)
    return [f"the lab does not keep {which}: the fabric asks for up to {text} one way, packets arrive at once"]
