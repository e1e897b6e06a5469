"""Results of commands with good input."""

from __future__ import annotations

import json
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from conftest import SCHEMES, SMALL, Cli, tree
from pathloom.cli import console
from pathloom.fabrics import Fabric

FOLDER = [
    "fct-by-size.svg",
    "fct-cdf.svg",
    "flows.parquet",
    "link-heat-map.svg",
    "link-ranks.svg",
    "links.parquet",
    "means.svg",
    "report.html",
    "result.json",
    "schemes.csv",
    "schemes.tex",
    "slowdown-by-size.svg",
    "throughput-cdf.svg",
]


def test_compare_fills_a_folder_and_prints_a_table(cli: Cli, tmp_path: Path) -> None:
    outcome = cli("compare", *SMALL, "--schemes", "spt,ecmp", "--runs", "2", "--out", "deep/results")
    assert outcome.code == 0, outcome.err
    assert outcome.err == "", "no progress bar where there is no terminal"
    assert tree(tmp_path / "deep/results") == FOLDER
    assert outcome.out.rstrip().endswith("Report: deep/results/report.html")
    for word in ("spt", "ecmp", "throughput", "mean FCT", "unfinished", "control messages"):
        assert word in outcome.out
    content = json.loads((tmp_path / "deep/results/result.json").read_text(encoding="utf-8"))
    assert content["complete"] is True
    assert [row["scheme"] for row in content["schemes"]] == ["spt", "ecmp"]


@pytest.mark.usefixtures("undrawn")
def test_standard_output_has_only_json_if_asked(cli: Cli) -> None:
    outcome = cli("compare", *SMALL, "--schemes", "ecmp", "--runs", "1", "--json", "-", "--out", "results")
    content = json.loads(outcome.out)
    assert content["schema"] == 1
    assert outcome.err == "Report: results/report.html\n"


def test_json_to_a_file(cli: Cli, tmp_path: Path) -> None:
    outcome = cli("run", *SMALL, "--scheme", "ecmp", "--json", "figures.json")
    assert outcome.code == 0
    assert "throughput" in outcome.out
    assert json.loads((tmp_path / "figures.json").read_text(encoding="utf-8"))["seed"] == 1
    assert tree(tmp_path) == ["figures.json"]


def test_options_override_settings_from_a_file(cli: Cli, tmp_path: Path) -> None:
    text = 'fabric = "diamond"\ntraffic = "long-lived"\nschemes = ["ecmp"]\nduration = "20ms"\nseed = 5\n'
    (tmp_path / "mine.toml").write_text(text + 'faults = ["1ms:down:c0"]\n', encoding="utf-8")
    settings = json.loads(cli("run", "--spec", "mine.toml", "--seed", "7", "--json", "-").out)["settings"]
    assert settings["seed"] == 7
    assert settings["runs"] == 1
    assert settings["faults"] == ["1ms:down:c0"]
    again = cli("compare", "--spec", "mine.toml", "--schemes", "spt,ecmp", "--runs", "2", "--json", "-")
    assert json.loads(again.out)["settings"]["schemes"] == ["spt", "ecmp"]


def test_scheme_keys_may_hold_commas(cli: Cli) -> None:
    schemes = "hedera:period=100ms,elephant=0.2,hedera,spt"
    outcome = cli("compare", *SMALL, "--schemes", schemes, "--runs", "1", "--json", "-")
    names = [row["scheme"] for row in json.loads(outcome.out)["schemes"]]
    assert names == ["hedera:period=100ms,elephant=0.2", "hedera", "spt"]


