"""The command `pathloom reproduce`, and the page that it writes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from conftest import Cli, tree
from pathloom.experiments.running import memory
from pathloom.reproduction.library import identities


def test_the_command_prints_json_and_fills_a_folder(cli: Cli, tmp_path: Path) -> None:
    outcome = cli("reproduce", "lessor/fig1", "--quick", "--json", "-", "--out", "deep/pages", "--jobs", "1")
    assert outcome.code == 0, outcome.err
    content = json.loads(outcome.out)
    assert content["schema"] == 1
    assert [item["id"] for item in content["items"]] == ["lessor/fig1"]
    rows = {row["label"]: row for row in content["items"][0]["rows"]}
    assert rows["TCP, throughput of the optimum"]["published"] == 50.0
    assert 40.0 < rows["TCP, throughput of the optimum"]["measured"] < 51.0
    folder = ["README.md", "lessor", "lessor.md", "lessor/fig1.json", "lessor/fig1.svg"]
    assert [name for name in tree(tmp_path / "deep/pages") if not name.startswith("runs")] == folder
    assert "](lessor.md#lessorfig1-" in (tmp_path / "deep/pages/README.md").read_text(encoding="utf-8")
    page = (tmp_path / "deep/pages/lessor.md").read_text(encoding="utf-8")
    assert "lessor/fig1.svg" in page
    assert "83.3 %" in page
    assert "/published/" not in page, "no path of this machine"


def test_an_error_says_which_runs_are_kept(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available_bytes", lambda: 0 if list(Path("pages/runs").glob("*.json")) else None)
    words = ["reproduce", "lessor/fig1", "--quick", "--jobs", "1", "--out", "pages"]
    refused = cli(*words)
    assert (refused.code, refused.out) == (2, "")
    said = refused.err.splitlines()[-1]
    assert "0 B are free" in said
    kept = re.search(r"; (\d+) runs? kept in pages/runs; the same command with --resume goes on from here$", said)
    assert kept is not None, said
    assert len(list(Path("pages/runs").glob("*.json"))) == int(kept[1]) > 0
    monkeypatch.setattr(memory, "available_bytes", lambda: None)
    assert cli(*words, "--resume").code == 0
    assert "nothing to do, all runs are kept" in cli(*words, "--resume").err
    assert re.search(r"^lessor/fig1: \d+ runs took ", cli(*words).err, re.MULTILINE), "without --resume all runs anew"


def test_the_page_keeps_earlier_figures(cli: Cli, tmp_path: Path) -> None:
    for name in ("lessor/fig1", "ofpt/fig2"):
        outcome = cli("reproduce", name, "--quick", "--out", "pages")
        assert outcome.code == 0, outcome.err
        assert "Picture: pages/" in outcome.out
        assert "Why, " in outcome.out
        assert re.search(rf"^{name}: \d+ runs to do, about .* on \d+ threads?$", outcome.err, re.MULTILINE)
        took = rf"^{name}: \d+ runs took \d.*, \d.* of processor time; projected: \d.*$"
        assert re.search(took, outcome.err, re.MULTILINE)
    start = (tmp_path / "pages/README.md").read_text(encoding="utf-8")
    assert start.index("[lessor/fig1](lessor.md#") < start.index("[ofpt/fig2](ofpt.md#")
    assert "## ofpt/fig2: " in (tmp_path / "pages/ofpt.md").read_text(encoding="utf-8")
    page = (tmp_path / "pages/lessor.md").read_text(encoding="utf-8")
    assert "## lessor/fig1: " in page and "ofpt/fig2" not in page
    # A letter links a difference to its cause, which begins with a capital letter.
    assert re.search(r"^\| TCP, throughput of the optimum \|.* % \(a\) \|$", page, re.MULTILINE)
    assert re.search(r"^- \(a\) The example counts payload alone;", page, re.MULTILINE)


def test_the_page_has_the_quick_values_beside_the_others(cli: Cli, tmp_path: Path) -> None:
    assert cli("reproduce", "lessor/fig1", "--quick", "--out", "pages/quick").code == 0
    assert cli("reproduce", "lessor/fig1", "--shorten", "5", "--out", "pages").code == 0
    tables = [tmp_path / "pages" / folder / "lessor/fig1.json" for folder in ("", "quick")]
    whole, quick = (json.loads(path.read_text(encoding="utf-8"))["table"] for path in tables)
    page = (tmp_path / "pages/lessor.md").read_text(encoding="utf-8")
    assert "|  | published | measured | difference | `--quick` |" in page
    assert len(whole) > 3
    for (label, published, measured, difference), (_, _, beside, _) in zip(whole, quick, strict=True):
        line = f"| {label} | {published} | {measured} | {difference}"
        assert re.search(rf"^{re.escape(line)}( \(.\))? \| {re.escape(beside)} \|$", page, re.MULTILINE), line


def test_the_list_names_every_figure(cli: Cli) -> None:
    text = cli("reproduce", "list").out
    listed = [entry["id"] for entry in json.loads(cli("reproduce", "--json", "-").out)["figures"]]
    assert listed == identities("all")
    assert all(identity in text for identity in listed)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["oftp"], ["`oftp`", "did you mean `ofpt`?"]),
        (["ofpt/fig4"], ["figure of ofpt", "`fig4`", "did you mean `fig4a` or `fig4b` or"]),
        (["ofpt/"], ["figure of ofpt", "``"]),
        (["../ofpt"], ["no paper", "`..`"]),
        (["ofpt/fig4a", "--jobs", "0"], ["--jobs", "`0`"]),
        (["ofpt/fig4a", "--seed", "x"], ["--seed", "`x`"]),
        (["ofpt/fig4a", "--world", "lab"], ["figure ofpt/fig4a", "not run in the lab"]),
        (["ofpt/fig11", "--world", "lap"], ["--world `lap`", "expected sim or lab"]),
        (["ofpt/fig11", "--world", "lab", "--quick"], ["--quick", "one form"]),
        (["ofpt/fig9a", "--world", "lab", "--shorten", "2"], ["--shorten", "one form"]),
        (["ofpt/fig2", "--quick", "--shorten", "2"], ["--shorten", "leave one out"]),
        (["ofpt/fig2", "--any-build"], ["--any-build", "needs --resume"]),
        (["ofpt/fig2", "--shorten", "0.5"], ["--shorten `0.5`", "from 1 to"]),
        (["ofpt/fig2", "--shorten", "nan"], ["--shorten `nan`", "from 1 to"]),
        (["ofpt/fig2", "--shorten", "ten"], ["--shorten `ten`", "from 1 to"]),
        (["ofpt/fig4a", "--out", "a-file"], ["--out", "a-file", "name a folder"]),
    ],
)
def test_bad_input_is_one_line(cli: Cli, tmp_path: Path, arguments: list[str], words: list[str]) -> None:
    (tmp_path / "a-file").write_text("here already", encoding="utf-8")
    outcome = cli("reproduce", *arguments)
    assert outcome.code == 2
    assert outcome.err.count("\n") == 1
    for word in words:
        assert word in outcome.err
    assert tree(tmp_path) == ["a-file"]
