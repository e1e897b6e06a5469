"""Definitions of published figures: types for the TOML files under `published/`, one per figure.

A figure is data: the set-up as published, how the picture is drawn, and the published numbers with known causes of
differences. `pathloom.reproduction.metrics` has the names of all metrics.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from pathloom.errors import bad_input, nearest_hint
from pathloom.reproduction.metrics import METRICS

POINTS = 5.0
"""A larger difference from a single number needs a cause: in percentage points, or in per cent of another unit."""

Published = float | tuple[float, float]
"""A published number, or the lower and the upper end of a published range."""


NOT_LIVE = ("reordered",)
"""Metrics that the lab's kernels do not count."""

HERE = "{here}"
"""Placeholder in a file for the folder of all figures, which has the traces and schemes of figures."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Measure(_Part):
    """A measure: the name of a metric, and its parameters."""

    metric: str
    level: float | None = None
    """A threshold, in the unit of the metric."""
    below_bytes: int | None = None
    """Only flows smaller than this count."""
    from_bytes: int | None = None
    """Only flows of this size and larger count."""
    flow: int | None = None
    """Index of the one flow that counts."""

    @field_validator("metric")
    @classmethod
    def _known(cls, metric: str) -> str:
        if metric not in METRICS:
            raise bad_input(f"metric `{metric}` is not one of {', '.join(METRICS)}")
        return metric


class Overrides(_Part):
    """Settings that a case, or the quick form of a figure, changes."""

    fabric: str | None = None
    traffic: str | None = None
    schemes: tuple[str, ...] | None = None
    transport: str | None = None
    control: str | None = None
    faults: tuple[str, ...] | None = None
    duration: str | None = None
    runs: int | None = None


@dataclass(frozen=True)
class Form:
    """How much of a figure is run: all that was published, or less."""

    quick: bool = False
    """Whether the settings for `--quick` in the figure's file are used."""
    shorten: float = 1.0
    """Factor by which every run is shorter than published. The number of runs is as published."""


PUBLISHED = Form()
QUICK = Form(quick=True)


class Setup(_Part):
    """The set-up that all cases share. `{x}` in a text or a scheme is replaced by the place on the x axis."""

    fabric: str
    traffic: str
    schemes: tuple[str, ...] = Field(min_length=1)
    transport: str | None = None
    control: str | None = None
    faults: tuple[str, ...] = ()
    duration: str
    runs: int = Field(ge=1)
    sample: str | None = None
    """How often the goodput is sampled, for pictures in time."""


class Case(Overrides):
    """Changes of the set-up for one case, such as a place on the x axis."""

    label: str
    x: float | None = None


class Quick(Overrides):
    """Settings that `--quick` changes."""

    cases: tuple[str, ...] | None = None
    """The cases that are run; all, when left out."""
    shorten: float | None = Field(default=None, gt=1.0)
    """Factor by which every case is shorter than its duration, for cases with different durations."""


class InLab(Overrides):
    """Settings that `--world lab` changes: a load that one machine can carry, under the native controller."""

    cases: tuple[str, ...] | None = None
    """The cases that are run; all, when left out."""
    notes: tuple[str, ...] = ()
    """Notes that replace those of the figure, which are about the simulator."""
    cause: str | None = None
    """Why the measured number differs in the lab."""


class Variant(Measure):
    """One of several measures of the same runs, drawn next to each other."""

    metric: str = ""
    label: str

    @field_validator("metric")
    @classmethod
    def _known(cls, metric: str) -> str:
        return metric  # Taken from the plot when it is empty.


class Plot(Measure):
    """How the picture of a figure is drawn."""

    kind: Literal["bars", "lines", "ranks", "time", "starts"]
    y: str
    """Label of the y axis, with the unit."""
    x: str = ""
    unit: str = "%"
    variants: tuple[Variant, ...] = ()
    optimum: str | None = None
    """Metric of the optimum that is drawn next to the schemes."""
    steps: int = Field(default=36, ge=1)
    """For `starts`: number of parts of the run. The `level` of the metric is the begin of a part."""
    log: bool = False
    moment: float | None = None
    """Place on the x axis of an event that the picture marks, such as a move."""
    moment_label: str = ""

    @model_validator(mode="after")
    def _optimum_is_known(self) -> Self:
        if self.optimum is not None and self.optimum not in METRICS:
            raise bad_input(f"plot: optimum `{self.optimum}` is not one of {', '.join(METRICS)}")
        return self

    def measures(self) -> list[tuple[str, Measure]]:
        """Label and measure of every variant, or of every step for `starts`; one without a label if there are none."""
        if self.kind == "starts":
            parameters = {name: getattr(self, name) for name in Measure.model_fields}
            shares = [step / self.steps for step in range(self.steps)]
            return [("", Measure(**{**parameters, "level": share})) for share in shares]
        if not self.variants:
            return [("", self)]
        return [
            (one.label, Measure(**{**one.model_dump(exclude={"label"}), "metric": one.metric or self.metric}))
            for one in self.variants
        ]


