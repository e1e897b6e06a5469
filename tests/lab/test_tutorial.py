"""Executes the tutorial of the lab, as a reader does."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from support import left_of

TUTORIAL = Path(__file__).resolve().parents[2] / "docs/tutorials/lab.ipynb"


@pytest.mark.long
def test_the_tutorial_works_and_leaves_nothing(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATHLOOM_TUTORIAL_LAB", name)
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    notebook = nbformat.read(TUTORIAL, as_version=4)  # type: ignore[no-untyped-call]
    done = NotebookClient(notebook, timeout=300, kernel_name="python3").execute(cwd=str(tmp_path))
    printed = "".join(output.get("text", "") for cell in done.cells for output in cell.get("outputs", []))
    assert "10.0.0.1/" in printed
    assert "Mbits/sec" in printed
    assert "ecmp@lab" in printed
    assert left_of(name) == []
