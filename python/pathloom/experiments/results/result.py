"""The result of an experiment: tables and summary."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import polars as pl

from pathloom.experiments.results.columns import figures_of, frame_of
from pathloom.experiments.results.completion import with_completion
from pathloom.experiments.results.jobs import with_jobs
from pathloom.experiments.results.notes import notes_on, troubles
from pathloom.experiments.results.outcome import Executed
from pathloom.experiments.results.record import SCHEMA
from pathloom.experiments.results.recovery import with_recovery
from pathloom.experiments.results.series import flow_series, link_series, way_series
from pathloom.experiments.results.slowdown import with_slowdown
from pathloom.experiments.results.subflows import subflow_table
from pathloom.experiments.results.summary import scheme_summary
from pathloom.experiments.results.tables import flow_table, link_table
from pathloom.experiments.results.yardstick import Yardstick, with_optimum
from pathloom.experiments.settings.identity import versions
from pathloom.experiments.settings.input_files import Inputs
from pathloom.experiments.settings.model import Settings
from pathloom.fabrics import Fabric


class ResultData:
    """The result of an experiment, without its report."""

    def __init__(
        self,
        settings: Settings,
        fabric: Fabric,
        executions: Sequence[Executed],
        inputs: Inputs | None = None,
    ) -> None:
        """Collects the runs of finished executions; `inputs` are the inputs as they were before the runs."""
        self.settings = settings
        self.fabric = fabric
        outcomes = [outcome for execution in executions for outcome in execution.outcomes]
        places = {label: place for place, label in enumerate(settings.labels)}
        self.outcomes = sorted(outcomes, key=lambda one: (places[one.job.label], one.job.run))
        """The finished runs: schemes in the order of the settings, and the runs of each scheme in order."""
        self.failure = next((execution.failure for execution in executions if execution.failure is not None), None)
        """Cause of an early end of the experiment, other than Ctrl-C."""
        self.complete = self.failure is None and not any(execution.interrupted for execution in executions)
        self.description = executions[0].description
        """Exact description of the traffic of the first run."""
        self.execution_notes = [note for execution in executions for note in execution.notes]
        """Notes of the worlds."""
        self.inputs = inputs or Inputs.of(settings, fabric)
        self.changed_files = self.inputs.changed(own_fabric=fabric.text is not None)
        """Files that have changed since the start of the runs."""
        self.troubles = [f"{line}\n{traceback}".rstrip() for line, traceback in troubles(self.outcomes)]
        """Failures of schemes written in Python, with tracebacks: at most one text per scheme."""

    @cached_property
    def notes(self) -> list[str]:
        """What a reader of the figures should know; see `pathloom.experiments.results.notes`."""
        return notes_on(self)

    @cached_property
    def flows(self) -> pl.DataFrame:
        """One row per flow and run; see `pathloom.experiments.results.tables.FLOW_SCHEMA`."""
        return flow_table(self.fabric, self.outcomes)

    @cached_property
    def subflows(self) -> pl.DataFrame:
        """One row per subflow and run, of flows with several; see `results.subflows.SUBFLOW_SCHEMA`."""
        return subflow_table(self.fabric, self.outcomes)

    @cached_property
    def link_series(self) -> pl.DataFrame:
        """One row per step and link, with `series`; see `results.series.LINK_SERIES_SCHEMA`."""
        return link_series(self.fabric, self.outcomes)

    @cached_property
    def flow_series(self) -> pl.DataFrame:
        """One row per step and flow, with `series`; see `results.series.FLOW_SERIES_SCHEMA`."""
        return flow_series(self.outcomes)

    @cached_property
    def way_series(self) -> pl.DataFrame:
        """One row per change of a flow's path, with `series`; see `results.series.WAY_SERIES_SCHEMA`."""
        return way_series(self.fabric, self.outcomes)

    @cached_property
    def links(self) -> pl.DataFrame:
        """One row per directed link and run; see `pathloom.experiments.results.tables.LINK_SCHEMA`."""
        return link_table(self.fabric, self.outcomes)

    @cached_property
    def summary(self) -> dict[str, Any]:
        """The content of `result.json`. Only keys with `wall` in them differ between two runs of one seed."""
        return {
            "schema": SCHEMA,
            "complete": self.complete,
            "settings": {
                **self.settings.model_dump(mode="json"),
                "files": dict(self.inputs.files),
                "classes": list(self.inputs.classes),
            },
            "versions": versions(),
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
        summary = with_slowdown(scheme_summary(label, outcomes, flows), flows)
        summary = with_completion(summary, flows, self.settings.traffic, self._jobs)
        summary = with_jobs(summary, outcomes, flows, self.fabric)
        summary = with_recovery(summary, outcomes, self.settings)
        failures = sum(one.trouble[0] for one in outcomes if one.trouble is not None)
        summary = {**summary, "failures": failures, "world": world}
        return with_optimum(summary, flows, self._yardstick) if self.settings.yardstick else summary

    @property
    def _jobs(self) -> list[dict[str, Any]]:
        """The collectives of the traffic, which are the same in all runs."""
        return next((one.outcome["jobs"] for one in self.outcomes if one.outcome.get("jobs")), [])

    @cached_property
    def _yardstick(self) -> Yardstick:
        return Yardstick(self.settings, self.fabric)

    def json(self) -> str:
        """The content of `result.json` as text."""
        return json.dumps(self.summary, indent=2, allow_nan=False) + "\n"

    @cached_property
    def table(self) -> pl.DataFrame:
        """One row per scheme: its figures, named with their units; see docs/formats.md."""
        return frame_of(
            [{"scheme": row["scheme"], "runs": len(row["runs"]), **figures_of(row)} for row in self.summary_of_schemes]
        )

    def __repr__(self) -> str:
        done = len(self.outcomes)
        return f"Result({', '.join(self.settings.labels)} on {self.settings.fabric}: {done} runs)"
