"""Results are read again, compared with each other, and compared with those of other simulators."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import polars as pl
import pytest

import pathloom
from conftest import Cli
from pathloom.experiments.results.diff import Change, diff
from pathloom.experiments.results.saved import Loaded, load
from pathloom.report.diff_table import numbers, setting_lines

pytestmark = pytest.mark.usefixtures("undrawn")
COMPARE = ["compare", "--fabric", "diamond:rate=10Mbps", "--traffic", "hadoop:load=0.5", "--duration", "1s"]
FLOWS = """flow,start,end,bytes
a,0,1.5,20000
b,0.5,1,1000
c,1,,50000
"""
FLOW_MONITOR = """<?xml version="1.0" ?>
<FlowMonitor>
  <FlowStats>
    <Flow flowId="1" timeFirstTxPacket="+1e+09ns" timeFirstRxPacket="+1.1e+09ns" timeLastTxPacket="+2e+09ns"
          timeLastRxPacket="+2.5e+09ns" txBytes="20000" rxBytes="19000" txPackets="20" rxPackets="19" lostPackets="1"/>
    <Flow flowId="2" timeFirstTxPacket="+1.1e+09ns" timeFirstRxPacket="+1.2e+09ns" timeLastTxPacket="+2e+09ns"
          timeLastRxPacket="+2.6e+09ns" txBytes="900" rxBytes="900" txPackets="9" rxPackets="9" lostPackets="0"/>
    <Flow flowId="3" timeFirstTxPacket="+2e+09ns" timeFirstRxPacket="+0ns" timeLastTxPacket="+3e+09ns"
          timeLastRxPacket="+0ns" txBytes="3000" rxBytes="0" txPackets="3" rxPackets="0" lostPackets="3"/>
  </FlowStats>
  <Ipv4FlowClassifier>
    <Flow flowId="1" sourceAddress="10.0.0.1" destinationAddress="10.0.0.2" protocol="6" sourcePort="49152"
          destinationPort="5001"/>
    <Flow flowId="2" sourceAddress="10.0.0.2" destinationAddress="10.0.0.1" protocol="6" sourcePort="5001"
          destinationPort="49152"/>
    <Flow flowId="3" sourceAddress="10.0.0.1" destinationAddress="10.0.0.3" protocol="6" sourcePort="49153"
          destinationPort="5001"/>
  </Ipv4FlowClassifier>
