"""The section of the report about subflows: paths of connections, and details of the slowest connections."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from pathloom.quantities import count_text, percent_text, share_text
from pathloom.report.tables import Table

if TYPE_CHECKING:
    from pathloom.experiments.results.result import ResultData

SLOWEST = 3
"""Number of connections of each scheme that are shown subflow by subflow."""


def overview(result: ResultData) -> Table | None:
    """Connections with several subflows, by scheme; None if there are none.

    A connection counts for the columns about paths if all of its paths are known.
    """
    subflows = result.subflows
    if subflows.height == 0:
        return None
    known = pl.col("path").is_not_null().all()
    by_flow = subflows.group_by("scheme", "run", "flow").agg(
        subflows=pl.len(), paths=pl.when(known).then(pl.col("path").n_unique()), largest=pl.col("share").max()
    )
    headings = ["scheme", "connections", "subflows each", "paths each", "largest share", "on one path"]
    rows = []
    for scheme in result.settings.labels:
        mine = by_flow.filter(pl.col("scheme") == scheme)
        if mine.height:
            each = mine.select(pl.col("subflows", "paths", "largest").mean()).row(0)
            texts = ["" if mean is None else f"{float(mean):.3g}" for mean in each]
            alone = mine.select((pl.col("paths") == 1).mean()).item()
            rows.append([scheme, count_text(mine.height), *texts, "" if alone is None else percent_text(alone)])
    return Table(headings, rows, [None] * len(headings))


def slowest(result: ResultData) -> Table:
    """The subflows of each scheme's slowest connections."""
    flows = result.flows.select("scheme", "run", "flow", "src", "dst", "throughput")
    headings = ["scheme", "run", "flow", "from, to", "throughput", "path", "share"]
    rows = []
    for scheme in result.settings.labels:
        mine = result.subflows.filter(pl.col("scheme") == scheme).join(flows, on=["scheme", "run", "flow"])
        keys = mine.select("run", "flow", "throughput").unique().sort("throughput", "run", "flow", nulls_last=True)
        for run, flow, _ in keys.head(SLOWEST).rows():
            parts = mine.filter((pl.col("run") == run) & (pl.col("flow") == flow)).sort("subflow")
            for row in parts.iter_rows(named=True):
                first = row["subflow"] == 0
                whole = row["throughput"]
                rows.append(
                    [
                        scheme,
                        str(run),
                        str(flow),
                        f"{row['src']} → {row['dst']}" if first else "",
                        share_text(whole) if first and whole is not None else "",
                        row["path"] or "unknown",
                        percent_text(row["share"]) if row["share"] is not None else "",
                    ]
                )
    return Table(headings, rows, [None] * len(headings))
