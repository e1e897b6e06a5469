"""Runs in the lab: the experiments of the simulator, on real kernels and real switches.

The simulator prepares each run. It draws the same flows with the same five-tuples, and computes the rules of every
switch and the path on which its hash would send each flow. The lab gives its switches the same rules, and the agent
carries the same flows. The outcome has the same form as the simulator's.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any

from pathloom import _core
from pathloom.errors import ToolError, bad_input
from pathloom.experiments.results.outcome import NOTED_STOLEN_SHARE, RunOutcome, Sample, stolen_text
from pathloom.experiments.results.output_files import check_writable, write_atomically
from pathloom.experiments.running.simulation import RunFiles, simulation
from pathloom.experiments.running.threads import interruptible
from pathloom.experiments.running.work import JobProgress, Runner
from pathloom.experiments.running.world import RunOptions
from pathloom.experiments.schemes.loading import PythonScheme
from pathloom.experiments.settings.model import DRAIN, Job, LabSettings, Settings
from pathloom.fabrics import Fabric
from pathloom.lab import controller, hostd, hosts, links, rules, system
from pathloom.lab.columns import flow_columns, link_columns
from pathloom.lab.counters import Counters, await_silence, counters, difference
from pathloom.lab.faults import FaultSchedule
from pathloom.lab.lab import Lab, differences
from pathloom.lab.parallel import StreamSettings
from pathloom.lab.path_history import (
    Connection,
    PathChange,
    PathHistory,
    RunClock,
    connections,
    read_changes,
    subflow_columns,
)
from pathloom.lab.program_switches import PROGRAM, PROTOCOLS, is_protocol, settings_of
from pathloom.lab.routed import routers
from pathloom.lab.routed.central import PortMaps, is_bound, not_carried, take_bindings
from pathloom.lab.routed.pinning import MOST_FLOWS, pin_by_ports
from pathloom.lab.routed.settings import FRR, RouterSettings, check_routed
from pathloom.lab.run_task import RunTask
from pathloom.lab.status import link_counters
from pathloom.lab.steps import LinkSteps
from pathloom.lab.system import MARK
from pathloom.lab.tables import SwitchTables
from pathloom.native import program
from pathloom.quantities import listed
from pathloom.specs import LAB, is_python_spec

STATIC = ("spt", "ecmp", "mptcp")
"""Schemes that consist of default routes only."""
MOST_PINNED = 5_000
"""Largest number of flows for which rules are written in reasonable time."""
LEAST_LOST = 100
"""More packets lost outside queues than this are worth a note."""
_REPLAY_S = 60.0
_SAMPLE_S = 0.25
_START_S = 0.01


class LabExecution:
    """All runs of an experiment, one after another, in a lab that is built for them."""

    def __init__(
        self,
        settings: Settings,
        fabric: Fabric,
        run_files: RunFiles,
        sample_at_s: Sequence[float] = (),
        in_python: Mapping[str, PythonScheme] | None = None,
    ) -> None:
        """Prepares the first run of every scheme, so that bad input is found before any lab is built.

        `sample_at_s` are times of a run, in ascending order, at which the bytes received so far are recorded.
        `in_python` has the schemes in Python files, by their specifications.
        """
        self.in_python = dict(in_python or {})
        if run_files.pcap:
            raise bad_input("--pcap: is for the simulator; capture packets of a lab with `pathloom lab exec`")
        self.event_log = run_files.event_log
        options = LabSettings.parse(settings.lab)
        live = options.controller == "pathloom"
        programs = any(is_protocol(scheme) for scheme in settings.schemes)
        check_routed(options, settings.schemes, bool(settings.faults))
        if settings.faults and not live and not programs and not options.switches.startswith(FRR):
            raise bad_input(
                "--fault: static routes in the lab do not react to faults; add --lab controller=pathloom, or "
                "--lab switches=frr for routers with BGP"
            )
        if run_files.event_log and not live:
            raise bad_input("--event-log: without a controller there are no events; add --lab controller=pathloom")
        if run_files.event_log:
            check_writable(Path(run_files.event_log))
        system.check_machine(system.TOOLS if options.switches == "ovs" else system.ROUTER_TOOLS)
        self.settings = settings
        self.fabric = fabric
        self.options = options
        self.routed = options.switches != "ovs"
        self.stack = hosts.host_stack(self.options.hosts, settings.transport)
        self.pace_bps: int | None = _core.transport_settings(settings.transport)["pace_bps"]
        self.sample_at_s = tuple(sample_at_s)
        self.step_s = None if settings.series is None else _core.parse_time_s(settings.series)
        self.outcomes: list[RunOutcome] = []
        self.interrupted = False
        self.failure: ToolError | None = None
        self.notes: list[str] = _simulators_own(settings.control)
        self.jobs = settings.jobs(LAB)
        self.target = controller.OWN if self.options.controller == "pathloom" else None
        if self.target is not None:
            program()
        self.programs = self._check_programs()
        for job in self.jobs if self.target is None and not self.programs else []:
            name = job.scheme if job.scheme in self.in_python else _core.scheme_name(job.scheme)
            if name not in STATIC and not self.routed:
                raise bad_input(f"scheme `{name}`: is more than static routes; add --lab controller=pathloom")
        first = [job for job in self.jobs if job.run == 1]
        prepared = interruptible(lambda: [self._simulation(job) for job in first])
        prepared[0].cable_faults()
        self.port_maps: PortMaps | None = None
        self.description = prepared[0].description
        self.notes += prepared[0].notes
        self.subflows = {job.scheme: hosts.subflows_of(job.scheme, settings.transport) for job in self.jobs}
        self._check_subflows()

    def _check_subflows(self) -> None:
        """Raises `PathloomError` if MPTCP is needed but not available. Notes differences from the simulator."""
        for scheme, subflows in self.subflows.items():
            if subflows is None:
                continue
            hosts.check_mptcp(f"scheme `{scheme}`")
            program(hostd.PROGRAM)
            if subflows.cc in ("lia", "olia"):
                self._note(
                    ["the lab's kernels do not couple the windows of MPTCP's subflows; they behave as cc=uncoupled"]
                )

    def _simulation(self, job: Job) -> _core.Simulation:
        return simulation(self.settings, self.fabric.text, job, RunFiles(), self.in_python.get(job.scheme))

    @property
    def on_one_thread(self) -> dict[str, str]:
        """No scheme: threads are for the simulator."""
        return {}

    def missing(self) -> list[Job]:
        """The runs that are still to be carried out."""
        done = {outcome.job for outcome in self.outcomes}
        return [job for job in self.jobs if job not in done]

    def run(
        self,
        threads: int,
        progress: JobProgress = lambda _job, _share: None,
        take: Callable[[RunOutcome], None] | None = None,
        runner: Runner | None = None,
    ) -> None:
        """Carries out all runs, one after another; a `runner` cannot carry out runs in the lab.

        With `take`, each finished run is passed to it at once, and not kept in `outcomes`. After Ctrl-C, `interrupted`
        is set. If a system tool failed, `failure` is set. `outcomes` has the finished runs.
        """
        if runner is not None:
            raise TypeError("a runner cannot carry out runs in the lab; expected a number of threads")
        lab = Lab(f"run-{os.getpid()}")
        lab.keeper = [os.getpid(), system.started_at(os.getpid())]
        try:
            with system.signals_as_interrupts(), _taken_down_at_end(lab):
                self._up(lab)
                for job in self.jobs:
                    outcome = self._carry_out(lab, job, progress)
                    if take is None:
                        self.outcomes.append(outcome)
                    else:
                        take(outcome)
        except KeyboardInterrupt:
            self.interrupted = True
        except ToolError as error:
            self.failure = error
            self._note([f"the lab failed: {error}"])

    def _check_programs(self) -> bool:
        """Returns whether the switches find the paths themselves. Raises `PathloomError`."""
        protocols = [job.scheme for job in self.jobs if is_protocol(job.scheme)]
        if protocols and (self.target is not None or len(protocols) < len(self.jobs)):
            raise bad_input(
                f"scheme `{protocols[0]}`: its switches find the paths themselves; in the lab, run {listed(PROTOCOLS)} "
                "apart from other schemes, and without --lab controller=pathloom"
            )
        for scheme in protocols:
            settings_of(scheme)
        if protocols:
            program(PROGRAM)
        return bool(protocols)

    def _up(self, lab: Lab) -> None:
        first = self.jobs[0].scheme
        if self.programs:
            self._note(links.differences(lab.up_with_programs(self.fabric, first, self.stack)))
        elif self.routed:
            settings = RouterSettings.of_run(self.options.switches, first)
            self._note([*links.differences(lab.up_routed(self.fabric, settings, self.stack)), *routers.notes()])
        else:
            blueprint = lab.up(self.fabric, self.target, first, self.stack, daemons=self.options.daemons)
            self._note(differences(blueprint))

    def _note(self, notes: list[str]) -> None:
        self.notes += [note for note in notes if note not in self.notes]

    def _carry_out(self, lab: Lab, job: Job, progress: JobProgress) -> RunOutcome:
        started = time.perf_counter()
        run = self._simulation(job)
        offered = run.offered()
        pins = self._prepare_switches(lab, job, run, offered)
        blueprint = lab.blueprint()
        before = counters(lab)
        waiting: dict[int, list[int]] = {}

        def report(now_s: float) -> None:
            for interface, counts in link_counters(blueprint).items():
                waiting.setdefault(int(interface[1:]), []).append(counts[3])
            progress(job, min(now_s / self.settings.duration_s, 0.99))

        began_ns, stolen_s = time.time_ns(), system.stolen_s()
        busy_ns = controller.busy_ns(lab.controller_process()) if self.target is not None else 0
        faults, clock = run.cable_faults(), RunClock()
        schedule = FaultSchedule(blueprint, faults, self.routed)
        steps = LinkSteps(blueprint, self.step_s, self.stack.missing_header_bytes) if self.step_s else None
        with ExitStack() as while_running:
            parts: list[RunTask] = [schedule, *([steps] if steps else [])]
            for part in parts:
                while_running.callback(part.end)
            plan = self._plan(lab, offered, job)
            result = run_agent(lab, plan, report, [clock.begin, *(part.begin for part in parts)])
        await_silence(lab)
        stolen_share = self._stolen_share(job, system.stolen_s() - stolen_s, (time.time_ns() - began_ns) / 1e9)
        counts = difference(before, counters(lab), self.stack.missing_header_bytes)
        failed = [row["error"] for row in result["flows"] if row["error"]]
        if failed:
            self._note([f"{len(failed)} connections failed in run {job.run} of {job.label}: {failed[0]}"])
        plain = sum(row["fell_back"] for row in result["flows"])
        if plain:
            where = f"run {job.run} of {job.label}: {plain} of {len(result['flows'])} MPTCP connections"
            self._note([f"{where} became plain TCP: packets of their handshakes were lost or overtaken"])
        if result["no_path"]:
            self._note([f"run {job.run} of {job.label}: streams took the default routes: {result['no_path']}"])
        if any(row["timeouts"] is None for row in result["flows"]):
            self._note(["this kernel does not count the time-outs of TCP (Linux does from 6.7 on)"])
        outcome = {
            "flows": flow_columns(offered, result, self.settings.duration_s),
            "links": link_columns(self.fabric, counts, waiting, result["end_ns"] / 1e9),
            "packets": self._packets(job, counts, result),
            "control": self._control(lab, began_ns, busy_ns, pins),
            "end_ns": result["end_ns"],
        }
        if result["bindings"] is not None:
            outcome["control"] |= take_bindings(offered, result)
            where = f"run {job.run} of {job.label}"
            self._note([f"{where}: {what}" for what in not_carried(result["bindings"]["counts"])])
        first_fault_ns = min((at_ns for at_ns, _, _ in faults), default=None)
        paths = self._paths(lab, job, clock, connections(offered, result, self._pins_flows(offered), first_fault_ns))
        outcome["subflows"] = subflow_columns(result, paths)
        if steps and self.step_s:
            ways = [] if self.programs else paths.rows(self.step_s)
            outcome["series"] = {**steps.series(self.fabric, result["steps"]), "ways": ways}
        progress(job, 1.0)
        samples = tuple(map(Sample, self.sample_at_s, result["samples"]))
        return RunOutcome(job, outcome, time.perf_counter() - started, samples=samples, stolen_share=stolen_share)

    def _prepare_switches(
        self, lab: Lab, job: Job, run: _core.Simulation, offered: list[dict[str, Any]]
    ) -> dict[int, list[str]]:
        """Prepares hosts and switches for a run. Returns, by switch, the rules that pin flows."""
        subflows = self.subflows[job.scheme]
        lab.set_subflows(self.stack, subflows is not None)
        if subflows is not None and self.target is None:
            lab.start_hostd(_long_bytes(offered), subflows)
        if self.programs:
            lab.restart_programs(self.fabric, job.scheme)
            return {}
        if self.routed:
            lab.restart_routers(self.fabric, RouterSettings.of_run(self.options.switches, job.scheme))
            if not is_bound(job.scheme):
                self._pin_by_ports(lab, job, offered)
            return {}
        tables: list[SwitchTables] = json.loads(run.switch_tables())
        pins = self._pins(offered, tables)
        if self.target is None:
            lab.write_tables(tables, pins)
        else:
            lab.start_controller(self.fabric, job.scheme, job.seed, _long_bytes(offered), subflows)
            lab.open_vswitch().add_flows(pins)
        # Flows have the same five-tuples under each scheme, so decisions about them are cached from earlier runs.
        lab.open_vswitch().discard_cached_decisions()
        return pins

    def _paths(self, lab: Lab, job: Job, clock: RunClock, opened: list[Connection]) -> PathHistory:
        """Returns the paths of connections. Notes a log of the controller that cannot be replayed."""
        changes: list[PathChange] = []
        wanted = self.step_s is not None or any(one.of_several for one in opened)
        if self.target is not None and wanted:
            try:
                # A replay takes less time than the run, unless the machine is busy.
                patience_s = _REPLAY_S + 2 * self.settings.duration_s * (1 + DRAIN)
                changes = read_changes(controller.paths(lab.directory, patience_s), clock)
            except ToolError as error:
                self._note([f"run {job.run} of {job.label}: the paths of flows are unknown: {error}"])
                opened = []
        return PathHistory(opened, changes)

    def _stolen_share(self, job: Job, stolen_s: float, took_s: float) -> float:
        """Returns the share of processor time that the machine's host gave to others. Notes a large share."""
        share = stolen_s / (took_s * (os.cpu_count() or 1))
        if share > NOTED_STOLEN_SHARE:
            self._note([f"run {job.run} of {job.label}: {stolen_text(share)}"])
        return share

    def _control(self, lab: Lab, began_ns: int, busy_ns: int, pins: dict[int, list[str]]) -> dict[str, Any]:
        """Ends the controller and returns what it did in a run. Its rules exclude pins. Raises `ToolError`."""
        if self.programs:
            return _program_counts(lab)
        if self.routed:
            return _router_counts(lab)
        counts = lab.open_vswitch().rule_counts()
        rules_max = max(count - len(set(pins.get(node, ()))) for node, count in counts.items())
        if self.target is None:
            return {
                "messages": 0,
                "rules_max": rules_max,
                "routes": 0,
                "reroutes": 0,
                "polls": 0,
                "polling_period_s": None,
                "busy_share": 0.0,
            }
        controller.check(lab.controller_process(), lab.directory)
        took_ns = controller.busy_ns(lab.controller_process()) - busy_ns
        busy_share = min(max(took_ns / (time.time_ns() - began_ns), 0.0), 1.0)
        if not lab.stop_controller():
            raise ToolError("the controller did not exit normally, and has not logged its counts")
        if self.event_log:
            write_atomically(Path(self.event_log), partial(shutil.copyfile, lab.directory / controller.EVENTS))
        if not self.settings.faults and (cables := controller.cables_without_probes(lab.directory)):
            self._note([controller.without_probes_text(cables)])
        said = controller.final_counts(lab.directory)
        return {
            "messages": controller.messages(lab.directory, began_ns),
            "rules_max": max(rules_max, said["rules_max"]),
            "routes": said["routes"] + said["bound"],
            "reroutes": said["reroutes"],
            "polls": said["polls"],
            "polling_period_s": said["polling_ns"] / 1e9 or None,
            "busy_share": busy_share,
        }

    def _pins_flows(self, offered: list[dict[str, Any]]) -> bool:
        most = MOST_FLOWS if self.routed else MOST_PINNED
        return self.options.pinned and len(offered) <= most and not self.programs

    def _pin_by_ports(self, lab: Lab, job: Job, offered: list[dict[str, Any]]) -> None:
        """Gives flows the source ports by which routers send them where the simulator's switches would."""
        if not self._pins_flows(offered):
            why = f": {len(offered)} are too many to find source ports for" if self.options.pinned else ""
            self._note([f"the routers' own hash spreads the flows{why}"])
        elif left := pin_by_ports(lab.blueprint(), offered):
            where = f"run {job.run} of {job.label}: {len(left)} of {len(offered)} flows"
            self._note([f"{where} take other paths than in the simulator, since no source port leads there"])

    def _pins(self, offered: list[dict[str, Any]], tables: list[SwitchTables]) -> dict[int, list[str]]:
        """Returns, by switch, the rules that send flows on the paths that the simulator's switches would choose."""
        if not self._pins_flows(offered):
            if self.options.pinned:
                self._note([f"the switches' own hash spreads the flows: {len(offered)} are too many to pin"])
            return {}
        spread = {node: rules.spread_ports(groups) for node, _, groups in tables}
        pins: dict[int, list[str]] = {}
        for flow in offered:
            for node, line in rules.pin_lines(flow, self.fabric.links, spread):
                pins.setdefault(node, []).append(line)
        return pins

    def _plan(self, lab: Lab, offered: list[dict[str, Any]], job: Job) -> dict[str, Any]:
        streams = StreamSettings.of_scheme(job.scheme)
        namespaces = {port.address: host.namespace for host in lab.blueprint().hosts for port in host.ports}
        keys = ("start_ns", "after", "src_address", "dst_address", "src_port", "dst_port", "size_bytes", "dscp")
        return {
            "duration_ns": round(self.settings.duration_s * 1e9),
            "drain": DRAIN,
            "pace_bps": self.pace_bps,
            "step_ns": round(self.step_s * 1e9) if self.step_s else None,
            "sample_ns": [round(at_s * 1e9) for at_s in self.sample_at_s],
            "namespaces": namespaces,
            "mptcp": self.subflows[job.scheme] is not None,
            "bindings": self._bindings(lab, offered, job),
            "streams": streams.to_dict() if streams is not None else None,
            "flows": [{key: flow[key] for key in keys} for flow in offered],
            "orders": str(_orders_socket(lab)) if self.target is not None else None,
        }

    def _bindings(self, lab: Lab, offered: list[dict[str, Any]], job: Job) -> dict[str, Any] | None:
        """Returns what the agent needs to ask the scheme for source ports; None if it does not ask it."""
        if not (self.routed and is_bound(job.scheme)):
            return None
        if self.port_maps is None:
            self.port_maps = PortMaps(lab.blueprint())
        fabric = (self.fabric.spec, self.fabric.text)
        return {"fabric": fabric, "scheme": job.scheme, "seed": job.seed, "maps": self.port_maps.of(offered)}

    def _packets(self, job: Job, counts: Counters, result: dict[str, Any]) -> dict[str, int]:
        nodes, ends = self.fabric.nodes, self.fabric.links
        is_host = [node["tier"] == "host" for node in nodes]
        sent = delivered = dropped = hops = forwarded = taken = 0
        for link, (_, packets, drops, waiting) in counts.links.items():
            hops += packets
            dropped += drops
            if is_host[ends["source"][link]]:
                sent += packets + drops
            else:
                forwarded += packets + drops + waiting
            if is_host[ends["target"][link]]:
                delivered += packets
            else:
                taken += packets
        # Packets that entered switches but reached none of their queues. A few are usual: when a queue refuses a
        # packet, Open vSwitch also drops the packets behind it in the same batch, which the queue does not count.
        lost = max(taken - forwarded, 0)
        if lost > max(dropped, LEAST_LOST):
            where = f"run {job.run} of {job.label}: {lost} packets were lost in switches, outside every queue"
            self._note([f"{where}; if this machine is too slow for the lab, lower the rate of the links"])
        return {
            "sent": sent,
            "copied": 0,
            "delivered": delivered,
            # A host's interface counts them as delivered.
            "misdelivered": 0,
            "dropped": dropped + lost,
            "in_flight": max(sent - delivered - dropped - lost, 0),
            "trimmed": 0,
            "hops": hops,
            "events": hops + len(result["flows"]),
        }


