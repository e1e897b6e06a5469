"""Hosts: addresses, routes, neighbours, and the TCP settings of their kernels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pathloom import _core
from pathloom.errors import bad_input
from pathloom.lab.blueprint import Blueprint, Host
from pathloom.lab.links import HOST_QUEUE_PACKETS, shape_lines
from pathloom.lab.routed.numbering import link_address
from pathloom.specs import keys_of

WHOLE_LENGTH = 8
"""Prefix length: every address of a fabric is in 10.0.0.0/8, which each host reaches directly on its link."""
FIRST_BUFFER_BYTES = 131_072
"""Receive buffer of a new connection whose window tunes itself: the default of Linux."""
SEGMENT_OVERHEAD_BYTES = 800
"""Approximate memory that Linux counts for a segment besides its payload. Half or twice as much works as well."""
MPTCP = "mptcp"
"""The transport whose connections have several subflows."""
MPTCP_SETTING = Path("/proc/sys/net/mptcp/pm_type")
MPTCP_SYSCTLS = {
    "net.mptcp.pm_type": "1",  # Only the agent of the hosts opens subflows.
    "net.mptcp.add_addr_timeout": "1",  # Seconds after which a lost announcement of an address is repeated.
}
"""Sysctls of every host, if the kernel has MPTCP."""
FIRST_TABLE = 101
"""Routing table of a host's first port, if the host has several ports."""

QUIET = {
    "net.ipv6.conf.all.disable_ipv6": "1",
    "net.ipv6.conf.default.disable_ipv6": "1",
}
"""Sysctls that turn IPv6 off, so that a lab carries no unrequested packets."""


@dataclass(frozen=True)
class HostStack:
    """TCP settings of the hosts' kernels."""

    name: str
    sysctls: dict[str, str]
    route: str
    """Attributes of the routes, as `ip route` takes them."""
    missing_header_bytes: int = 0
    """Bytes by which packets are shorter than those of the simulator. Links count each packet as longer by this."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class Subflows:
    """Subflows of MPTCP connections."""

    count: int
    """Number of subflows for each pair of addresses."""
    manager: str
    """Path manager: `ndiffports` or `fullmesh`."""
    cc: str
    """Congestion control of the subflows in the simulator."""


def subflows_of(scheme: str, transport: str | None) -> Subflows | None:
    """Returns the subflows that a scheme, or else a `--transport`, asks for; None if hosts run plain TCP.

    The core has read both texts before, so they are valid.

    >>> subflows_of("mptcp:subflows=8", None)
    Subflows(count=8, manager='ndiffports', cc='lia')
    >>> subflows_of("ecmp", "mptcp:manager=fullmesh,cc=uncoupled")
    Subflows(count=4, manager='fullmesh', cc='uncoupled')
    >>> subflows_of("ecmp", "newreno")
    """
    own = {entry["name"]: entry for entry in _core.schemes() if entry["transport"] == MPTCP}
    given = {entry["name"]: entry for entry in _core.transports() if entry["name"] == MPTCP}
    for text, entries in ((scheme, own), (transport or "", given)):
        entry = entries.get(text.partition(":")[0].strip())
        if entry is not None:
            keys = keys_of(text, entry)
            return Subflows(int(keys["subflows"]), keys["manager"], keys["cc"])
    return None


def check_mptcp(what: str) -> None:
    """Raises `PathloomError` if this machine's kernel has no MPTCP with path managers in user space."""
    if not MPTCP_SETTING.exists():
        raise bad_input(f"{what}: this kernel has no MPTCP with path managers in user space (Linux 5.19 has it)")


