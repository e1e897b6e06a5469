"""Judges the twin with the simulator in the place of the real fabric: the figures of docs/twin.md.

`python benches/twin/judge.py` prints how much long-lived flows of a fork differ from those of the run that was forked,
and how good predictions of alternatives are (about a quarter of an hour).
"""

from __future__ import annotations

import json
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pathloom.experiments.running.simulation import RunFiles, simulation
from pathloom.experiments.running.threads import Threads
from pathloom.experiments.settings.model import Settings
from pathloom.twin.apply import apply_to_run
from pathloom.twin.ask import Plan, Question
from pathloom.twin.fork import Fork
from pathloom.twin.from_runs import fork_of_simulation, job_of
from pathloom.twin.ledger import Ledger
from pathloom.twin.measures import MEASURES
from pathloom.twin.outcomes import outcome_since
from pathloom.twin.questions import Alternative, parse_alternatives
from pathloom.twin.score import score_of

FABRIC = "fat-tree:k=4,rate=100Mbps"
ALTERNATIVES = ["drain:c0", "drain:c3", "cut:a0_0-c1", "scheme:hedera:period=100ms", "scheme:spt"]


def settings(
    traffic: str, duration_s: float, seed: int, transport: str | None = None, fabric: str = FABRIC
) -> Settings:
    """The settings of one run under ECMP."""
    values = {"fabric": fabric, "traffic": traffic, "schemes": ("ecmp",), "duration": f"{duration_s}s", "runs": 1}
    return Settings.of({**values, "seed": seed, "transport": transport})


def difference(traffic: str, transport: str, at_s: float, for_s: float, seed: int, folder: Path) -> float:
    """The relative difference of the delivered bytes of a fork from those of the run that went on."""
    of = settings(traffic, at_s + for_s, seed, transport)
    run = simulation(of, None, job_of(of, None, 1), RunFiles())
    fork = fork_of_simulation(run, of, None, job_of(of, None, 1), at_s)
    before = int(run.outcome()["flows"]["delivered_bytes"].sum())
    run.advance(at_s + for_s)
    went = int(run.outcome()["flows"]["delivered_bytes"].sum()) - before
    path = folder / "judge.plf"
    fork.write(path)
    again = settings(f"fork:file={path}", for_s, 1000, transport, fork.fabric_name)
    forked = simulation(again, json.dumps(fork.fabric), job_of(again, None, 1), RunFiles())
    forked.advance(for_s)
    return int(forked.outcome()["flows"]["delivered_bytes"].sum()) / went - 1


def real(traffic: str, seed: int, at_s: float, for_s: float, alternative: Alternative) -> tuple[Fork, dict[str, Any]]:
    """A fork of a run, and what came of an alternative that was carried out in the run."""
    of = settings(traffic, at_s + for_s, seed)
    run = simulation(of, None, job_of(of, None, 1), RunFiles())
    fork = fork_of_simulation(run, of, None, job_of(of, None, 1), at_s)
    before = run.outcome()
    if alternative.parts:
        apply_to_run(run, alternative, "ecmp")
    run.advance(at_s + 6 * for_s)
    return fork, outcome_since(before, run.outcome(), at_s)


def judge(traffic: str, measures: Sequence[str], at_s: float, for_s: float, seeds: Sequence[int], folder: Path) -> None:
    """Prints the scores of predictions: forks at `at_s`, and what was measured in the `for_s` after them."""
    alternatives = parse_alternatives(ALTERNATIVES)
    file = f"{traffic.partition(':')[0]}-{at_s:g}s-{for_s:g}s"
    ledgers = {name: Ledger(folder / f"{file}-{name}.sqlite") for name in measures}
    for seed in seeds:
        found = {one.name: real(traffic, seed, at_s, for_s, one) for one in alternatives}
        fork, path = found["nothing"][0], folder / f"{seed}.plf"
        fork.write(path)
        for name, ledger in ledgers.items():
            plan = Plan(MEASURES[name], duration=f"{for_s}s", runs=5, seed=1000 * seed)
            number = ledger.add_answer(Question(fork, path, alternatives, plan).carry_out(Threads(2)), path, "", 0.0)
            for alternative, (_, outcome) in found.items():
                value = MEASURES[name].of(outcome, for_s)
                if value is not None:
                    ledger.add_outcome(number, alternative, value, 0.0)
    for name, ledger in ledgers.items():
        print(
            traffic,
            f"fork at {at_s:g} s, {for_s:g} s",
            name,
            json.dumps(score_of(ledger.predictions()).json()),
            flush=True,
        )


def main() -> None:
    """Prints all figures."""
    with tempfile.TemporaryDirectory() as folder:
        for traffic, transport in [
            ("long-lived:pattern=permutation", "newreno"),
            ("long-lived:pattern=permutation", "cubic"),
            ("long-lived:pattern=stride", "dctcp"),
        ]:
            found = [difference(traffic, transport, 2.0, 1.0, seed, Path(folder)) for seed in range(1, 6)]
            shown = ", ".join(f"{100 * one:+.1f} %" for one in found)
            print(f"{traffic}, {transport}: mean {100 * statistics.mean(found):+.1f} % ({shown})", flush=True)
        judge(
            "hadoop:load=0.6", ["mean-throughput", "p99-fct-small", "worst-pair"], 1.0, 0.3, range(1, 7), Path(folder)
        )
        for at_s, for_s in [(3.0, 0.3), (3.0, 1.0), (3.0, 3.0), (3.0, 10.0), (10.0, 3.0), (10.0, 10.0)]:
            judge("hadoop:load=0.6", ["mean-throughput"], at_s, for_s, range(21, 27), Path(folder))
        judge("web-search:load=0.5", ["mean-throughput"], 2.0, 0.5, range(1, 9), Path(folder))


if __name__ == "__main__":
    main()
