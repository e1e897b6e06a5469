"""Bad input for sweep, diff, load and their options: exit code 2, one helpful line, no file written."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

import pathloom
from conftest import Cli
from pathloom.experiments.sweeps.plan import SweepPlan
from test_cli_errors import check
from test_diff import FLOW_MONITOR, FLOWS

GOOD = """
fabric = "diamond:rate={rate}"
traffic = "long-lived"
schemes = ["ecmp"]
duration = "10ms"
runs = 1
[grid]
rate = ["10Mbps"]
"""

# Changes to a good file, and words that the one line must contain.
FILES: list[tuple[Mapping[str, str], list[str]]] = [
    ({'"long-lived"': "long-lived"}, ["s.toml", "TOML"]),
    ({"[grid]": "", 'rate = ["10Mbps"]': ""}, ["[grid] is missing", "load = [0.2, 0.4]"]),
    ({"[grid]": "points = 5", 'rate = ["10Mbps"]': ""}, ["points", "[[points]]", "k = 4"]),
    ({"[grid]": "points = []", 'rate = ["10Mbps"]': ""}, ["points", "[[points]]"]),
    ({"[grid]": "points = [{}]", 'rate = ["10Mbps"]': ""}, ["points", "[[points]]"]),
    ({"[grid]": "[[points]]", '["10Mbps"]': '["10Mbps"]'}, ["points: number 1: rate", "text or a finite number"]),
    ({"[grid]": "[[points]]", '["10Mbps"]': '"10Mbps"\nload = 1'}, ["load is not used"]),
    ({"[grid]": "[[points]]", '["10Mbps"]': '"10Mpbs"'}, ["at rate=10Mpbs", "10Mpbs", "rate"]),
    ({"[grid]": '[[points]]\nrate = "1Mbps"\n[[points]]', '["10Mbps"]': '"1Mbps"'}, ["number 2", "given twice"]),
    ({"[grid]": '[[points]]\nrate = "1Mbps"\n[[points]]\nk = 1\n[grid]'}, ["number 2 has k", "expected rate"]),
    ({"[grid]": '[[points]]\nrate = "1Mbps"\n[grid]'}, ["grid: rate is in [[points]] too"]),
    ({'rate = ["10Mbps"]': ""}, ["[grid] is missing or empty"]),
    (
        {'rate = ["10Mbps"]': f'rate = ["10Mbps"]\n{"x" * 101} = [1]'},
        ["grid", "`xxxx", "has 101 letters", "at most 100"],
    ),
    ({"[grid]": "[gird]"}, ["unknown key `gird`", "did you mean `grid`?"]),
    ({"[grid]": "grid = 5\n[x]"}, ["unknown key `x`"]),
    ({"[grid]\n": "grid = 5\n", 'rate = ["10Mbps"]': ""}, ["[grid]", "lists by name"]),
    ({'["10Mbps"]': "[]"}, ["grid: rate", "`[]`", "list of values"]),
    ({'["10Mbps"]': '"10Mbps"'}, ["grid: rate", "10Mbps", "list of values"]),
    ({'["10Mbps"]': '[["10Mbps"]]'}, ["grid: rate", "text or a finite number"]),
    ({'["10Mbps"]': "[{a = 1}]"}, ["grid: rate", "text or a finite number"]),
    ({'["10Mbps"]': "[2026-01-01]"}, ["grid: rate", "2026-01-01", "text or a finite number"]),
    ({'["10Mbps"]': "[nan]"}, ["grid: rate", "`nan`", "finite"]),
    ({'["10Mbps"]': "[inf]"}, ["grid: rate", "`inf`", "finite"]),
    ({'["10Mbps"]': '["10Mbps", "10Mbps"]'}, ["`10Mbps` is given twice"]),
    ({'["10Mbps"]': '["1", 1]'}, ["`1` is given twice"]),
    ({'["10Mbps"]': '["10Mbps"]\nload = [1]'}, ["load is not used", "{load}"]),
    ({'["10Mbps"]': '["10Mbps"]\n"a b" = [1]'}, ["`a b` is not a name"]),
    ({"{rate}": "{raet}"}, ["fabric", "{raet}", "did you mean {rate}?"]),
    ({"{rate}": "{}"}, ["fabric", "{}", "is not in [grid]"]),
    ({'["10Mbps"]': '["10Mpbs"]'}, ["at rate=10Mpbs", "10Mpbs", "rate"]),
    ({'["10Mbps"]': '["10Mbps", "0Mbps"]'}, ["at rate=0Mbps", "rate"]),
    ({'["10Mbps"]': '[""]'}, ["at rate=", "rate"]),
    ({"rate = [": f"n = {list(range(101))}\nm = {list(range(100))}\nrate = ["}, ["10100 points are too many", "10000"]),
    ({'"10ms"': '"10"'}, ["duration", "`10` is not a time"]),
    ({'"10ms"': '"{rate}"'}, ["at rate=10Mbps", "duration"]),
    ({"runs = 1": "runs = 0"}, ["runs", "`0`"]),
    ({"runs = 1": 'runs = "{rate}"'}, ["at rate=10Mbps", "runs", "10Mbps", "whole number"]),
    ({"runs = 1": 'runs = "one"'}, ["runs", "`one`"]),
    ({"runs = 1": "seed = -1"}, ["seed", "`-1`"]),
    ({"runs = 1": "sed = 1"}, ["unknown key `sed`", "did you mean `seed`?"]),
    ({'["ecmp"]': '["ecpm"]'}, ["`ecpm`", "did you mean `ecmp`?"]),
    ({'["ecmp"]': "[]"}, ["schemes"]),
    ({'["ecmp"]': '["ecmp", "ecmp"]'}, ["`ecmp` is given twice"]),
    ({'["ecmp"]': "[5]"}, ["schemes", "5"]),
    ({'schemes = ["ecmp"]': 'schemes = ["ecmp"]\nscheme = "spt"'}, ["both scheme and schemes"]),
    ({'schemes = ["ecmp"]': ""}, ["schemes is missing"]),
    ({'"long-lived"': '"long-livd"'}, ["`long-livd`", "did you mean `long-lived`?"]),
    ({'traffic = "long-lived"': ""}, ["traffic is missing"]),
    ({"runs = 1": 'worlds = ["lab"]'}, ["worlds", "simulator alone"]),
    ({"runs = 1": 'fault = "down:c0"'}, ["fault", "down:c0"]),
    ({"runs = 1": 'series = "1ms"'}, ["series", "compare and run"]),
    ({"runs = 1": 'until = "soon"'}, ["until", "`soon`", "finished"]),
    ({'["ecmp"]': '["missing.py:Own"]'}, ["missing.py", "no such file"]),
    ({'"long-lived"': '"missing.csv:load=0.2"'}, ["missing.csv", "no such file"]),
]

OPTIONS = [
    (["sweep", "missing.toml"], ["missing.toml", "no such file"]),
    (["sweep", "a-folder"], ["a-folder", "directory"]),
    (["sweep", "binary.toml"], ["binary.toml", "TOML"]),
    (["sweep"], ["FILE.toml"]),
    (["sweep", "s.toml", "--until", "2%"], ["--until `2%`", "ci=2%"]),
    (["sweep", "s.toml", "--until", "finished"], ["--until `finished`", 'write until = "finished" in the file']),
    (["sweep", "s.toml", "--until", "ci=2"], ["--until", "`2`", "2%"]),
    (["sweep", "s.toml", "--until", "ci=0%"], ["--until", "`0%`"]),
    (["sweep", "s.toml", "--until", "ci=nan%"], ["--until", "`nan%`"]),
    (["sweep", "s.toml", "--until", "most=5"], ["ci is missing"]),
    (["sweep", "five.toml", "--until", "ci=2%,most=3"], ["ci=2%,most=3", "below the 5 runs", "expected 5 or more"]),
    (["sweep", "s.toml", "--until", "ci=2%,most=1"], ["most", "whole number from 2"]),
    (["sweep", "s.toml", "--cluster", "locl:2"], ["--cluster `locl:2`", "local:N", "tcp://HOST:PORT"]),
    (["sweep", "s.toml", "--cluster", "local:0"], ["--cluster `local:0`", "1 to 256"]),
    (["sweep", "s.toml", "--cluster", "tcp://host"], ["--cluster `tcp://host`", "PORT"]),
    (["sweep", "s.toml", "--cluster", "tcp://127.0.0.1:9"], ["no Dask scheduler answers there"]),
    (["sweep", "s.toml", "--cluster", "local:2", "--jobs", "2"], ["--jobs", "--cluster"]),
    (["sweep", "s.toml", "--plots", "gif"], ["--plots `gif`", "svg, pdf, png"]),
    (["sweep", "s.toml", "--plots", "svg,svg"], ["svg is given twice"]),
    (["sweep", "s.toml", "--jobs", "0"], ["--jobs", "0"]),
    (["sweep", "s.toml", "--out", "a-file"], ["--out `a-file`", "name a folder"]),
    (["sweep", "s.toml", "--out", "a-file/below"], ["--out `a-file/below`", "name a folder"]),
    (["sweep", "s.toml", "--out", "strange"], ["strange/result.json", "neither schemes nor points"]),
    (["sweep", "s.toml", "--json", "no/such/x.json"], ["--json", "no/such"]),
    (["compare", "--spec", "plain.toml", "--resume"], ["--resume", "--out"]),
    (["run", "--spec", "plain.toml", "--resume", "--out", "r", "--pcap", "x.pcapng"], ["--resume", "--pcap"]),
    (["compare", "--spec", "plain.toml", "--out", "r", "--plots", ""], ["--plots"]),
    (["diff"], ["A"]),
    (["diff", "strange"], ["B"]),
    (["diff", "missing", "missing"], ["`missing`", "no such file", "results folder"]),
    (["diff", "a-folder", "a-folder"], ["`a-folder`", "no result.json"]),
    (["diff", "a-file", "a-file"], ["`a-file`", ".csv", ".xml"]),
    (["diff", "strange", "strange"], ["strange/result.json", "neither schemes nor points"]),
    (["diff", "broken", "broken"], ["broken/result.json", "not JSON"]),
    (["diff", "damaged", "damaged"], ["damaged/result.json", "damaged"]),
    (["diff", "wrong", "wrong"], ["wrong/result.json", "damaged", "throughput.mean: `abc` is not a number"]),
    (["diff", "newer", "newer"], ["newer/result.json", "schema 99"]),
    (["diff", "good.csv", "good.csv", "--csv", "no/such.csv"], ["no/such.csv"]),
    (["sweep", "s.toml", "--out", ""], ["--out", "is empty", "results/mine"]),
    (["run", "--spec", "plain.toml", "--out", " "], ["--out", "is empty"]),
]

CSV = [
    ("", ["is empty"]),
    ("flow,start,end,bytes\n", ["has no flows"]),
    (FLOWS.replace("bytes", "octets"), ["column `bytes` is missing"]),
    (FLOWS.replace("flow,start", "start,start"), ["column `flow` is missing"]),
    (FLOWS.replace("end", "start_s"), ["column `start` occurs twice"]),
    (FLOWS.replace("a,0,", "a,zero,"), ["line 2", "start", "`zero`", "seconds"]),
    (FLOWS.replace("a,0,", "a,-1,"), ["line 2", "start", "`-1`"]),
    (FLOWS.replace("a,0,", "a,nan,"), ["line 2", "start", "`nan`"]),
    (FLOWS.replace("b,0.5,1,", "b,0.5,0.1,"), ["line 3", "ends at 0.1 s, before its start"]),
    (FLOWS.replace("1000\n", "1e3\n"), ["line 3", "bytes", "`1e3`", "whole number"]),
    (FLOWS.replace("c,1", "a,1"), ["line 4", "`a` occurs twice"]),
    (FLOWS.replace("c,1,,50000", "c,1"), ["line 4", "2 cells", "expected 4"]),
    (FLOWS.replace("1000\n", "9" * 5000 + "\n"), ["line 3", "bytes", "whole number"]),
    (FLOWS.replace("1000\n", f"{2**63}\n"), ["line 3", "bytes", "whole number"]),
    (FLOWS.replace("b,0.5,1,", "b,0.5,1e308,"), ["line 3", "end", "`1e308`", "from 0 to 1e+12"]),
    ('flow,start,end,bytes\n"a,0,1,5', ["not CSV"]),
]

XML = [
    ("<FlowMonitor>", ["not XML"]),
    ("<Other/>", ["is not a file of FlowMonitor"]),
    ("<FlowMonitor/>", ["is not a file of FlowMonitor"]),
    (FLOW_MONITOR.replace('rxBytes="19000"', 'rxBytes="many"'), ["flow 1", "rxBytes", "`many`"]),
    (FLOW_MONITOR.replace('"+1e+09ns"', '"later"'), ["flow 1", "timeFirstTxPacket", "`later`"]),
    (FLOW_MONITOR.replace('timeLastRxPacket="+2.5e+09ns"', ""), ["flow 1", "timeLastRxPacket"]),
    (FLOW_MONITOR.replace('"+2.5e+09ns"', '"+2e+08ns"'), ["flow 1", "ends at 0.2 s, before its start at 1.0 s"]),
    (FLOW_MONITOR.replace('"+2.5e+09ns"', '"+1e+99ns"'), ["flow 1", "timeLastRxPacket"]),
    (FLOW_MONITOR.replace('rxBytes="19000"', f'rxBytes="{"1" * 26}"'), ["flow 1", "rxBytes", "whole number"]),
    (FLOW_MONITOR.replace('flowId="2" time', "time"), ["a flow in FlowStats has no flowId"]),
    (FLOW_MONITOR.replace('flowId="2" time', 'flowId="1" time'), ["flow 1", "twice in FlowStats"]),
    (FLOW_MONITOR.replace('flowId="2" source', 'flowId="1" source'), ["flow 1", "twice in classifier"]),
    (FLOW_MONITOR.replace('version="1.0"', 'version="1.0" encoding="shift_jis"'), ["not XML", "multi-byte"]),
    (FLOW_MONITOR.replace('version="1.0"', 'version="1.0" encoding="foo"'), ["not XML", "foo"]),
]


@pytest.fixture(autouse=True)
def files(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(GOOD, encoding="utf-8")
    (tmp_path / "five.toml").write_text(GOOD.replace("runs = 1", "runs = 5"), encoding="utf-8")
    (tmp_path / "plain.toml").write_text(
        'fabric = "diamond"\ntraffic = "long-lived"\nduration = "1ms"\nscheme = "ecmp"\n', encoding="utf-8"
    )
    (tmp_path / "binary.toml").write_bytes(bytes(range(128, 256)))
    (tmp_path / "good.csv").write_text(FLOWS, encoding="utf-8")
    (tmp_path / "a-file").write_text("here already", encoding="utf-8")
    (tmp_path / "a-folder").mkdir()
    row = {"scheme": "ecmp", "runs": [], "throughput": {"mean": 1.0}, "fct_s": {}, "flows": {}}
    contents = {
        "strange": '{"a": 1}',
        "broken": "{",
        "damaged": '{"settings": {}, "schemes": [{"scheme": "ecmp"}]}',
        "wrong": json.dumps({"settings": {}, "schemes": [{**row, "throughput": {"mean": "abc"}}]}),
        "newer": json.dumps({"schema": 99, "settings": {}, "schemes": [row]}),
    }
    for name, text in contents.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "result.json").write_text(text, encoding="utf-8")


def test_there_are_at_least_sixty_cases() -> None:
    assert len(FILES) + len(OPTIONS) + len(CSV) + len(XML) >= 60


@pytest.mark.parametrize(("changes", "words"), FILES, ids=lambda part: str(part) if isinstance(part, Mapping) else "")
def test_bad_sweep_files(cli: Cli, tmp_path: Path, changes: Mapping[str, str], words: list[str]) -> None:
    text = GOOD
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new, 1)
    (tmp_path / "s.toml").write_text(text, encoding="utf-8")
    check(cli, tmp_path, ["sweep", "s.toml", "--out", "deep/results"], words)


@pytest.mark.parametrize(("arguments", "words"), OPTIONS, ids=" ".join)
def test_bad_commands(cli: Cli, tmp_path: Path, arguments: list[str], words: list[str]) -> None:
    check(cli, tmp_path, arguments, words)


@pytest.mark.parametrize(("text", "words"), CSV, ids=lambda part: part[0] if isinstance(part, list) else "")
def test_bad_flows_in_csv(cli: Cli, tmp_path: Path, text: str, words: list[str]) -> None:
    (tmp_path / "bad.csv").write_text(text, encoding="utf-8")
    check(cli, tmp_path, ["diff", "good.csv", "bad.csv"], ["bad.csv", *words])


@pytest.mark.parametrize(("text", "words"), XML, ids=lambda part: part[0] if isinstance(part, list) else "")
def test_bad_flow_monitors(cli: Cli, tmp_path: Path, text: str, words: list[str]) -> None:
    (tmp_path / "bad.xml").write_text(text, encoding="utf-8")
    check(cli, tmp_path, ["diff", "good.csv", "bad.xml"], ["bad.xml", *words])


def test_python_gets_an_error_for_arguments_of_the_wrong_type(tmp_path: Path) -> None:
    for settings, until, word in [(5, None, "sweep: `5`"), ({}, 5, "until: `5`")]:
        with pytest.raises(pathloom.PathloomError, match=word):
            pathloom.sweep(settings, tmp_path / "out", until=until)  # type: ignore[arg-type]


def test_numbers_of_numpy_are_values_of_a_grid() -> None:
    plan = SweepPlan.of(
        {
            "fabric": "diamond",
            "traffic": "web-search:load={load}",
            "schemes": ["lessor:period={k}s"],
            "grid": {"load": list(np.array([0.2, 0.4])), "k": [np.int64(2)]},
        }
    )
    assert plan.grid == {"load": (0.2, 0.4), "k": (2,)}


def test_a_binary_file_is_refused(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "bad.csv").write_bytes(bytes(range(128, 256)))
    check(cli, tmp_path, ["diff", "good.csv", "bad.csv"], ["bad.csv", "UTF-8"])


def test_keys_that_a_sweep_refuses_are_not_offered(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(GOOD.replace("runs = 1", "sed = 1"), encoding="utf-8")
    known = cli("sweep", "s.toml").err.partition("(known: ")[2]
    assert "duration" in known and "grid" in known
    assert not {"series", "worlds", "lab"} & set(known.rstrip(")\n").split(", "))


def test_an_error_of_a_point_names_no_option_that_sweep_lacks(cli: Cli, tmp_path: Path) -> None:
    text = GOOD.replace('"long-lived"', '"web-search"').replace('"10ms"', '"1ns"')
    (tmp_path / "s.toml").write_text(text, encoding="utf-8")
    error = cli("sweep", "s.toml").err
    assert "at rate=10Mbps: no flow of `web-search` starts within 1ns; raise the duration or the load" in error
