"""TIMELY on one cable: the queue stays near the low threshold, and most of the cable is used."""

from pathlib import Path

import polars
import pytest

import pathloom as pl

RATE_BPS = 10e9


@pytest.mark.parametrize(("flows", "low_us", "high_us"), [(2, 50, 500), (8, 50, 500)])
def test_the_queue_grows_to_the_low_threshold(flows: int, low_us: int, high_us: int, tmp_path: Path) -> None:
    rows = [f"{number * 1e-5:.6f},h{number},h{flows + number}," for number in range(flows)]
    (tmp_path / "flows.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    result = pl.compare(
        fabric=f"dumbbell:hosts={flows},rate=10Gbps,delay=1us,buffer=5000,pfc=on",
        traffic=f"flows:file={tmp_path / 'flows.csv'}",
        schemes=["ecmp"],
        transport=f"roce:cc=timely,acks=4,t_low={low_us}us,t_high={high_us}us",
        duration="250ms",
        runs=1,
        series="100us",
    )
    later = (polars.col("at_s") > 0.15) & (polars.col("source") == "e0") & (polars.col("target") == "e1")
    cable = result.link_series.filter(later)
    # A packet has 4162 bytes.
    queued_us = max(cable["mean_queue"].to_list()) * 4162 * 8 / RATE_BPS * 1e6
    assert sum(cable["rate_bps"].to_list()) / (RATE_BPS * 1000) > 0.85
    # The rates grow until the round trip, without queues 12 to 16 us, exceeds the low threshold.
    assert low_us < queued_us + 16 < 1.2 * low_us < high_us, queued_us
