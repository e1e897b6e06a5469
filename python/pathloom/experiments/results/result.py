"""The result of an experiment: tables, summary, report, and the folder for them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from pathloom.experiments.results.columns import figures_of, frame_of
from pathloom.experiments.results.completion import with_completion
from pathloom.experiments.results.notes import notes_on, troubles
from pathloom.experiments.results.output_files import PLOT_KINDS, Writer, replace_files
from pathloom.experiments.results.parquet import parquet_writer
from pathloom.experiments.results.record import COMPARISON, check_kind
from pathloom.experiments.results.recovery import with_recovery
from pathloom.experiments.results.series import flow_series, link_series, way_series
from pathloom.experiments.results.slowdown import with_slowdown
from pathloom.experiments.results.subflows import subflow_table
from pathloom.experiments.results.summary import scheme_summary
from pathloom.experiments.results.tables import flow_table, link_table
from pathloom.experiments.results.yardstick import Yardstick, with_optimum
from pathloom.experiments.running.execution import Execution
from pathloom.experiments.settings.identity import versions
from pathloom.experiments.settings.input_files import OWN_FABRIC, Inputs
from pathloom.experiments.settings.model import Settings
from pathloom.fabrics import Fabric

if TYPE_CHECKING:
    from pathloom.lab.runs import LabExecution

PLOTS = (
    "fct-by-size",
    "fct-cdf",
    "link-heat-map",
    "link-ranks",
    "means",
    "over-time",
    "slowdown-by-size",
    "throughput-cdf",
)
FILES = (
    *(f"{plot}.{kind}" for plot in PLOTS for kind in PLOT_KINDS),
    "flow-series.parquet",
    "flows.parquet",
    "link-series.parquet",
    "way-series.parquet",
    "links.parquet",
    "report.html",
    "result.json",
    "schemes.csv",
    "schemes.tex",
    "subflows.parquet",
    OWN_FABRIC,
)
"""Every file that a result may write into its folder."""
SCHEMA = 1
"""Version of `result.json`. Keys may be added within a version, but not renamed or removed."""


class Result:
    """The result of an experiment.

    >>> import pathloom as pl
    >>> result = pl.compare(
    ...     fabric=pl.dumbbell(hosts=2, rate="10Mbps"), traffic=pl.long_lived(), schemes=["ecmp"], duration="1s", runs=1
    ... )
    >>> sorted(result.flows.select("src", "dst", "size_bytes").rows())
    [('h0', 'h2', None), ('h1', 'h3', None), ('h2', 'h0', None), ('h3', 'h1', None)]
    >>> result.summary["schemes"][0]["flows"]["long_lived"]
    4
    """

    def __init__(
        self,
        settings: Settings,
        fabric: Fabric,
        executions: Sequence[Execution | LabExecution],
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
        summary = with_completion(summary, flows, self.settings.traffic)
        summary = with_recovery(summary, outcomes, self.settings)
        failures = sum(one.trouble[0] for one in outcomes if one.trouble is not None)
        summary = {**summary, "failures": failures, "world": world}
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

    @cached_property
    def table(self) -> pl.DataFrame:
        """One row per scheme: its figures, named with their units; see docs/formats.md."""
        return frame_of(
            [{"scheme": row["scheme"], "runs": len(row["runs"]), **figures_of(row)} for row in self.summary_of_schemes]
        )

    def save(self, folder: str | Path, kinds: Sequence[str] = PLOT_KINDS[:1]) -> list[Path]:
        """Writes tables, plots in these kinds (`svg`, `pdf`, `png`), report and `result.json`; returns their paths.

        A previous result of a comparison in the folder is replaced completely, including plots that this result lacks.
        Raises `PathloomError` if the folder holds the result of a sweep, or if a file cannot be written. The folder is
        then unchanged.
        """
        from pathloom.report.latex import latex
        from pathloom.report.page import page
        from pathloom.report.plots import plots
        from pathloom.report.tables import main_table

        folder = Path(folder)
        check_kind(folder, COMPARISON)
        folder.mkdir(parents=True, exist_ok=True)
        figures = plots(self)
        own_fabric = [(OWN_FABRIC, self.fabric.text)] if self.fabric.text is not None else []
        tex = latex(main_table(self.summary_of_schemes), turned=True)
        texts = [*own_fabric, ("schemes.tex", tex), ("report.html", page(self, figures)), ("result.json", self.json())]
        files: list[tuple[str, Writer]] = [
            ("schemes.csv", self.table.write_csv),
            ("flows.parquet", parquet_writer(self.flows)),
            ("links.parquet", parquet_writer(self.links)),
            *([("subflows.parquet", parquet_writer(self.subflows))] if self.subflows.height else []),
            *self._series_files(),
            *((f"{figure.name}.{kind}", figure.write) for figure in figures for kind in kinds),
            *((name, partial(Path.write_text, data=text, encoding="utf-8")) for name, text in texts),
        ]
        return replace_files(folder, files, FILES)

    def _series_files(self) -> list[tuple[str, Writer]]:
        if self.settings.series is None:
            return []
        return [
            ("flow-series.parquet", parquet_writer(self.flow_series)),
            ("link-series.parquet", parquet_writer(self.link_series)),
            ("way-series.parquet", parquet_writer(self.way_series)),
        ]

    def _repr_html_(self) -> str:
        """A table and two pictures, for notebooks."""
        from pathloom.report.notebook import notebook_cell

        return notebook_cell(self)

    def __repr__(self) -> str:
        done = len(self.outcomes)
        return f"Result({', '.join(self.settings.labels)} on {self.settings.fabric}: {done} runs)"
