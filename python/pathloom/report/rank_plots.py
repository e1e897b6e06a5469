"""Pictures of the ranks of jobs: what each one does over time, which pairs are slow, and which steps wait."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter
from numpy.typing import NDArray

from pathloom import _core
from pathloom.experiments.results.after_end import until_end
from pathloom.quantities import counted, time_text, times_figure
from pathloom.report.dark import BUSY
from pathloom.report.palette import FAINT, Look
from pathloom.report.style import fitting_legend, new_figure

if TYPE_CHECKING:
    from pathloom.experiments.results.outcome import RunOutcome
    from pathloom.experiments.results.result import ResultData

MOST_ROWS: Final = 32
"""Most ranks of a timeline. Of more, those that finished last are drawn."""
MOST_LINKS: Final = 8
"""Most links below a timeline."""
MOST_NAMED: Final = 32
"""The matrix names ranks by number up to this many."""
COMPUTES, SENDS, RECEIVES = "#009e73", "#0072b2", "#9adcff"
Intervals = NDArray[np.float64]
"""Rows of start and end, in seconds, ascending and apart."""


@dataclass(frozen=True)
class Rank:
    """What a rank of a job does in a run, in seconds from the start of the run."""

    name: str
    computes: Intervals
    sends: Intervals
    receives: Intervals

    @property
    def end_s(self) -> float:
        """The end of its last transfer or computation."""
        return max(
            (float(each[-1, 1]) for each in (self.computes, self.sends, self.receives) if len(each)), default=0.0
        )

    @property
    def idle_s(self) -> float:
        """The time until its end in which it neither computes nor transfers."""
        busy = union([*self.computes, *self.sends, *self.receives])
        return self.end_s - float((busy[:, 1] - busy[:, 0]).sum())


def union(intervals: Iterable[Sequence[float] | NDArray[np.float64]]) -> Intervals:
    """Joins intervals that touch or overlap, and leaves out empty ones.

    >>> union([(2.0, 3.0), (0.0, 1.0), (0.5, 1.5), (4.0, 4.0)]).tolist()
    [[0.0, 1.5], [2.0, 3.0]]
    """
    rows = np.array([one for one in intervals if one[1] > one[0]], dtype=np.float64).reshape(-1, 2)
    if not len(rows):
        return rows
    rows = rows[np.argsort(rows[:, 0], kind="stable")]
    reach = np.maximum.accumulate(rows[:, 1])
    first = np.concatenate(([True], rows[1:, 0] > reach[:-1]))
    last = np.concatenate((first[1:], [True]))
    return np.column_stack((rows[first, 0], reach[last]))


def first_run(result: ResultData, scheme: str) -> RunOutcome | None:
    """The first finished run of a scheme."""
    return next((one for one in result.outcomes if one.job.label == scheme), None)


def transfers_of(outcome: Mapping[str, Any], job: Mapping[str, Any]) -> pl.DataFrame:
    """The started transfers of a job: ranks of both ends, step, start and end, and how long the sender computed before.

    An unfinished transfer ends with the run. `compute_s` counts from the end of what the transfer waited for. The first
    transfers of a training trace wait for nothing, and their senders compute from time 0.
    """
    flows = outcome["flows"]
    rank_of = np.full(int(max(flows["src"].max(), flows["dst"].max(), *job["hosts"])) + 1, -1)
    rank_of[list(job["hosts"])] = np.arange(len(job["hosts"]))
    of_job = (flows["coflow"] >= job["first_coflow"]) & (flows["coflow"] < job["first_coflow"] + job["coflows"])
    own = of_job & (flows["start_ns"] >= 0)
    start_ns, finish_ns = flows["start_ns"][own], flows["finish_ns"][own]
    delay_ns = flows["delay_ns"][own]
    waits_for_none = start_ns if not job["known"] else np.zeros(len(start_ns))
    end_ns = np.where(finish_ns >= 0, finish_ns, outcome["end_ns"])
    return pl.DataFrame(
        {
            "src": rank_of[flows["src"][own]],
            "dst": rank_of[flows["dst"][own]],
            "step": flows["coflow"][own] - job["first_coflow"],
            "start_s": start_ns / 1e9,
            "end_s": end_ns / 1e9,
            "compute_s": np.where(delay_ns >= 0, delay_ns, waits_for_none) / 1e9,
            "slowdown": (end_ns - start_ns) / np.maximum(flows["ideal_fct_ns"][own], 1),
        }
    )


def ranks_of(job: Mapping[str, Any], transfers: pl.DataFrame, names: Sequence[str]) -> list[Rank]:
    """What each rank of a job does."""
    by_src = {int(key[0]): own for key, own in transfers.partition_by("src", as_dict=True).items()}
    by_dst = {int(key[0]): own for key, own in transfers.partition_by("dst", as_dict=True).items()}
    none = transfers.clear()
    found = []
    for rank, host in enumerate(job["hosts"]):
        out, into = by_src.get(rank, none), by_dst.get(rank, none)
        computes = out.select(pl.col("start_s") - pl.col("compute_s"), pl.col("start_s").alias("end_s"))
        found.append(
            Rank(
                f"{rank} ({names[host]})",
                union(computes.to_numpy()),
                union(out.select("start_s", "end_s").to_numpy()),
                union(into.select("start_s", "end_s").to_numpy()),
            )
        )
    return found


def _jobs(result: ResultData, look: Mapping[str, Look]) -> dict[str, list[tuple[Mapping[str, Any], pl.DataFrame]]]:
    """The jobs with transfers in the first run of each scheme that has any, and these transfers."""
    found = {}
    for scheme in look:
        if (run := first_run(result, scheme)) is None:
            continue
        jobs = [(job, transfers_of(run.outcome, job)) for job in run.outcome.get("jobs") or []]
        if started := [(job, transfers) for job, transfers in jobs if transfers.height]:
            found[scheme] = started
    return found


def timeline(result: ResultData, look: Mapping[str, Look]) -> tuple[Figure, str] | None:
    """What each rank does over time in the first run of each scheme, and below it the links between switches."""
    found = _jobs(result, look)
    if not found:
        return None
    shown: dict[str, list[Rank]] = {}
    left_out = 0
    for scheme, jobs in found.items():
        ranks = []
        for number, (job, transfers) in enumerate(jobs):
            label = f"job {number + 1}: " if len(jobs) > 1 else ""
            own = ranks_of(job, transfers, result.fabric.names)
            ranks += [Rank(label + rank.name, rank.computes, rank.sends, rank.receives) for rank in own]
        last = sorted(sorted(range(len(ranks)), key=lambda at: -ranks[at].end_s)[:MOST_ROWS])
        left_out, shown[scheme] = len(ranks) - len(last), [ranks[at] for at in last]
    series = _series_between_switches(result)
    rows = [(1.0 + 0.13 * len(ranks), *((1.3,) if series is not None else ())) for ranks in shown.values()]
    heights = [height for scheme in rows for height in scheme]
    figure = new_figure(9.2, sum(heights) + 0.6)
    grid = figure.add_gridspec(len(heights), 1, height_ratios=heights)
    above: Axes | None = None
    for place, (scheme, ranks) in enumerate(shown.items()):
        axes = figure.add_subplot(grid[place * len(rows[0])], sharex=above)
        above = above or axes
        draw_ranks(axes, ranks)
        axes.set_title(look[scheme].label, color=look[scheme].colour, fontweight="bold")
        lowest = axes
        if series is not None:
            lowest = figure.add_subplot(grid[place * len(rows[0]) + 1], sharex=above)
            of_run = (pl.col("scheme") == scheme) & (pl.col("run") == 1)
            _draw_links(lowest, result, until_end(series.filter(of_run), result.flows.filter(of_run)))
    lowest.set_xlabel("time")
    _legend(figure, any(len(rank.computes) for ranks in shown.values() for rank in ranks))
    return figure, _timeline_says(result, shown, left_out, series is not None)


def _timeline_says(result: ResultData, shown: Mapping[str, Sequence[Rank]], left_out: int, links: bool) -> str:
    longest = {scheme: max(ranks, key=lambda rank: rank.idle_s) for scheme, ranks in shown.items()}
    waits = "; ".join(f"{scheme}: rank {rank.name}, {time_text(rank.idle_s)}" for scheme, rank in longest.items())
    says = "The first run of each scheme. Where a row is empty, its rank waits for others or has ended. "
    if left_out:
        says += f"Of each scheme, {counted(left_out, 'rank')} that ended earlier are left out. "
    says += f"The longest waits of a rank that is drawn, added up, are: {waits}."
    if links:
        says += (
            f" Below: utilisation of the {MOST_LINKS} links between switches that sent most, in steps of "
            f"{result.settings.series}."
        )
    return says


def draw_ranks(axes: Axes, ranks: Sequence[Rank]) -> None:
    """Draws a row for each rank: computation in the upper half, transfers in the lower one."""
    for row, rank in enumerate(ranks):
        for intervals, low, height, colour in (
            (rank.receives, row, 0.4, RECEIVES),
            (rank.sends, row, 0.4, SENDS),
            (rank.computes, row - 0.4, 0.4, COMPUTES),
        ):
            spans = [(start, end - start) for start, end in intervals.tolist()]
            axes.broken_barh(spans, (low, height), facecolors=colour, linewidth=0, rasterized=len(spans) > 200)
    axes.set_ylim(len(ranks) - 0.4, -0.6)
    axes.set_yticks(range(len(ranks)), [rank.name for rank in ranks], fontsize=7)
    axes.set_ylabel("rank")
    axes.grid(visible=False, axis="y")
    axes.set_xlim(0, None)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _place: time_text(value) if value else "0"))


def _legend(figure: Figure, computes: bool) -> None:
    kinds = [("computes or pauses", COMPUTES)] if computes else []
    kinds += [("sends", SENDS), ("only receives", RECEIVES)]
    handles = [Patch(facecolor=colour, label=label) for label, colour in kinds]
    fitting_legend(figure, len(handles), handles=handles, loc="outside upper left")


def _series_between_switches(result: ResultData) -> pl.DataFrame | None:
    """The series of links between switches in the first run of each scheme; None if there is none."""
    if result.settings.series is None:
        return None
    links = [link for link in range(len(result.fabric.links["source"])) if result.fabric.is_switch_link(link)]
    found = result.link_series.filter(pl.col("link").is_in(links) & (pl.col("run") == 1))
    return found if found["rate_bps"].sum() > 0 else None


def _draw_links(axes: Axes, result: ResultData, series: pl.DataFrame) -> None:
    """Utilisation over time of the links between switches that sent most."""
    links = result.fabric.links
    totals = (
        series.group_by("link")
        .agg(pl.col("rate_bps").sum().round())
        .sort(["rate_bps", "link"], descending=[True, False])
    )
    chosen = totals["link"].head(MOST_LINKS).to_list()
    # A step in which a link did nothing has no row.
    step_s = _core.parse_time_s(result.settings.series or "1s")
    count = round(float(series["at_s"].max() or 0.0) / step_s)  # type: ignore[arg-type]
    cells = np.zeros((len(chosen), count))
    row_of = {link: row for row, link in enumerate(chosen)}
    known = series.filter(pl.col("link").is_in(chosen)).select("link", "at_s", "rate_bps")
    for link, at_s, rate_bps in known.iter_rows():
        cells[row_of[link], min(max(math.ceil(at_s / step_s - 1e-6), 1), count) - 1] = (
            rate_bps / links["rate_bps"][link]
        )
    if count:
        edges = np.arange(count + 1) * step_s, np.arange(len(chosen) + 1) - 0.5
        axes.pcolormesh(*edges, cells, cmap=BUSY, norm=Normalize(0.0, 1.0), rasterized=True)
    names = result.fabric.names
    labels = [f"{names[links['source'][link]]} → {names[links['target'][link]]}" for link in chosen]
    axes.set_yticks(range(len(chosen)), labels, fontsize=6)
    axes.set_ylim(len(chosen) - 0.5, -0.5)
    axes.grid(visible=False)


def matrix(result: ResultData, look: Mapping[str, Look]) -> tuple[Figure, str] | None:
    """The mean slowdown of transfers from rank to rank, in the first run of each scheme; of the first job."""
    cells: dict[str, NDArray[np.float64]] = {}
    found = _jobs(result, look)
    for scheme, [(job, transfers), *_] in found.items():
        size = len(job["hosts"])
        pair = transfers["src"].to_numpy(), transfers["dst"].to_numpy()
        sums, counts = np.zeros((size, size)), np.zeros((size, size))
        np.add.at(sums, pair, transfers["slowdown"].to_numpy())
        np.add.at(counts, pair, 1)
        cells[scheme] = np.divide(sums, counts, out=np.full((size, size), np.nan), where=counts > 0)
    if not cells:
        return None
    most = max(float(np.nanmax(each)) for each in cells.values())
    scale = Normalize(1.0, max(most, 1.1))
    columns = min(len(cells), 3)
    figure = new_figure(9.2, 3.2 * -(-len(cells) // columns) + 0.6)
    every = []
    for place, (scheme, each) in enumerate(cells.items()):
        axes = figure.add_subplot(-(-len(cells) // columns), columns, place + 1)
        axes.pcolormesh(np.ma.masked_invalid(each), cmap=BUSY, norm=scale, rasterized=True)
        axes.set_aspect("equal")
        axes.invert_yaxis()
        axes.grid(visible=False)
        axes.set_title(look[scheme].label, color=look[scheme].colour, fontweight="bold")
        axes.set_xlabel("receiving rank")
        axes.set_ylabel("sending rank")
        step = max(1, len(each) // 8) if len(each) <= MOST_NAMED else len(each) // 4
        ticks = range(0, len(each), step)
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_ticks([tick + 0.5 for tick in ticks], [str(tick) for tick in ticks])
        every.append(axes)
    bar = figure.colorbar(ScalarMappable(scale, BUSY), ax=every, location="bottom", shrink=0.5, aspect=40, pad=0.02)
    bar.set_label("mean slowdown of transfers")
    bar.ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _place: times_figure(value)))
    bar.outline.set_visible(False)
    says = (
        "Mean time of the transfers from one rank to another over their ideal time, in the first run of each scheme. "
        "Pairs without a transfer are empty. An unfinished transfer counts with the time it has had."
    )
    if any(len(jobs) > 1 for jobs in found.values()):
        says += " Only the first job is drawn."
    return figure, says


def step_waits(transfers: pl.DataFrame) -> pl.DataFrame:
    """By step, how long its last transfer ended after its median transfer, in seconds."""
    wait_s = (pl.col("end_s").max() - pl.col("end_s").median()).alias("wait_s")
    return transfers.group_by("step").agg(wait_s).sort("step")


def steps(result: ResultData, look: Mapping[str, Look]) -> tuple[Figure, str] | None:
    """By step of the first job, how long the last transfer ended after the median one."""
    figure = new_figure(7.2, 3.2)
    axes = figure.add_subplot()
    if not draw_steps(axes, result, look):
        return None
    handles, _ = axes.get_legend_handles_labels()
    fitting_legend(figure, len(handles), handles=handles, loc="outside upper left", handlelength=2.6)
    says = (
        "By step of the first job, in the first run of each scheme: the time from the end of the median transfer to "
        "the end of the last one."
    )
    return figure, says


def draw_steps(axes: Axes, result: ResultData, look: Mapping[str, Look]) -> bool:
    """Draws how long each step waits for its last transfer. Returns whether there is a job with several steps."""
    drawn = False
    for scheme, [(job, transfers), *_] in _jobs(result, look).items():
        if job["coflows"] < 2:
            continue
        waits, style = step_waits(transfers), look[scheme]
        axes.plot(
            waits["step"] + 1,
            waits["wait_s"],
            color=style.colour,
            linestyle=style.line,
            marker=style.marker if waits.height <= 60 else "",
            markersize=4,
            linewidth=1.0,
            label=style.label,
        )
        drawn = True
    axes.set_ylim(0, None)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _place: time_text(value) if value else "0"))
    axes.set_xlabel("step of the job, through all iterations")
    axes.set_ylabel("wait for the last transfer")
    axes.spines["left"].set_color(FAINT)
    return drawn