_REPEATABLE = {
    "net.ipv4.tcp_no_metrics_save": "1",  # A connection learns nothing from earlier ones.
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
    # By time stamps (RFC 3522), Linux detects a spurious retransmission and undoes its recovery. Without SACK, it then
    # takes the receiver's answers to such segments for signs of the next loss, thousands of times in a row. RFC 6582
    # (section 4.1) forbids that.
    "net.ipv4.tcp_timestamps": "0",
    "net.ipv4.tcp_max_tw_buckets": "0",  # Lets the next run open the same connections without time stamps.
    "net.ipv4.tcp_max_reordering": "3",  # Always three duplicate acknowledgements, also after reordering.
    "net.ipv4.tcp_pacing_ss_ratio": "1000",  # The given rate paces a flow, not its window.
    "net.ipv4.tcp_pacing_ca_ratio": "1000",
}
"""RFC 6582 as in the simulator: no SACK, no RACK, no tail-loss probe, no F-RTO, no undone recovery."""
TIMESTAMP_BYTES = 12
"""Size of the time-stamp option (RFC 7323, appendix A), which packets of the simulator have."""


def host_stack(text: str, transport: str | None) -> HostStack:
    """Reads `newreno` (as the simulator's hosts, with the settings of a `--transport`), `linux` or `linux/bbr`.

    With `linux`, kernels keep their defaults, with CUBIC or the named congestion control. Raises `PathloomError` if the
    kernel cannot do what is asked.
    """
    if text == "newreno":
        settings = _core.transport_settings(transport)
        # The kernel has no coupled windows: a subflow is a connection like others, with selective acknowledgements.
        if settings["name"] == MPTCP:
            if settings["congestion"] == "cubic" or not settings["sack"]:
                raise bad_input(f"--transport `{transport}`: subflows of the lab's hosts run newreno with SACK")
        elif settings["name"] != "newreno" or settings["sack"]:
            out = "; for cubic use hosts=linux" if settings["name"] == "cubic" else ""
            raise bad_input(f"--transport `{transport}`: the lab's hosts run newreno without SACK{out}")
        return _newreno(settings)
    name, _, control = text.partition("/")
    if name != "linux" or (control and not control.isalnum()):
        raise bad_input(f"hosts `{text}`: expected newreno, or linux, or linux/NAME with a congestion control")
    if transport is not None and not (control in ("", "cubic") and _is_plain_cubic(transport)):
        raise bad_input(f"--transport `{transport}`: is for hosts that run newreno; with `{text}` take cubic, or none")
    # Set by route: the default of a namespace may only be a congestion control that the machine allows to all users.
    control = control or "cubic"
    return HostStack(f"linux/{control}", _REPEATABLE, f"congctl {control}")


def _is_plain_cubic(transport: str) -> bool:
    """Returns whether this is CUBIC that differs from the default only in keys for the simulator."""
    settings, plain = (_core.transport_settings(text) for text in (transport, "cubic"))
    return {**settings, **{key: plain[key] for key in _SIMULATOR_ONLY_KEYS}} == plain


_SIMULATOR_ONLY_KEYS = ("jitter", "byte_counting", "impatient", "small_queues", "standing", "coarse_timers")
"""Settings that make the simulator behave more like kernels and their programs. The lab does not need them."""


def _newreno(settings: dict[str, Any]) -> HostStack:
    usual = _core.transport_settings(None)
    unsupported = (
        "max_rto",
        "initial_rto",
        "delayed_ack",
        "handshake",
        "limited_transmit",
        "small_queues",
        "reordering",
    )
    names = {**{key: key for key in unsupported}, "initial_ssthresh_bytes": "ssthresh"}
    for key, name in names.items():
        if settings.get(key) != usual.get(key):
            raise bad_input(f"--transport: the lab's kernels have no setting for {name}; leave it at its default")
    if settings["ack_every"] not in (1, 2):
        raise bad_input(
            "--transport: acks: the lab's kernels acknowledge every segment or every other one; take 1 or 2"
        )
    window = max(1, round(settings["initial_window_bytes"] / settings["mss_bytes"]))
    route = [f"initcwnd {window}", f"rto_min {max(1, settings['min_rto'] // 1_000_000)}ms"]
    route.append(f"advmss {settings['mss_bytes']}")
    if settings["ack_every"] == 1:
        route.append("quickack 1")
    # The kernel counts half of a buffer for itself. Unless it tunes the receive window, that is open from the start.
    receive = 2 * settings["receive_window_bytes"]
    first = FIRST_BUFFER_BYTES if settings.get("tunes_receive_window") else receive
    # An interface holds two segments of a connection. The kernel counts their memory, which includes the payload. Its
    # own limit would follow the pacing rate, which is set high here.
    held = 2 * settings["mss_bytes"] + SEGMENT_OVERHEAD_BYTES
    memory = {"net.ipv4.tcp_rmem": f"4096 {first} {receive}", "net.ipv4.tcp_limit_output_bytes": str(held)}
    return HostStack("newreno", {**_REPEATABLE, **_NEWRENO, **memory}, " ".join(route), TIMESTAMP_BYTES)


