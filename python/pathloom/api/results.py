"""Results with their reports, and the folders for them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pathloom._core import PathloomError
from pathloom.experiments.results.output_files import PLOT_KINDS, Writer, replace_files
from pathloom.experiments.results.parquet import parquet_writer
from pathloom.experiments.results.record import COMPARISON, RESULT, SWEEP, check_foreign_files, check_kind, read_record
from pathloom.experiments.results.result import ResultData
from pathloom.experiments.settings.input_files import OWN_FABRIC
from pathloom.experiments.sweeps.result import SweepData
from pathloom.extras import is_installed, need

if TYPE_CHECKING:
    from pathloom.report.axes import ResultPlots
    from pathloom.report.plots import Plot

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
SWEEP_FILES = (RESULT, "report.html", "points.csv", "points.tex", "runs.parquet")
"""Files of a sweep except its plots."""


class Result(ResultData):
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

    @property
    def plot(self) -> ResultPlots:
        """The figures of the report, drawn into axes of matplotlib: `result.plot.fct_cdf(ax=axes)`."""
        need("plot", "plot")
        from pathloom.report.axes import ResultPlots

        return ResultPlots(self)

    def report(self) -> str:
        """The report as one self-contained HTML page."""
        from pathloom.report.page import page

        return page(self, self._plots())

    def save(self, folder: str | Path, kinds: Sequence[str] = PLOT_KINDS[:1]) -> list[Path]:
        """Writes tables, plots in these kinds (`svg`, `pdf`, `png`), report and `result.json`; returns their paths.

        A previous result of a comparison in the folder is replaced completely, including plots that this result lacks.
        Raises `PathloomError` if the folder holds the result of a sweep, or if a file cannot be written. The folder is
        then unchanged.
        """
        from pathloom.report.latex import latex
        from pathloom.report.page import page
        from pathloom.report.tables import main_table

        folder = Path(folder)
        check_kind(folder, COMPARISON)
        check_foreign_files(folder, FILES)
        folder.mkdir(parents=True, exist_ok=True)
        figures = self._plots()
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
        from pathloom.report.notebook import MOST_PICTURES, notebook_cell

        return notebook_cell(self, self._plots(MOST_PICTURES))

    def _plots(self, most: int | None = None) -> list[Plot]:
        """The pictures of the report, or the first `most`; none without matplotlib."""
        if not is_installed("plot"):
            return []
        from pathloom.report.plots import plots

        return plots(self, most)


class SweepResult(SweepData):
    """The result of a sweep."""

    @classmethod
    def of(cls, data: SweepData) -> SweepResult:
        """The result with these figures."""
        return cls(data.plan, data.until, data.points, data.files)

    def save(self, folder: str | Path, kinds: Sequence[str] = PLOT_KINDS[:1]) -> list[Path]:
        """Writes tables, plots in these kinds (`svg`, `pdf`, `png`), report and `result.json`; returns their paths.

        A previous result of a sweep in the folder is replaced completely; finished runs are kept. Raises
        `PathloomError` if the folder holds the result of a comparison, or if a file cannot be written. The previous
        result is then kept.
        """
        from pathloom.report.latex import latex
        from pathloom.report.sweep_page import page
        from pathloom.report.sweep_tables import points_table

        folder = Path(folder)
        check_kind(folder, SWEEP)
        check_foreign_files(folder, SWEEP_FILES)
        folder.mkdir(parents=True, exist_ok=True)
        figures = self._plots()
        texts = [
            ("points.tex", latex(points_table(self))),
            ("report.html", page(self, figures)),
            (RESULT, self.json()),
        ]
        files: list[tuple[str, Writer]] = [
            ("points.csv", self.table.write_csv),
            ("runs.parquet", parquet_writer(self.runs)),
            *((f"{figure.name}.{kind}", figure.write) for figure in figures for kind in kinds),
            *((name, partial(Path.write_text, data=text, encoding="utf-8")) for name, text in texts),
        ]
        return replace_files(folder, files, [*SWEEP_FILES, *_old_plots(folder)])

    def _plots(self) -> list[Plot]:
        """The pictures of the report; none without matplotlib."""
        if not is_installed("plot"):
            return []
        from pathloom.report.sweep_plots import plots

        return plots(self)


def files_of_result(folder: Path) -> list[Path]:
    """The files of a result in its folder, without kept runs and without files of the user."""
    names = [*FILES, *SWEEP_FILES, *_old_plots(folder)]
    return [folder / name for name in dict.fromkeys(names) if (folder / name).is_file()]


def _old_plots(folder: Path) -> list[str]:
    """Names that plots of the previous result in the folder may have. Other pictures in the folder are the user's."""
    from pathloom.report.sweep_tables import plot_names

    try:
        record = read_record(folder) or {}
        axes = {str(axis) for point in record.get("points", []) for axis in point["at"]}
    except (PathloomError, TypeError, KeyError):
        return []
    return [f"{name}.{kind}" for name in plot_names(axes) for kind in PLOT_KINDS]
