"""The result of an experiment: tables, summary, report, and the folder they are kept in."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from pathloom import _core
from pathloom.experiments.execution import Execution, RunOutcome
from pathloom.experiments.folder import write_text, write_whole
from pathloom.experiments.settings import Settings
from pathloom.experiments.summary import scheme_summary
from pathloom.experiments.tables import flow_table, link_table
from pathloom.experiments.timeouts import timeout_notes
from pathloom.experiments.yardstick import Yardstick, with_optimum
from pathloom.fabrics import Fabric

if TYPE_CHECKING:
    from pathloom.lab.runs import LabExecution

SCHEMA = 1
"""Version of `result.json`. Keys may be added within a version; none is renamed or dropped."""


class Result:
    """What an experiment gave.

    >>> import pathloom as pl
    >>> result = pl.compare(
    ...     fabric=pl.dumbbell(hosts=2, rate="10Mbps"), traffic=pl.long_lived(), schemes=["ecmp"], duration="1s", runs=1
    ... )
    >>> sorted(result.flows.select("src", "dst", "size_bytes").rows())
    [('h0', 'h2', None), ('h1', 'h3', None), ('h2', 'h0', None), ('h3', 'h1', None)]
    >>> result.summary["schemes"][0]["flows"]["long_lived"]
    4
    """

    def __init__(self, settings: Settings, fabric: Fabric, executions: Sequence[Execution | LabExecution]) -> None:
        self.settings = settings
        self.fabric = fabric
        self.outcomes = [outcome for execution in executions for outcome in execution.outcomes]
        self.failure = next((execution.failure for execution in executions if execution.failure is not None), None)
        """What ended the experiment early, if it was not Ctrl-C."""
        self.complete = self.failure is None and not any(execution.interrupted for execution in executions)
        self.description = executions[0].description
        """What the traffic of the first run was, exactly."""
        notes = [*fabric.notes, *(note for execution in executions for note in execution.notes)]
        self.notes = [*dict.fromkeys(notes), *_trouble_notes(self.outcomes), *timeout_notes(self)]
        self.troubles = _trouble_texts(self.outcomes)
        """What went wrong in schemes written in Python, with tracebacks: at most one text per scheme."""

    @cached_property
    def flows(self) -> pl.DataFrame:
        """One row per flow and run; see `pathloom.experiments.tables.FLOW_SCHEMA`."""
        return flow_table(self.fabric, self.outcomes)

    @cached_property
    def links(self) -> pl.DataFrame:
        """One row per directed link and run; see `pathloom.experiments.tables.LINK_SCHEMA`."""
        return link_table(self.fabric, self.outcomes)

    @cached_property
    def summary(self) -> dict[str, Any]:
        """The content of `result.json`. Only keys with `wall` in them differ between two runs of one seed."""
        return {
            "schema": SCHEMA,
            "complete": self.complete,
            "settings": self.settings.model_dump(mode="json"),
            "versions": {"pathloom": _core.__version__},
            "seed": self.settings.seed,
            "traffic": {"description": self.description, "notes": self.notes},
            "schemes": self.summary_of_schemes,
        }

    @cached_property
    def summary_of_schemes(self) -> list[dict[str, Any]]:
        """The `schemes` of the summary: one per scheme and world."""
        return [self._scheme(scheme, world) for world in self.settings.worlds for scheme in self.settings.schemes]

    def _scheme(self, scheme: str, world: str) -> dict[str, Any]:
        label = self.settings.label(scheme, world)
        outcomes = [one for one in self.outcomes if one.job.label == label]
        flows = self.flows.filter(pl.col("scheme") == label)
        summary = {**scheme_summary(label, outcomes, flows), "world": world}
        return with_optimum(summary, flows, self._yardstick) if self.settings.yardstick else summary

    @cached_property
    def _yardstick(self) -> Yardstick:
        return Yardstick(self.settings, self.fabric)

    def json(self) -> str:
        """The content of `result.json` as text."""
        return json.dumps(self.summary, indent=2, allow_nan=False) + "\n"

    def report(self) -> str:
        """The report as one self-contained HTML page."""
        from pathloom.report.page import page
        from pathloom.report.plots import plots

        return page(self, plots(self))

    def save(self, folder: str | Path) -> list[Path]:
        """Writes tables, plots, report and `result.json`, which comes last; returns their paths.

        Raises `PathloomError` when a file cannot be written. No file is ever left half written.
        """
        from pathloom.report.page import page
        from pathloom.report.plots import plots

        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        figures = plots(self)
        written: list[Path] = []
        for name, frame in (("flows", self.flows), ("links", self.links)):
            path = folder / f"{name}.parquet"
            write_whole(path, frame.write_parquet)
            written.append(path)
        for figure in figures:
            path = folder / figure.file_name
            write_whole(path, figure.write)
            written.append(path)
        texts = [("report.html", page(self, figures)), ("result.json", self.json())]
        if self.fabric.text is not None:
            texts.insert(0, ("fabric.json", self.fabric.text))
        for name, text in texts:
            write_text(folder / name, text)
            written.append(folder / name)
        return written

    def _repr_html_(self) -> str:
        """For notebooks: a table and two pictures."""
        from pathloom.report.notebook import notebook_cell

        return notebook_cell(self)

    def __repr__(self) -> str:
        done = len(self.outcomes)
        return f"Result({', '.join(self.settings.labels)} on {self.settings.fabric}: {done} runs)"


def _first_troubles(outcomes: Sequence[RunOutcome]) -> list[tuple[RunOutcome, int, str, str]]:
    """The first run of each scheme in which something went wrong: how often in all runs, in one line, the traceback."""
    counts: dict[str, int] = {}
    first: dict[str, tuple[RunOutcome, str, str]] = {}
    for one in outcomes:
        if one.trouble is not None:
            count, line, traceback = one.trouble
            counts[one.job.scheme] = counts.get(one.job.scheme, 0) + count
            first.setdefault(one.job.scheme, (one, line, traceback))
    return [(one, counts[scheme], line, traceback) for scheme, (one, line, traceback) in first.items()]


def _trouble_line(one: RunOutcome, count: int, line: str) -> str:
    times = "once" if count == 1 else f"{count} times"
    return (
        f"scheme {one.job.scheme} failed {times}, its flows stayed where they were; first in run {one.job.run}: {line}"
    )


def _trouble_notes(outcomes: Sequence[RunOutcome]) -> list[str]:
    return [" ".join(_trouble_line(*trouble[:3]).split()) for trouble in _first_troubles(outcomes)]


def _trouble_texts(outcomes: Sequence[RunOutcome]) -> list[str]:
    return [f"{_trouble_line(*trouble[:3])}\n{trouble[3]}".rstrip() for trouble in _first_troubles(outcomes)]
