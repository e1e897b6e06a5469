"""Sweeps: comparisons at many points, carried out as one list of runs that can be interrupted and resumed."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from pathloom.experiments.results.outcome import RunOutcome
from pathloom.experiments.results.result import ResultData
from pathloom.experiments.running.execution import Execution
from pathloom.experiments.running.simulation import RunFiles
from pathloom.experiments.running.store import Store
from pathloom.experiments.running.threads import interruptible
from pathloom.experiments.running.work import Ended, Progress, Runner, Work
from pathloom.experiments.schemes.loading import PythonScheme, check_distinct, load_scheme
from pathloom.experiments.settings.input_files import Inputs
from pathloom.experiments.sweeps.plan import Point, SweepPlan, at_point
from pathloom.experiments.sweeps.precision import Precision, has_bounds, uncertainty
from pathloom.experiments.sweeps.result import PointResult, SweepData
from pathloom.extras import need
from pathloom.fabrics import Fabric
from pathloom.specs import is_python_spec

MOST_FABRICS = 16
"""Number of fabrics that are kept at once: neighbouring points share them."""

Watch = Callable[["Sweep", Sequence[Work]], AbstractContextManager[Progress]]
"""Makes the reporter of the progress of a list of runs."""


@dataclass
class Prepared:
    """A point that is checked."""

    point: Point
    execution: Execution
    inputs: Inputs
    widest_interval: float | None = None
    """Width of the widest interval, if it was requested."""


class Sweep:
    """A sweep that is checked and ready: the constructor finds bad input."""

    def __init__(self, plan: SweepPlan, store: Store[RunOutcome], until: Precision | None = None) -> None:
        """Prepares the first run of every scheme at every point, if it is not in the store."""
        if until is not None:
            plan.check_added_runs()
            until.check_runs(max(point.settings.runs for point in plan.points))
        self.plan, self.until = plan, until
        self._store = store
        self._schemes: dict[str, PythonScheme] = {}
        self._fabric = lru_cache(maxsize=MOST_FABRICS)(Fabric)
        self.points = [self._prepare(point) for point in plan.points]
        check_distinct(self._schemes.values())

    def _prepare(self, point: Point) -> Prepared:
        return at_point(point.name, lambda: self._prepared(point), self.plan.source)

    def _prepared(self, point: Point) -> Prepared:
        settings = point.settings
        if settings.yardstick:
            need("optimum", "yardstick")
        fabric = interruptible(lambda: self._fabric(settings.fabric))
        for spec in settings.schemes:
            if is_python_spec(spec) and spec not in self._schemes:
                self._schemes[spec] = load_scheme(spec)
        in_python = {spec: self._schemes[spec] for spec in settings.schemes if spec in self._schemes}
        execution = Execution(settings, fabric.text, RunFiles(), in_python, store=self._store)
        # Thousands of prepared runs would not fit into memory.
        execution.release()
        return Prepared(point, execution, Inputs.of(settings, fabric, in_python))

    def missing(self) -> list[Work]:
        """The runs that are still to be carried out, seed by seed over all points."""
        works = [
            (job.run, Work(prepared.execution, job, prepared.point.name))
            for prepared in self.points
            for job in prepared.execution.missing()
        ]
        return [work for _, work in sorted(works, key=lambda pair: pair[0])]

    def planned(self) -> int:
        """Number of all runs, finished runs included."""
        return sum(len(prepared.execution.jobs) for prepared in self.points)

    def finished(self) -> int:
        """Number of finished runs."""
        return self.planned() - len(self.missing())

    def carry_out(self, place: AbstractContextManager[Runner], watch: Watch) -> Ended:
        """Carries out the missing runs, and with `until` the runs that must be added.

        The context of the runner is entered only if there may be such runs.
        """
        if not self.missing() and self.until is None:
            return Ended()
        with place as runner:
            return self._carry_out(runner, watch)

    def _carry_out(self, runner: Runner, watch: Watch) -> Ended:
        while True:
            works = self.missing()
            if works:
                with watch(self, works) as report:
                    ended = runner.run(works, report, lambda work, outcome: work.execution.keep(outcome))
                if ended.early:
                    return ended
            if self.until is None or not self._add_runs(self.until):
                return Ended()

    def _add_runs(self, until: Precision) -> bool:
        """Adds a run to every point with too wide an interval. Returns whether there is such a point."""
        added = False
        for place, prepared in enumerate(self.points):
            settings = prepared.execution.settings
            if prepared.widest_interval is not None and prepared.widest_interval <= until.share:
                continue
            prepared.widest_interval = self._widest_interval(prepared)
            most = until.most_runs(prepared.point.settings.runs)
            if prepared.widest_interval > until.share and settings.runs < most:
                more = settings.model_copy(update={"runs": settings.runs + 1})
                again = self._prepare(Point(prepared.point.at, more))
                self.points[place] = Prepared(prepared.point, again.execution, prepared.inputs)
                added = True
        return added

    def result(self) -> SweepData:
        """The result of the sweep. Raises `ValueError` if runs are missing."""
        if self.missing():
            raise ValueError(f"{len(self.missing())} runs of the sweep are missing")
        points = [self._point(prepared) for prepared in self.points]
        files = {path: digest for prepared in self.points for path, digest in prepared.inputs.files.items()}
        return SweepData(self.plan, self.until, tuple(points), files)

    def _point(self, prepared: Prepared) -> PointResult:
        result = self._result(prepared)
        schemes = result.summary_of_schemes
        return PointResult(
            at=prepared.point.at,
            settings=result.settings,
            series=tuple(self.plan.series(prepared.point)),
            description=result.description,
            notes=tuple(result.notes),
            schemes=tuple(schemes),
            troubles=tuple(result.troubles),
            until=self._until_record(prepared, schemes),
        )

    def _widest_interval(self, prepared: Prepared) -> float:
        """The widest interval of a point; infinite if no figure has a value."""
        found = uncertainty(self._result(prepared).summary_of_schemes)
        return math.inf if found is None else found

    def _until_record(self, prepared: Prepared, schemes: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
        if self.until is None or prepared.widest_interval is None:
            return None
        known = math.isfinite(prepared.widest_interval)
        return {
            "ci": prepared.widest_interval if known else None,
            "reached": prepared.widest_interval <= self.until.share,
            "bounds": has_bounds(schemes),
        }

    def _result(self, prepared: Prepared) -> ResultData:
        execution = prepared.execution
        execution.collect()
        try:
            return ResultData(execution.settings, self._fabric(execution.settings.fabric), [execution], prepared.inputs)
        finally:
            execution.outcomes = []
