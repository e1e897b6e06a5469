"""Hosts: addresses, routes, neighbours, and what their kernels' TCP does."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pathloom import _core
from pathloom.errors import bad_input
from pathloom.lab.blueprint import Blueprint, Host
from pathloom.lab.links import HOST_QUEUE_PACKETS, shape_lines

WHOLE_LENGTH = 8
"""Every address of a fabric is in 10.0.0.0/8, which is on the link of each host."""
SEGMENT_OVERHEAD_BYTES = 800
"""Memory that Linux reckons for a segment besides its payload, about; from half to twice as much serves as well."""
MPTCP = "mptcp"
"""The transport whose connections have several subflows."""
MPTCP_SETTING = Path("/proc/sys/net/mptcp/pm_type")
MPTCP_SYSCTLS = {
    "net.mptcp.pm_type": "1",  # The agent of the hosts opens subflows, and nobody else.
    "net.mptcp.add_addr_timeout": "1",  # An announcement of an address that was lost is repeated after so many seconds.
}
"""Of every host, where the kernel has MPTCP."""
FIRST_TABLE = 101
"""Routing table of a host's first port, where it has several."""

QUIET = {
    "net.ipv6.conf.all.disable_ipv6": "1",
    "net.ipv6.conf.default.disable_ipv6": "1",
}
"""No packet crosses a lab that nobody asked for."""


@dataclass(frozen=True)
class HostStack:
    """What the kernels of the hosts run."""

    name: str
    sysctls: dict[str, str]
    route: str
    """Attributes of the routes, as `ip route` takes them."""
    spared_bytes: int = 0
    """What packets are shorter by than those of the simulator, and links count them longer by."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class Subflows:
    """Which subflows MPTCP connections have."""

    count: int
    """For each pair of addresses."""
    manager: str
    """`ndiffports` or `fullmesh`."""
    cc: str
    """How the simulator's windows grow."""


def subflows_of(scheme: str, transport: str | None) -> Subflows | None:
    """What hosts are told of MPTCP by a scheme, or else by a `--transport`; None where they run plain TCP.

    Both have been read by the core, so they are good.

    >>> subflows_of("mptcp:subflows=8", None)
    Subflows(count=8, manager='ndiffports', cc='lia')
    >>> subflows_of("ecmp", "mptcp:manager=fullmesh,cc=uncoupled")
    Subflows(count=4, manager='fullmesh', cc='uncoupled')
    >>> subflows_of("ecmp", "newreno")
    """
    own = {entry["name"]: entry for entry in _core.schemes() if entry["transport"] == MPTCP}
    given = {entry["name"]: entry for entry in _core.transports() if entry["name"] == MPTCP}
    for text, entries in ((scheme, own), (transport or "", given)):
        name, _, rest = text.partition(":")
        if name.strip() in entries:
            keys = {key["name"]: key["default"] for key in entries[name.strip()]["keys"]}
            for part in filter(None, rest.split(",")):
                key, _, value = part.partition("=")
                keys[key.strip()] = value.strip()
            return Subflows(int(keys["subflows"]), keys["manager"], keys["cc"])
    return None


def check_mptcp(what: str) -> None:
    """Raises `PathloomError` where this machine cannot run MPTCP under our path manager."""
    if not MPTCP_SETTING.exists():
        raise bad_input(f"{what}: this kernel has no MPTCP with path managers of programs (Linux 5.19 has)")


