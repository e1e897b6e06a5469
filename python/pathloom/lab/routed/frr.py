"""The daemons of FRR that a router of the lab runs, and their configurations.

BGP is set up as RFC 7938 describes: eBGP between neighbours over the addresses of their cable, and a route takes all
paths with an AS path of the same length. IPv6 routes are announced in the same sessions.
"""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from ipaddress import IPv4Network
from pathlib import Path

from pathloom.errors import ToolError, bad_input
from pathloom.lab import system
from pathloom.lab.blueprint import Switch
from pathloom.lab.routed.numbering import link_address, prefix6, router_address
from pathloom.waiting import await_event

PACKAGE = "frr"
BINARIES = Path("/usr/lib/frr")
"""Where Debian's package has the daemons."""
USER = "frr"
"""User and group of the daemons."""
KEEPALIVE_S, HOLD_S = 1, 3
"""Timers of BGP: without BFD and without a lost carrier, a dead neighbour is noticed after the hold time."""
BFD_MS, BFD_MISSED = 300, 3
"""Period of BFD packets, and how many in a row must be missing. Shorter ones fail on a busy machine."""
MOST_PATHS = 64
PATIENCE_S = 20.0
_started: dict[Path, subprocess.Popen[bytes]] = {}
"""Daemons that this process has started, by configuration file."""


@dataclass(frozen=True)
class Router:
    """What the configuration of a router depends on."""

    switch: Switch
    as_number: int
    neighbours: tuple[tuple[int, int], ...]
    """Own directed link and AS number of each neighbour."""
    prefixes: tuple[IPv4Network, ...]
    """Prefixes of its hosts."""
    paths: int
    """Most next hops of a route."""
    bfd: bool

    @property
    def daemons(self) -> tuple[str, ...]:
        """The daemons of this router, in the order in which they start."""
        return daemons_of(self.bfd)


def daemons_of(bfd: bool) -> tuple[str, ...]:
    """The daemons of a router with or without BFD, in the order in which they start."""
    return ("zebra", "bfdd", "bgpd") if bfd else ("zebra", "bgpd")


def check_installed(bfd: bool) -> None:
    """Raises `PathloomError` if FRR is not installed."""
    for daemon in daemons_of(bfd):
        if not (BINARIES / daemon).exists():
            raise bad_input(
                f"switches=frr: {BINARIES / daemon} is missing; on Debian: scripts/prepare.sh lab, or apt-get install "
                f"{PACKAGE} (switches=kernel needs no FRR)"
            )


def bgp_config(router: Router) -> str:
    """Returns the configuration of bgpd."""
    return "\n".join([*_bgp_lines(router), ""])


def _bgp_lines(router: Router) -> Iterator[str]:
    yield from ("frr defaults datacenter", f"hostname {router.switch.name.replace(' ', '_')}", "!")
    yield f"router bgp {router.as_number}"
    yield f" bgp router-id {router_address(router.switch.node)}"
    yield " no bgp default ipv4-unicast"
    yield " no bgp ebgp-requires-policy"
    yield " no bgp network import-check"
    yield " bgp bestpath as-path multipath-relax"
    yield f" timers bgp {KEEPALIVE_S} {HOLD_S}"
    yield " neighbor FABRIC peer-group"
    yield " neighbor FABRIC advertisement-interval 0"
    yield " neighbor FABRIC timers connect 1"
    if router.bfd:
        yield " neighbor FABRIC bfd profile fabric"
    for link, as_number in router.neighbours:
        yield f" neighbor {link_address(link ^ 1)} remote-as {as_number}"
        yield f" neighbor {link_address(link ^ 1)} peer-group FABRIC"
    for family, prefixes in (
        ("ipv4", [str(one) for one in router.prefixes]),
        ("ipv6", [str(prefix6(one)) for one in router.prefixes]),
    ):
        yield f" address-family {family} unicast"
        yield from (f"  network {one}" for one in prefixes)
        yield from ("  neighbor FABRIC activate", f"  maximum-paths {router.paths}", " exit-address-family")
    yield "exit"


def bfd_config() -> str:
    """Returns the configuration of bfdd."""
    return "\n".join(
        [
            "bfd",
            " profile fabric",
            f"  detect-multiplier {BFD_MISSED}",
            f"  receive-interval {BFD_MS}",
            f"  transmit-interval {BFD_MS}",
            " exit",
            "exit",
            "",
        ]
    )


def zebra_config(router: Router) -> str:
    """Returns the configuration of zebra, which writes the routes into the kernel.

    It writes routes with several next hops, not groups. When a cable goes down, the kernel removes its next hops from
    groups. When the cable comes back, FRR 8.4 uses the groups as if they were complete.
    """
    return f"hostname {router.switch.name.replace(' ', '_')}\nno zebra nexthop kernel enable\n"


