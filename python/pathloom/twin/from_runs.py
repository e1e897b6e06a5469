"""Forks of simulated runs: the run of a results folder is repeated up to the time of the fork.

A run is the same each time, so its state at any time is known exactly. The fork still has only what an operator could
know: sizes of flows are learned from flows that have ended, and the sizes of flows under way are not known.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pathloom import _core
from pathloom.errors import bad_input
from pathloom.experiments.results.record import SWEEP, kind_of, read_record
from pathloom.experiments.running.simulation import RunFiles, simulation
from pathloom.experiments.settings.input_files import OWN_FABRIC
from pathloom.experiments.settings.model import Job, Settings
from pathloom.fabrics import Fabric
from pathloom.specs import SIM, is_python_spec
from pathloom.twin.fork import Flows, Fork, port_keys
from pathloom.twin.learning import FlowRecord, learn_arrivals

RATE_WINDOW_SHARE = 0.1
"""Rates of flows are means over this share of the time before the fork."""
LEAST_SENT_BYTES = 1
MSS_BYTES = 1448


def settings_of_folder(folder: Path) -> tuple[Settings, str | None]:
    """The settings of a result, and the text of its fabric if it was built in Python. Raises `PathloomError`."""
    record = read_record(folder)
    if record is None:
        raise bad_input(f"--from `{folder}`: has no result.json; expected the folder of `pathloom run` or `compare`")
    if kind_of(record) == SWEEP:
        raise bad_input(f"--from `{folder}`: holds a sweep; expected the folder of `pathloom run` or `compare`")
    known = {name: value for name, value in record["settings"].items() if name in Settings.model_fields}
    values = {name: tuple(value) if isinstance(value, list) else value for name, value in known.items()}
    settings = Settings.of(values, f"--from `{folder}`")
    own = folder / OWN_FABRIC
    return settings, own.read_text(encoding="utf-8") if own.is_file() else None


def job_of(settings: Settings, scheme: str | None, run: int) -> Job:
    """The run of a scheme; by default the first scheme. Raises `PathloomError`."""
    name = scheme or settings.schemes[0]
    if name not in settings.schemes:
        raise bad_input(f"--scheme `{name}`: is not in the result; expected one of {', '.join(settings.schemes)}")
    if is_python_spec(name):
        raise bad_input(f"--scheme `{name}`: a scheme in Python cannot be forked; choose a built-in one")
    if not 1 <= run <= settings.runs:
        raise bad_input(f"--run {run}: expected 1 to {settings.runs}, the runs of the result")
    return Job(name, run, settings.run_seed(run), SIM, name)


def fork_of_run(settings: Settings, fabric_text: str | None, job: Job, at_s: float) -> Fork:
    """The state of a run at a time. Raises `PathloomError` if the run is not that long."""
    if not 0 < at_s < settings.duration_s:
        raise bad_input(f"--at {at_s:g}s: expected a time within the {settings.duration} of the run")
    run = simulation(settings, fabric_text, job, RunFiles())
    return fork_of_simulation(run, settings, fabric_text, job, at_s)


def fork_of_simulation(
    run: _core.Simulation, settings: Settings, fabric_text: str | None, job: Job, at_s: float
) -> Fork:
    """Advances a prepared run to a time and returns its state then. The run can go on afterwards."""
    fabric = Fabric.from_node_link(fabric_text, settings.fabric) if fabric_text is not None else Fabric(settings.fabric)
    run.keep_ways()
    window_s = at_s * RATE_WINDOW_SHARE
    run.advance(at_s - window_s)
    before = run.outcome()["flows"]["delivered_bytes"].tolist()
    run.advance(at_s)
    flows = {name: column.tolist() for name, column in run.outcome()["flows"].items()}
    ways = {flow: links for flow, _, links, why in run.take_ways()}
    columns, records, names = Flows(), [], fabric.names
    for flow, start_ns in enumerate(flows["start_ns"]):
        if start_ns < 0:
            continue
        src, dst = names[flows["src"][flow]], names[flows["dst"][flow]]
        sent_bytes, endless = flows["delivered_bytes"][flow], flows["size_bytes"][flow] < 0
        ended = flows["finish_ns"][flow] >= 0
        if not endless:
            records.append(FlowRecord(start_ns / 1e9, src, dst, max(sent_bytes, LEAST_SENT_BYTES), ended))
        if ended:
            continue
        age_s = at_s - start_ns / 1e9
        measured_s = min(window_s, age_s)
        window_bytes = max(flows["window_bytes"][flow], MSS_BYTES)
        sent_lately = sent_bytes - (before[flow] if age_s > window_s else 0)
        columns.src.append(src)
        columns.dst.append(dst)
        columns.age_s.append(round(age_s, 9))
        columns.sent_bytes.append(sent_bytes)
        columns.size_bytes.append(None)
        columns.endless.append(endless)
        columns.rate_bps.append(round(sent_lately * 8 / measured_s) if measured_s > 0 else 0)
        columns.window_bytes.append(window_bytes)
        columns.slow_start.append(flows["retransmits"][flow] == 0 and flows["timeouts"][flow] == 0 and not endless)
        columns.path.append(_switches(fabric, ways.get(flow)))
    return Fork(
        fabric=json.loads(fabric.to_node_link()),
        scheme=job.scheme,
        flows=columns,
        arrivals=learn_arrivals(records, 0.0, at_s),
        transport=settings.transport,
        control=settings.control,
        ports=port_keys(fabric.spec),
        source=_source(settings, job, at_s),
    )


def _source(settings: Settings, job: Job, at_s: float) -> Mapping[str, Any]:
    return {
        "kind": "simulation",
        "at_s": at_s,
        "fabric": settings.fabric,
        "traffic": settings.traffic,
        "seed": job.seed,
    }


def _switches(fabric: Fabric, links: list[int] | None) -> list[str] | None:
    """Names of the switches that links lead to; None if there are none, or if they do not end at a host."""
    if not links:
        return None
    targets = [fabric.links["target"][link] for link in links]
    if fabric.nodes[targets[-1]]["tier"] != "host":
        return None
    return [fabric.names[node] for node in targets if fabric.nodes[node]["tier"] != "host"]
