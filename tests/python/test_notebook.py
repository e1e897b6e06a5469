"""The Python interface in notebooks and type checkers, and the display of progress."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
import threading
import time
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import nbformat
import pytest
from jupyter_client.manager import start_new_kernel
from nbclient import NotebookClient

import pathloom as pl
from conftest import Cli
from pathloom import _core
from pathloom.experiments.settings.model import Job
from pathloom.progress import Shares, lines

pytestmark = pytest.mark.notebook

ROOT = Path(__file__).resolve().parents[2]


def executed(code: str, folder: Path) -> list[Any]:
    """Returns everything that a kernel shows while it executes a cell, including updates."""
    shown: list[Any] = []
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(textwrap.dedent(code))])  # type: ignore[no-untyped-call]

    class Client(NotebookClient):
        def process_message(self, msg: Any, cell: Any, cell_index: int) -> Any:
            shown.append(msg)
            return super().process_message(msg, cell, cell_index)

    Client(notebook, kernel_name="python3", timeout=120, resources={"metadata": {"path": str(folder)}}).execute()
    data = [one["content"]["data"] for one in shown if "data" in one["content"]]
    assert not any(one["msg_type"] == "error" for one in shown)
    return data


def test_a_long_run_shows_its_progress_in_a_notebook_and_leaves_no_bar(tmp_path: Path) -> None:
    code = """
        import pathloom as pl
        import pathloom.progress
        pathloom.progress.BAR_AFTER_S = 0.0
        pathloom.progress.BAR_EVERY_S = 0.0
        pl.run(fabric="fat-tree:k=4,rate=10Mbps", traffic="long-lived", scheme="ecmp", duration="2s")
    """
    *bars, result = executed(code, tmp_path)
    assert len(bars) > 2
    assert "<progress" in bars[0]["text/html"] and "of 1 runs finished" in bars[0]["text/html"]
    assert bars[-1]["text/html"] == "", "the bar is gone"
    assert "pathloom-result" in result["text/html"]


def test_a_short_run_shows_its_result_alone_and_a_fabric_its_drawing(tmp_path: Path) -> None:
    code = """
        import pathloom as pl
        display(pl.run(fabric="diamond", traffic="long-lived", scheme="ecmp", duration="10ms"))
        pl.fat_tree(k=4)
    """
    result, fabric = executed(code, tmp_path)
    assert "pathloom-result" in result["text/html"]
    assert ET.fromstring(fabric["image/svg+xml"]).tag.endswith("svg")


def test_drawings_for_notebooks_stay_small() -> None:
    assert len(pl.fat_tree(k=4)._repr_svg_()) < 100_000
    assert len(pl.fat_tree(k=16)._repr_svg_()) < 2_500_000
    assert pl.fat_tree(k=4)._repr_svg_() == pl.fat_tree(k=4)._repr_svg_()


def test_a_log_gets_a_line_a_minute() -> None:
    now, said = [0.0], list[str]()
    report = lines(Shares("compare", 2, clock=lambda: now[0]), said.append)
    for second in range(301):
        now[0] = float(second)
        report(Job("ecmp", 1, 1), min(second / 200, 1.0))
        report(Job("spt", 1, 1), min(second / 240, 1.0))
    assert len(said) == 5
    assert said[0] == "compare: 0 of 2 runs finished, 27 %, 1 min 0 s elapsed, about 2 min 40 s left"
    assert said[-1] == "compare: 2 of 2 runs finished, 100 %, 5 min 0 s elapsed"


def test_the_time_left_follows_the_work_of_each_run() -> None:
    now = [0.0]
    light, heavy = Job("load 0.1", 1, 1), Job("load 0.9", 1, 1)
    shares = Shares("sweep", 2, clock=lambda: now[0], weights={light: 1.0, heavy: 9.0})
    now[0] = 10.0
    said = list[str]()
    for job in (light, heavy):
        shares.note(job, 1.0, lambda *progress: said.append(shares.text(*progress)))
    assert said == [
        "sweep: 1 of 2 runs finished, 10 %, 10 s elapsed, about 1 min 30 s left",
        "sweep: 2 of 2 runs finished, 100 %, 10 s elapsed",
    ]


def test_a_slow_thread_shows_no_progress_that_is_out_of_date(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pathloom.progress.LINE_EVERY_S", 0.0)
    said, in_write = list[str](), threading.Event()

    def write(text: str) -> None:
        in_write.set()
        if threading.current_thread() is slow:
            time.sleep(0.2)
        said.append(text)

    report = lines(Shares("compare", 2), write)
    slow = threading.Thread(target=report, args=(Job("ecmp", 1, 1), 1.0))
    slow.start()
    assert in_write.wait(10.0)
    report(Job("spt", 1, 1), 1.0)
    slow.join()
    assert [line.split(",")[0] for line in said] == [
        "compare: 1 of 2 runs finished",
        "compare: 2 of 2 runs finished",
    ]


def test_the_command_line_prints_progress_without_a_terminal(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("pathloom.progress.LINE_EVERY_S", 0.0)
    arguments = ["--fabric", "diamond", "--traffic", "long-lived", "--duration", "100ms"]
    done = cli("compare", *arguments, "--schemes", "spt,ecmp", "--runs", "2")
    assert done.code == 0
    assert "compare: 4 of 4 runs finished, 100 %" in done.err
    sweep = tmp_path / "loads.toml"
    sweep.write_text(
        'fabric = "dumbbell:hosts=2,rate=100Mbps"\nschemes = ["spt", "ecmp"]\nduration = "100ms"\n'
        'traffic = "hadoop:load={load}"\n[grid]\nload = [0.2, 0.5]\n',
        encoding="utf-8",
    )
    done = cli("sweep", str(sweep), "--out", str(tmp_path / "out"))
    assert done.code == 0, done.err
    shares = [int(share) for share in re.findall(r"sweep: \d+ of 12 runs finished, (\d+) %", done.err)]
    assert shares, done.err
    assert shares == sorted(shares) and shares[-1] == 100
    monkeypatch.setattr("pathloom.progress.LINE_EVERY_S", 60.0)
    assert cli("run", *arguments, "--scheme", "ecmp").err == "", "short runs are silent"


SNIPPETS = {
    'pl.run(fabrc="diamond", traffic="long-lived", scheme="ecmp")': "fabrc",
    'pl.compare(fabric="diamond", traffic="long-lived", schemes=["ecmp"], duraton="1s")': "duraton",
    'pl.run(fabric="diamond", traffic="long-lived", scheme="ecmp", runs="3")': '"str"; expected "int"',
    'pl.run(traffic="long-lived", scheme="ecmp")': 'Missing named argument "fabric"',
    'pl.run(fabric="diamond", traffic="long-lived", scheme="ecmp").flws': "flws",
}


def test_a_type_checker_finds_misspelt_arguments(tmp_path: Path) -> None:
    lines = ["import pathloom as pl", 'pl.run(fabric="diamond", traffic="long-lived", scheme="ecmp", duration="1s")']
    (tmp_path / "snippet.py").write_text("\n".join([*lines, *SNIPPETS]) + "\n", encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--hide-error-context", "snippet.py"]
    settings = f"[mypy]\nmypy_path = {ROOT / 'python'}\n[mypy-highspy.*,networkx.*]\nignore_missing_imports = True\n"
    (tmp_path / "mypy.ini").write_text(settings, encoding="utf-8")
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    found = {int(line.split(":")[1]): line for line in done.stdout.splitlines() if " error: " in line}
    for number, (snippet, said) in enumerate(SNIPPETS.items(), start=3):
        assert said in found.get(number, ""), f"{snippet}\n{done.stdout}"
    assert set(found) == set(range(3, 3 + len(SNIPPETS))), "there is no other error"


@pytest.mark.parametrize("kind", [_core.View, _core.Flow, _core.Node, _core.Link])
def test_types_for_schemes_have_docstrings_at_run_time(kind: type) -> None:
    assert kind.__doc__
    names = [name for name in vars(kind) if not name.startswith("_")]
    assert names
    assert [name for name in names if not getattr(kind, name).__doc__] == []


def test_a_widget_answers_the_page_through_the_kernel(tmp_path: Path) -> None:
    code = """
        import pathloom as pl
        result = pl.run(fabric="diamond:rate=10Mbps", traffic="long-lived", scheme="ecmp", duration="100ms")
        display(pl.widget(result), pl.widget(pl.diamond(rate="10Mbps"), height="300px"))
    """
    manager, client = start_new_kernel(cwd=str(tmp_path))
    try:
        client.execute(textwrap.dedent(code))
        told = [said for said in until_idle(client) if said["msg_type"] in ("comm_open", "display_data", "error")]
        opened = [one["content"] for one in told if one["msg_type"] == "comm_open"]
        models = {one["comm_id"]: one["data"]["state"] for one in opened if "_esm" in one["data"]["state"]}
        shown = [one["content"]["data"] for one in told if one["msg_type"] == "display_data"]
        of_result, of_fabric = (one["application/vnd.jupyter.widget-view+json"]["model_id"] for one in shown)
        assert [models[one]["height"] for one in (of_result, of_fabric)] == ["38rem", "300px"]
        assert all("export" in state["_esm"] for state in models.values())
        page = asked(client, of_result, "page")
        assert 'data-source="results"' in page["body"] and 'data-through="port"' in page["body"]
        assert asked(client, of_result, "v1/links?scheme=ecmp&run=1")["status"] == 200
        assert 'data-source="fabric"' in asked(client, of_fabric, "page")["body"]
        assert asked(client, of_fabric, "v1/summary")["body"]["hosts"] == 2
        unknown = asked(client, of_fabric, "v1/race?scheme=ecmp&run=1")
        assert (unknown["status"], unknown["body"]["detail"]) == (404, "nothing is at /v1/race")
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def until_idle(client: Any) -> list[Any]:
    """Returns what the kernel publishes until it has done what it was asked."""
    said: list[Any] = []
    while not said or said[-1]["content"].get("execution_state") != "idle":
        said.append(client.get_iopub_msg(timeout=120))
    return said


def asked(client: Any, model: str, path: str) -> dict[str, Any]:
    """Returns the answer to a message of a cell to its widget."""
    content = {"comm_id": model, "data": {"method": "custom", "content": {"view": "1", "id": 7, "path": path}}}
    client.shell_channel.send(client.session.msg("comm_msg", content))
    answers = [one["content"]["data"]["content"] for one in until_idle(client) if one["msg_type"] == "comm_msg"]
    assert [(one["view"], one["id"]) for one in answers] == [("1", 7)]
    answer: dict[str, Any] = answers[0]
    return answer


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ([1], "found a list; expected the result of a comparison, its folder, or a fabric"),
        ("nowhere", "`nowhere`: no such folder"),
    ],
)
def test_a_widget_of_something_else_is_refused(what: Any, said: str) -> None:
    with pytest.raises(pl.PathloomError, match=re.escape(said)):
        pl.widget(what)
    with pytest.raises(pl.PathloomError, match="height `tall`: expected a length of CSS"):
        pl.widget(pl.diamond(), height="tall")
