"""Bad input: exit code 2, one helpful line, no file written."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

import pathloom
from conftest import SMALL, Cli, tree
from pathloom import PathloomError
from pathloom.show.server import PageServer

if TYPE_CHECKING:
    from pathloom.show.results import Results

GOOD = {
    "--fabric": "fat-tree:k=4",
    "--traffic": "web-search:load=0.4",
    "--schemes": "ecmp",
    "--duration": "100ms",
    "--out": "results",
}

NO_EDGES = (
    '<graphml xmlns="http://graphml.graphdrawing.org/xmlns"><graph><node id="a"/><node id="b"/></graph></graphml>'
)
TOML = 'fabric = "diamond"\ntraffic = "long-lived"\nduration = "1ms"\nscheme = "ecmp"\n'

# Changes to a good command line, and words that the one line must contain.
OPTIONS = [
    ({"--fabric": "fat-tre:k=4"}, ["`fat-tre`", "did you mean `fat-tree`?"]),
    ({"--fabric": "fat-tree:k=3"}, ["fat-tree:k=3", "odd", "even"]),
    ({"--fabric": "fat-tree:k=0"}, ["k:", "`0`", "2"]),
    ({"--fabric": "fat-tree:k=-4"}, ["k:", "`-4`"]),
    ({"--fabric": "fat-tree:k=four"}, ["k:", "`four`", "whole number"]),
    ({"--fabric": "fat-tree:k=1000"}, ["cables", "smaller"]),
    ({"--fabric": "fat-tree:kk=4"}, ["unknown key `kk`", "did you mean `k`?"]),
    ({"--fabric": "fat-tree:k=4,k=4"}, ["k is given twice"]),
    ({"--fabric": "fat-tree:k"}, ["`k` is not key=value"]),
    ({"--fabric": "fat-tree:k=4,rate=10"}, ["`10` is not a rate", "10Mbps"]),
    ({"--fabric": "fat-tree:k=4,fail=2"}, ["fail", "`2`"]),
    ({"--fabric": ""}, ["fabric", "empty"]),
    ({"--fabric": "missing.graphml"}, ["missing.graphml", "no such file"]),
    ({"--fabric": "broken.graphml"}, ["broken.graphml"]),
    ({"--fabric": "no-edges.graphml"}, ["no-edges.graphml", "no edges"]),
    ({"--fabric": "broken.json"}, ["broken.json", "JSON"]),
    ({"--fabric": "binary.json"}, ["binary.json", "utf-8"]),
    ({"--traffic": "web-serch:load=0.4"}, ["`web-serch`", "did you mean `web-search`?"]),
    ({"--traffic": "web-search:load=0"}, ["load", "`0`"]),
    ({"--traffic": "web-search:load=-1"}, ["load", "`-1`"]),
    ({"--traffic": "web-search:load=nan"}, ["load", "`nan`"]),
    ({"--traffic": "web-search:load=1e9"}, ["load", "`1e9`"]),
    ({"--traffic": "web-search:laod=0.4"}, ["unknown key `laod`", "did you mean `load`?"]),
    ({"--traffic": "web-search:load=0.4,pattern=strid"}, ["strid", "did you mean `stride`?"]),
    ({"--traffic": "missing.csv:load=0.4"}, ["missing.csv", "no such file"]),
    ({"--traffic": "flows:file=broken.csv"}, ["broken.csv"]),
    ({"--schemes": "ecpm"}, ["`ecpm`", "did you mean `ecmp`?"]),
    ({"--schemes": "ecmp,spt,ecmp"}, ["`ecmp` is given twice"]),
    ({"--schemes": "ecmp,,spt"}, ["name is missing"]),
    ({"--schemes": ""}, ["name is missing"]),
    ({"--schemes": "hedera:perod=5s"}, ["unknown key `perod`", "did you mean `period`?"]),
    ({"--schemes": "hedera:period=5"}, ["period", "`5` is not a time"]),
    ({"--transport": "newrino"}, ["`newrino`", "did you mean `newreno`?"]),
    ({"--transport": ""}, ["transport", "newreno:iw=12KB"]),
    ({"--transport": "mptcp:subflows=0"}, ["subflows", "1", "64"]),
    ({"--transport": "mptcp:subflows=65"}, ["subflows", "65", "64"]),
    ({"--transport": "mptcp:cc=olla"}, ["cc", "`olla`", "did you mean `olia`?"]),
    ({"--transport": "mptcp:manager=fullmesh"}, ["fullmesh", "single address", "ndiffports"]),
    ({"--schemes": "ecmp,mptcp:manager=fullmesh"}, ["fullmesh", "single address", "ndiffports"]),
    ({"--schemes": "mptcp:subflows=65"}, ["subflows", "65", "64"]),
    ({"--schemes": "mptcp", "--transport": "dctcp"}, ["--transport", "mptcp", "expected newreno"]),
    ({"--schemes": "mptcp:subflows=8", "--transport": "mptcp:subflows=2"}, ["subflows=8", "subflows=2", "remove one"]),
    ({"--control": "dely=1ms"}, ["control `dely=1ms`: unknown key `dely`", "did you mean `delay`?"]),
    ({"--duration": "1us"}, ["no flow of `web-search:load=0.4` starts within 1us; raise the duration or the load"]),
    (
        {"--traffic": "flows:file=late.csv"},
        ["no flow of `flows:file=late.csv` starts within 100ms; raise the duration\n"],
    ),
    ({"--series": "0s"}, ["series: `0s` is not a positive time; expected 6us or more"]),
    ({"--series": "1us"}, ["series: `1us` gives too many steps; expected 6us or more"]),
    ({"--control": ""}, ["control", "delay=1ms"]),
    ({"--fault": "1ms:down:e0_0-a9_9"}, ["a9_9"]),
    ({"--fault": "down:c0"}, ["fault", "10s:down:"]),
    ({"--duration": "60"}, ["duration", "`60` is not a time", "300ms"]),
    ({"--duration": "0s"}, ["duration", "more than 0s"]),
    ({"--duration": "-1s"}, ["duration", "`-1s`"]),
    ({"--duration": "1000h"}, ["duration"]),
    ({"--runs": "0"}, ["--runs", "0"]),
    ({"--runs": "three"}, ["--runs", "three"]),
    ({"--runs": "\uff13"}, ["--runs", "\uff13"]),
    ({"--seed": "-1"}, ["--seed", "-1"]),
    ({"--jobs": "0"}, ["--jobs", "0"]),
    ({"--threads": "0"}, ["--threads", "0", "from 1 to 64"]),
    ({"--out": "a-file"}, ["--out", "a-file", "name a folder"]),
    ({"--out": "a-file/below"}, ["--out", "a-file/below"]),
    ({"--out": "/proc/results"}, ["--out", "/proc/results"]),
    ({"--json": "no-such-folder/x.json"}, ["--json", "no-such-folder"]),
    ({"--json": "a-folder"}, ["--json", "a-folder", "directory"]),
    ({"--spec": "missing.toml"}, ["missing.toml", "no such file"]),
    ({"--spec": "broken.toml"}, ["broken.toml", "TOML"]),
    ({"--spec": "typo.toml"}, ["unknown key `duratoin`", "did you mean `duration`?"]),
    ({"--spec": "text-runs.toml"}, ["text-runs.toml", "runs", "`three`", "whole number"]),
    ({"--spec": "yes.toml"}, ["yes.toml`: yardstick: `yes` is not valid; expected true or false"]),
    ({"--spec": "both.toml"}, ["both.toml", "scheme and schemes"]),
    ({"--fabric": None}, ["fabric is missing", "pathloom fabric list"]),
    ({"--traffic": None}, ["traffic is missing", "pathloom traffic list"]),
    ({"--schemes": None}, ["schemes is missing", "pathloom scheme list"]),
]

COMMANDS = [
    (["comprae"], ["comprae", "compare"]),
    (["compare", "--fabrci", "diamond"], ["--fabrci", "--fabric"]),
    (["compare", "--runs"], ["--runs"]),
    (["compare", "extra"], ["extra"]),
    (["run", *SMALL, "--scheme", "ecmp,spt"], ["scheme", "ecmp,spt"]),
    (["run", "--spec", "two.toml"], ["one scheme", "pathloom compare"]),
    (["run", *SMALL, "--scheme", "ecmp", "--runs", "2", "--pcap", "x.pcap"], ["--pcap", "--runs"]),
    (["run", *SMALL, "--scheme", "ecmp", "--pcap", "no/such/x.pcap"], ["pcap", "no/such/x.pcap", "no such file"]),
    (["run", *SMALL, "--scheme", "ecmp", "--event-log", "a-folder"], ["event log", "a-folder", "directory"]),
    (["fabric", "show", "fat-tree:k=5"], ["odd"]),
    (["fabric", "draw", "fat-tree:k=4", "--out", "x.gif"], ["x.gif", ".svg"]),
    (["fabric", "draw", "fat-tree:k=4", "--out", "no/such/x.svg"], ["no/such/x.svg"]),
    (["fabric", "export", "fat-tree:k=4", "--format", "grahpml"], ["`grahpml`", "did you mean `graphml`?"]),
    (["scheme", "show", "hedra"], ["`hedra`", "did you mean `hedera`?"]),
    (["scheme", "show", "hedera:period=1s"], ["without keys"]),
    (["run", "--scheme", "ecmp,spt"], ["--scheme `ecmp,spt`", "several", "pathloom compare --schemes ecmp,spt"]),
    (["artefact", "new", "a-new-folder"], ["Missing argument 'FROM': Results folders of compare, run or sweep"]),
    (["traffic", "show", "incast"], ["No such command 'show' (known: list)"]),
    (["streams", "advise", "--a", "1"], ["--path: is missing", "100Mbps,20ms"]),
    (["compare", *SMALL, "--schemes", "ecmp", "--plots", "png"], ["--plots", "folder of --out; name one"]),
    (["compare", "--spec", "binary.json"], ["experiment file `binary.json`: is not UTF-8 text; expected TOML"]),
    (["run", *SMALL], ["command line: scheme is missing; expected a name such as hedera"]),
    (["fabric", "show", "diamond", "--json"], ["--json", "(see `pathloom fabric show --help`)"]),
    (["show", "nothere"], ["`nothere`: no such folder; expected the results folder of a compare or a run"]),
    (["show", "broken.csv"], ["`broken.csv`: is a file; expected the results folder of a compare or a run"]),
    (["show", "a-folder"], ["`a-folder`", "no result.json"]),
    (["show", "x", "--port", "70000"], ["--port `70000`: expected at most 65535 (see `pathloom show --help`)"]),
    (["show", "x", "--port", "-1"], ["--port `-1`: expected 0 or more"]),
    (["assign", "a", "b", "c", "d", "e", "f"], ["PORT `b`: expected a whole number"]),
    (["streams", "advise", "--a", "x"], ["--a `x`: expected a number"]),
    (["reproduce", "ofpt", "--shorten", "0"], ["--shorten `0`: expected a number from 1 to 1000000"]),
    (["bench", "sim", "--duration", "1"], ["`1` is not a time"]),
    (["bench", "sim", "--fabric", "fat-tree:k=9"], ["odd"]),
]


@pytest.fixture(autouse=True)
def bad_files(tmp_path: Path) -> None:
    """Writes files with bad content."""
    (tmp_path / "a-file").write_text("here already", encoding="utf-8")
    (tmp_path / "a-folder").mkdir()
    (tmp_path / "broken.graphml").write_text("<graphml><graph><node", encoding="utf-8")
    (tmp_path / "no-edges.graphml").write_text(NO_EDGES, encoding="utf-8")
    (tmp_path / "broken.json").write_text('{"nodes": [', encoding="utf-8")
    (tmp_path / "binary.json").write_bytes(bytes(range(128, 256)))
    (tmp_path / "broken.csv").write_text("start_s,src,dst,size_bytes\n0,h0,nobody,5\n", encoding="utf-8")
    (tmp_path / "late.csv").write_text("start_s,src,dst,size_bytes\n5,h0,h1,5\n", encoding="utf-8")
    (tmp_path / "yes.toml").write_text(TOML + 'yardstick = "yes"\n', encoding="utf-8")
    (tmp_path / "broken.toml").write_text("fabric = fat-tree", encoding="utf-8")
    (tmp_path / "typo.toml").write_text(TOML.replace("duration", "duratoin"), encoding="utf-8")
    (tmp_path / "text-runs.toml").write_text(TOML + 'runs = "three"\n', encoding="utf-8")
    (tmp_path / "both.toml").write_text(TOML + 'schemes = ["spt"]\n', encoding="utf-8")
    (tmp_path / "two.toml").write_text(TOML.replace('scheme = "ecmp"', 'schemes = "ecmp,spt"'), encoding="utf-8")


def check(cli: Cli, tmp_path: Path, arguments: list[str], words: list[str]) -> None:
    """Checks for one line on stderr with these words, nothing on stdout, exit code 2, and no new file."""
    before = tree(tmp_path)
    outcome = cli(*arguments)
    assert outcome.code == 2, outcome
    assert outcome.out == ""
    assert outcome.err.startswith("pathloom: ")
    assert outcome.err.count("\n") == 1
    assert outcome.err.endswith("\n")
    assert "Traceback" not in outcome.err
    missing = [word for word in words if word.lower() not in outcome.err.lower()]
    assert not missing, outcome.err
    assert tree(tmp_path) == before


@pytest.mark.parametrize(("changes", "words"), OPTIONS, ids=lambda part: str(part) if isinstance(part, dict) else "")
def test_bad_options(cli: Cli, tmp_path: Path, changes: dict[str, str | None], words: list[str]) -> None:
    options = GOOD | changes
    if "--spec" in changes:
        options = {"--spec": changes["--spec"], "--out": "results"}
    arguments = [part for option, value in options.items() if value is not None for part in (option, value)]
    check(cli, tmp_path, ["compare", *arguments], words)


@pytest.mark.parametrize(("arguments", "words"), COMMANDS, ids=" ".join)
def test_bad_commands(cli: Cli, tmp_path: Path, arguments: list[str], words: list[str]) -> None:
    check(cli, tmp_path, arguments, words)


def test_an_internal_error_is_one_line_and_exit_code_1(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def fall_over(*_: object) -> None:
        raise RuntimeError("first line\nsecond line")

    monkeypatch.setattr("pathloom._core.schemes", fall_over)
    outcome = cli("scheme", "list")
    assert outcome.code == 1
    assert outcome.err.count("\n") == 1
    assert "RuntimeError: first line second line" in outcome.err
    assert "PATHLOOM_TRACEBACK" in outcome.err
    monkeypatch.setenv("PATHLOOM_TRACEBACK", "1")
    with pytest.raises(RuntimeError):
        cli("scheme", "list")


def test_an_unreadable_folder_is_refused(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0)
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)  # Root may read every folder.
    try:
        outcome = cli("compare", *SMALL, "--schemes", "ecmp", "--out", str(tmp_path / "closed/results"))
    finally:
        os.seteuid(user)
    assert outcome.code == 2, outcome.err
    assert "closed/results`: permission denied; name a folder that can be written" in outcome.err


@pytest.mark.parametrize(
    ("host", "port", "way_out"),
    [("nowhere.invalid", 0, "--listen"), ("192.0.2.1", 0, "--listen"), ("127.0.0.1", -1, "--port")],
)
def test_a_page_that_cannot_be_served(host: str, port: int, way_out: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pathloom.show.server.answers_of_result", lambda _: {})
    with pytest.raises(PathloomError, match=f"cannot listen on {host}:{port}: .*{way_out}"):
        PageServer(cast("Results", SimpleNamespace(report=None)), host, port)


def test_a_comparison_needs_a_scheme() -> None:
    with pytest.raises(PathloomError, match=r"schemes is empty; expected names such as ecmp,hedera"):
        pathloom.compare(fabric="diamond", traffic="long-lived", schemes=[])
