"""The table of subflows: the path of each part of a connection, and the bytes that it carried."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from pathloom.experiments.results.outcome import RunOutcome
from pathloom.experiments.results.path_names import path_texts
from pathloom.fabrics import Fabric

SUBFLOW_SCHEMA = {
    "scheme": pl.String,
    "run": pl.UInt32,
    "flow": pl.UInt32,
    "subflow": pl.UInt32,
    "src_address": pl.String,
    "dst_address": pl.String,
    "src_port": pl.UInt16,
    "path": pl.String,
    "delivered_bytes": pl.Int64,
    "share": pl.Float64,
    "retransmits": pl.UInt32,
    "timeouts": pl.UInt32,
}
"""Columns of the table of subflows, one row per subflow of a flow that has several.

`path` has the names of the nodes that the subflow's data crosses, from host to host, by the rules when the subflow or
the run ended. It is null if it is unknown, which occurs in the lab. `share` is the part of the bytes of all subflows of
the flow that this one delivered, 0 to 1; it is null if no subflow delivered anything.
"""


def subflow_table(fabric: Fabric, outcomes: Sequence[RunOutcome]) -> pl.DataFrame:
    """One row per subflow and run."""
    frames = [_subflows_of(fabric, one) for one in outcomes if "subflows" in one.outcome]
    frames = [frame for frame in frames if frame.height]
    return pl.concat(frames) if frames else pl.DataFrame(schema=SUBFLOW_SCHEMA)


def _subflows_of(fabric: Fabric, one: RunOutcome) -> pl.DataFrame:
    columns = one.outcome["subflows"]
    frame = pl.DataFrame(
        {
            **{name: columns[name] for name in SUBFLOW_SCHEMA if name in columns},
            "path": path_texts(fabric, columns["links"]),
            "scheme": np.full(len(columns["flow"]), one.job.label, dtype=object),
            "run": np.full(len(columns["flow"]), one.job.run, dtype=np.uint32),
        },
        schema_overrides={"scheme": pl.String, "path": pl.String},
    )
    known = [pl.when(pl.col(name) >= 0).then(pl.col(name)).alias(name) for name in ("retransmits", "timeouts")]
    whole = pl.col("delivered_bytes").sum().over("flow")
    frame = frame.with_columns(
        *known,
        subflow=pl.int_range(pl.len()).over("flow"),
        share=pl.when(whole > 0).then(pl.col("delivered_bytes") / whole),
    )
    return frame.select(pl.col(name).cast(kind) for name, kind in SUBFLOW_SCHEMA.items())
