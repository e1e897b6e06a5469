"""Repeats the runs of an artefact and compares the results with the expected ones."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from pathloom.artefact.layout import EXPECTED, EXPERIMENTS, MANIFEST, Entry, Manifest
from pathloom.errors import bad_input
from pathloom.experiments.results.diff import Diff, diff
from pathloom.experiments.results.saved import Loaded, load

TABLES = ("flows.parquet", "links.parquet", "subflows.parquet")
"""Tables that are compared row by row, if the expected result has them."""
_APART = ("settings", "versions")
"""Keys of `result.json` that are not results."""


@dataclass(frozen=True)
class Compared:
    """An experiment, repeated."""

    name: str
    values: int
    """Number of values in the expected `result.json`, without wall-clock times."""
    different: tuple[str, ...]
    """Places of `result.json` where the values differ, and tables that differ."""
    diff: Diff
    """The figures of both results; A is the expected one."""

    @property
    def equal(self) -> bool:
        """Whether every value and every row is equal."""
        return not self.different

    def beyond(self, share: float) -> list[str]:
        """Figures that differ by more than this share of the expected value, and schemes that one result lacks."""
        figures = [
            f"{change.scheme_a} {change.section}.{change.key}"
            for change in self.diff.changes
            if change.a != change.b and (change.share is None or abs(change.share) > share)
        ]
        return [*figures, *self.diff.only_a, *self.diff.only_b]

    def record(self) -> dict[str, Any]:
        """The experiment in the JSON of a check."""
        return {
            "name": self.name,
            "equal": self.equal,
            "values": self.values,
            "different": list(self.different),
            "rows": self.diff.record()["rows"],
        }


def check_files(folder: Path, manifest: Manifest) -> None:
    """Raises `PathloomError` if settings, inputs or expected results are not those that the artefact was made with."""
    changed = manifest.changed(folder, EXPERIMENTS, EXPECTED)
    if changed:
        more = f" and {len(changed) - 3} more" if len(changed) > 3 else ""
        raise bad_input(
            f"`{folder}`: {', '.join(changed[:3])}{more}: missing, or not as in {MANIFEST}; take the files of the "
            "published artefact"
        )


def compare(folder: Path, entry: Entry, repeated: Path) -> Compared:
    """Compares the repeated result of an experiment, in the folder `repeated`, with the expected one."""
    expected, found = load(folder / EXPECTED / entry.name), load(repeated)
    wanted, have = _values(expected), _values(found)
    different = [place for place in {**wanted, **have} if wanted.get(place) != have.get(place)]
    tables = [name for name in TABLES if (expected.path / name).is_file() and not _same_table(expected, found, name)]
    return Compared(entry.name, len(wanted), (*different, *tables), diff(expected, found))


def _same_table(expected: Loaded, found: Loaded, name: str) -> bool:
    path = found.path / name
    return path.is_file() and pl.read_parquet(expected.path / name).equals(pl.read_parquet(path))


def _values(result: Loaded) -> dict[str, str]:
    """The values of a result as JSON, by their places, such as `schemes.0.fct_s.mean`."""
    return dict(_flat({key: value for key, value in result.summary.items() if key not in _APART}, ""))


def _flat(value: Any, place: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping) and value:
        for key, part in value.items():
            # Wall-clock times differ between two runs of one seed.
            if "wall" not in key:
                yield from _flat(part, f"{place}.{key}" if place else key)
    elif isinstance(value, list) and value:
        for number, part in enumerate(value):
            yield from _flat(part, f"{place}.{number}")
    else:
        yield place, json.dumps(value)