class Daemons:
    """The daemons of FRR of one lab."""

    def __init__(self, run_directory: Path) -> None:
        self.lab_directory = run_directory
        self.directory = run_directory / "frr"

    def configure(self, routers: Iterable[Router]) -> None:
        """Writes the configurations of routers. The daemons run as the user of Debian's package, who may read them."""
        for place in (self.lab_directory.parent, self.lab_directory):
            place.chmod(stat.S_IMODE(place.stat().st_mode) | stat.S_IXGRP | stat.S_IXOTH)
        self.directory.mkdir(mode=0o700, exist_ok=True)
        for router in routers:
            own = self._own(router.switch)
            own.mkdir(mode=0o700, exist_ok=True)
            texts = {"zebra": zebra_config(router), "bgpd": bgp_config(router), "bfdd": bfd_config()}
            for daemon in router.daemons:
                (own / f"{daemon}.conf").write_text(texts[daemon], encoding="utf-8")
        for path in (self.directory, *self.directory.rglob("*")):
            shutil.chown(path, USER, USER)

    def start(self, routers: Iterable[Router]) -> None:
        """Starts the daemons of routers. Raises `ToolError`."""
        routers = list(routers)
        for daemon in daemons_of(True):
            own = [router for router in routers if daemon in router.daemons]
            for router in own:
                self._start(router.switch, daemon)
            self._await_sockets(own, daemon)

    def _start(self, switch: Switch, daemon: str) -> None:
        own = self._own(switch)
        config = own / f"{daemon}.conf"
        command = [str(BINARIES / daemon), "-f", str(config), "-i", str(own / f"{daemon}.pid"), "-P", "0"]
        command += ["-z", str(own / "zserv"), "--vty_socket", str(own), "--log", f"file:{own}/{daemon}.log"]
        command += {"zebra": [], "bgpd": ["-e", str(MOST_PATHS)], "bfdd": ["--bfdctl", str(own / "bfdd.sock")]}[daemon]

        errors = own / f"{daemon}.err"
        process = system.inside(switch.namespace, lambda: system.start_daemon(command, errors, self.lab_directory))
        _started[config] = process
        if daemon == "bfdd":
            system.give_priority(process.pid)

    def _await_sockets(self, routers: Iterable[Router], daemon: str) -> None:
        """Waits until daemons accept commands. Raises `ToolError`."""
        for router in routers:
            own = self._own(router.switch)
            sockets = [own / f"{daemon}.vty", *([own / "zserv"] if daemon == "zebra" else [])]
            process = _started[own / f"{daemon}.conf"]
            are_there = partial(_all_exist, sockets)
            if not system.await_start(process, are_there, PATIENCE_S, 0.005) or process.poll() is not None:
                said = system.last_line(own / f"{daemon}.err") or system.last_line(own / f"{daemon}.log") or "no reason"
                raise ToolError(f"`{daemon}` of {router.switch.name} did not start: {said}")

    def alive(self, switch: Switch, daemons: Iterable[str]) -> dict[str, bool]:
        """Returns, by daemon, whether its process runs."""
        return {daemon: self._process(switch, daemon) is not None for daemon in daemons}

    def stop(self, switches: Iterable[Switch]) -> None:
        """Ends all daemons of switches; zebra removes its routes. Raises `ToolError`."""
        for switch in switches:
            for daemon in reversed(daemons_of(True)):
                process = self._process(switch, daemon)
                if process is None:
                    continue
                os.kill(process, signal.SIGTERM)
                if not await_event(partial(system.is_over, process), PATIENCE_S, 0.002):
                    raise ToolError(f"`{daemon}` of {switch.name} does not end")
                started = _started.pop(self._own(switch) / f"{daemon}.conf", None)
                if started is not None:
                    started.wait()

    def ask(self, switch: Switch, daemon: str, command: str) -> str:
        """Returns the answer of a daemon to a command of `vtysh`. Raises `ToolError`."""
        return system.run_tool(["vtysh", "--vty_socket", self._own(switch), "-d", daemon, "-c", command])

    def _process(self, switch: Switch, daemon: str) -> int | None:
        started = _started.get(self._own(switch) / f"{daemon}.conf")
        if started is not None:
            return None if started.poll() is not None else started.pid
        try:
            process = int((self._own(switch) / f"{daemon}.pid").read_text(encoding="ascii"))
            name = Path(f"/proc/{process}/comm").read_text(encoding="ascii").strip()
        except (OSError, ValueError):
            return None
        return process if name == daemon and not system.is_over(process) else None

    def _own(self, switch: Switch) -> Path:
        return self.directory / str(switch.node)


def forget(run_directory: Path) -> None:
    """Collects the exit codes of daemons whose lab is gone."""
    for file in [file for file in _started if file.is_relative_to(run_directory)]:
        _started.pop(file).wait()


def _all_exist(files: Iterable[Path]) -> bool:
    return all(file.exists() for file in files)