class Row(_Part):
    """A published number, and how it is measured."""

    label: str
    unit: str = "%"
    published: Published | None = None
    """A number, or a range as a list of its lower and its upper end."""
    bound: Literal["exactly", "up to", "at least", "at most"] = "exactly"
    """Meaning of a single published number.

    `up to` is the greatest value that was reached, so a lower one is a difference. `at least` and `at most` are for
    texts that give one end only.
    """
    trend: Literal["above", "below", "level"] | None = None
    """The published number is not known, but that the line `of` is above, below or level with the line `than`.

    It is measured as the difference of the two lines, which must have the same unit.
    """
    of: str | None = None
    """Label of a line: of a row, or of a point of the picture such as `OFPT, load 0.9`."""
    than: str | None = None
    """Label of the line that `of` is compared with."""
    metric: str | None = None
    """None if the number cannot be measured yet; then `cause` says why."""
    level: float | None = None
    below_bytes: int | None = None
    from_bytes: int | None = None
    flow: int | None = None
    scheme: str | None = None
    """By default the only scheme of the figure."""
    case: str | None = None
    """By default all cases."""
    over: tuple[str, ...] = ()
    """Schemes that the row is compared with."""
    over_case: str | None = None
    """Case whose runs the row is compared with. `case` must then be set."""
    over_scheme: str | None = None
    """The scheme in `over_case`, if it has another name there."""
    compared: Literal["gain", "saving"] = "gain"
    """100 (a / b - 1), or 100 (1 - a / b), where a is the value of the row and b the value that it is compared with."""
    across: Literal["mean", "least", "most"] = "mean"
    """Which value counts if several cases, or several schemes to compare with, give several values."""
    cause: str | None = None
    """Why the measured number differs, if known."""

    @property
    def measure(self) -> Measure | None:
        """The measure of the row."""
        if self.metric is None:
            return None
        parameters = ("metric", "level", "below_bytes", "from_bytes", "flow")
        return Measure(**{name: getattr(self, name) for name in parameters})

    @model_validator(mode="after")
    def _unmeasured_says_why(self) -> Self:
        if self.trend is not None:
            if self.of is None or self.than is None or self.metric is not None or self.published is not None:
                raise bad_input(f"row `{self.label}`: a trend has `of` and `than`, and neither metric nor published")
            return self
        if self.metric is None and not self.cause:
            raise bad_input(f"row `{self.label}`: has no metric and no cause; give one of them")
        if self.measure is None and self.published is None:
            raise bad_input(f"row `{self.label}`: is neither published nor measured")
        return self

    @model_validator(mode="after")
    def _range_is_one(self) -> Self:
        if isinstance(self.published, tuple):
            low, high = self.published
            if low >= high or self.bound != "exactly":
                raise bad_input(
                    f"row `{self.label}`: published: expected a range as [lower end, upper end], without a bound"
                )
        return self


