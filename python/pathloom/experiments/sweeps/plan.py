"""The plan of a sweep: the settings of a comparison with `{name}` in them, and the values of the names.

`[grid]` has a list of values for each name. `[[points]]` are single points with one value for each of their names.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self, TypeVar

from pathloom import _core
from pathloom._core import PathloomError
from pathloom.errors import bad_input
from pathloom.experiments.results.columns import is_column
from pathloom.experiments.settings.files import read_toml, split_lists, validate_keys
from pathloom.experiments.settings.model import Settings
from pathloom.specs import SIM, split_specs

Result = TypeVar("Result")
Value = str | int | float | bool
"""Type of a value in a grid."""

MOST_POINTS = 10_000
"""Maximum number of points of one sweep."""
GRID, POINTS = "grid", "points"
_NAME = re.compile(r"\{([^{}]*)\}")
MOST_LETTERS = 100
"""Maximum length of the name of an axis, which is a part of names of files."""
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


@dataclass(frozen=True)
class Point:
    """One point of the sweep."""

    at: Mapping[str, Value]
    """The value of each axis."""
    settings: Settings

    @property
    def name(self) -> str:
        """Name of the point in messages and tables.

        >>> settings = Settings.of({"fabric": "diamond", "traffic": "long-lived", "schemes": ("ecmp",)})
        >>> Point({"load": 0.2, "k": 4}, settings).name
        'load=0.2, k=4'
        """
        return place_text(self.at)


@dataclass(frozen=True)
class SweepPlan:
    """A sweep, checked as far as possible without a simulation."""

    template: Mapping[str, Any]
    """The settings as in the file, with names in them."""
    grid: Mapping[str, tuple[Value, ...]]
    """The values of each axis, in the order of their first occurrence."""
    points: tuple[Point, ...]
    """The points of the list, each with all combinations of the grid; the last axis changes fastest."""
    listed: tuple[Mapping[str, Value], ...] = ()
    """The points of the list; empty if there is only a grid."""
    source: str = "sweep"
    """Name of the file in messages."""
    file: str | None = None
    """Path of the file as given; None if the settings were given in Python."""

    @classmethod
    def read(cls, path: Path) -> Self:
        """The sweep in a TOML file. Raises `PathloomError`."""
        source = f"sweep file `{path}`"
        return replace(cls.of(read_toml(path, source), source), file=str(path))

    @classmethod
    def of(cls, values: Mapping[str, Any], source: str = "sweep") -> Self:
        """Makes the sweep that settings with `grid` or `points` describe.

        Raises `PathloomError` with a line that names the key.
        """
        template = validate_keys(values, source, more=(GRID, POINTS), unlisted=("series", "worlds", "lab"))
        listed = _listed(template.pop(POINTS, None), source)
        own = _grid(template.pop(GRID, None), source, listed)
        grid = {**_values_of(listed), **own}
        _check_names(template, grid, source)
        if isinstance(template.get("schemes"), str) and not _NAME.fullmatch(template["schemes"]):
            template["schemes"] = split_specs(template["schemes"])
        points = []
        for entry in listed or ({},):
            for combination in itertools.product(*own.values()):
                at: dict[str, Value] = {**entry, **dict(zip(own, combination, strict=True))}
                points.append(Point(at, _settings(template, at, source)))
        if "series" in template:
            raise bad_input(f"{source}: series: is for compare and run; leave it out")
        if any(point.settings.worlds != (SIM,) for point in points):
            raise bad_input(f"{source}: worlds: a sweep runs in the simulator alone; leave it out")
        plan = cls(template, grid, tuple(points), listed, source)
        plan._check_columns()
        return plan

    def check_added_runs(self) -> None:
        """Raises `PathloomError` if an axis cannot be a column of the tables when runs are added."""
        for name in ("runs", "seed"):
            if name in self.grid:
                raise bad_input(
                    f"{self.source}: {name}: --until adds runs, so the column `{name}` of the tables is not this axis; "
                    "choose another name for the axis"
                )

    def _check_columns(self) -> None:
        """Raises `PathloomError` if an axis has the name of a table column with another meaning."""
        alike = {
            "scheme": "scheme" in self.scheme_axes,
            "runs": all(point.settings.runs == point.at.get("runs") for point in self.points),
            "seed": all(
                (point.settings.seed, point.settings.runs) == (point.at.get("seed"), 1) for point in self.points
            ),
        }
        for name in self.grid:
            if is_column(name) and not alike.get(name):
                raise bad_input(
                    f"{self.source}: {name}: is the name of a column of the tables; choose another name for the axis"
                )

    @property
    def scheme_axes(self) -> list[str]:
        """Axes whose values are whole schemes: plots distinguish them by colour, not along an axis.

        >>> common = {"fabric": "diamond", "traffic": "long-lived", "schemes": ["{scheme}"]}
        >>> SweepPlan.of({**common, "grid": {"scheme": ["ecmp", "spt"]}}).scheme_axes
        ['scheme']
        """
        schemes = self.template["schemes"]
        whole = [schemes] if isinstance(schemes, str) else schemes
        return [name for name in self.grid if f"{{{name}}}" in whole]

    def series(self, point: Point) -> list[str]:
        """Names of the schemes of a point that are the same at all points, in their order.

        A scheme with an axis among its keys has the name that is in the file.
        """
        schemes = self.template["schemes"]
        if isinstance(schemes, str):
            return list(point.settings.schemes)
        axes = {name: point.at[name] for name in self.scheme_axes}
        return [str(_filled(scheme, axes)) if _whole(scheme) in axes else scheme for scheme in schemes]

    def record(self) -> dict[str, Any]:
        """The settings, the list and the grid, as in `result.json`."""
        in_list = self.listed[0] if self.listed else {}
        grid = {name: list(values) for name, values in self.grid.items() if name not in in_list}
        return {
            **self.template,
            **({POINTS: [dict(entry) for entry in self.listed]} if self.listed else {}),
            **({GRID: grid} if grid else {}),
        }

    def others(self, axis: str) -> list[str]:
        """The axes that may have several values at one value of `axis`, except axes of whole schemes.

        >>> common = {"fabric": "fat-tree:k={k},rate={rate}", "traffic": "long-lived", "schemes": ["ecmp"]}
        >>> SweepPlan.of({**common, "grid": {"k": [4, 6], "rate": ["1Gbps", "2Gbps"]}}).others("k")
        ['rate']
        >>> SweepPlan.of({**common, "points": [{"k": 4, "rate": "1Gbps"}, {"k": 6, "rate": "2Gbps"}]}).others("k")
        []
        """
        names = [name for name in self.grid if name != axis and name not in self.scheme_axes]
        return [
            name
            for name in names
            if len({(value_text(point.at[axis]), value_text(point.at[name])) for point in self.points})
            > len(self.grid[axis])
        ]


def value_text(value: Value) -> str:
    """A value as text in a specification.

    >>> value_text(0.2), value_text(True), value_text("10Mbps")
    ('0.2', 'on', '10Mbps')
    """
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value)


def place_text(at: Mapping[str, Value]) -> str:
    """The values of a point as text: `load=0.2, k=4`."""
    return ", ".join(f"{name}={value_text(value)}" for name, value in at.items())


def _check_name(name: str, source: str, key: str) -> None:
    if not _PLAIN_NAME.fullmatch(name):
        raise bad_input(f"{source}: {key}: `{name}` is not a name; expected letters, digits, _ and -")
    if len(name) > MOST_LETTERS:
        raise bad_input(f"{source}: {key}: `{name:.20}…` has {len(name)} letters; expected at most {MOST_LETTERS}")


def _plain(value: Any) -> Any:
    """A value as a Python object; numbers of NumPy have a method for that."""
    plain = getattr(value, "item", None)
    return plain() if callable(plain) and getattr(value, "ndim", None) == 0 else value


def _check_value(value: object, source: str, key: str) -> None:
    if not isinstance(value, str | int | float) or (isinstance(value, float) and not math.isfinite(value)):
        raise bad_input(f"{source}: {key}: `{value}` is not valid; expected a text or a finite number")


def _listed(found: object, source: str) -> tuple[dict[str, Value], ...]:
    """The points of the list, all with the same names."""
    if found is None:
        return ()
    if (
        not isinstance(found, list | tuple)
        or not found
        or not all(isinstance(entry, dict) and entry for entry in found)
    ):
        raise bad_input(f"{source}: points: expected tables of values, such as [[points]] with k = 4 and load = 0.2")
    if len(found) > MOST_POINTS:
        raise bad_input(f"{source}: points: {len(found)} are too many; expected at most {MOST_POINTS}")
    found = [{name: _plain(value) for name, value in entry.items()} for entry in found]
    first, texts = found[0], set()
    for number, entry in enumerate(found, start=1):
        key = f"points: number {number}"
        for name, value in entry.items():
            _check_name(name, source, key)
            _check_value(value, source, f"{key}: {name}")
        if entry.keys() != first.keys():
            raise bad_input(
                f"{source}: {key} has {', '.join(entry)}; expected {', '.join(first)}, as the first one has"
            )
        text = place_text({name: entry[name] for name in first})
        if text in texts:
            raise bad_input(f"{source}: {key}: `{text}` is given twice; give each point once")
        texts.add(text)
    return tuple({name: entry[name] for name in first} for entry in found)


def _values_of(listed: Sequence[Mapping[str, Value]]) -> dict[str, tuple[Value, ...]]:
    """The values of each name of the list, without duplicates."""
    names = listed[0] if listed else ()
    return {name: tuple({value_text(entry[name]): entry[name] for entry in listed}.values()) for name in names}


def _grid(found: object, source: str, listed: Sequence[Mapping[str, Value]]) -> dict[str, tuple[Value, ...]]:
    if found is None and listed:
        return {}
    if not isinstance(found, dict) or not found:
        raise bad_input(
            f"{source}: [grid] is missing or empty; expected lists by name, such as load = [0.2, 0.4], or single "
            "points in [[points]]"
        )
    grid: dict[str, tuple[Value, ...]] = {}
    for name, given in found.items():
        _check_name(name, source, GRID)
        if listed and name in listed[0]:
            raise bad_input(f"{source}: grid: {name} is in [[points]] too; give its values in one of them")
        if not isinstance(given, list | tuple) or not given:
            raise bad_input(f"{source}: grid: {name}: `{given}` is not valid; expected a list of values")
        values = [_plain(value) for value in given]
        for value in values:
            _check_value(value, source, f"grid: {name}")
        texts = [value_text(value) for value in values]
        twice = next((text for place, text in enumerate(texts) if text in texts[:place]), None)
        if twice is not None:
            raise bad_input(f"{source}: grid: {name}: `{twice}` is given twice; give each value once")
        grid[name] = tuple(values)
    count = math.prod(map(len, grid.values())) * max(len(listed), 1)
    if count > MOST_POINTS:
        raise bad_input(f"{source}: grid: {count} points are too many; expected at most {MOST_POINTS}")
    return grid


def _check_names(template: Mapping[str, Any], grid: Mapping[str, Any], source: str) -> None:
    """Checks that every name in the settings is in the grid or the list, and the reverse."""
    used: set[str] = set()
    for key, value in template.items():
        for text in value if isinstance(value, list) else [value]:
            for name in _NAME.findall(text) if isinstance(text, str) else []:
                if name not in grid:
                    near = _core.nearest(name, list(grid))
                    hint = f"; did you mean {{{near}}}?" if near else ""
                    where = f"[grid]{hint} (it has {', '.join(grid)})"
                    raise bad_input(f"{source}: {key}: {{{name}}} is not in {where}")
                used.add(name)
    for name in grid:
        if name not in used:
            raise bad_input(f"{source}: grid: {name} is not used; write {{{name}}} in a value, or leave it out")


def _settings(template: Mapping[str, Any], at: Mapping[str, Value], source: str) -> Settings:
    filled = {
        key: [_filled(part, at) for part in value] if isinstance(value, list) else _filled(value, at)
        for key, value in template.items()
    }
    return at_point(place_text(at), lambda: Settings.of(split_lists(filled), source), source)


def at_point(place: str, make: Callable[[], Result], source: str = "sweep") -> Result:
    """Calls `make`. Adds the point to the message of a `PathloomError`."""
    try:
        return make()
    except PathloomError as error:
        text = str(error).removeprefix(f"{source}: ")
        raise bad_input(f"{source}, at {place}: {text}") from None


def _filled(value: Any, at: Mapping[str, Value]) -> Any:
    """A value with the names in it replaced. If the text is only a name, the result is its value, also a number."""
    if not isinstance(value, str):
        return value
    alone = _whole(value)
    if alone in at:
        return at[alone]
    return _NAME.sub(lambda found: value_text(at[found.group(1)]) if found.group(1) in at else found.group(), value)


def _whole(value: Any) -> str:
    found = _NAME.fullmatch(value) if isinstance(value, str) else None
    return found.group(1) if found is not None else ""