def in_lab(settings: Settings, fabric: Fabric, options: RunOptions) -> LabExecution:
    """The lab as a `World`. Raises `PathloomError` if it cannot carry out the runs."""
    for scheme in options.in_python:
        if not is_python_spec(scheme):
            raise bad_input(
                f"scheme `{scheme}`: is a class; in the lab it runs in a process of its own, so name its file: "
                "FILE.py:CLASS"
            )
    return LabExecution(settings, fabric, options.run_files, options.sample_at_s, options.in_python)


def _program_counts(lab: Lab) -> dict[str, Any]:
    """Returns what switches that find paths themselves did in a run. Raises `ToolError`."""
    switches = lab.program_switches()
    rows = switches.show() if switches is not None else []
    dead = [row["name"] for row in rows if row["process"] is None]
    if dead:
        raise ToolError(f"the switch {dead[0]} has ended; see its log in {lab.directory}/programs")
    return {
        "messages": 0,
        "rules_max": max(row["connection_entries"] + len(row["hosts"]) for row in rows),
        "routes": sum(row["explorations"] for row in rows),
        "reroutes": sum(row["recoveries"] for row in rows),
        "polls": 0,
        "polling_period_s": None,
        "busy_share": 0.0,
    }


def _router_counts(lab: Lab) -> dict[str, Any]:
    """Returns what routers did in a run: only the largest number of their routes is known. Raises `ToolError`."""
    own = lab.routers()
    if own is None or not own.runs():
        raise ToolError(f"a router of the lab has ended; see the logs in {lab.directory}/frr")
    return {
        "messages": 0,
        "rules_max": own.most_routes(),
        "routes": 0,
        "reroutes": 0,
        "polls": 0,
        "polling_period_s": None,
        "busy_share": 0.0,
    }


