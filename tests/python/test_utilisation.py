"""The utilisation of links can be compared between schemes."""

from __future__ import annotations

import polars as pl

from pathloom.api.comparison import compare
from pathloom.fabrics import fat_tree


def test_utilisation_is_over_the_same_time_for_all_schemes() -> None:
    result = compare(
        fabric=fat_tree(k=4, rate="10Mbps"),
        traffic="web-search:load=0.6,pattern=stride,max_size=1MB",
        schemes=["spt", "ecmp"],
        duration="1s",
        runs=2,
    )
    ends_s = {(row["scheme"], run["run"]): run["end_s"] for row in result.summary["schemes"] for run in row["runs"]}
    assert max(ends_s["spt", run] / ends_s["ecmp", run] for run in (1, 2)) > 1.2, "the schemes take different times"
    for run in (1, 2):
        window_s = max(ends_s["spt", run], ends_s["ecmp", run])
        links = result.links.filter(pl.col("run") == run)
        full_bytes = links["rate_bps"] * window_s / 8
        # Every flow has finished, so all packets have left the ports, except the last acknowledgements.
        assert ((links["utilisation"] - links["sent_bytes"] / full_bytes).abs() < 1e-4).all()


def test_the_caption_names_the_time_of_the_utilisation() -> None:
    result = compare(
        fabric="dumbbell:rate=10Mbps", traffic="long-lived", schemes=["spt", "ecmp"], duration="1s", runs=1
    )
    report = result.report()
    assert report.count("for all schemes over the same time: until the slowest has ended (1 s)") >= 2
