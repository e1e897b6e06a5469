"""The same seed gives the same figures, for any number of threads and any slices of a run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from conftest import SMALL, Cli, tree
from pathloom import _core
from pathloom.experiments.running import simulation
from synthetic import numbers

SETTINGS = {
    "fabric": "fat-tree:k=4,rate=10Mbps",
    "fabric_text": None,
    "traffic": "web-search:load=0.5",
    "scheme": "hedera:period=50ms",
    "transport": None,
    "control": None,
    "duration": "300ms",
    "seed": 3,
    "faults": ["100ms:down:a0_0", "200ms:up:a0_0"],
    "pcap": None,
    "event_log": None,
}


def test_any_number_of_jobs_gives_the_same_result(cli: Cli, tmp_path: Path) -> None:
    for jobs in ("1", "2", "5"):
        outcome = cli(
            "compare", *SMALL, "--schemes", "spt,ecmp,hedera:period=50ms", "--runs", "3", "--jobs", jobs, "--out", jobs
        )
        assert outcome.code == 0
    texts = [(tmp_path / jobs / "result.json").read_text(encoding="utf-8") for jobs in ("1", "2", "5")]
    assert numbers(texts[0]) == numbers(texts[1]) == numbers(texts[2])
    one, other = (pl.read_parquet(tmp_path / jobs / "flows.parquet") for jobs in ("1", "5"))
    assert one.equals(other)


def test_any_number_of_threads_in_a_run_gives_the_same_result(cli: Cli, tmp_path: Path) -> None:
    # Long links make long windows, which have enough work for several threads.
    fabric = [
        "--fabric",
        "fat-tree:k=4,rate=1Gbps,delay=100us",
        "--traffic",
        "web-search:load=0.5",
        "--duration",
        "60ms",
    ]
    for threads in ("1", "2", "3"):
        outcome = cli("compare", *fabric, "--schemes", "spt,ecmp,hedera", "--threads", threads, "--out", threads)
        assert outcome.code == 0, outcome.err
        said = f"--threads {threads}: hedera runs on one thread: the scheme's controller is informed of flows"
        assert (said in outcome.err) == (threads != "1")
        assert "ecmp runs on one thread" not in outcome.err
    texts = [(tmp_path / threads / "result.json").read_text(encoding="utf-8") for threads in ("1", "2", "3")]
    assert numbers(texts[0]) == numbers(texts[1]) == numbers(texts[2])
    one, other = (pl.read_parquet(tmp_path / threads / "flows.parquet") for threads in ("1", "3"))
    assert one.equals(other)


def test_a_capture_keeps_a_run_on_one_thread(cli: Cli, tmp_path: Path) -> None:
    outcome = cli("run", *SMALL, "--scheme", "ecmp", "--threads", "2", "--pcap", "packets.pcapng")
    assert outcome.code == 0
    assert "ecmp runs on one thread: packets are captured" in outcome.err
    assert (tmp_path / "packets.pcapng").stat().st_size > 1000


def test_a_folder_of_results_is_the_same_byte_for_byte(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pathloom", "compare", *SMALL, "--schemes", "spt,ecmp,hedera:period=50ms"]
    for jobs, hash_seed in ((1, 1), (2, 99)):
        subprocess.run(
            [*command, "--runs", "3", "--jobs", str(jobs), "--out", str(jobs)],
            env={**os.environ, "PYTHONHASHSEED": str(hash_seed)},
            cwd=tmp_path,
            capture_output=True,
            check=True,
        )
    one, other = tmp_path / "1", tmp_path / "2"
    assert tree(one) == tree(other)
    assert {"report.html", "link-heat-map.svg", "flows.parquet", "links.parquet"} < set(tree(one))
    differing = [name for name in tree(one) if (one / name).read_bytes() != (other / name).read_bytes()]
    assert differing == ["result.json"], "it has the wall-clock times of the runs"
    texts = [(folder / "result.json").read_text(encoding="utf-8") for folder in (one, other)]
    assert numbers(texts[0]) == numbers(texts[1])


def test_only_wall_clock_keys_differ(cli: Cli) -> None:
    first, second = (json.loads(cli("run", *SMALL, "--scheme", "ecmp", "--json", "-").out) for _ in range(2))

    def differing(one: Any, other: Any, path: str = "") -> list[str]:
        if isinstance(one, dict):
            return [key for name in one for key in differing(one[name], other[name], f"{path}/{name}")]
        if isinstance(one, list):
            pairs = zip(one, other, strict=True)
            return [key for place, (a, b) in enumerate(pairs) for key in differing(a, b, f"{path}/{place}")]
        return [] if one == other else [path]

    assert all("wall" in path for path in differing(first, second))


def test_another_seed_gives_another_result_and_a_run_can_be_repeated_alone(cli: Cli) -> None:
    def runs(seed: str, count: str) -> list[Any]:
        text = cli("run", *SMALL, "--scheme", "ecmp", "--seed", seed, "--runs", count, "--json", "-").out
        found: list[Any] = numbers(text)["schemes"][0]["runs"]
        return found

    three = runs("1", "3")
    assert [run["seed"] for run in three] == [1, 2, 3]
    assert len({run["packets"]["hops"] for run in three}) == 3
    alone = runs("3", "1")[0]
    assert {**alone, "run": 3} == three[2]


@pytest.mark.parametrize("steps", [1, 7, 1000])
def test_slices_do_not_change_a_run(steps: int) -> None:
    def outcome(count: int) -> dict[str, Any]:
        simulation = _core.Simulation(json.dumps(SETTINGS))
        for step in range(1, count + 1):
            simulation.advance(simulation.end_s * step / count)
        assert simulation.done
        return simulation.outcome()

    whole, sliced = outcome(1), outcome(steps)
    for table in ("flows", "links"):
        for name, column in whole[table].items():
            np.testing.assert_array_equal(column, sliced[table][name], name)
    for part in ("packets", "control", "end_ns"):
        assert whole[part] == sliced[part]


def test_the_length_of_slices_follows_the_clock_but_not_the_figures(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ("run", *SMALL, "--scheme", "hedera:period=50ms", "--json", "-")
    first = numbers(cli(*arguments).out)
    # Longer than a call that advances by almost nothing. A smaller value gives millions of the shortest slices.
    monkeypatch.setattr(simulation, "SLICE_WALL_S", 5e-5)
    assert numbers(cli(*arguments).out) == first


def test_packets_are_conserved_in_every_run(cli: Cli) -> None:
    text = cli("compare", *SMALL, "--schemes", "spt,ecmp,hedera:period=50ms", "--runs", "2", "--json", "-").out
    for row in json.loads(text)["schemes"]:
        for packets in (run["packets"] for run in row["runs"]):
            gone = packets["delivered"] + packets["misdelivered"] + packets["dropped"] + packets["in_flight"]
            assert packets["sent"] + packets["copied"] == gone
            assert packets["misdelivered"] == 0
