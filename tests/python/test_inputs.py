"""Graph files, transports and files of other tools: what is read, guessed, noted or refused."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import networkx as nx
import pytest

from conftest import Cli
from pathloom import _core, compare
from pathloom.fabrics import Fabric
from test_documents import README, ROOT

INCAST = ["--traffic", "incast:senders=40,size=500KB,receiver=h0", "--schemes", "spt,ecmp"]
"""More packets than the queue of a port holds: some senders lose all their packets in flight."""


def between_switches(fabric: Fabric) -> list[int]:
    return [rate for link, rate in enumerate(fabric.links["rate_bps"]) if fabric.is_switch_link(link)]


@pytest.mark.parametrize("name", ["rate", "rate_bps", "capacity", "bandwidth", "bw", "speed"])
def test_each_direction_of_a_digraph_keeps_its_rate(name: str, tmp_path: Path) -> None:
    ten, one = (10e9, 1e9) if name == "rate_bps" else ("10Gbps", "1 Gbit/s") if name == "rate" else (10_000, 1_000)
    graph: nx.DiGraph[str] = nx.DiGraph()
    graph.add_edge("a", "b", **{name: ten})
    graph.add_edge("b", "a", **{name: one})
    nx.write_graphml(graph, tmp_path / "two.graphml")
    for fabric in (Fabric.from_networkx(graph), Fabric(str(tmp_path / "two.graphml"))):
        assert between_switches(fabric) == [10_000_000_000, 1_000_000_000]
        assert any("taken as Mbit/s: 2" in note for note in fabric.notes) == (not name.startswith("rate"))
        again = Fabric.from_networkx(fabric.to_networkx())
        assert between_switches(again) == [10_000_000_000, 1_000_000_000]


def test_guesses_are_noted_in_fabric_show_and_in_results(cli: Cli, tmp_path: Path) -> None:
    graph: nx.Graph[str] = nx.Graph()
    graph.add_edge("a", "b", LinkLabel="OC-192c")
    graph.add_edge("b", "c", LinkLabel="Lit Fibre")
    graph.add_edge("c", "a", capacity=2500)
    nx.write_graphml(graph, tmp_path / "wan.graphml")
    expected = [
        "hosts at each node of the file: 1, on links of 1 Gbit/s",
        "rates without a unit, taken as Mbit/s: 1, such as capacity `2500` of a - c, as 2.5 Gbit/s",
        "rates read from labels: 1, such as LinkLabel `OC-192c` of a - b, as 9.953 Gbit/s",
        "given 1 Gbit/s: 1, such as b - c",
        "given 1us: 3, such as ",
    ]
    shown = json.loads(cli("fabric", "show", "wan.graphml", "--json", "-").out)
    run = ["--traffic", "long-lived", "--scheme", "ecmp", "--duration", "1ms", "--json", "-"]
    result = json.loads(cli("run", "--fabric", "wan.graphml", *run).out)
    text = " ".join(cli("fabric", "show", "wan.graphml").out.split())
    for part in expected:
        assert any(part in note for note in shown["notes"]), part
        assert any(part in note for note in result["traffic"]["notes"]), part
        assert part in text
    assert len(shown["notes"]) == len(expected)


def test_the_bisection_says_whether_it_is_exact(cli: Cli) -> None:
    summary = json.loads(cli("fabric", "show", "fat-tree:k=8", "--json", "-").out)
    assert summary["bisection_bps"] == summary["bisection"]["bps"] == 64_000_000_000
    assert (summary["bisection"]["kind"], summary["bisection"]["proof"]) == ("exact", "structure")
    expander = json.loads(cli("fabric", "show", "jellyfish", "--json", "-").out)["bisection"]
    assert (expander["kind"], expander["proof"]) == ("upper-bound", None)
    assert 0 < expander["at_least_bps"] < expander["bps"]
    assert "bisection 64 Gbit/s, exact, between 64 and 64 host ports" in " ".join(
        cli("fabric", "show", "fat-tree:k=8").out.split()
    )
    assert "bisection at most " in " ".join(cli("fabric", "show", "jellyfish").out.split())
    # A ring is cut at two cables, whatever the order of its nodes in the file.
    ring: nx.Graph[int] = nx.Graph()
    nx.add_cycle(ring, [0, 7, 3, 9, 1, 5, 8, 2, 6, 4])
    fabric = Fabric.from_networkx(ring)
    assert fabric.summary()["bisection"] == {
        "bps": 2_000_000_000,
        "kind": "exact",
        "at_least_bps": 2_000_000_000,
        "proof": "routing",
        "host_ports": [5, 5],
    }


def test_time_outs_that_dominate_the_fct_are_noted_with_a_remedy(cli: Cli) -> None:
    fast = ["--fabric", "fat-tree:k=8,rate=100Gbps", *INCAST, "--runs", "1", "--duration", "100ms", "--json", "-"]
    result = json.loads(cli("compare", *fast, "--transport", "newreno:min_rto=200ms").out)
    for row in result["schemes"]:
        waited = row["timeout_wait"]
        assert row["timeouts"] > 0
        assert waited["share"] == pytest.approx((waited["sampled_s"] + waited["initial_s"]) / waited["flows_s"])
        assert waited["share"] > 0.8
        assert waited["sampled_s"] >= 0.19 * row["timeouts"]
    note = next(note for note in result["traffic"]["notes"] if note.startswith("time-outs"))
    assert re.fullmatch(
        r"time-outs make up a large part of the FCT under spt \(\d+ %\) and ecmp \(\d+ %\), and lost data "
        r"decide it: min_rto is 200 ms, but round trips take \S+ µs with empty queues and at most \S+ µs with full "
        r"ones; --transport newreno:min_rto=1ms fits this fabric",
        note,
    )
    syns = compare(
        fabric="leaf-spine:spines=2,leaves=4,hosts=51,rate=10Gbps",
        traffic="incast:senders=200,size=10KB",
        schemes=["ecmp"],
        duration="100ms",
        runs=1,
    )
    assert any(", and lost SYNs decide it: initial_rto is 1 s" in note for note in syns.notes), syns.notes
    # The advice of the note helps, and then there is no note. The advice is the default.
    mended = json.loads(cli("compare", *fast, "--transport", "newreno:min_rto=1ms").out)
    default = json.loads(cli("compare", *fast).out)
    assert [row["fct_s"] for row in default["schemes"]] == [row["fct_s"] for row in mended["schemes"]]
    said = "min_rto is 1 ms, four of the longest round trips of this fabric, rounded up; "
    assert said + "--transport newreno:min_rto=200ms is Linux's" in default["traffic"]["notes"]
    for before, after in zip(result["schemes"], mended["schemes"], strict=True):
        assert after["fct_s"]["mean"] < before["fct_s"]["mean"] / 20
    assert not any("min_rto is" in note for note in mended["traffic"]["notes"])


def test_a_transport_without_a_minimum_time_out_gets_no_note_about_it(cli: Cli) -> None:
    fabric, traffic = "fat-tree:k=4,rate=100Gbps,loss=0.05", "incast:senders=15,size=256KB"
    run = ["--fabric", fabric, "--traffic", traffic, "--runs", "1", "--duration", "1ms", "--json", "-"]
    result = json.loads(cli("compare", *run, "--schemes", "ecmp", "--transport", "uec").out)
    assert result["schemes"][0]["timeouts"] > 0
    assert not any("min_rto" in note for note in result["traffic"]["notes"])


def test_pending_time_outs_count_and_those_after_the_end_do_not() -> None:
    """A run may end before a time-out of 200 ms; and a sender may wait for the last, delayed, acknowledgement."""
    settings: dict[str, Any] = {"fabric": "fat-tree:k=8,rate=100Gbps", "schemes": ["spt"], "runs": 1}
    incast = "incast:senders=40,size=500KB,receiver=h0"
    cut = compare(traffic=incast, duration="20ms", transport="newreno:min_rto=200ms", **settings)
    (row,) = cut.summary["schemes"]
    assert (row["timeouts"], row["flows"]["unfinished"] > 0) == (0, True)
    assert row["timeout_wait"]["share"] > 0.9
    assert any("--transport newreno:min_rto=1ms fits" in note for note in cut.notes)
    late = compare(traffic=incast, duration="200ms", transport="newreno:min_rto=1ms", **settings)
    flows = late.flows
    assert flows["finished"].all()
    assert (flows["timeout_wait_s"] < flows["fct_s"]).all()
    assert (flows["initial_wait_s"] <= flows["timeout_wait_s"]).all()


def test_time_outs_of_a_slow_fabric_are_not_blamed_on_the_transport(cli: Cli) -> None:
    slow = ["--fabric", "fat-tree:k=8,rate=10Mbps,buffer=20", *INCAST, "--runs", "1", "--duration", "2s"]
    result = json.loads(cli("compare", *slow, "--json", "-").out)
    assert any(row["timeout_wait"]["share"] >= 0.1 for row in result["schemes"])
    (note,) = [note for note in result["traffic"]["notes"] if note.startswith("time-outs")]
    assert "the transport's time-outs suit that" in note
    assert "--transport" not in note


def test_no_note_without_time_outs() -> None:
    result = compare(fabric="dumbbell:hosts=1", traffic="long-lived", schemes=["ecmp"], duration="20ms", runs=1)
    assert not any("time-out" in note for note in result.notes)
    assert result.summary["schemes"][0]["timeout_wait"]["share"] == 0.0


def test_transports_are_listed_and_shown(cli: Cli) -> None:
    entries = json.loads(cli("transport", "list", "--json", "-").out)
    names = ["newreno", "cubic", "dctcp", "mptcp", "uec", "swift", "ndp", "eqds", "roce", "hpcc"]
    assert [entry["name"] for entry in entries] == names
    entry = entries[0]
    assert (entry["name"], entry) == ("newreno", json.loads(cli("transport", "show", "newreno", "--json", "-").out))
    shown = cli("transport", "show", "newreno").out
    for key in entry["keys"]:
        assert set(key) == {"name", "default", "about", "source"}
        assert key["name"] in shown
        assert all(key.values())
    for part in ("min_rto", "200ms", "RFC 6298", "RFC 6582", "impatient", "byte_counting"):
        assert part in shown
    assert "newreno" in cli("transport", "list").out
    for one in entries:
        example = cli("transport", "show", one["name"]).out.rpartition("--transport ")[2].strip()
        assert _core.transport_settings(example)["name"] == one["name"]
    # The printed defaults are the real defaults.
    spec = ",".join(f"{key['name']}={key['default']}" for key in entry["keys"] if key["default"] != "none")
    assert _core.transport_settings(f"newreno:{spec}") == _core.transport_settings()


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["transport", "show", "newrino"], ["did you mean `newreno`?"]),
        (["transport", "show", "newreno:iw=12KB"], ["name it without keys"]),
        (["fabric", "show", "dir/fat_tree_1024.topo"], ["dir/fat_tree_1024.topo", "no such file"]),
        (["fabric", "show", "net.gml"], ["unsupported format", "FILE.graphml", "FILE.csv", "FILE.topo"]),
    ],
)
def test_bad_names_get_one_line(cli: Cli, arguments: list[str], parts: list[str]) -> None:
    outcome = cli(*arguments)
    assert (outcome.code, outcome.out, outcome.err.count("\n")) == (2, "", 1)
    for part in parts:
        assert part in outcome.err


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        ({"--transport": "newreno:rto_min=1ms"}, ["unknown key `rto_min`; did you mean `min_rto`?"]),
        ({"--traffic": "flows:file=ring.0.et"}, ["Chakra", "chakra:file=NAME.0.et"]),
        ({"--traffic": "ring.0.et"}, ["Chakra", "chakra:file=NAME.0.et"]),
        ({"--traffic": "simai.txt"}, ["unsupported format", "simai:file=FILE.txt"]),
        ({"--traffic": "flows:file=simai.txt"}, ["SimAI", "simai:file="]),
        ({"--traffic": "coflow:file=simai.txt"}, ["SimAI", "simai:file="]),
        ({"--traffic": "perm.cm"}, ["flows:file=perm.cm"]),
        ({"--traffic": "fat_tree.topo"}, ["is a fabric, not traffic"]),
        ({"--fabric": "ring.0.et"}, ["ring.0.et is not a fabric", "FILE.topo"]),
    ],
)
def test_unreadable_formats_are_refused_with_an_alternative(
    cli: Cli, tmp_path: Path, options: dict[str, str], parts: list[str]
) -> None:
    (tmp_path / "ring.0.et").write_bytes(b"\x0a\xda\xff\x00schema")
    (tmp_path / "fat_tree.topo").write_text("Nodes 1024\nTiers 3\n", encoding="utf-8")
    (tmp_path / "simai.txt").write_text(
        "HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 8 ep: 1\n1\nembedding_layer -1 5 ALLREDUCE 16\n",
        encoding="utf-8",
    )
    given = {"--fabric": "fat-tree:k=4", "--traffic": "web-search", "--schemes": "ecmp"} | options
    outcome = cli("compare", *(word for pair in given.items() for word in pair))
    assert (outcome.code, outcome.out, outcome.err.count("\n")) == (2, "", 1)
    for part in parts:
        assert part in outcome.err


def test_make_help_lists_every_target_with_a_description() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    said = re.findall(r"^([\w-]+):.*## \w", makefile, re.MULTILINE)
    printed = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert re.findall(r"^  make (\S+)", printed, re.MULTILINE) == said
    assert "bench-ns3" in said


def test_the_demo_is_the_comparison_of_the_readme() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    recipe = makefile.split("\ndemo: ")[1].split("\n\n")[0]
    command = re.search(r"^\$ (pathloom compare .*)$", README, re.MULTILINE)
    assert command is not None
    assert recipe.splitlines()[-1].strip() == command.group(1)


def test_the_licence_exists_and_is_named() -> None:
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert "Apache License" in text
    assert "END OF TERMS AND CONDITIONS" in text
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert 'license = "Apache-2.0"\nlicense-files = ["LICENSE"]\n' in project
    assert 'license = "Apache-2.0"' in (ROOT / "Cargo.toml").read_text(encoding="utf-8")
    for manifest in ROOT.glob("crates/*/Cargo.toml"):
        assert "license.workspace = true" in manifest.read_text(encoding="utf-8"), manifest


def test_fabric_show_counts_in_words(cli: Cli) -> None:
    text = " ".join(cli("fabric", "show", "leaf-spine").out.split())
    assert re.search(r"shortest paths \d+ between any two leaves", text), text
    dumbbell = " ".join(cli("fabric", "show", "dumbbell").out.split())
    assert "1 hop between two" in dumbbell, dumbbell