def _orders_socket(lab: Lab) -> Path:
    """Returns the socket for announcements of flows: that of the hosts' agent if it runs, else the controller's."""
    own = hostd.running(lab.directory) is not None
    return lab.directory / (hostd.PROGRAMS_SOCKET if own else controller.HOSTS_SOCKET)


def _long_bytes(offered: list[dict[str, Any]]) -> int:
    """Returns the bytes from which a connection is long, so that no unlabelled connection is."""
    sizes: list[int] = [flow["size_bytes"] or 0 for flow in offered if not flow["dscp"]]
    return max([hostd.LONG_BYTES, *(size + 1 for size in sizes)])


def _simulators_own(control: str | None) -> list[str]:
    """Returns a note if --control has keys that apply to the simulator only, since the lab's switches are real."""
    keys = [part.partition("=")[0].strip() for part in (control or "").removeprefix("control:").split(",")]
    own = [key for key in keys if key and key not in ("long", "handover")]
    if not own:
        return []
    what = listed(own)
    return [f"the lab has a real controller and real switches; {what} of --control applied to the simulator alone"]


@contextmanager
def _taken_down_at_end(lab: Lab) -> Iterator[None]:
    """Takes the lab down at the end, also after an error."""
    try:
        yield
    finally:
        with system.uninterrupted():
            lab.down()


