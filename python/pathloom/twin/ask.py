"""Answers questions to a fork: each alternative runs in packets over the same forks as «nothing»."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pathloom._core import PathloomError
from pathloom.errors import bad_input
from pathloom.experiments.results.outcome import RunOutcome
from pathloom.experiments.running.execution import Execution
from pathloom.experiments.running.simulation import RunFiles
from pathloom.experiments.running.work import Ended, Progress, Runner, Work
from pathloom.experiments.settings.model import Settings
from pathloom.twin.estimate import NO_ESTIMATE, estimate
from pathloom.twin.fork import Fork
from pathloom.twin.intervals import Difference, differences, prediction_interval
from pathloom.twin.measures import MEASURES, Measure, unfinished_share
from pathloom.twin.questions import NOTHING, Alternative, Scenario, scenario_of

LEAST_RUNS = 2
"""Forks of each alternative that a budget of time does not prevent, so that there is an interval."""


@dataclass(frozen=True)
class Plan:
    """How a question is answered."""

    measure: Measure
    duration: str = "1s"
    runs: int = 5
    seed: int = 1
    budget_s: float | None = None
    """Time after which no further fork starts; None for no limit."""


@dataclass
class Asked:
    """An alternative with its runs."""

    alternative: Alternative
    scenario: Scenario
    execution: Execution
    estimate: Mapping[str, float | None]
    figures: dict[int, dict[str, float | None]]
    """By run, the value of each measure."""
    unfinished: dict[int, float]
    """By run, the share of the flows that had not finished."""

    def values(self, measure: str, runs: Sequence[int]) -> list[float] | None:
        """The values of a measure in these runs; None if one is missing."""
        found = [self.figures[run][measure] for run in runs]
        return None if None in found else [value for value in found if value is not None]


@dataclass(frozen=True)
class Row:
    """The answer for one alternative."""

    name: str
    estimate: Mapping[str, float | None]
    values: list[float]
    interval: tuple[float, float] | None
    """Of a further fork, with a probability of 90 %."""
    difference: Difference | None
    """To «nothing»; None for «nothing» itself."""
    like_best: bool
    """Whether it cannot be told apart from the best alternative."""
    figures: dict[str, float | None]
    """Means of all measures."""
    unfinished: float
    """Mean share of the flows that had not finished by the end of a fork."""

    @property
    def mean(self) -> float:
        """Mean over the forks."""
        return sum(self.values) / len(self.values)


@dataclass(frozen=True)
class Answer:
    """All alternatives, the best first."""

    plan: Plan
    rows: list[Row]
    runs: int
    took_s: float
    interrupted: bool = False

    @property
    def undecided(self) -> list[str]:
        """Alternatives that cannot be told apart from the best one, with it; empty if the best one is known."""
        alike = [row.name for row in self.rows if row.like_best]
        return alike if len(alike) > 1 else []

    def json(self) -> dict[str, Any]:
        """The answer as JSON."""
        return {
            "schema": 1,
            "for": self.plan.measure.name,
            "unit": self.plan.measure.unit,
            "more_is_better": self.plan.measure.more_is_better,
            "duration": self.plan.duration,
            "seed": self.plan.seed,
            "runs": self.runs,
            "interrupted": self.interrupted,
            "undecided": self.undecided,
            "wall_s": round(self.took_s, 3),
            "alternatives": [_row_json(row) for row in self.rows],
        }


def _row_json(row: Row) -> dict[str, Any]:
    difference = row.difference
    return {
        "name": row.name,
        "estimate": dict(row.estimate),
        "mean": row.mean,
        "values": row.values,
        "interval90": list(row.interval) if row.interval is not None else None,
        "difference": None
        if difference is None
        else {
            "mean": difference.mean,
            "ci95": difference.ci95,
            "p_value": difference.p_value,
            "told_apart": difference.told_apart,
        },
        "like_best": row.like_best,
        "figures": row.figures,
        "unfinished": row.unfinished,
    }


class Question:
    """A question that is checked and ready: the constructor finds bad input."""

    def __init__(self, fork: Fork, fork_path: Path, alternatives: Sequence[Alternative], plan: Plan) -> None:
        """`fork_path` is the file of the fork, which the runs read."""
        self.plan = plan
        self.asked = [self._ask(fork, fork_path, alternative) for alternative in alternatives]
        self._lock = threading.Lock()

    def _ask(self, fork: Fork, fork_path: Path, alternative: Alternative) -> Asked:
        scenario = scenario_of(fork, alternative)
        text = json.dumps(scenario.graph)
        settings = settings_of(fork, scenario, fork_path, self.plan)
        try:
            execution = Execution(settings, text, RunFiles())
            # Many prepared runs would not fit into memory.
            execution.release()
            first = estimate(settings, json.dumps(scenario.settled())) if len(fork.flows) else NO_ESTIMATE
        except PathloomError as error:
            raise bad_input(f"question `{alternative.name}`: {error}") from None
        return Asked(alternative, scenario, execution, first, {}, {})

    def carry_out(
        self, runner: Runner, progress: Progress | None = None, clock: Callable[[], float] = time.monotonic
    ) -> Answer:
        """Runs fork after fork, all alternatives of one fork together, until the runs or the budget are used up."""
        began = clock()
        done, interrupted = 0, False
        for run in range(1, self.plan.runs + 1):
            round_began = clock()
            ended = self._round(run, runner, progress or (lambda _work, _share: None))
            if ended.failure is not None:
                raise ended.failure
            if ended.interrupted:
                interrupted = True
                break
            done = run
            took_s = clock() - round_began
            if self.plan.budget_s is not None and run >= LEAST_RUNS and clock() - began + took_s > self.plan.budget_s:
                break
        return self.answer(done, clock() - began, interrupted)

    def _round(self, run: int, runner: Runner, progress: Progress) -> Ended:
        works = [
            Work(asked.execution, job, asked.alternative.name)
            for asked in self.asked
            for job in asked.execution.jobs
            if job.run == run
        ]
        by_execution = {id(asked.execution): asked for asked in self.asked}

        def take(work: Work, outcome: RunOutcome) -> None:
            asked = by_execution[id(work.execution)]
            duration_s = asked.execution.settings.duration_s
            figures = {name: one.of(outcome.outcome, duration_s) for name, one in MEASURES.items()}
            with self._lock:
                asked.figures[work.job.run] = figures
                asked.unfinished[work.job.run] = unfinished_share(outcome.outcome)

        return runner.run(works, progress, take)

    def answer(self, done: int, took_s: float, interrupted: bool = False) -> Answer:
        """The answer after so many forks. Raises `PathloomError` if no fork has the measure."""
        measure, runs = self.plan.measure, range(1, done + 1)
        values = {asked.alternative.name: asked.values(measure.name, runs) for asked in self.asked}
        if not done or any(found is None for found in values.values()):
            raise bad_input(
                f"--for {measure.name}: no flow of the fork counts for it ({measure.about}); choose another measure, "
                "or a longer --duration"
            )
        known = {name: found for name, found in values.items() if found is not None}
        order = sorted(known, key=lambda name: sum(known[name]), reverse=measure.more_is_better)
        others = [name for name in order if name != NOTHING]
        to_nothing = dict(zip(others, differences([known[name] for name in others], known[NOTHING]), strict=True))
        after_best = dict(
            zip(order[1:], differences([known[name] for name in order[1:]], known[order[0]]), strict=True)
        )
        asked = {one.alternative.name: one for one in self.asked}
        rows = [
            Row(
                name=name,
                estimate=asked[name].estimate,
                values=known[name],
                interval=prediction_interval(known[name]),
                difference=to_nothing.get(name),
                like_best=name not in after_best or not after_best[name].told_apart,
                figures={other: _mean(asked[name].values(other, runs)) for other in MEASURES},
                unfinished=sum(asked[name].unfinished[run] for run in runs) / done,
            )
            for name in order
        ]
        return Answer(self.plan, rows, done, took_s, interrupted)


def _mean(values: list[float] | None) -> float | None:
    return sum(values) / len(values) if values else None


def settings_of(fork: Fork, scenario: Scenario, fork_path: Path, plan: Plan) -> Settings:
    """The settings of the runs of an alternative. Raises `PathloomError`."""
    load = "" if scenario.load == 1.0 else f",load={scenario.load:g}"
    return Settings.of(
        {
            "fabric": fork.fabric_name,
            "traffic": f"fork:file={fork_path}{load}",
            "schemes": (scenario.scheme,),
            "transport": fork.transport,
            "control": fork.control,
            "duration": plan.duration,
            "runs": plan.runs,
            "seed": plan.seed,
            "faults": scenario.faults,
        },
        "question",
    )