class Figure(_Part):
    """A published figure."""

    id: str
    """Name of the figure, such as `ofpt/fig4a`."""
    title: str
    source: str
    """Paper, section, figure."""
    notes: tuple[str, ...] = ()
    """Assumptions where the paper gives no details, and other information for the reader."""
    names: dict[str, str] = {}
    """Names of the schemes in the paper."""
    setup: Setup
    cases: tuple[Case, ...] = ()
    x: tuple[float, ...] = ()
    """Short form of one case per value, which replaces `{x}`."""
    quick: Quick = Quick()
    lab: InLab | None = None
    """None if the figure is not run in the lab."""
    plot: Plot
    rows: tuple[Row, ...] = ()
    cause: str | None = None
    """Why the measured numbers differ, for rows without a cause."""

    @model_validator(mode="after")
    def _names_belong(self) -> Self:
        labels = [case.label for case in self.all_cases()]
        if len(set(labels)) < len(labels):
            raise bad_input("cases: a label is given twice")
        schemes = self.schemes()
        for row in self.rows:
            if row.case is not None and row.case not in labels:
                raise bad_input(f"row `{row.label}`: case `{row.case}` is not one of {', '.join(labels)}")
            if row.over_case is not None and (
                row.over_case not in labels or row.case in (None, row.over_case) or row.over
            ):
                raise bad_input(
                    f"row `{row.label}`: over_case `{row.over_case}`: expected a case other than `case`, and no `over`"
                )
            for scheme in [
                *([row.scheme] if row.scheme else []),
                *([row.over_scheme] if row.over_scheme else []),
                *row.over,
            ]:
                if scheme not in schemes:
                    raise bad_input(f"row `{row.label}`: scheme `{scheme}` is not one of {', '.join(schemes)}")
            if row.scheme is None and row.metric is not None and len(schemes) > 1:
                raise bad_input(f"row `{row.label}`: scheme is missing; expected one of {', '.join(schemes)}")
        for part, cases in (("quick", self.quick.cases), ("lab", self.lab.cases if self.lab is not None else None)):
            for label in cases or ():
                if label not in labels:
                    raise bad_input(f"{part}: case `{label}` is not one of {', '.join(labels)}")
        if self.lab is not None and len(self.lab.schemes or self.setup.schemes) != len(self.setup.schemes):
            raise bad_input(f"lab: schemes: expected {len(self.setup.schemes)}, one for each of the figure")
        return self

    def in_lab(self) -> Figure:
        """The figure as it is run in the lab. Raises `PathloomError` if it is not run there."""
        if self.lab is None:
            raise bad_input(f"figure {self.id}: is not run in the lab")
        given = self.lab.model_dump(exclude={"cases", "notes", "cause"}, exclude_none=True)
        labels = self.lab.cases or tuple(case.label for case in self.all_cases())
        # A scheme that replaces another one gets its name. The causes of differences in the simulator are dropped.
        names = dict(self.names)
        if self.lab.schemes is not None:
            names.update(
                {new: self.name_of(old) for old, new in zip(self.setup.schemes, self.lab.schemes, strict=True)}
            )
        rows = [row for row in self.rows if (row.case is None or row.case in labels) and row.metric not in NOT_LIVE]
        return self.model_copy(
            update={
                "setup": self.setup.model_copy(update={**given, "control": None}),
                "x": tuple(value for value in self.x if f"{value:g}" in labels),
                "cases": tuple(case for case in self.cases if case.label in labels),
                "rows": tuple(row.model_copy(update={"cause": None}) for row in rows),
                "quick": Quick(),
                "notes": self.lab.notes,
                "cause": self.lab.cause,
                "names": names,
            }
        )

    def all_cases(self) -> tuple[Case, ...]:
        """The cases as published; a single case without a label if there are none."""
        if self.x:
            return tuple(Case(label=f"{value:g}", x=value) for value in self.x)
        return self.cases or (Case(label=""),)

    def measures(self) -> list[Measure]:
        """All measures that the figure needs of its runs."""
        rows = [row.measure for row in self.rows if row.measure is not None]
        measures = [*rows, *(measure for _, measure in self.plot.measures())]
        if self.plot.optimum is not None:
            optimum = {"metric": self.plot.optimum}
            measures += [measure.model_copy(update=optimum) for _, measure in self.plot.measures()]
        return measures

    def schemes(self) -> list[str]:
        """All schemes of all cases, in order."""
        named = [*self.setup.schemes, *(scheme for case in self.cases for scheme in case.schemes or ())]
        return list(dict.fromkeys(named))

    def name_of(self, scheme: str) -> str:
        """Name of a scheme in the paper."""
        return self.names.get(scheme, scheme)


def read_figure(path: Path, identity: str) -> Figure:
    """Reads the file of a figure. Raises `PathloomError` with one line that names the file and the place."""
    try:
        text = path.read_text(encoding="utf-8").replace(HERE, str(path.parent.parent))
        values: dict[str, Any] = tomllib.loads(text)
        return Figure.model_validate({**values, "id": identity})
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise bad_input(f"figure {identity}: is not TOML: {error}") from None
    except ValidationError as error:
        raise bad_input(f"figure {identity}: {_problem(error)}") from None


def _problem(error: ValidationError) -> str:
    """The first problem in one line. An unknown key comes before a missing key."""
    errors = error.errors()
    unknown = [one for one in errors if one["type"] == "extra_forbidden"]
    first = (unknown or errors)[0]
    place = ".".join(str(part) for part in first["loc"])
    if unknown:
        missing = (str(one["loc"][-1]) for one in errors if one["type"] == "missing")
        return f"unknown key `{place}`{nearest_hint(str(first['loc'][-1]), missing)}"
    problem = str(first.get("ctx", {}).get("error", first["msg"]))
    return f"{place}: {problem}" if place else problem