def run_agent(
    lab: Lab,
    plan: dict[str, Any],
    report: Callable[[float], None],
    begin: Sequence[Callable[[int], None]] = (),
) -> dict[str, Any]:
    """Carries out a plan; `report` is called from time to time with the time of the run. Raises `ToolError`.

    The functions in `begin` are called with time 0 of the run, in nanoseconds of the monotonic clock.
    """
    # -P: no module is taken from the folder in which the user works.
    command = [sys.executable, "-P", "-m", "pathloom.lab.agent"]
    environment = {**os.environ, MARK: str(lab.directory)}
    errors = lab.directory / "agent.log"
    lines: list[dict[str, Any]] = []
    pipe = subprocess.PIPE
    with errors.open("wb") as log:
        process = system.begin(
            lambda: subprocess.Popen(
                command, stdin=pipe, stdout=pipe, stderr=log, env=environment, start_new_session=True
            )
        )
    assert process.stdin is not None and process.stdout is not None
    output = process.stdout

    def read() -> None:
        for line in output:
            lines.append(json.loads(line))

    reader = Thread(target=read, name="agent-output", daemon=True)
    reader.start()
    try:
        system.give_priority(process.pid)
        hostd.join(lab.directory, process.pid)
        process.stdin.write(json.dumps(plan).encode() + b"\n")
        process.stdin.flush()
        while reader.is_alive():
            reader.join(_SAMPLE_S if any("now_ns" in line for line in lines[:2]) else _START_S)
            if lines and "zero_ns" in lines[0]:
                for act in begin:
                    act(lines[0]["zero_ns"])
            if lines and "now_ns" in lines[-1]:
                report(lines[-1]["now_ns"] / 1e9)
    finally:
        process.stdin.close()
        process.kill()
        process.wait()
        reader.join()
        output.close()
    if not lines or "flows" not in lines[-1]:
        said = errors.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        raise ToolError(f"the agent ended early: {said[-1] if said else 'its log is empty'}")
    return lines[-1]