def test_transport_control_and_faults_make_a_difference(cli: Cli) -> None:
    def figures(*more: str) -> object:
        outcome = cli("run", *SMALL, "--scheme", "hedera:period=50ms", *more, "--json", "-")
        assert outcome.code == 0, outcome.err
        return json.loads(outcome.out)["schemes"][0]["packets"]

    plain = figures()
    assert figures() == plain
    assert figures("--transport", "newreno:iw=64KB") != plain
    assert figures("--fault", "10ms:down:a0_0", "--fault", "400ms:up:a0_0") != plain
    busy = cli("run", *SMALL, "--scheme", "hedera:period=50ms", "--control", "service=1ms", "--json", "-")
    assert json.loads(busy.out)["schemes"][0]["control"]["busy_share"] > 0.01


def test_pcap_and_event_log(cli: Cli, tmp_path: Path) -> None:
    files = ["--pcap", "all.pcapng", "--event-log", "events.jsonl"]
    outcome = cli("run", *SMALL, "--scheme", "hedera:period=50ms", *files, "--json", "-")
    assert outcome.code == 0, outcome.err
    assert tree(tmp_path) == ["all.pcapng", "events.jsonl"]
    blocks = (tmp_path / "all.pcapng").read_bytes()
    assert blocks[:4] == bytes.fromhex("0a0d0d0a"), "a pcapng section header"
    kinds, at = [], 0
    while at < len(blocks):
        kinds.append(int.from_bytes(blocks[at : at + 4], "little"))
        at += int.from_bytes(blocks[at + 4 : at + 8], "little")
    packets = json.loads(outcome.out)["schemes"][0]["packets"]
    # A packet on its last link is captured there, but does not count as a hop while it is in flight.
    assert packets["hops"] <= kinds.count(6) <= packets["hops"] + packets["dropped"] + packets["in_flight"]
    records = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text(encoding="utf-8").splitlines()]
    assert {"input", "output"} == {key for record in records for key in record if key != "at"}
    assert [record["at"] for record in records] == sorted(record["at"] for record in records)


def test_fabric_show_names_a_fitting_time_out_if_the_default_is_too_long(cli: Cli) -> None:
    shown = cli("fabric", "show", "fat-tree:k=4,rate=1Gbps,buffer=20").out
    words = " ".join(shown.split())
    assert (
        "min_rto by default 20 ms, four of the longest round trips (--transport newreno:min_rto=200ms is Linux" in words
    )
    assert "min_rto" not in cli("fabric", "show", "fat-tree:k=4,rate=10Mbps,buffer=150").out


def test_fabric_show(cli: Cli) -> None:
    text = cli("fabric", "show", "fat-tree:k=4,host_rate=10Mbps,fail=0.1").out
    for word in ("36 (16 hosts, 8 ToRs, 8 aggregation, 4 cores)", "10 Mbit/s", "1 Gbit/s", "failed cables"):
        assert word in text
    content = json.loads(cli("fabric", "show", "fat-tree:k=4", "--json", "-").out)
    assert (content["nodes"], content["links"], content["hosts"]) == (36, 96, 16)
    assert {row["tier"]: row["nodes"] for row in content["tiers"]} == {
        "host": 16,
        "tor": 8,
        "aggregation": 8,
        "core": 4,
    }
    assert content["shortest_paths"] == {"min": 2, "median": 4, "max": 4}


@pytest.mark.parametrize("form", ["json", "graphml"])
def test_export_reads_back_to_the_same_fabric(cli: Cli, tmp_path: Path, form: str) -> None:
    spec = "vl2:hosts=2,host_rate=10Mbps,switch_delay=3us,fail=0.1"
    printed = cli("fabric", "export", spec, "--format", form).out
    assert cli("fabric", "export", spec, "--format", form, "--out", f"net.{form}").code == 0
    assert (tmp_path / f"net.{form}").read_text(encoding="utf-8") == printed
    again, first = Fabric(f"net.{form}"), Fabric(spec)
    assert again.nodes == first.nodes
    assert again.links == first.links


def test_fabric_draw(cli: Cli, tmp_path: Path) -> None:
    assert cli("fabric", "draw", "fat-tree:k=4").out == "Drawing: fabric.svg\n"
    assert ET.parse(tmp_path / "fabric.svg").getroot().tag.endswith("svg")
    assert cli("fabric", "draw", "diamond", "--out", "diamond.png").code == 0
    assert (tmp_path / "diamond.png").read_bytes().startswith(b"\x89PNG")


