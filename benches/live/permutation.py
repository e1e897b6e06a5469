"""A permutation of the hosts of a lab as TCP connections of iperf3, and the check of the rules of all flows.

Each host sends 500 kbit/s to the host half a fabric away, labelled as a long flow. That fills no queue, so each
retransmission has another cause. Acknowledgements are flows of their own, with the ports exchanged.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pathloom.errors import ToolError
from pathloom.lab import system
from pathloom.lab.members import Members

sys.path.append(str(Path(__file__).resolve().parents[2] / "tests/lab"))
from live import LiveMembers

RATE = "500K"
PATIENCE_S = 60.0


class Permutation:
    """One connection from each host, which sends until the lab is down."""

    def __init__(self, members: Members) -> None:
        self.hosts = members.blueprint.hosts
        self._members = members
        self._running: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        """Starts all connections. Raises `ToolError` if one does not last a second."""
        log = self._members.directory / "iperf3.log"
        directory = self._members.directory
        for host in self.hosts:
            system.start_daemon([*system.within(host.namespace), "iperf3", "-s", "-i", "0"], log, directory)
        time.sleep(1)
        half = len(self.hosts) // 2
        for index, host in enumerate(self.hosts):
            target = self.hosts[(index + half) % len(self.hosts)].ports[0].address
            words = ["iperf3", "-c", target, "-t", "86400", "-b", RATE, "-l", "4K", "-S", "32", "-i", "0"]
            self._running.append(system.start_daemon([*system.within(host.namespace), *words], log, directory))
        time.sleep(1)
        if (ended := self.ended()) > 0:
            raise ToolError(f"{ended} connections of iperf3 have ended; see {log}")

    def ended(self) -> int:
        """Number of connections that have ended."""
        return sum(one.poll() is not None for one in self._running)

    def counts(self) -> dict[str, int]:
        """Segments that hosts have sent so far, those that they have sent again, and connections that have ended."""
        sent = again = 0
        for host in self.hosts:
            found = system.inside(host.namespace, _tcp)
            sent, again = sent + found["OutSegs"], again + found["RetransSegs"]
        return {"segments": sent, "retransmitted": again, "ended": self.ended()}


def _tcp() -> dict[str, int]:
    """The counters of TCP of the calling thread's namespace (RFC 4022)."""
    lines = Path("/proc/thread-self/net/snmp").read_text(encoding="ascii").splitlines()
    names, values = (line.split()[1:] for line in lines if line.startswith("Tcp:"))
    return dict(zip(names, map(int, values), strict=True))


class Rules(LiveMembers):
    """The rules of single flows in the switches of a lab that is up."""

    def __init__(self, members: Members, spec: str) -> None:
        super().__init__(members, spec)
        self._names = {host.ports[0].address: host.name for host in self.blueprint.hosts}
        self._ports = {host.ports[0].address: host.ports[0].link for host in self.blueprint.hosts}

    def broken(self, ports: Sequence[int], drained: int) -> str | None:
        """What is wrong with the rules of flows; None if each has one complete path, with one rule at each switch.

        The flows from these UDP ports and those of TCP must have one, and none may go by the node `drained`.
        """
        udp, tcp = self.flow_rules("udp"), self.flow_rules("tcp")
        if len(tcp) != (expected := 2 * len(self.blueprint.hosts)):
            return f"{len(tcp)} of {expected} flows of TCP have rules"
        if missing := set(ports) - {port for _, port in udp}:
            return f"probes from the ports {sorted(missing)} have no rules"
        problems = (self._broken_flow(flow, rules, drained) for flow, rules in [*udp.items(), *tcp.items()])
        return next((problem for problem in problems if problem is not None), None)

    def _broken_flow(self, flow: tuple[str, int], rules: dict[int, list[str]], drained: int) -> str | None:
        try:
            links = self.path(rules, self._names[flow[0]])
        except AssertionError as problem:
            return str(problem)
        first = rules.get(self.links["target"][self._ports[flow[0]]], [])
        if not links and all("goto_table:2" in line for line in first):
            # It uses the default routes. Rules of its path may exist a while longer.
            return None if first else "no rule at the first switch"
        visited = [self.links["source"][link] for link in links]
        if not links or not any(self.links["target"][links[-1]] == host.node for host in self.blueprint.hosts):
            return f"the flow from {flow} has no complete path: {rules}"
        if drained in visited:
            return f"the flow from {flow} goes by the drained switch"
        if sorted(visited) != sorted(node for node, lines in rules.items() for _ in lines):
            return f"the flow from {flow} goes by {visited} and has rules at {sorted(rules)}"
        return None

    def settle_s(self, ports: Sequence[int], drained: int) -> tuple[float, str | None]:
        """Seconds until nothing is wrong with the rules, or what is wrong after a minute."""
        began_s = time.monotonic()
        while (problem := self.broken(ports, drained)) is not None:
            if time.monotonic() - began_s > PATIENCE_S:
                break
            time.sleep(0.2)
        return time.monotonic() - began_s, problem


def switch_node(members: Members, switch: str) -> int:
    """The node of a switch by its name."""
    return next(one.node for one in members.blueprint.switches if one.name == switch)


def difference(after: dict[str, int], before: dict[str, int]) -> dict[str, Any]:
    """What was counted between two times."""
    return {key: after[key] - before[key] for key in after}