_REPEATABLE = {
    "net.ipv4.tcp_no_metrics_save": "1",  # A connection learns nothing from those before it.
    "net.ipv4.tcp_tw_reuse": "1",  # The next run opens the same connections again.
    "net.ipv4.tcp_syncookies": "0",
    "net.core.somaxconn": "4096",
}
_NEWRENO = {
    "net.ipv4.tcp_congestion_control": "reno",
    "net.ipv4.tcp_sack": "0",
    "net.ipv4.tcp_dsack": "0",
    "net.ipv4.tcp_recovery": "0",
    "net.ipv4.tcp_early_retrans": "0",
    "net.ipv4.tcp_frto": "0",
    "net.ipv4.tcp_ecn": "0",
    # By time stamps (RFC 3522), Linux sees that it sent a segment again in vain, and undoes its recovery. Then, without
    # SACK, it takes what the receiver answers to such segments for signs of the next loss, which RFC 6582 (section 4.1)
    # forbids; it did so thousands of times in a row.
    "net.ipv4.tcp_timestamps": "0",
    "net.ipv4.tcp_max_tw_buckets": "0",  # Without time stamps, this is how the next run may open the same connections.
    "net.ipv4.tcp_max_reordering": "3",  # Three duplicate acknowledgements, whatever was seen before.
    "net.ipv4.tcp_pacing_ss_ratio": "1000",  # A flow is paced to what it is told, not to its window.
    "net.ipv4.tcp_pacing_ca_ratio": "1000",
}
"""RFC 6582 as the simulator has it: no SACK, no RACK, no tail-loss probe, no F-RTO, nothing undone."""
TIMESTAMP_BYTES = 12
"""What the option takes (RFC 7323, appendix A), which packets of the simulator have."""


def host_stack(text: str, transport: str | None) -> HostStack:
    """Reads `newreno` (as the simulator's hosts, with the settings of a `--transport`), `linux` or `linux/bbr`.

    `linux` is what kernels do by themselves, with CUBIC or the congestion control named. Raises `PathloomError` when
    the kernel cannot do what is asked.
    """
    if text == "newreno":
        settings = _core.transport_settings(transport)
        # The kernel has no coupled windows: a subflow is a connection like others, with selective acknowledgements.
        if settings["name"] == MPTCP:
            if settings["congestion"] == "cubic" or not settings["sack"]:
                raise bad_input(f"--transport `{transport}`: subflows of the lab's hosts run newreno with SACK")
        elif settings["congestion"] != "new_reno" or settings["sack"]:
            out = "; with cubic take hosts=linux" if settings["congestion"] == "cubic" else ""
            raise bad_input(f"--transport `{transport}`: the lab's hosts run newreno without SACK{out}")
        return _newreno(settings)
    name, _, control = text.partition("/")
    if name != "linux" or (control and not control.isalnum()):
        raise bad_input(f"hosts `{text}`: expected newreno, or linux, or linux/NAME with a congestion control")
    if transport is not None and not (control in ("", "cubic") and _is_plain_cubic(transport)):
        raise bad_input(f"--transport `{transport}`: is for hosts that run newreno; with `{text}` take cubic, or none")
    # By route: a namespace's own default may only be one that the machine allows to everybody.
    control = control or "cubic"
    return HostStack(f"linux/{control}", _REPEATABLE, f"congctl {control}")


def _is_plain_cubic(transport: str) -> bool:
    """Whether this is CUBIC with keys that kernels need not be told, so that simulator and kernel may be compared."""
    settings, plain = (_core.transport_settings(text) for text in (transport, "cubic"))
    return {**settings, **{key: plain[key] for key in _SIMULATED_ALONE}} == plain


_SIMULATED_ALONE = ("jitter", "byte_counting", "impatient", "small_queues")
"""Keys by which the simulator is brought nearer to what kernels do by themselves."""


