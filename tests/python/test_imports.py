"""Which modules of the package import which: the arrows of ARCHITECTURE.md."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pathloom
from pathloom.api.comparison import SettingsOfComparisons, SettingsOfRuns
from pathloom.experiments.settings.model import Settings

PACKAGE = Path(pathloom.__file__).parent
FORBIDDEN = {
    "experiments.settings": ("experiments.results", "experiments.running", "experiments.sweeps"),
    "experiments.schemes": ("experiments.settings", "experiments.results", "experiments.running", "experiments.sweeps"),
    "experiments.results": ("experiments.running", "experiments.sweeps"),
    "experiments.running": ("experiments.sweeps",),
    "experiments": ("api", "artefact", "cli", "lab", "report", "reproduction", "show"),
    "report": ("api", "artefact", "cli", "lab", "reproduction", "show"),
    "lab": ("api", "artefact", "cli", "report", "reproduction", "show"),
    "api": ("artefact", "cli", "reproduction", "show"),
    "artefact": ("cli", "lab", "reproduction", "show"),
}
"""For each package, the packages that it must not import: those that are above it."""


def modules() -> dict[str, Path]:
    """The modules by name, without the schemes of published figures, which are data."""
    files = (file for file in PACKAGE.rglob("*.py") if "published" not in file.relative_to(PACKAGE).parts)
    return {
        ".".join(file.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__"): file
        for file in files
    }


def imported(file: Path, known: dict[str, Path]) -> Iterator[str]:
    """The modules that a file imports anywhere: also in functions and for types alone."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            assert node.level == 0, f"{file}: imports relative to its own package; expected the whole name"
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                if whole in known:
                    yield whole
                elif node.module in known and alias.name != "_core":
                    yield node.module


def graph() -> dict[str, set[str]]:
    known = modules()
    return {name: set(imported(file, known)) - {name} for name, file in known.items()}


def test_no_modules_import_each_other_in_a_circle() -> None:
    try:
        order = list(TopologicalSorter(graph()).static_order())
    except CycleError as error:
        raise AssertionError(f"a circle of imports: {' <- '.join(error.args[1])}") from None
    assert len(order) > 100


def test_packages_import_only_packages_below_them() -> None:
    wrong = [
        f"{module} imports {other}"
        for module, others in graph().items()
        for below, above in FORBIDDEN.items()
        if module.startswith(f"pathloom.{below}.")
        for other in others
        if other.startswith(tuple(f"pathloom.{name}." for name in above))
    ]
    assert wrong == []


def test_type_checkers_know_every_setting() -> None:
    known = set(SettingsOfComparisons.__annotations__) | set(SettingsOfRuns.__annotations__)
    explicit = {name for name in Settings.model_fields if name in ("fabric", "traffic", "schemes")}
    assert known == set(Settings.model_fields) - explicit
