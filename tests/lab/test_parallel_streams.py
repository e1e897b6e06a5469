"""Runs of parallel-tcp: the transfers of a lab have several streams, each on a path that its host claimed."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from pathloom.fabrics import Fabric
from pathloom.lab import controller
from pathloom.lab.lab import Lab
from pathloom.lab.parallel import StreamSettings
from pathloom.lab.runs import run_agent
from pathloom.lab.transfers import BLOCK_BYTES
from support import compared, figures

FABRIC = "parallel-paths:rates=10Mbps/10Mbps/10Mbps/10Mbps,host_rate=100Mbps"
LIVE = ["--worlds", "sim,lab", "--lab", "controller=pathloom", "--runs", "1"]
SIZE = 12_000_000


def listed(folder: Path, *rows: str) -> str:
    """Traffic of the flows in some rows."""
    file = folder / "flows.csv"
    file.write_text("\n".join(["start_s,src,dst,size_bytes", *rows, ""]), encoding="ascii")
    return f"flows:file={file}"


def events(folder: Path) -> list[str]:
    """Kinds of the inputs of the controller of a run that concern assigned paths, in order."""
    lines = [json.loads(line) for line in (folder / "events.jsonl").read_text(encoding="utf-8").splitlines()]
    kinds = [kind for line in lines if isinstance(line.get("input"), dict) for kind in line["input"]]
    return [kind for kind in kinds if kind in ("assign_paths", "claim_path", "release_paths")]


def test_a_transfer_takes_four_paths_as_in_the_simulator(tmp_path: Path) -> None:
    traffic = listed(tmp_path, f"0.1,h0,h1,{SIZE}", f"0.2,h1,h0,{SIZE}")
    schemes = ["--schemes", "spt,parallel-tcp:policy=round-robin", "--duration", "10s", "--out", str(tmp_path)]
    content = compared("--fabric", FABRIC, "--traffic", traffic, *schemes, *LIVE)
    _, several, _, live_several = content["schemes"]
    assert [row["world"] for row in content["schemes"]] == ["sim", "sim", "lab", "lab"]
    assert [row["flows"]["finished"] for row in content["schemes"]] == [2] * 4
    assert live_several["delivered_bytes"] == several["delivered_bytes"] == 2 * SIZE
    # Four streams per transfer were put on their paths.
    assert live_several["control"]["routes"] == several["control"]["routes"] == 8
    assert [note for note in content["traffic"]["notes"] if "default routes" in note] == []
    times = {row["scheme"]: row["fct_s"]["mean"] for row in content["schemes"]}
    figures("FCT of 12 MB on one path and on four", **times)
    # The streams of the table are on the paths of those in the simulator, and carried all bytes.
    streams = pl.read_parquet(tmp_path / "subflows.parquet").sort("flow", "subflow")
    in_lab, in_sim = (streams.filter(pl.col("scheme").str.ends_with("@lab") == lab) for lab in (True, False))
    assert in_lab["path"].to_list() == in_sim["path"].to_list()
    assert in_lab["src_address"].to_list() == in_sim["src_address"].to_list()
    assert in_lab.group_by("flow").agg(pl.col("delivered_bytes").sum())["delivered_bytes"].to_list() == [SIZE] * 2


@pytest.mark.long
def test_paths_are_claimed_by_the_stream_and_released_with_the_transfer(tmp_path: Path) -> None:
    traffic = listed(tmp_path, "0.0,h0,h1,200000", "1.0,h0,h1,200000", "1.5,h0,h1,")
    command = ["--fabric", FABRIC, "--traffic", traffic, "--scheme", "parallel-tcp:paths=2,ratio=2/1,streams=3"]
    log = ["--event-log", str(tmp_path / "events.jsonl")]
    options = ["--duration", "3s", "--worlds", "lab", "--lab", "controller=pathloom"]
    content = compared(*command, *options, *log, verb="run")
    counted = events(tmp_path)
    assert counted[:4] == ["assign_paths"] + ["claim_path"] * 3
    assert [counted.count(kind) for kind in ("assign_paths", "claim_path")] == [3, 9]
    # Those of the transfer that ends with the run are released if the controller still runs.
    assert counted.count("release_paths") >= 2
    assert content["schemes"][0]["flows"]["finished"] == 2


@pytest.mark.long
def test_a_transfer_that_ends_before_its_last_claim_is_no_problem(tmp_path: Path) -> None:
    traffic = listed(tmp_path, *(f"{0.05 * number},h0,h1,1000" for number in range(30)))
    scheme = ["--scheme", "parallel-tcp:streams=16", "--duration", "3s", "--out", str(tmp_path / "out")]
    options = ["--worlds", "lab", "--lab", "controller=pathloom"]
    content = compared("--fabric", FABRIC, "--traffic", traffic, *scheme, *options, verb="run")
    assert content["schemes"][0]["flows"]["finished"] == 30
    assert [note for note in content["traffic"]["notes"] if "default routes" in note] == []
    streams = pl.read_parquet(tmp_path / "out" / "subflows.parquet")
    assert streams.height == 30 * 16
    assert streams["delivered_bytes"].sum() == 30 * 1000


def plan(lab: Lab, fabric: Fabric, sizes: list[int | None]) -> dict[str, Any]:
    """A plan of the agent: transfers of these sizes from h0 to h1, with the streams of parallel-tcp."""
    blueprint = lab.blueprint()
    settings = StreamSettings.of_scheme("parallel-tcp:streams=3")
    assert settings is not None
    (src, dst) = (host.ports[0].address for host in blueprint.hosts)
    flow = {"start_ns": 0, "after": [], "src_address": src, "dst_address": dst, "dst_port": 5001, "dscp": 0}
    return {
        "duration_ns": 3_000_000_000,
        "drain": 1,
        "namespaces": {host.ports[0].address: host.namespace for host in blueprint.hosts},
        "streams": settings.to_dict(),
        "flows": [{**flow, "src_port": 40_000 + 100 * i, "size_bytes": size} for i, size in enumerate(sizes)],
    }


@pytest.mark.long
def test_streams_take_the_default_routes_if_nobody_assigns_paths(name: str) -> None:
    # A lab without a controller: the address of its service leads nowhere.
    fabric, lab = Fabric(FABRIC), Lab(name)
    lab.up(fabric, None, "spt")
    lab.release()
    result = run_agent(lab, plan(lab, fabric, [1, BLOCK_BYTES + 1, 1_000_000, None]), lambda _: None)
    assert result["no_path"]
    rows = result["flows"]
    assert [row["error"] for row in rows] == [None] * 4
    assert [row["delivered_bytes"] for row in rows[:3]] == [1, BLOCK_BYTES + 1, 1_000_000]
    assert [row["finish_ns"] > 0 for row in rows] == [True, True, True, False]
    assert rows[3]["delivered_bytes"] > 100_000


@pytest.mark.long
def test_streams_do_not_wait_long_for_a_controller_that_does_not_answer(name: str) -> None:
    fabric, lab = Fabric(FABRIC), Lab(name)
    lab.up(fabric, controller.OWN, "parallel-tcp")
    lab.release()
    process = lab.controller_process()
    process.send_signal(signal.SIGSTOP)
    try:
        (row,) = run_agent(lab, plan(lab, fabric, [100_000]), lambda _: None)["flows"]
    finally:
        process.send_signal(signal.SIGCONT)
        lab.stop_controller()
    assert (row["error"], row["delivered_bytes"]) == (None, 100_000)
    assert row["finish_ns"] > 0