def test_lists_name_all_fabrics_traffic_and_schemes(cli: Cli) -> None:
    for group, names in (
        (
            "fabric",
            [
                *("fat-tree", "vl2", "leaf-spine", "three-layer", "jellyfish", "dragonfly", "slim-fly", "torus"),
                *("rail-optimized", "hammingmesh"),
                *("dumbbell", "diamond", "parallel-paths"),
            ],
        ),
        ("traffic", ["web-search", "data-mining", "on-off", "long-lived", "incast", "all-reduce", "coflow", "flows"]),
        ("scheme", SCHEMES),
    ):
        text = cli(group, "list").out
        listed = {row["name"] for row in json.loads(cli(group, "list", "--json", "-").out)}
        assert all(name in text for name in names)
        assert set(names) <= listed
    shown = cli("scheme", "show", "hedera").out
    assert "period" in shown
    assert "5s" in shown
    assert json.loads(cli("scheme", "show", "ecmp", "--json", "-").out)["name"] == "ecmp"


def test_the_scheme_for_tests_needs_an_environment_variable(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    run = ["run", "--fabric", "diamond", "--traffic", "long-lived", "--scheme", "move:period=5ms", "--duration", "20ms"]
    monkeypatch.delenv("PATHLOOM_TEST_SCHEMES", raising=False)
    assert "move" not in cli("scheme", "list").out.split()
    refused = cli(*run)
    assert refused.code == 2
    assert sorted(refused.err.partition("(known: ")[2].partition(")")[0].split(", ")) == SCHEMES
    monkeypatch.setenv("PATHLOOM_TEST_SCHEMES", "1")
    assert "move" in {row["name"] for row in json.loads(cli("scheme", "list", "--json", "-").out)}
    assert cli(*run).code == 0


def test_bench_sim(cli: Cli) -> None:
    arguments = ["bench", "sim", "--fabric", "fat-tree:k=4,rate=1Gbps", "--duration", "5ms", "--json", "-"]
    row = json.loads(cli(*arguments).out)
    assert row["hops"] > 1000
    assert row["hops_per_cpu_s"] == pytest.approx(row["hops"] / row["cpu_s"])
    assert row["events_per_cpu_s"] > row["hops_per_cpu_s"] * 0.99
    assert row["instructions_per_hop"] is None
    shares = row["goodput_start_up"], row["goodput_after"]
    assert 0 < shares[0] < row["goodput"] < shares[1] <= 1
    assert row["goodput"] == pytest.approx(0.2 * shares[0] + 0.8 * shares[1])
    assert 1 < row["interpreter_rss_mb"] <= row["peak_rss_mb"] < 500
    text = cli(*arguments[:-2]).out
    assert "packet-hops per CPU second" in text


def test_help_and_version(cli: Cli) -> None:
    assert cli("--version").out.startswith("pathloom 0.")
    assert "compare" in cli().out
    for command in ("compare", "run", "reproduce", "fabric", "scheme", "traffic", "bench"):
        outcome = cli(command, "--help")
        assert outcome.code == 0
        assert outcome.out.startswith(f"Usage: pathloom {command}")


def test_a_closed_pipe_prints_no_error() -> None:
    command = f"{sys.executable} -m pathloom fabric export fat-tree:k=16 | head -n 1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False, timeout=60)
    assert done.stdout == "{\n"
    assert done.stderr == ""


@pytest.mark.usefixtures("undrawn")
def test_tables_hold_every_flow_and_link(cli: Cli, tmp_path: Path) -> None:
    cli("compare", *SMALL, "--schemes", "spt,ecmp", "--runs", "2", "--out", "results")
    flows = pl.read_parquet(tmp_path / "results/flows.parquet")
    links = pl.read_parquet(tmp_path / "results/links.parquet")
    content = json.loads((tmp_path / "results/result.json").read_text(encoding="utf-8"))
    for row in content["schemes"]:
        own = flows.filter(pl.col("scheme") == row["scheme"])
        assert own.height == row["flows"]["offered"]
        assert own["finished"].sum() == row["flows"]["finished"]
    assert links.height == 2 * 2 * 96
    assert links["sent_packets"].sum() >= sum(row["packets"]["hops"] for row in content["schemes"])
    # All schemes meet the same flows.
    offered = ["run", "flow", "src", "dst", "size_bytes", "start_s"]
    spt, ecmp = (flows.filter(pl.col("scheme") == scheme).select(offered) for scheme in ("spt", "ecmp"))
    assert spt.equals(ecmp)


@pytest.mark.usefixtures("undrawn")
def test_mptcp_is_a_scheme_and_a_transport(cli: Cli) -> None:
    options = ["--fabric", "fat-tree:k=4,rate=10Mbps,buffer=150", "--traffic", "long-lived:pattern=permutation"]
    options += ["--duration", "5s", "--json", "-"]

    def of(*more: str) -> dict[str, Any]:
        outcome = cli("compare", *options, *more)
        assert outcome.code == 0, outcome.err
        found: dict[str, Any] = {row["scheme"]: row for row in json.loads(outcome.out)["schemes"]}
        assert not any("never acted" in note for row in found.values() for note in row.get("notes", []))
        return found

    found = of("--schemes", "ecmp,mptcp:subflows=8")
    ecmp, mptcp = found["ecmp"], found["mptcp:subflows=8"]
    assert mptcp["throughput"]["mean"] > ecmp["throughput"]["mean"] + 0.2
    assert mptcp["flows"] == ecmp["flows"], "a connection is one row"
    by_transport = of("--schemes", "ecmp", "--transport", "mptcp:subflows=8")["ecmp"]
    assert by_transport["throughput"] == mptcp["throughput"]
    by_both = of("--schemes", "mptcp", "--transport", "mptcp:subflows=8")["mptcp"]
    assert by_both["throughput"] == mptcp["throughput"], "keys that the scheme does not set are those of --transport"
    refined = of("--schemes", "mptcp:subflows=8", "--transport", "newreno:sack=on,mss=700B")["mptcp:subflows=8"]
    whole = of("--schemes", "ecmp", "--transport", "mptcp:subflows=8,mss=700B")["ecmp"]
    assert refined["throughput"] == whole["throughput"] != mptcp["throughput"]


def test_a_table_breaks_no_cell_on_a_narrow_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in {"FORCE_COLOR": "1", "NO_COLOR": "1", "TERM": "dumb", "COLUMNS": "80"}.items():
        monkeypatch.setenv(name, value)
    headings = ["load", "scheme", "mean throughput", "mean slowdown", "p99 slowdown", "unfinished flows"]
    cells = ["≤ 0.353 ± 0.226", "≥ 10.77 ± 10.68 x", "≥ 127 x", "2"]
    rows = [[load, scheme, *cells] for load in ("0.2", "0.4") for scheme in ("ecmp", "hedera:period=100ms")]
    console.table(None, headings, rows, 2)
    parts = capsys.readouterr().out.split("\n\n")
    assert [part.splitlines()[0].split("  ")[0] for part in parts] == ["load", "load"]
    assert all(len(line) <= 80 for part in parts for line in part.splitlines())
    assert all(sum(part.count(cell) for part in parts) == 4 for cell in cells[:-1])
    assert all(heading in " ".join(parts) for heading in headings)
    console.table(None, [*headings, "says"], [[*row, "not significant"] for row in rows], 2, groups=2, words_last=True)
    grouped = capsys.readouterr().out
    assert "load=0.2, ecmp\n" in grouped and "load=0.4, hedera:period=100ms\n" in grouped
    assert all(len(line) <= 80 for line in grouped.splitlines())
