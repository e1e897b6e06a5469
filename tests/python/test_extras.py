"""The command line and the library without the extras of the package, as `pip install pathloom` gives them."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from conftest import tree
from pathloom.extras import EXTRAS

ROOT = Path(__file__).resolve().parents[2]
LIBRARIES = sorted({library for libraries in EXTRAS.values() for library in libraries})
SMALL = ["--fabric", "diamond:rate=10Mbps", "--traffic", "long-lived", "--duration", "100ms", "--runs", "2"]
WITHOUT = f"import sys; sys.modules.update(dict.fromkeys({LIBRARIES})); "
"""A module of None cannot be found or imported."""
COMMAND = WITHOUT + "from pathloom.cli import main; main()"


def without_extras(program: str, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-c", program, *arguments]
    return subprocess.run(words, cwd=cwd, capture_output=True, text=True, check=False, timeout=120)


def test_a_comparison_needs_no_extra(tmp_path: Path) -> None:
    done = without_extras(COMMAND, "compare", *SMALL, "--schemes", "spt,ecmp", "--out", "out", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Report: out/report.html" in done.stdout
    said = "matplotlib is not installed, so there are no pictures: pip install 'pathloom[plot]'"
    assert done.stderr.splitlines()[-1] == f"pathloom: {said}"
    assert not [name for name in tree(tmp_path) if name.endswith(".svg")]
    report = (tmp_path / "out/report.html").read_text(encoding="utf-8")
    assert said.replace("'", "&#x27;") in report
    assert "<img" not in report
    assert (tmp_path / "out/flows.parquet").stat().st_size > 0


def test_a_result_in_a_notebook_needs_no_extra(tmp_path: Path) -> None:
    program = (
        WITHOUT + "import pathloom as pl; print(pl.run(fabric='diamond:rate=10Mbps', traffic='long-lived', "
        "scheme='ecmp', duration='100ms')._repr_html_())"
    )
    done = without_extras(program, cwd=tmp_path)
    assert "so there are no pictures" in done.stdout, done.stderr


def test_a_figure_in_axes_names_the_extra_that_it_needs(tmp_path: Path) -> None:
    program = (
        WITHOUT + "import pathloom as pl; pl.run(fabric='diamond:rate=10Mbps', traffic='long-lived', "
        "scheme='ecmp', duration='100ms').plot"
    )
    done = without_extras(program, cwd=tmp_path)
    assert "PathloomError: plot: needs matplotlib and networkx; install with pip" in done.stderr, done.stderr


def test_a_widget_names_the_extra_that_it_needs(tmp_path: Path) -> None:
    done = without_extras(WITHOUT + "import pathloom as pl; pl.widget(pl.diamond())", cwd=tmp_path)
    said = "PathloomError: pathloom.widget: needs anywidget; install with pip install 'pathloom[notebook]'"
    assert said in done.stderr, done.stderr


def test_a_sweep_needs_no_extra(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(
        'fabric = "diamond:rate={rate}"\ntraffic = "long-lived"\nschemes = "ecmp"\nduration = "50ms"\nruns = 2\n'
        'grid = {rate = ["10Mbps", "20Mbps"]}\n',
        encoding="utf-8",
    )
    done = without_extras(COMMAND, "sweep", "s.toml", "--out", "out", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out/report.html").is_file()


@pytest.mark.parametrize(
    ("arguments", "what", "extra"),
    [
        (["compare", *SMALL, "--schemes", "ecmp", "--plots", "pdf"], "--plots", "plot"),
        (["compare", *SMALL, "--schemes", "ecmp", "--yardstick"], "--yardstick", "optimum"),
        (["compare", *SMALL, "--schemes", "ecmp", "--cluster", "local:2"], "--cluster `local:2`", "cluster"),
        (["fabric", "draw", "diamond"], "drawing a fabric", "plot"),
        (["reproduce", "lessor/fig1", "--quick"], "reproduce", "plot"),
        (["bench", "solver"], "--exact", "optimum"),
    ],
)
def test_what_needs_an_extra_names_it(tmp_path: Path, arguments: list[str], what: str, extra: str) -> None:
    done = without_extras(COMMAND, *arguments, cwd=tmp_path)
    libraries = " and ".join(EXTRAS[extra])
    said = f"pathloom: {what}: needs {libraries}; install with pip install 'pathloom[{extra}]'"
    assert (done.returncode, done.stdout, done.stderr.splitlines()[-1:]) == (2, "", [said])
    assert tree(tmp_path) == []


def test_the_package_has_the_extras_that_messages_name() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    declared = {
        extra: tuple(requirement.partition(">=")[0] for requirement in requirements)
        for extra, requirements in project["optional-dependencies"].items()
        if extra not in ("all", "dev")
    }
    assert declared == EXTRAS
    alone = {one for extra in ("plot", "optimum", "networkx", "dns") for one in project["optional-dependencies"][extra]}
    assert set(project["optional-dependencies"]["all"]) == alone
