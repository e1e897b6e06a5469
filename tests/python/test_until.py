"""`--until finished`: the drain lasts until all flows finish, or until it is clear that some cannot."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from conftest import Cli
from pathloom.experiments.running import simulation
from synthetic import numbers

SHORT = ["--fabric", "fat-tree:k=4,rate=1Gbps", "--traffic", "web-search:load=0.9", "--duration", "40ms"]
FLOWS = "start_s,src,dst,size_bytes\n0.001,h0,h1,100000\n0.002,h1,h0,2000000\n"
CUT = ["--fault", "2ms:down:c0", "--fault", "3ms:down:c1"]


def content(text: str) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(text)
    return result


def test_every_flow_is_finished_and_no_figure_is_a_bound(cli: Cli) -> None:
    usual = cli("run", *SHORT, "--scheme", "ecmp")
    assert "≥ " in usual.out and "--until finished" in usual.out
    done = cli("run", *SHORT, "--scheme", "ecmp", "--until", "finished")
    assert done.code == 0 and "≥" not in done.out and "≤" not in done.out
    before, after = (
        content(cli("run", *SHORT, "--scheme", "ecmp", *more, "--json", "-").out)["schemes"][0]
        for more in ([], ["--until", "finished"])
    )
    assert before["flows"]["unfinished"] > 0 == after["flows"]["unfinished"]
    assert after["fct_s"]["mean"] > before["fct_s"]["mean"], "what was printed before was a lower bound"
    assert before["fct_s"]["p99_censored"] and not after["fct_s"]["p99_censored"]


def test_a_run_that_is_finished_anyway_is_the_same(cli: Cli) -> None:
    arguments = ["run", *SHORT[:2], "--traffic", "web-search:load=0.2", "--duration", "100ms", "--scheme", "ecmp"]
    usual, until = (numbers(cli(*arguments, *more, "--json", "-").out) for more in ([], ["--until", "finished"]))
    assert usual["schemes"][0]["flows"]["unfinished"] == 0
    assert until["schemes"] == usual["schemes"]


def test_flows_without_a_path_end_a_run_with_a_note(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "flows.csv").write_text(FLOWS, encoding="utf-8")
    command = ["--fabric", "diamond", "--traffic", "flows:file=flows.csv", "--scheme", "ecmp", "--duration", "50ms"]
    done = cli("run", *command, *CUT, "--until", "finished")
    assert done.code == 0
    assert "--until finished gave up 1 of 1 run: nothing had arrived for 180 s; " in done.out
    assert "cannot finish, such as h1 → h0" in done.out
    # The end of such a run does not depend on how it was sliced.
    first = numbers(cli("run", *command, *CUT, "--until", "finished", "--json", "-").out)
    monkeypatch.setattr(simulation, "SLICE_WALL_S", 1e-4)
    assert numbers(cli("run", *command, *CUT, "--until", "finished", "--json", "-").out) == first


def test_the_run_waits_for_a_later_fault(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "flows.csv").write_text(FLOWS, encoding="utf-8")
    command = ["--fabric", "diamond", "--traffic", "flows:file=flows.csv", "--scheme", "ecmp", "--duration", "50ms"]
    done = cli("run", *command, *CUT, "--fault", "1000s:up:c1", "--until", "finished", "--json", "-")
    row = content(done.out)["schemes"][0]
    assert row["flows"]["unfinished"] == 0
    assert row["runs"][0]["end_s"] > 1000


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        (["--until", "done"], "until: `done` is not valid; expected finished"),
        (["--until", "finished", "--worlds", "sim,lab"], "until: the lab ends each run 5 times the duration after"),
    ],
)
def test_bad_values_of_until_are_refused(cli: Cli, more: list[str], expected: str) -> None:
    done = cli("run", *SHORT, "--scheme", "ecmp", *more)
    assert (done.code, done.out, len(done.err.splitlines())) == (2, "", 1)
    assert expected in done.err


def test_the_command_in_the_report_has_the_option(cli: Cli, tmp_path: Path) -> None:
    cli("run", *SHORT, "--scheme", "ecmp", "--until", "finished", "--out", "out")
    page = (tmp_path / "out/report.html").read_text(encoding="utf-8")
    assert "--until finished" in page[page.index("Reproduce") :]
    assert content((tmp_path / "out/result.json").read_text(encoding="utf-8"))["settings"]["until"] == "finished"
