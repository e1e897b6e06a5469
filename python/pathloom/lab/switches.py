"""The switches of a lab: a private Open vSwitch with several daemons, since each daemon forwards in one thread only."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from pathloom.lab.blueprint import Blueprint, Switch
from pathloom.lab.daemons import Daemon

Value = TypeVar("Value")

TOOLS_AT_ONCE = 4
SESSIONS_AT_ONCE = 32
"""OpenFlow sessions at the same time. They mostly wait for the next round of the switches."""


class OpenVSwitch:
    """The Open vSwitch of one lab."""

    def __init__(self, blueprint: Blueprint, run_directory: Path) -> None:
        self.blueprint = blueprint
        self.directory = run_directory / "ovs"
        count = len(blueprint.switch_namespaces)
        self.daemons = [Daemon(blueprint, number, run_directory) for number in range(count)]
        self._daemon_of = {switch.bridge: daemon for daemon in self.daemons for switch in daemon.switches}

    def start(self) -> None:
        """Starts the daemons, and returns when all answer. Raises `ToolError`."""
        self.directory.mkdir(mode=0o700)
        self._on_daemons(Daemon.start)

    def runs(self) -> bool:
        """Returns whether the processes of all daemons run."""
        return all(daemon.runs() for daemon in self.daemons)

    def add_bridges(self, controller: str | None) -> None:
        """Makes every bridge with its ports. Raises `ToolError`."""
        self._on_daemons(lambda daemon: daemon.add_bridges(controller))

    def widen_buffers(self) -> None:
        """Enlarges the buffers of the sockets that ports send and receive through. Raises `ToolError`."""
        self._on_daemons(Daemon.widen_buffers)

    def keep_to(self, processors: Sequence[int]) -> None:
        """Binds each forwarding thread, and no other thread, to a processor."""
        for daemon, processor in zip(self.daemons, processors, strict=True):
            daemon.keep_to({processor})

    def daemon_of(self, bridge: str) -> Daemon:
        """The daemon that runs a bridge."""
        return self._daemon_of[bridge]

    def connected_bridges(self) -> dict[str, bool]:
        """Returns, by bridge, whether its controller is connected; bridges without a controller are left out."""
        return {bridge: is_it for daemon in self.daemons for bridge, is_it in daemon.connected_bridges().items()}

    def buffers(self) -> list[tuple[int, int]]:
        """Send and receive buffer of every packet socket, in bytes as the kernel counts them."""
        return [sizes for daemon in self.daemons for sizes in daemon.buffers()]

    def write_tables(
        self, groups: Mapping[int, Iterable[str]], flows: Mapping[int, Iterable[str]], clear: bool = True
    ) -> None:
        """Adds groups and flows to switches, by node number. With `clear`, they replace the old ones in one step.

        Raises `ToolError`.
        """

        def write(daemon: Daemon, switch: Switch) -> None:
            lines = ["flow delete", "group delete group_id=all"] if clear else []
            lines += [f"group add {line}" for line in groups.get(switch.node, ())]
            lines += [f"flow add {line}" for line in flows.get(switch.node, ())]
            daemon.ofctl("bundle", switch.bridge, "-", text="".join(f"{line}\n" for line in lines))

        self._on_switches(write)

    def add_flows(self, flows: Mapping[int, Iterable[str]]) -> None:
        """Gives switches more flows, by node number. Raises `ToolError`."""
        self.write_tables({}, flows, clear=False)

    def discard_cached_decisions(self) -> None:
        """Makes all switches treat the next packets by their present rules. Raises `ToolError`."""
        self._on_daemons(Daemon.discard_cached_decisions)

    def rule_counts(self) -> dict[int, int]:
        """Returns how many rules each switch has, by node number. Raises `ToolError`."""

        def count(daemon: Daemon, switch: Switch) -> int:
            said = daemon.ofctl("dump-aggregate", switch.bridge)
            return int(said.rpartition("flow_count=")[2].split()[0])

        return self._on_switches(count)

    def dump(self, verb: str) -> dict[int, list[str]]:
        """Returns the output of `ovs-ofctl` `dump-flows`, `dump-groups` or `dump-meters`, by node number.

        The output has no counters.

        Raises `ToolError`.
        """
        options = ["--no-stats"] if verb == "dump-flows" else []

        def read(daemon: Daemon, switch: Switch) -> list[str]:
            said = daemon.ofctl(verb, switch.bridge, *options)
            return sorted(line.strip() for line in said.splitlines()[1:])

        return self._on_switches(read)

    def _on_daemons(self, act: Callable[[Daemon], None]) -> None:
        with ThreadPoolExecutor(TOOLS_AT_ONCE) as pool:
            list(pool.map(act, self.daemons))

    def _on_switches(self, act: Callable[[Daemon, Switch], Value]) -> dict[int, Value]:
        switches = self.blueprint.switches
        with ThreadPoolExecutor(SESSIONS_AT_ONCE) as pool:
            found = pool.map(lambda switch: act(self._daemon_of[switch.bridge], switch), switches)
            return dict(zip((switch.node for switch in switches), found, strict=True))
