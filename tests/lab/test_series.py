"""Series of runs in the lab: what flows received and links sent in each step, and the time to recover from faults."""

from __future__ import annotations

import subprocess
from pathlib import Path

import polars as pl
import pytest

from support import K4, PATHLOOM, compared, figures

TRAFFIC = ["--fabric", K4, "--traffic", "long-lived:pattern=permutation", "--runs", "1", "--worlds", "sim,lab"]


@pytest.mark.long
def test_series_add_up_and_switches_that_find_paths_recover_from_faults(tmp_path: Path) -> None:
    faults = ["--fault", "4s:down:c0", "--fault", "7s:down:a2_0", "--fault", "9s:up:a2_0"]
    scheme = ["--schemes", "tcp-path", "--duration", "11s", "--series", "100ms", "--out", str(tmp_path)]
    content = compared(*TRAFFIC, *scheme, *faults)
    simulated, live = content["schemes"]
    assert [row["recovery_s"]["faults"] for row in (simulated, live)] == [2, 2]
    assert live["control"]["reroutes"] > 0, "no connection was repaired"

    def of_lab(name: str) -> pl.DataFrame:
        return pl.read_parquet(tmp_path / f"{name}.parquet").filter(pl.col("scheme") == "tcp-path@lab")

    steps, flows = of_lab("flow-series"), of_lab("flows").sort("flow")
    assert steps["at_s"].unique().len() > 80
    received = steps.group_by("flow").agg((pl.col("goodput_bps") * 0.1 / 8).sum().alias("bytes")).sort("flow")
    assert received["flow"].to_list() == flows["flow"].to_list()
    assert (steps.filter(pl.col("at_s").is_between(1, 3))["window_bytes"] > 0).all()
    link_steps, links = of_lab("link-series"), of_lab("links").filter(pl.col("sent_bytes") > 100_000)
    sent = link_steps.group_by("link").agg((pl.col("rate_bps") * 0.1 / 8).sum().alias("bytes"))
    joined = links.join(sent, on="link", how="left")
    assert joined["bytes"].null_count() == 0, "links that sent are not in the series"
    figures("time to recover, s", simulated=simulated["recovery_s"]["max"], live=live["recovery_s"]["max"])
    # Counters are read with a small and varying delay, so a step is not exactly as long as it should be.


def test_paths_and_their_reasons_are_recorded_as_in_the_simulator(tmp_path: Path) -> None:
    schemes = ["--schemes", "ecmp,ofpt", "--duration", "2s", "--series", "100ms", "--out", str(tmp_path)]
    content = compared(*TRAFFIC, *schemes, "--lab", "controller=pathloom")
    assert not [note for note in content["traffic"]["notes"] if "unknown" in note]
    ways = pl.read_parquet(tmp_path / "way-series.parquet").sort("scheme", "flow", "at_s")
    of = {scheme: ways.filter(pl.col("scheme") == scheme) for scheme in ("ecmp", "ecmp@lab", "ofpt@lab")}
    # Rules of the switches pin flows on default routes to the paths of the simulator.
    columns = ["at_s", "flow", "src_port", "path", "why"]
    assert of["ecmp"].height == 16
    assert of["ecmp"].select(columns).equals(of["ecmp@lab"].select(columns))
    last = of["ofpt@lab"].group_by("flow").last().sort("flow")
    assert last["flow"].to_list() == list(range(16))
    # A reason names the switches of the path.
    switches = [path.split()[1:-1] for path in last["path"]]
    assert [f"ofpt put it on {' - '.join(names)}" in why for names, why in zip(switches, last["why"], strict=True)] == (
        [True] * 16
    )


def test_a_step_too_short_for_the_lab_is_refused(tmp_path: Path) -> None:
    command = [*PATHLOOM, "compare", *TRAFFIC, "--schemes", "tcp-path", "--series", "10ms"]
    done = subprocess.run([*command, "--out", str(tmp_path / "new")], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "series: `10ms` is too short for the lab; expected 100ms or more" in done.stderr
    assert not (tmp_path / "new").exists()