def address_lines(host: Host, stack: HostStack, routed: bool = False) -> Iterator[str]:
    """Lines for `ip -batch` in the host's namespace: its addresses and routes; with `routed`, by way of its router."""
    yield "link set lo up"
    several = len(host.ports) > 1
    for index, port in enumerate(host.ports):
        # TCP makes super-packets of as many segments as the interface allows, even without offloads, and splits them
        # only after the queue. Without this limit, 45 segments would be one packet in the queue.
        yield f"link set {port.interface} gso_max_segs 1 {'up' if port.shape.up else 'down'}"
        yield f"address add {port.address}/{WHOLE_LENGTH} dev {port.interface} noprefixroute"
        via = f" via {link_address(port.link ^ 1)} onlink" if routed else ""
        route = f"10.0.0.0/{WHOLE_LENGTH}{via} dev {port.interface} src {port.address} {stack.route}".rstrip()
        if not port.shape.up:
            continue
        yield f"route add {route} metric {100 + index}"
        if several:
            yield f"route add {route} table {FIRST_TABLE + index}"
            yield f"rule add from {port.address} lookup {FIRST_TABLE + index}"


def subflow_sysctls(stack: HostStack, subflows: bool) -> dict[str, str]:
    """Returns the sysctls that depend on whether connections have subflows. They apply to new connections.

    Simulated subflows have selective acknowledgements, other connections of the simulator have none.
    """
    return {"net.ipv4.tcp_sack": "1" if subflows else "0"} if stack.name == "newreno" else {}


def neighbour_lines(blueprint: Blueprint, host: Host) -> Iterator[str]:
    """Lines for `ip -batch` in the host's namespace: the MAC of every other address, so that no host uses ARP."""
    others = [port for other in blueprint.hosts if other is not host for port in other.ports]
    for port in host.ports:
        for other in others:
            yield f"neighbour add {other.address} lladdr {other.mac} dev {port.interface} nud permanent"


def host_shape_lines(host: Host, stack: HostStack) -> Iterator[str]:
    """Lines for `tc -batch` in the host's namespace."""
    for port in host.ports:
        yield from shape_lines(port.interface, port.shape, HOST_QUEUE_PACKETS, stack.missing_header_bytes)


def host_sysctls(host: Host, stack: HostStack) -> dict[str, str]:
    """Returns the sysctls that are set in the host's namespace before its links are up."""
    several = {"net.ipv4.conf.all.arp_ignore": "1", "net.ipv4.conf.all.arp_announce": "2"}
    return {**QUIET, **stack.sysctls, **(several if len(host.ports) > 1 else {})}


RESOLVER = "# No name server can be reached from a lab. Its names are in /etc/hosts.\n"
"""Contents of /etc/resolv.conf. The C library then asks the loopback interface, which refuses at once."""


def host_name(host: Host) -> str:
    """Returns the name by which programs know a host."""
    return host.name.replace(" ", "_")


def hosts_file(blueprint: Blueprint) -> str:
    """Returns the names of all hosts in the format of /etc/hosts."""
    lines = ["127.0.0.1 localhost"]
    for host in blueprint.hosts:
        for index, port in enumerate(host.ports):
            lines.append(f"{port.address} {host_name(host)}{f'-{index}' if index else ''}")
    return "\n".join(lines) + "\n"
