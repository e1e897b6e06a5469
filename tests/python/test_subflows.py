"""The subflows of connections, in tables and in the report."""

from __future__ import annotations

import json
import re
from pathlib import Path

import polars as pl
import pytest

import pathloom as pl_loom
from conftest import Cli
from pathloom.experiments.results.subflows import SUBFLOW_SCHEMA

SETUP = ["--fabric", "fat-tree:k=4,rate=100Mbps", "--traffic", "long-lived:pattern=stride", "--duration", "200ms"]


def test_every_subflow_has_a_path_and_a_share(cli: Cli, tmp_path: Path) -> None:
    schemes = "ecmp,mptcp:subflows=2,mptcp-aware:subflows=4"
    done = cli("compare", *SETUP, "--schemes", schemes, "--runs", "2", "--out", str(tmp_path / "out"))
    assert done.code == 0, done.err
    subflows = pl.read_parquet(tmp_path / "out/subflows.parquet")
    assert dict(subflows.schema) == SUBFLOW_SCHEMA
    # A connection under ecmp is one flow without subflows.
    counts = dict(subflows.group_by("scheme").len().rows())
    assert counts == {"mptcp:subflows=2": 2 * 16 * 2, "mptcp-aware:subflows=4": 2 * 16 * 4}
    by_flow = subflows.group_by("scheme", "run", "flow").agg(
        pl.col("share").sum(), pl.col("src_port").n_unique(), pl.len()
    )
    assert by_flow["share"].to_list() == pytest.approx([1.0] * by_flow.height)
    assert (by_flow["src_port"] == by_flow["len"]).all()
    # Hosts half a fabric apart: two ToRs, two aggregation switches and a core switch between them.
    paths = subflows["path"].str.split(" ")
    assert paths.list.len().unique().to_list() == [7]
    assert paths.list.first().str.starts_with("h").all() and paths.list.last().str.starts_with("h").all()
    placed = subflows.filter(pl.col("scheme").str.starts_with("mptcp-aware")).group_by("run", "flow")
    assert (placed.agg(pl.col("path").n_unique())["path"] >= 2).all(), "subflows of a connection are spread"
    report = (tmp_path / "out/report.html").read_text(encoding="utf-8")
    assert "<h2>Subflows</h2>" in report
    assert re.search(r"h\d+ e\d_\d a\d_\d c\d a\d_\d e\d_\d h\d+", report), "a path"


def test_the_sizes_of_caches_are_in_the_results(cli: Cli) -> None:
    schemes = "ecmp,mptcp-aware:subflows=4"
    done = cli("compare", *SETUP, "--schemes", schemes, "--runs", "2", "--json", "-")
    plain, aware = json.loads(done.out)["schemes"]
    assert plain["control"]["sizes"] == {}
    # One set of paths for each direction of 16 connections would be 32. The reverse directions use the same sets.
    assert aware["control"]["sizes"] == {"most cached path sets": 16, "most known connections": 16}
    told = cli("compare", *SETUP, "--schemes", schemes, "--runs", "2").out
    assert re.search(r"most cached path sets +– +16", told)


def test_without_subflows_there_is_no_table_of_them(cli: Cli, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    for schemes, expected in (("mptcp:subflows=2", True), ("ecmp", False)):
        done = cli("compare", *SETUP, "--schemes", schemes, "--runs", "1", "--out", str(folder), "--resume")
        assert done.code == 0, done.err
        assert (folder / "subflows.parquet").exists() == expected
    assert "<h2>Subflows</h2>" not in (folder / "report.html").read_text(encoding="utf-8")


def test_subflows_of_finite_transfers_add_up() -> None:
    result = pl_loom.compare(
        fabric=pl_loom.fat_tree(k=4, rate="100Mbps"),
        traffic="all-to-all:size=200KB",
        schemes=["mptcp:subflows=2"],
        duration="5s",
        runs=1,
    )
    carried = result.subflows.group_by("flow").agg(pl.col("delivered_bytes").sum()).sort("flow")
    # Bytes that are retransmitted on another subflow count on both.
    assert (carried["delivered_bytes"] >= 200_000).all()
    assert carried["delivered_bytes"].median() == 200_000
