"""Tests of large fabrics, run by `make test-long`."""

from __future__ import annotations

import json
import re
import subprocess
import time
from pathlib import Path

import pytest

from conftest import Cli
from pathloom import PathloomError, benchmark

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.long


def test_k16_with_web_search_traffic_for_a_second(cli: Cli, tmp_path: Path) -> None:
    arguments = ["--fabric", "fat-tree:k=16,rate=1Gbps", "--traffic", "web-search:load=0.4", "--duration", "1s"]
    outcome = cli("run", *arguments, "--scheme", "ecmp", "--out", "k16")
    assert outcome.code == 0, outcome.err
    row = json.loads((tmp_path / "k16/result.json").read_text(encoding="utf-8"))["schemes"][0]
    # 1024 hosts at 0.4 Gbit/s, flows of 1.711 MB.
    assert row["flows"]["offered"] == pytest.approx(1024 * 0.4e9 / 8 / 1.711e6, rel=0.05)
    assert row["flows"]["unfinished"] == 0
    assert row["packets"]["in_flight"] <= 10
    assert (tmp_path / "k16/report.html").stat().st_size < 10_000_000


def test_k32_builds_and_routes_in_seconds(cli: Cli) -> None:
    started = time.process_time()
    fabric = json.loads(cli("fabric", "show", "fat-tree:k=32", "--json", "-").out)
    assert (fabric["hosts"], fabric["switches"]) == (8192, 1280)
    outcome = cli(
        "run",
        "--fabric",
        "fat-tree:k=32",
        "--traffic",
        "long-lived",
        "--scheme",
        "ecmp",
        "--duration",
        "200us",
        "--json",
        "-",
    )
    row = json.loads(outcome.out)["schemes"][0]
    assert row["flows"]["started"] > 0
    assert row["packets"]["delivered"] > 0
    assert time.process_time() - started < 30


def test_hedera_on_k8_beats_static_schemes(cli: Cli) -> None:
    fabric, traffic = "fat-tree:k=8,rate=20Mbps", "long-lived:pattern=permutation"
    arguments = ["--fabric", fabric, "--traffic", traffic, "--duration", "20s", "--runs", "3"]
    outcome = cli("compare", *arguments, "--schemes", "spt,ecmp,hedera", "--json", "-")
    spt, ecmp, hedera = (row["throughput"] for row in json.loads(outcome.out)["schemes"])
    for blind in (spt, ecmp):
        assert hedera["mean"] - hedera["ci95"] > blind["mean"] + blind["ci95"]


def test_instructions_per_hop_stay_below_the_limit(cli: Cli) -> None:
    row = json.loads(cli("bench", "sim", "--instructions", "--duration", "500ms", "--json", "-").out)
    assert 50 < row["instructions_per_hop"] < 240
    assert row["peak_rss_mb"] - row["interpreter_rss_mb"] < 30


def test_the_module_takes_no_more_instructions_than_the_simulator_alone() -> None:
    """Detects code that the compiler does not inline in the module, since the module has several kinds of runs."""
    build = ["cargo", "build", "--quiet", "--release", "--package", "pathloom-sim", "--example", "hops"]
    subprocess.run(build, cwd=ROOT, check=True)
    alone = []
    for milliseconds in (50, 100):
        command = [str(ROOT / "target/release/examples/hops"), benchmark.FABRIC, str(milliseconds)]
        count, printed = benchmark.count_instructions(command)
        hops = re.search(r"hops: (\d+)", printed)
        assert hops is not None
        alone.append((count, int(hops[1])))
    (short, short_hops), (long, long_hops) = alone
    run = benchmark.settings(
        benchmark.FABRIC, benchmark.TRAFFIC, benchmark.SCHEME, benchmark.TRANSPORT, benchmark.DURATION, 1
    )
    in_module = benchmark.instructions_per_hop(run, "500ms")
    assert in_module == pytest.approx((long - short) / (long_hops - short_hops), rel=0.01)


def test_a_program_without_the_main_loop_has_no_count() -> None:
    with pytest.raises(PathloomError, match="symbols are stripped"):
        benchmark.count_instructions(["true"])
