"""TIMELY on one cable: queue, use of the cable, and the shares of the flows."""

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


def rates_gbps(begins_s: list[float], transport: str, tmp_path: Path) -> list[float]:
    """Rates of flows over one cable of 10 Gbit/s from 450 to 550 ms, by the times at which they begin."""
    rows = [f"{begin},h{number},h{len(begins_s) + number}," for number, begin in enumerate(begins_s)]
    (tmp_path / "flows.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    before, after = (
        pl.compare(
            fabric=f"dumbbell:hosts={len(begins_s)},rate=10Gbps,delay=1us,buffer=2000,pfc=on",
            traffic=f"flows:file={tmp_path / 'flows.csv'}",
            schemes=["spt"],
            transport=transport,
            duration=duration,
            runs=1,
        ).flows.sort("flow")["delivered_bytes"]
        for duration in ("450ms", "550ms")
    )
    return [bytes_sent * 8 / 0.1 / 1e9 for bytes_sent in after - before]


@pytest.mark.parametrize("begins_s", [[0.0, 0.0], [0.0, 0.1]])
def test_shares_do_not_become_equal_as_those_of_dcqcn_do(begins_s: list[float], tmp_path: Path) -> None:
    """Zhu et al. 2016, §4.1: the model of TIMELY has no single fixed point, so flows stay at unequal shares."""
    low, high = sorted(rates_gbps(begins_s, "roce:cc=timely,acks=4", tmp_path))
    assert high > 2 * low
    low, high = sorted(rates_gbps(begins_s, "dcqcn", tmp_path))
    assert high < 1.25 * low