</FlowMonitor>
"""


def rows_of(cli: Cli, *arguments: str) -> dict[tuple[str, str], Any]:
    outcome = cli("diff", *arguments, "--json", "-")
    assert outcome.code == 0, outcome.err
    return {(row["scheme_a"], row["figure"]): row for row in json.loads(outcome.out)["rows"]}


def test_a_saved_result_is_read_unchanged(cli: Cli, tmp_path: Path) -> None:
    result = pathloom.compare(
        fabric="diamond:rate=10Mbps", traffic="hadoop:load=0.5", schemes=["ecmp", "spt"], duration="1s", runs=2
    )
    result.save(tmp_path / "out")
    for path in (tmp_path / "out", tmp_path / "out/result.json"):
        found = pathloom.load(path)
        assert found.kind == "comparison"
        assert found.summary == result.summary
        assert found.flows.equals(result.flows)
        assert found.links.equals(result.links)
        assert found.table.equals(result.table)
        assert found.runs.height == 4
    table = pl.read_csv(tmp_path / "out/schemes.csv")
    assert table["fct_mean_s"].to_list() == [row["fct_s"]["mean"] for row in result.summary["schemes"]]
    tex = (tmp_path / "out/schemes.tex").read_text(encoding="utf-8")
    lines = [line.removesuffix(r" \\").split(" & ") for line in tex.splitlines() if line.endswith(r"\\")]
    assert tex.startswith(r"\begin{tabular}{lrr}"), "a column for each scheme"
    assert lines[0] == ["scheme", "ecmp", "spt"]
    assert [line[0] for line in lines][1:4] == ["mean throughput", "p5 throughput", "min throughput"]


def test_a_sweep_is_read_again(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(
        'fabric = "diamond:rate={rate}"\ntraffic = "hadoop:load=0.5"\nschemes = "ecmp,spt"\nduration = "1s"\nruns = 2\n'
        'grid = {rate = ["10Mbps", "20Mbps"]}\n',
        encoding="utf-8",
    )
    assert cli("sweep", "s.toml", "--out", "out").code == 0
    found = load(tmp_path / "out")
    assert found.kind == "sweep"
    assert found.runs.equals(pl.read_parquet(tmp_path / "out/runs.parquet"))
    assert found.table["rate"].to_list() == ["10Mbps"] * 2 + ["20Mbps"] * 2
    with pytest.raises(pathloom.PathloomError, match=r"has no flows\.parquet; only results of compare and run have"):
        _ = found.flows
    rows = rows_of(cli, "out", "out")
    assert {row["says"] for row in rows.values()} == {"same"}


def test_equal_results_are_the_same_and_differences_are_paired(cli: Cli, tmp_path: Path) -> None:
    cli(*COMPARE, "--schemes", "ecmp,spt", "--runs", "3", "--out", "a")
    same = cli("diff", "a", "a")
    assert same.code == 0
    assert "All settings are equal." in same.out
    cli(*COMPARE, "--schemes", "ecmp,spt", "--runs", "3", "--transport", "newreno:min_rto=1s", "--out", "b")
    assert "corrected for the number of rows of the figure (Holm)" in cli("diff", "a", "b").out
    found = json.loads(cli("diff", "a", "b", "--json", "-").out)
    assert found["settings"] == [{"key": "transport", "a": None, "b": "newreno:min_rto=1s"}]
    a, b = (json.loads((tmp_path / name / "result.json").read_text(encoding="utf-8")) for name in ("a", "b"))
    rows = rows_of(cli, "a", "b")
    for place, scheme in enumerate(("ecmp", "spt")):
        row = rows[scheme, "fct_s.mean"]
        assert (row["a"], row["b"]) == tuple(one["schemes"][place]["fct_s"]["mean"] for one in (a, b))
        assert row["difference"] == row["b"] - row["a"]
        assert row["paired"] is True
        assert rows[scheme, "fct_s.p99"]["ci95"] is None
    cli(*COMPARE[:-1], "2s", "--schemes", "ecmp", "--runs", "3", "--out", "c")
    longer = rows_of(cli, "a", "c")
    assert longer["ecmp", "fct_s.mean"]["paired"] is False, "other flows, so no pairs"
    assert ("spt", "fct_s.mean") not in longer
    assert "In A alone: spt." in cli("diff", "a", "c").out


def test_runs_are_paired_only_where_files_of_flows_are_the_same(cli: Cli, tmp_path: Path) -> None:
    def compared(largest: int, scheme: str, out: str) -> None:
        (tmp_path / "sizes.csv").write_text(f"1000,0\n{largest},1\n", encoding="utf-8")
        (tmp_path / "own.py").write_text(
            f"from pathloom.scheme import Scheme\n\nclass Own(Scheme):\n    def handle(self, now_ns, event, view):\n"
            f"        return {scheme}\n",
            encoding="utf-8",
        )
        what = ["--fabric", "diamond:rate=10Mbps", "--traffic", "sizes.csv:load=0.5", "--schemes", "ecmp,own.py"]
        outcome = cli("compare", *what, "--runs", "2", "--duration", "500ms", "--out", out)
        assert outcome.code == 0, outcome.err

    compared(100_000, "[]", "a")
    compared(100_000, "()", "b")
    compared(200_000, "()", "c")
    assert rows_of(cli, "a", "b")["ecmp", "fct_s.mean"]["paired"] is True, "another scheme has the same flows"
    assert rows_of(cli, "b", "c")["ecmp", "fct_s.mean"]["paired"] is False
    said = cli("diff", "b", "c").out
    assert "files: " in said
    assert "traffic" not in said


def test_a_result_that_ended_early_is_compared_over_common_seeds(cli: Cli, tmp_path: Path) -> None:
    cli(*COMPARE, "--schemes", "ecmp,spt", "--runs", "3", "--out", "b")
    whole = json.loads((tmp_path / "b/result.json").read_text(encoding="utf-8"))
    early = {**whole, "complete": False, "schemes": [dict(row) for row in whole["schemes"]]}
    ecmp, spt = early["schemes"]
    ecmp["runs"], spt["runs"] = ecmp["runs"][:2], spt["runs"][:1]
    for row in early["schemes"]:
        means = [run["fct_s"]["mean"] for run in row["runs"]]
        row["fct_s"] = {**row["fct_s"], "mean": sum(means) / len(means)}
    (tmp_path / "a").mkdir()
    (tmp_path / "a/result.json").write_text(json.dumps(early), encoding="utf-8")
    lines = cli("diff", "a", "b").out.splitlines()
    assert lines[2:5] == [
        "All settings are equal.",
        "A ended early: ecmp has seeds 1 and 2, spt has seed 1.",
        "A and B differ in their seeds: means and counts of flows are of the seeds that both have, percentiles of all "
        "runs.",
    ]
    for row in rows_of(cli, "a", "b").values():
        if row["figure"].endswith(".mean"):
            assert (row["paired"], row["difference"]) == (True, 0.0), "its runs are those of B"
            assert row["says"] in ("same", "unknown")
    assert "ended early" not in cli("diff", "b", "b").out


def test_results_without_a_common_point_give_an_error(cli: Cli, tmp_path: Path) -> None:
    cli(*COMPARE, "--schemes", "ecmp", "--runs", "1", "--out", "c")
    settings = {"fabric": "diamond", "schemes": ["ecmp"], "duration": "10ms", "runs": 1}
    for name, loads in (("s", [0.2, 0.3]), ("t", [0.4])):
        made = {**settings, "traffic": "hadoop:load={load}", "grid": {"load": loads}}
        pathloom.sweep(made, tmp_path / name).save(tmp_path / name)
    assert "no point in common: A is over load, B over nothing; compare" in cli("diff", "s", "c").err
    assert "no point in common; both are over load, but with other values" in cli("diff", "s", "t").err


def test_only_differences_of_settings_are_shown() -> None:
    both = "ecmp", "hedera:period=1s", "ofpt"
    files = {"own.py": "df70" + 60 * "0", "sizes.csv": "ab" + 62 * "0"}
    settings = [
        ("files", files, {**files, "own.py": "aa70" + 60 * "0"}),
        ("schemes", [*both, "spt"], list(both)),
        ("grid", {"load": [0.2, 0.4], "k": [4]}, {"load": [0.2, 0.6], "k": [4]}),
    ]
    side = SimpleNamespace(path="x", kind="comparison")
    lines = setting_lines(cast(Any, SimpleNamespace(a=side, b=side, settings=settings, runs=())))
    assert lines[2:] == [
        "files: own.py=df700000… in A, own.py=aa700000… in B",
        "schemes: spt in A, nothing in B",
        "grid: load=0.4 in A, load=0.6 in B",
    ]


def test_an_axis_may_have_the_name_of_a_column_of_the_table() -> None:
    change = Change({"share": 0.5, "k": 4}, "ecmp", "ecmp", "fct_s", "mean", 1.0, 2.0, False, False, None, True)
    table = numbers(cast(Any, SimpleNamespace(changes=[change])))
    assert table.columns[:2] == ["at_share", "k"]
    assert table.select("at_share", "share").rows() == [(0.5, 1.0)]


def test_verdicts_on_a_difference() -> None:
    def says(a: float, b: float, half: float | None, key: str = "mean", bound: bool = False) -> str:
        return Change({}, "ecmp", "ecmp", "fct_s", key, a, b, bound, False, half, True).verdict

    assert says(1.0, 1.0, 0.0) == "same"
    assert says(1.0, 1.005, 0.001) == "equal"
    assert says(1.0, 1.005, 0.006) == "unclear"
    assert says(1.0, 1.008, 0.004) == "small"
    assert says(1.0, 1.0027, 0.858) == "unclear"
    assert says(1.0, 1.005, None) == "single"
    assert says(1.0, 1.005, None, key="p99") == ""
    assert says(1.0, 1.2, 0.1) == "clear"
    assert says(1.0, 1.2, 0.3) == "unclear"
    assert says(1.0, 1.2, None) == "single"
    assert says(1.0, 1.2, None, key="p99") == ""
    assert says(1.0, 1.2, 0.1, bound=True) == "unknown"


def rows_with(means: dict[str, list[float]], seed: int = 1) -> list[dict[str, Any]]:
    return [
        {
            "scheme": scheme,
            "throughput": {"mean": sum(runs) / len(runs)},
            "runs": [{"seed": seed + run, "throughput": {"mean": value}} for run, value in enumerate(runs)],
        }
        for scheme, runs in means.items()
    ]


def compared(a: dict[str, list[float]], b: dict[str, list[float]], **settings_of_b: str) -> dict[str, Change]:
    def loaded(name: str, means: dict[str, list[float]], settings: dict[str, str]) -> Loaded:
        return Loaded(Path(name), "comparison", {"settings": settings, "schemes": rows_with(means)})

    return {change.scheme_a: change for change in diff(loaded("a", a, {}), loaded("b", b, settings_of_b)).changes}


@pytest.mark.parametrize("settings_of_b", [{}, {"traffic": "other flows"}])
def test_probabilities_are_corrected_for_the_number_of_schemes(settings_of_b: dict[str, str]) -> None:
    before, after = [0.50, 0.52, 0.48], [0.60, 0.63, 0.57]
    alone = compared({"ecmp": before}, {"ecmp": after}, **settings_of_b)["ecmp"]
    assert alone.verdict == "clear"
    assert alone.paired == (not settings_of_b)
    noise = [0.60, 0.40, 0.58], [0.40, 0.70, 0.30]
    others = {f"other-{number}": noise for number in range(19)}
    among = compared(
        {"ecmp": before, **{name: a for name, (a, _) in others.items()}},
        {"ecmp": after, **{name: b for name, (_, b) in others.items()}},
        **settings_of_b,
    )
    assert among["ecmp"].p_value == pytest.approx(20 * (alone.p_value or 0.0))
    assert among["ecmp"].ci95 == alone.ci95
    assert among["ecmp"].verdict == "unclear"
    assert among["other-0"].p_value == 1.0


def test_flows_from_csv_are_compared_with_a_result(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "theirs.csv").write_text(FLOWS, encoding="utf-8")
    found = load(tmp_path / "theirs.csv")
    assert found.flows["fct_s"].to_list() == [1.5, 0.5, None]
    assert found.flows["age_s"].to_list() == [1.5, 0.5, 0.5]
    assert found.flows["size_class"].to_list() == ["rabbit", "mouse", "rabbit"]
    (row,) = found.summary["schemes"]
    assert (row["fct_s"]["mean"], row["fct_s"]["mean_censored"]) == (2.5 / 3, True)
    assert row["flows"] == {"offered": 3, "started": 3, "finished": 2, "unfinished": 1, "long_lived": 0}
    cli(*COMPARE, "--schemes", "ecmp,spt", "--runs", "1", "--out", "a")
    said = cli("diff", "a", "theirs.csv").out
    assert "theirs.csv is of another simulator.\nSettings are not compared.\n" in said
    assert "nothing in" not in said
    rows = rows_of(cli, "a", "theirs.csv")
    assert rows["spt", "fct_s.mean"]["says"] == "unknown"
    assert rows["ecmp", "fct_s.mean"]["b"] == 2.5 / 3
    shown = cli("diff", "a", "theirs.csv", "--csv", "d.csv", "--latex", "d.tex")
    assert "≥ 833 ms" in shown.out
    assert pl.read_csv(tmp_path / "d.csv").height == len(rows)
    assert (tmp_path / "d.tex").read_text(encoding="utf-8").count(r"\\") == len(rows) + 1


def test_flows_from_a_spreadsheet_may_have_a_byte_order_mark(tmp_path: Path) -> None:
    (tmp_path / "f.csv").write_text(
        f"# from a tool\n\n{FLOWS.replace('20000', '20000 # three quarters')}", encoding="utf-8-sig"
    )
    assert load(tmp_path / "f.csv").flows["flow"].to_list() == ["a", "b", "c"]


def test_flow_monitor_tells_acknowledgements_by_five_tuples_of_ipv4_and_ipv6(tmp_path: Path) -> None:
    tuples = FLOW_MONITOR.replace("Ipv4", "Ipv6").replace("10.0.0.", "2001:db8::")
    (tmp_path / "six.xml").write_text(tuples, encoding="utf-8")
    six = load(tmp_path / "six.xml")
    assert six.flows["flow"].to_list() == ["1", "3"]
    assert six.flows["src"].to_list() == ["2001:db8::1"] * 2
    begin, end = (FLOW_MONITOR.index(word) for word in ("  <Ipv4FlowClassifier>", "</FlowMonitor>"))
    (tmp_path / "bare.xml").write_text(FLOW_MONITOR[:begin] + FLOW_MONITOR[end:], encoding="utf-8")
    bare = load(tmp_path / "bare.xml")
    assert bare.flows.height == 3
    notes = bare.summary["traffic"]["notes"]
    assert any("five-tuples of 3 of 3 flows are not in the file" in note for note in notes), notes
    assert not any("five-tuples" in note for note in six.summary["traffic"]["notes"])


def test_diff_names_other_programs_and_failed_schemes(cli: Cli, tmp_path: Path) -> None:
    assert cli(*COMPARE, "--schemes", "ecmp", "--out", "a").code == 0
    path = tmp_path / "a/result.json"
    record = json.loads(path.read_text(encoding="utf-8"))

    def said(**changes: Any) -> str:
        (tmp_path / "b").mkdir(exist_ok=True)
        (tmp_path / "b/result.json").write_text(json.dumps({**record, **changes}), encoding="utf-8")
        outcome = cli("diff", "a", "b")
        assert outcome.code == 0, outcome.err
        return outcome.out

    assert "builds" not in said() and "versions" not in said()
    assert "different builds of Pathloom" in said(versions={**record["versions"], "program": "other"})
    older = said(versions={"pathloom": "0.0.9"})
    assert f"different versions of Pathloom made A ({record['versions']['pathloom']}) and B (0.0.9)" in older
    failed = said(schemes=[{**record["schemes"][0], "failures": 3}])
    assert "the code of ecmp failed in B: its figures are not what the scheme would do" in failed


def test_flow_monitor_is_read_without_its_acknowledgements(tmp_path: Path) -> None:
    (tmp_path / "ns3.xml").write_text(FLOW_MONITOR, encoding="utf-8")
    found = load(tmp_path / "ns3.xml")
    assert found.flows.select("flow", "src", "dst", "size_bytes", "start_s", "fct_s", "finished").rows() == [
        ("1", "10.0.0.1", "10.0.0.2", 19000, 1.0, 1.5, True),
        ("3", "10.0.0.1", "10.0.0.3", 0, 2.0, None, False),
    ]
    notes = found.summary["traffic"]["notes"]
    assert len(notes) == 2
    assert "1 flow received nothing" in notes[1]
    assert diff(found, found).changes[0].a == found.summary["schemes"][0]["fct_s"]["mean"]
