"""A scheme in Python that fails: its runs stop with the traceback, or continue and the result is marked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import pathloom as pl
from conftest import SMALL, Cli, tree
from pathloom import SchemeError, SchemeWarning
from pathloom.scheme import Actions, Event, FlowArrived, Scheme, SetDefaults, Started, View

SOURCE = """
from pathloom.scheme import FlowArrived, SetDefaults, Started

class Loud:
    def __init__(self, share: float = 0.5):
        self.share = share

    def handle(self, now_ns, event, view):
        if isinstance(event, FlowArrived):
            raise RuntimeError(f"loud {self.share}")
        return [SetDefaults("ecmp")] if event == Started() else None
"""
STRIDE: dict[str, Any] = {"fabric": "fat-tree:k=4,rate=10Mbps", "traffic": "long-lived:pattern=stride", "runs": 2}


class Failing(Scheme):
    """Fails at every flow."""

    def handle(self, now_ns: int, event: Event, view: View) -> Actions | None:
        if isinstance(event, FlowArrived):
            raise RuntimeError("no idea\nwhere to put it")
        return [SetDefaults("ecmp")] if event == Started() else None


@pytest.fixture
def loud(tmp_path: Path) -> str:
    (tmp_path / "loud.py").write_text(SOURCE, encoding="utf-8")
    return "loud.py:Loud:share=0.25"


def test_by_default_the_command_stops_with_the_traceback(cli: Cli, tmp_path: Path, loud: str) -> None:
    done = cli("run", *SMALL, "--scheme", loud, "--out", "out")
    assert (done.code, done.out) == (1, "")
    *traceback, line = done.err.splitlines()
    assert traceback[0] == "Traceback (most recent call last):"
    assert traceback[-1] == "RuntimeError: loud 0.25"
    assert line.startswith(f"pathloom: scheme {loud} failed in run 1 (seed 1): Loud.handle at ")
    assert "0 of 1 runs were finished; --keep-going continues" in line
    assert tree(tmp_path) == ["loud.py"]


def test_runs_finished_before_a_failure_are_kept_and_marked(cli: Cli, tmp_path: Path, loud: str) -> None:
    done = cli("compare", *SMALL, "--schemes", f"ecmp,{loud}", "--runs", "2", "--jobs", "1", "--out", "out")
    assert done.code == 1
    assert done.err.splitlines()[-1].count("1 of 4 runs were finished, the result so far is in out") == 1
    assert done.out.startswith(f"WARNING: Ended early, scheme {loud} failed in run 1 (seed 1)")
    content = json.loads((tmp_path / "out/result.json").read_text(encoding="utf-8"))
    assert (content["complete"], [len(row["runs"]) for row in content["schemes"]]) == (False, [1, 0])
    assert "Ended early, scheme loud.py" in (tmp_path / "out/report.html").read_text(encoding="utf-8")


def test_keep_going_marks_table_report_and_json(cli: Cli, tmp_path: Path, loud: str) -> None:
    schemes = ["--schemes", f"spt,{loud}", "--runs", "3", "--jobs", "2"]
    done = cli("compare", *SMALL, *schemes, "--keep-going", "--out", "out")
    assert done.code == 1, "the exit code tells scripts that the scheme's code failed"
    assert done.err.startswith(f"pathloom: warning: scheme {loud} failed ")
    assert done.err.count("Traceback") == 1 and "RuntimeError: loud 0.25" in done.err
    banner = done.out.splitlines()[0]
    assert banner.startswith(f"WARNING: Not what the scheme would do. Scheme {loud} failed ")
    assert "RuntimeError: loud 0.25" in banner
    content = json.loads((tmp_path / "out/result.json").read_text(encoding="utf-8"))
    counts = [row["failures"] for row in content["schemes"]]
    assert counts[0] == 0 and f"failed {counts[1]} times" in banner
    assert content["settings"]["keep_going"] is True
    failures_row = next(line for line in done.out.splitlines() if line.startswith("failures"))
    assert failures_row.split() == ["failures", "–", *f"{counts[1]:,}".replace(",", " ").split()]
    page = (tmp_path / "out/report.html").read_text(encoding="utf-8")
    head = page[page.index("<h1>") : page.index("<table>")]
    assert "Not what the scheme would do" in head and "RuntimeError: loud 0.25" in head
    assert "--keep-going" in page[page.index("Reproduce") :]


def test_a_scheme_that_failed_is_never_the_best(cli: Cli, loud: str) -> None:
    """Without its failures, the scheme is ecmp, and clearly better than spt."""
    stride = ["--fabric", "fat-tree:k=4,rate=10Mbps", "--traffic", "long-lived:pattern=stride", "--duration", "5s"]
    for scheme, marked in (("ecmp", True), (loud, False)):
        done = cli("compare", *stride, "--schemes", f"spt,{scheme}", "--runs", "8", "--keep-going")
        throughput = next(line for line in done.out.splitlines() if line.startswith("mean throughput"))
        assert ("*" in throughput) is marked
        assert (f"(the code of {loud} failed)" in done.out) is not marked


def test_python_raises_with_the_traceback_as_a_note() -> None:
    with pytest.raises(SchemeError, match=r"scheme Failing failed in run \d \(seed \d\): Failing\.handle") as caught:
        pl.compare(schemes=["ecmp", Failing], duration="1h", jobs=2, **STRIDE)
    assert "\n" not in str(caught.value)
    assert any('raise RuntimeError("no idea\\nwhere to put it")' in note for note in caught.value.__notes__)


def test_the_reported_failure_does_not_depend_on_threads() -> None:
    def told(jobs: int) -> str:
        with pytest.raises(SchemeError) as caught:
            pl.compare(schemes=[Failing, "ecmp"], duration="100ms", jobs=jobs, **{**STRIDE, "runs": 1})
        return str(caught.value)

    assert told(1) == told(2)


def test_keep_going_from_python_warns_and_counts_failures() -> None:
    with pytest.warns(SchemeWarning, match="scheme Failing failed 32 times"):
        result = pl.compare(schemes=["ecmp", Failing], duration="200ms", keep_going=True, **STRIDE)
    assert [row["failures"] for row in result.summary["schemes"]] == [0, 32]


def test_a_failure_before_the_first_packet_is_reported_too(tmp_path: Path) -> None:
    class AtOnce(Scheme):
        def handle(self, now_ns: int, event: Event, view: View) -> Actions | None:
            raise ValueError(f"at {now_ns}")

    with pytest.raises(SchemeError, match="ValueError: at 0"):
        pl.run(scheme=AtOnce, **STRIDE)