def _newreno(settings: dict[str, Any]) -> HostStack:
    usual = _core.transport_settings(None)
    told_not = ("max_rto", "initial_rto", "delayed_ack", "handshake", "limited_transmit", "small_queues")
    names = {**{key: key for key in told_not}, "initial_ssthresh_bytes": "ssthresh"}
    for key, name in names.items():
        if settings[key] != usual[key]:
            raise bad_input(f"--transport: the lab's kernels cannot be told {name}; leave it at its default")
    if settings["ack_every"] not in (1, 2):
        raise bad_input(
            "--transport: acks: the lab's kernels acknowledge every segment or every other one; take 1 or 2"
        )
    window = max(1, round(settings["initial_window_bytes"] / settings["mss_bytes"]))
    route = [f"initcwnd {window}", f"rto_min {max(1, settings['min_rto'] // 1_000_000)}ms"]
    route.append(f"advmss {settings['mss_bytes']}")
    if settings["ack_every"] == 1:
        route.append("quickack 1")
    # The window stands open from the start. Half of a buffer is what the kernel reckons for its own.
    receive = 2 * settings["receive_window_bytes"]
    # A card holds two segments of a connection. The kernel counts their memory, of which payload is a part, and its own
    # limit follows the pacing rate, which is set high here.
    held = 2 * settings["mss_bytes"] + SEGMENT_OVERHEAD_BYTES
    memory = {"net.ipv4.tcp_rmem": f"4096 {receive} {receive}", "net.ipv4.tcp_limit_output_bytes": str(held)}
    return HostStack("newreno", {**_REPEATABLE, **_NEWRENO, **memory}, " ".join(route), TIMESTAMP_BYTES)


def address_lines(host: Host, stack: HostStack) -> Iterator[str]:
    """Lines for `ip -batch` in the host's namespace: its addresses and routes."""
    yield "link set lo up"
    several = len(host.ports) > 1
    for index, port in enumerate(host.ports):
        # Whatever the card can do, a kernel's TCP makes super-packets of as many segments as the card allows, and cuts
        # them up behind its queue: 45 segments would stand there as one packet, and leave it as one.
        yield f"link set {port.interface} gso_max_segs 1 {'up' if port.shape.up else 'down'}"
        yield f"address add {port.address}/{WHOLE_LENGTH} dev {port.interface} noprefixroute"
        route = f"10.0.0.0/{WHOLE_LENGTH} dev {port.interface} src {port.address} {stack.route}".rstrip()
        if not port.shape.up:
            continue
        yield f"route add {route} metric {100 + index}"
        if several:
            yield f"route add {route} table {FIRST_TABLE + index}"
            yield f"rule add from {port.address} lookup {FIRST_TABLE + index}"


def subflow_sysctls(stack: HostStack, subflows: bool) -> dict[str, str]:
    """What differs for hosts whose connections have subflows, from the next connection on.

    Simulated subflows have selective acknowledgements, other connections of the simulator have none.
    """
    return {"net.ipv4.tcp_sack": "1" if subflows else "0"} if stack.name == "newreno" else {}


def neighbour_lines(blueprint: Blueprint, host: Host) -> Iterator[str]:
    """Lines for `ip -batch` in the host's namespace: the MAC of every other address, so that nobody asks."""
    others = [port for other in blueprint.hosts if other is not host for port in other.ports]
    for port in host.ports:
        for other in others:
            yield f"neighbour add {other.address} lladdr {other.mac} dev {port.interface} nud permanent"


def host_shape_lines(host: Host, stack: HostStack) -> Iterator[str]:
    """Lines for `tc -batch` in the host's namespace."""
    for port in host.ports:
        yield from shape_lines(port.interface, port.shape, HOST_QUEUE_PACKETS, stack.spared_bytes)


def host_sysctls(host: Host, stack: HostStack) -> dict[str, str]:
    """What is set in the host's namespace before its links are up."""
    several = {"net.ipv4.conf.all.arp_ignore": "1", "net.ipv4.conf.all.arp_announce": "2"}
    return {**QUIET, **stack.sysctls, **(several if len(host.ports) > 1 else {})}


def hosts_file(blueprint: Blueprint) -> str:
    """The names of all hosts, as /etc/hosts has them."""
    lines = ["127.0.0.1 localhost"]
    for host in blueprint.hosts:
        for index, port in enumerate(host.ports):
            lines.append(f"{port.address} {host.name.replace(' ', '_')}{f'-{index}' if index else ''}")
    return "\n".join(lines) + "\n"
