"""All failures of a fork: each one by max-min rates first, then the worst of them in packets.

Rates without packets take a small part of the time, so all single failures and many double ones can be looked at.
Double failures come in the order of what their two parts cost alone, so an early end leaves out the harmless ones.
"""

from __future__ import annotations

import itertools
import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pathloom._core import PathloomError
from pathloom.errors import bad_input, nearest_hint
from pathloom.experiments.running.work import Progress, Runner
from pathloom.twin.ask import Answer, Plan, Question, settings_of
from pathloom.twin.estimate import estimate
from pathloom.twin.fork import Fork
from pathloom.twin.questions import NOTHING, Alternative, parse_alternative, scenario_of

SINGLE, DOUBLE = "single", "double"
KINDS = (SINGLE, DOUBLE)
BATCH = 16
"""Failures between two looks at the clock."""
SHARE_OF_BUDGET = 0.5
"""Share of the budget for the rates; the rest is for packets."""


@dataclass(frozen=True)
class Screened:
    """A failure with the rate that it leaves."""

    alternative: Alternative
    rate_bps: float


@dataclass(frozen=True)
class Screening:
    """All failures that were looked at without packets, the worst first."""

    rows: list[Screened]
    nothing_bps: float
    total: int
    """How many there are; more than the rows if the time was up."""

    def loss_of(self, name: str) -> float:
        """Share of the rate that a failure costs."""
        rate_bps = next(one.rate_bps for one in self.rows if one.alternative.name == name)
        return 1 - rate_bps / self.nothing_bps


@dataclass(frozen=True)
class Report:
    """The failures by max-min rates, and the worst of them in packets."""

    kind: str
    screening: Screening
    answer: Answer

    def json(self) -> dict[str, Any]:
        """The report as JSON."""
        rows = self.screening.rows
        return {
            "schema": 1,
            "failures": self.kind,
            "total": self.screening.total,
            "estimated": len(rows),
            "nothing_bps": self.screening.nothing_bps,
            "estimates": [{"name": one.alternative.name, "rate_bps": one.rate_bps} for one in rows],
            "answer": self.answer.json(),
        }


def check_kind(kind: str) -> None:
    """Raises `PathloomError` unless it is single or double."""
    if kind not in KINDS:
        raise bad_input(f"--failures `{kind}`: is not one of {', '.join(KINDS)}{nearest_hint(kind, KINDS)}")


def elements(fork: Fork) -> list[str]:
    """What can fail: cables between switches that are in service, and switches without hosts.

    `a-b#2` is the second cable between two switches.
    """
    tiers = {str(node["id"]): node.get("tier") for node in fork.fabric["nodes"]}
    counts: Counter[frozenset[str]] = Counter()
    several = Counter(frozenset((str(edge["source"]), str(edge["target"]))) for edge in fork.fabric["edges"])
    with_hosts, in_use, cables = set[str](), set[str](), list[str]()
    for edge in fork.fabric["edges"]:
        ends = (str(edge["source"]), str(edge["target"]))
        key = frozenset(ends)
        counts[key] += 1
        hosts = [end for end in ends if tiers[end] == "host"]
        if hosts:
            with_hosts |= {*ends}
        elif not edge.get("failed"):
            in_use |= {*ends}
            cables.append("-".join(ends) + (f"#{counts[key]}" if several[key] > 1 else ""))
    return [*cables, *(name for name in tiers if name in in_use - with_hosts)]


def singles(fork: Fork) -> list[Alternative]:
    """Each single failure."""
    return [parse_alternative(f"fail:{name}") for name in elements(fork)]


def doubles(screened: Sequence[Screened], nothing_bps: float) -> list[Alternative]:
    """Pairs of single failures, first those whose parts cost most.

    A cable and a switch at its end are no pair: the switch alone is the same failure.
    """
    pairs = [
        (2 * nothing_bps - one.rate_bps - other.rate_bps, one.alternative.name, other.alternative.name)
        for one, other in itertools.combinations(screened, 2)
        if not _is_part(one.alternative, other.alternative)
    ]
    pairs.sort(key=lambda pair: (-pair[0], pair[1], pair[2]))
    return [parse_alternative(f"{one}+{other}") for _, one, other in pairs]


def _is_part(one: Alternative, other: Alternative) -> bool:
    names = [one.parts[0].value, other.parts[0].value]
    cable, node = sorted(names, key=len, reverse=True)
    return cable.startswith(f"{node}-") or cable.partition("#")[0].endswith(f"-{node}")


class Batch:
    """All failures of a fork, ready to be looked at."""

    def __init__(self, fork: Fork, fork_path: Path, kind: str, plan: Plan) -> None:
        """Raises `PathloomError` if the fork has no flows under way, by which failures are compared."""
        check_kind(kind)
        self._fork, self._path, self._kind, self._plan = fork, fork_path, kind, plan
        self._figure = "worst_pair_bps" if plan.measure.name == "worst-pair" else "mean_bps"
        if not len(fork.flows):
            raise bad_input("--failures: the fork has no flows under way, by whose rates failures are compared")

    def screen(self, threads: int, clock: Callable[[], float] = time.monotonic) -> Screening:
        """Looks at failures by max-min rates until all are done or the time is up. All singles come first."""
        until_s = None if self._plan.budget_s is None else clock() + SHARE_OF_BUDGET * self._plan.budget_s
        first = singles(self._fork)
        with ThreadPoolExecutor(threads) as pool:
            nothing_bps = self._rate_bps(parse_alternative(NOTHING))
            found: list[Screened] = []

            def look(wanted: Iterable[Alternative]) -> None:
                for batch in _batches(wanted):
                    if found and until_s is not None and clock() > until_s:
                        return
                    rates = pool.map(self._rate_bps, batch)
                    found.extend(Screened(one, rate) for one, rate in zip(batch, rates, strict=True))

            look(first)
            total = len(first)
            if self._kind == DOUBLE:
                pairs = doubles(found, nothing_bps)
                total += len(pairs)
                look(pairs)
        found.sort(key=lambda one: (one.rate_bps, one.alternative.name))
        return Screening(found, nothing_bps, total)

    def _rate_bps(self, alternative: Alternative) -> float:
        try:
            scenario = scenario_of(self._fork, alternative)
            settings = settings_of(self._fork, scenario, self._path, self._plan)
            return estimate(settings, json.dumps(scenario.settled()))[self._figure] or 0.0
        except PathloomError as error:
            raise bad_input(f"failure `{alternative.name}`: {error}") from None

    def in_packets(
        self, screening: Screening, worst: int, runner: Runner, progress: Progress | None, left_s: float | None
    ) -> Report:
        """Runs the worst failures, and nothing, in packets over the same forks."""
        chosen = [parse_alternative(NOTHING), *(one.alternative for one in screening.rows[:worst])]
        question = Question(self._fork, self._path, chosen, replace(self._plan, budget_s=left_s))
        return Report(self._kind, screening, question.carry_out(runner, progress))


def _batches(of: Iterable[Alternative]) -> Iterable[tuple[Alternative, ...]]:
    left = iter(of)
    while batch := tuple(itertools.islice(left, BATCH)):
        yield batch
