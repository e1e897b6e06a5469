"""Standard output in any encoding: nothing fails, and output for programs stays UTF-8."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import networkx as nx
import pytest

COMPARE = ["compare", "--fabric", "fat-tree:k=4,rate=10Mbps", "--traffic", "web-search:load=0.4,max_size=1MB"]
COMPARE += ["--schemes", "spt,ecmp", "--duration", "500ms", "--runs", "2"]
LOCALES = {
    "ascii": {"PYTHONIOENCODING": "ascii"},
    "strict": {"PYTHONIOENCODING": "ascii:strict"},
    "latin-1": {"PYTHONIOENCODING": "latin-1"},
    "LANG=C": {"LC_ALL": "C", "LANG": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
}


def called(*arguments: str, folder: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "pathloom", *arguments],
        env={**os.environ, **environment},
        cwd=folder,
        capture_output=True,
        check=False,
    )


@pytest.mark.parametrize("locale", LOCALES)
def test_a_comparison_is_printed_in_any_encoding(locale: str, tmp_path: Path) -> None:
    done = called(*COMPARE, folder=tmp_path, environment=LOCALES[locale])
    assert (done.returncode, done.stderr) == (0, b"")
    out = done.stdout.decode("latin-1" if locale == "latin-1" else "ascii")
    assert ("±" if locale == "latin-1" else "+-") in out
    assert "?" not in out
    lines = out.splitlines()
    start = next(place for place, line in enumerate(lines) if line.split() == ["spt", "ecmp"])
    rows = [line for line in lines[start + 1 : lines.index("", start)] if not line.endswith("*")]
    marked = [line for line in lines[start + 1 : lines.index("", start)] if line.endswith("*")]
    assert len({len(line) for line in [lines[start], *rows, *marked]}) == 1, "columns end where their headings do"


@pytest.mark.parametrize("locale", LOCALES)
def test_an_error_is_one_line_in_any_encoding(locale: str, tmp_path: Path) -> None:
    done = called("fabric", "show", "Zürich→µ.graphml", folder=tmp_path, environment=LOCALES[locale])
    assert done.returncode == 2
    (line,) = done.stderr.decode("latin-1").splitlines()
    assert line.startswith("pathloom: ")
    assert "Traceback" not in line


def test_output_for_programs_is_utf_8(tmp_path: Path) -> None:
    graph: nx.Graph[str] = nx.path_graph(2)
    graph = nx.relabel_nodes(graph, {0: "Zürich", 1: "Łódź"})
    (tmp_path / "g.json").write_text(json.dumps(nx.node_link_data(graph, edges="edges")), encoding="utf-8")
    for form in ("json", "graphml"):
        plain, ascii_ = (
            called("fabric", "export", "g.json", "--format", form, folder=tmp_path, environment=one)
            for one in ({"PYTHONIOENCODING": "utf-8"}, {"PYTHONIOENCODING": "ascii"})
        )
        assert ascii_.returncode == 0
        assert ascii_.stdout == plain.stdout
        ascii_.stdout.decode("utf-8")
