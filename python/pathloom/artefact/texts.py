"""The texts of an artefact: its README by the badges of the ACM, its Makefile, and its metadata."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pathloom.artefact.layout import CITATION, EXPECTED, EXPERIMENTS, LOCK, RESULTS, SETTINGS, ZENODO
from pathloom.artefact.sources import Source, wall_s
from pathloom.build import BUILD_DIGITS
from pathloom.experiments.results.verdicts import figure_of, is_bound
from pathloom.progress import minutes
from pathloom.quantities import FigureText, counted, share_figure, time_figure, times_figure
from pathloom.report.cite import ADDRESS
from pathloom.report.tables import AT_LEAST, AT_MOST

ANONYMOUS = "Anonymous"
"""Name of the authors if none is given, as for a double-blind review."""
_FIGURES: tuple[tuple[str, str, FigureText], ...] = (
    ("throughput", "mean throughput", share_figure),
    ("fct_s", "mean FCT", time_figure),
    ("slowdown", "mean slowdown", times_figure),
    ("completion_s", "completion time", time_figure),
)

MAKE_TEXT = f"""# Repeats the runs and compares their results with those in {EXPECTED}/.
.PHONY: check
check:
\tpathloom artefact check .
"""


def zenodo_text(title: str, authors: Sequence[str]) -> str:
    """The metadata that Zenodo reads from a repository or takes on upload."""
    record = {
        "title": title,
        "description": f"Settings, input files and expected results of simulations with Pathloom: {title}.",
        "upload_type": "dataset",
        "creators": [{"name": name} for name in authors],
        "keywords": ["datacenter network", "multipath", "simulation", "Pathloom"],
        "related_identifiers": [{"identifier": ADDRESS, "relation": "isCompiledBy", "resource_type": "software"}],
    }
    return json.dumps(record, indent=2, ensure_ascii=False) + "\n"


def citation_text(title: str, authors: Sequence[str], versions: Mapping[str, str]) -> str:
    """The file for citation, in the Citation File Format 1.2.0. Texts of JSON are texts of YAML."""
    text = [json.dumps(one, ensure_ascii=False) for one in (title, versions["pathloom"], ADDRESS)]
    return "\n".join(
        [
            "cff-version: 1.2.0",
            'message: "If you use these results, please cite the artefact and the software that computed them."',
            "type: dataset",
            f"title: {text[0]}",
            "authors:",
            *(f"  - name: {json.dumps(name, ensure_ascii=False)}" for name in authors),
            "references:",
            "  - type: software",
            "    title: Pathloom",
            "    authors:",
            "      - name: The Pathloom developers",
            f"    version: {text[1]}",
            f"    repository-code: {text[2]}",
            "",
        ]
    )


def readme_text(title: str, versions: Mapping[str, str], sources: Sequence[Source], wheel: str | None) -> str:
    """The README, with a section for each badge of the ACM's artifact review (version 1.1)."""
    build = versions.get("program", "")[:BUILD_DIGITS]
    runs = sum(len(row["runs"]) for source in sources for point in source.result.points for row in point["schemes"])
    took = minutes(max(wall_s(sources), 1.0))
    parts = [
        f"# {title}",
        f"Simulations with Pathloom {versions['pathloom']} (build {build}). The sections follow the badges of the "
        "ACM's artifact evaluation.",
        "## Artifacts available",
        f"`{ZENODO}` has the metadata for an archive such as Zenodo, and `{CITATION}` says how to cite the artefact. "
        f"`{EXPERIMENTS}/` has the settings and all input files. `{EXPECTED}/` has the results.",
        "## Artifacts evaluated: functional",
        _install(wheel),
        "One command repeats everything:",
        "```\nmake check\n```",
        f"It carries out {counted(runs, 'run')}, which took {took} of one core where the artefact was made. Several "
        "cores work in parallel. After an interruption, the same command goes on. The exit code is 0 if all is equal, "
        "1 if something differs, and 2 if the artefact is damaged.",
        "## Results reproduced",
        f"Each experiment is repeated into `{RESULTS}/NAME` and compared with `{EXPECTED}/NAME`: every figure, and "
        "every flow where the result has them. The same build gives the same figures, bit for bit, on any machine. "
        "Another version may differ; `pathloom artefact check . --within 5%` then accepts differences of the figures "
        "up to 5 %.",
        *(_experiment_text(source) for source in sources),
    ]
    return "\n\n".join(parts) + "\n"


def _install(wheel: str | None) -> str:
    which = f" Pathloom is in `{wheel}`; the other libraries come from a package index." if wheel else ""
    return (
        f"Python 3.11 or later on Linux is needed. `{LOCK}` has every library with its version.{which}\n\n"
        f"```\npython3 -m venv .venv\n. .venv/bin/activate\npip install -r {LOCK}\n```"
    )


def _experiment_text(source: Source) -> str:
    name, command = source.entry.name, source.entry.command()
    return (
        f"### {name}\n\n`{EXPERIMENTS}/{name}/{SETTINGS}` has the settings, and `{EXPECTED}/{name}/report.html` shows "
        f"the result. This command, in `{EXPERIMENTS}/{name}`, repeats it alone:\n\n```\n{command}\n```\n\n"
        f"{_figure_table(source)}"
    )


def _figure_table(source: Source) -> str:
    """The expected means, a row per point and scheme, with 95 % confidence intervals."""
    rows = [(point["at"], row) for point in source.result.points for row in point["schemes"]]
    axes = list(dict.fromkeys(name for at, _ in rows for name in at))
    shown = [one for one in _FIGURES if any(figure_of(row, one[0], "mean") is not None for _, row in rows)]
    lines = [[*axes, "scheme", *(title for _, title, _ in shown)]]
    lines.append(["---"] * len(lines[0]))
    for at, row in rows:
        figures = [_figure(row, section, text) for section, _, text in shown]
        lines.append([*(str(at.get(axis, "")) for axis in axes), row["scheme"], *figures])
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


def _figure(row: Mapping[str, Any], section: str, text: FigureText) -> str:
    value = figure_of(row, section, "mean")
    if value is None:
        return ""
    sign = (AT_MOST if section == "throughput" else AT_LEAST) if is_bound(row, section, "mean") else ""
    return sign + text(float(value), (row.get(section) or {}).get("ci95"))
