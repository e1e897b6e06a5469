"""What a sweep is: the settings of a comparison with `{name}` in them, and for each name a list of values."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar

from pathloom import _core
from pathloom._core import PathloomError
from pathloom.errors import bad_input
from pathloom.experiments.settings import Settings, checked_keys, read_toml, spelt_out
from pathloom.specs import SIM, split_specs

Result = TypeVar("Result")
Value = str | int | float | bool
"""What a grid may hold."""

MOST_POINTS = 10_000
"""Most points of one sweep."""
GRID = "grid"
_NAME = re.compile(r"\{([^{}]*)\}")
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


@dataclass(frozen=True)
class Point:
    """One place in the grid."""

    at: Mapping[str, Value]
    """The value of each axis."""
    settings: Settings

    @property
    def name(self) -> str:
        """What messages and tables call it.

        >>> settings = Settings.of({"fabric": "diamond", "traffic": "long-lived", "schemes": ("ecmp",)})
        >>> Point({"load": 0.2, "k": 4}, settings).name
        'load=0.2, k=4'
        """
        return place_text(self.at)


@dataclass(frozen=True)
class SweepPlan:
    """A sweep that is checked as far as that can be done without a simulation."""

    template: Mapping[str, Any]
    """The settings as the file has them."""
    grid: Mapping[str, tuple[Value, ...]]
    points: tuple[Point, ...]
    """All combinations of the values; the last axis changes fastest."""
    source: str = "sweep"
    """What messages call the file."""

    @classmethod
    def read(cls, path: Path) -> Self:
        """The sweep in a TOML file. Raises `PathloomError`."""
        source = f"sweep file `{path}`"
        return cls.of(read_toml(path, source), source)

    @classmethod
    def of(cls, values: Mapping[str, Any], source: str = "sweep") -> Self:
        """The sweep that settings and their `grid` describe. Raises `PathloomError` with a line that names the key."""
        template = checked_keys(values, source, more=(GRID,))
        grid = _grid(template.pop(GRID, None), source)
        _check_names(template, grid, source)
        if isinstance(template.get("schemes"), str) and not _NAME.fullmatch(template["schemes"]):
            template["schemes"] = split_specs(template["schemes"])
        points = []
        for combination in itertools.product(*grid.values()):
            at = dict(zip(grid, combination, strict=True))
            points.append(Point(at, _settings(template, at, source)))
        if "series" in template:
            raise bad_input(f"{source}: series: is for compare and run; leave it out")
        if any(point.settings.worlds != (SIM,) for point in points):
            raise bad_input(f"{source}: worlds: a sweep runs in the simulator alone; leave it out")
        return cls(template, grid, tuple(points), source)

    @property
    def scheme_axes(self) -> list[str]:
        """Axes whose values are whole schemes: they are told apart by colour, not along an axis.

        >>> common = {"fabric": "diamond", "traffic": "long-lived", "schemes": ["{scheme}"]}
        >>> SweepPlan.of({**common, "grid": {"scheme": ["ecmp", "spt"]}}).scheme_axes
        ['scheme']
        """
        schemes = self.template["schemes"]
        whole = [schemes] if isinstance(schemes, str) else schemes
        return [name for name in self.grid if f"{{{name}}}" in whole]

    def series(self, point: Point) -> list[str]:
        """What the schemes of a point are called from point to point, in their order.

        A scheme with an axis among its keys is called as the file writes it.
        """
        schemes = self.template["schemes"]
        if isinstance(schemes, str):
            return list(point.settings.schemes)
        axes = {name: point.at[name] for name in self.scheme_axes}
        return [str(_filled(scheme, axes)) if _whole(scheme) in axes else scheme for scheme in schemes]

    def record(self) -> dict[str, Any]:
        """The settings and the grid as `result.json` has them."""
        return {**self.template, GRID: {name: list(values) for name, values in self.grid.items()}}


def value_text(value: Value) -> str:
    """A value as it stands in a specification.

    >>> value_text(0.2), value_text(True), value_text("10Mbps")
    ('0.2', 'on', '10Mbps')
    """
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value)


def place_text(at: Mapping[str, Value]) -> str:
    """Where a point is: `load=0.2, k=4`."""
    return ", ".join(f"{name}={value_text(value)}" for name, value in at.items())


def _grid(found: object, source: str) -> dict[str, tuple[Value, ...]]:
    if not isinstance(found, dict) or not found:
        raise bad_input(f"{source}: [grid] is missing or empty; expected lists by name, such as load = [0.2, 0.4]")
    grid: dict[str, tuple[Value, ...]] = {}
    for name, values in found.items():
        if not _PLAIN_NAME.fullmatch(name):
            raise bad_input(f"{source}: grid: `{name}` is no name; expected letters, digits, _ and -")
        if not isinstance(values, list | tuple) or not values:
            raise bad_input(f"{source}: grid: {name}: `{values}` will not do; expected a list of values")
        for value in values:
            if not isinstance(value, str | int | float) or (isinstance(value, float) and not math.isfinite(value)):
                raise bad_input(f"{source}: grid: {name}: `{value}` will not do; expected a text or a finite number")
        texts = [value_text(value) for value in values]
        twice = next((text for place, text in enumerate(texts) if text in texts[:place]), None)
        if twice is not None:
            raise bad_input(f"{source}: grid: {name}: `{twice}` is given twice; give each value once")
        grid[name] = tuple(values)
    count = math.prod(map(len, grid.values()))
    if count > MOST_POINTS:
        raise bad_input(f"{source}: grid: {count} points are too many; expected at most {MOST_POINTS}")
    return grid


def _check_names(template: Mapping[str, Any], grid: Mapping[str, Any], source: str) -> None:
    """Every name in the settings is in the grid, and every name of the grid is in the settings."""
    used: set[str] = set()
    for key, value in template.items():
        for text in value if isinstance(value, list) else [value]:
            for name in _NAME.findall(text) if isinstance(text, str) else []:
                if name not in grid:
                    near = _core.nearest(name, list(grid))
                    hint = f"; did you mean {{{near}}}?" if near else ""
                    raise bad_input(f"{source}: {key}: {{{name}}} is not in [grid]{hint} (it has {', '.join(grid)})")
                used.add(name)
    for name in grid:
        if name not in used:
            raise bad_input(f"{source}: grid: {name} is used nowhere; write {{{name}}} in a value, or leave it out")


def _settings(template: Mapping[str, Any], at: Mapping[str, Value], source: str) -> Settings:
    filled = {
        key: [_filled(part, at) for part in value] if isinstance(value, list) else _filled(value, at)
        for key, value in template.items()
    }
    return at_point(place_text(at), lambda: Settings.of(spelt_out(filled), source), source)


def at_point(place: str, make: Callable[[], Result], source: str = "sweep") -> Result:
    """Calls `make`; bad input that it finds is said to be at that point."""
    try:
        return make()
    except PathloomError as error:
        text = str(error).removeprefix(f"{source}: ")
        raise bad_input(f"{source}, at {place}: {text}") from None


def _filled(value: Any, at: Mapping[str, Value]) -> Any:
    """A value with the names in it replaced. One that is a name alone becomes the value itself, a number too."""
    if not isinstance(value, str):
        return value
    alone = _whole(value)
    if alone in at:
        return at[alone]
    return _NAME.sub(lambda found: value_text(at[found.group(1)]) if found.group(1) in at else found.group(), value)


def _whole(value: Any) -> str:
    found = _NAME.fullmatch(value) if isinstance(value, str) else None
    return found.group(1) if found is not None else ""
