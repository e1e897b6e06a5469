"""The required certainty of a comparison, and whether it is reached: `--until ci=2%`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from pathloom.errors import bad_input
from pathloom.experiments.results.stats import ci95
from pathloom.experiments.results.summary import paired_differences
from pathloom.experiments.results.verdicts import HEADLINE, Figure
from pathloom.experiments.settings.model import FINISHED, MOST_RUNS

MOST_TIMES = 10
"""At most this many times the runs of the settings are carried out, unless `most` is given."""
LEAST_RUNS = 2
"""One run has no interval."""

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Precision:
    """Required width of intervals: runs are added until it is reached."""

    share: float
    """Half width of the 95 % confidence interval of a scheme's paired difference to the best, over the larger mean."""
    most: int | None = None
    """Maximum number of runs of each scheme at a point; None for `MOST_TIMES` the runs of its settings."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Reads `ci=2%` or `ci=2%,most=50`. Raises `PathloomError`.

        >>> Precision.parse("ci=2%,most=50")
        Precision(share=0.02, most=50)
        """
        if text.strip() == FINISHED:
            raise bad_input(
                f"--until `{text}`: expected ci=2%, or ci=2%,most=50; to let every flow finish, write "
                f'until = "{FINISHED}" in the file'
            )
        values: dict[str, str] = {}
        for part in text.split(","):
            key, equals, value = (word.strip() for word in part.partition("="))
            if key not in ("ci", "most") or not equals or key in values:
                raise bad_input(f"--until `{text}`: expected ci=2%, or ci=2%,most=50")
            values[key] = value
        if "ci" not in values:
            raise bad_input(f"--until `{text}`: ci is missing; expected ci=2%,{text}")
        most = values.get("most")
        if most is not None and not (most.isdecimal() and LEAST_RUNS <= int(most) <= MOST_RUNS):
            raise bad_input(f"--until `{text}`: most: expected a whole number from {LEAST_RUNS} to {MOST_RUNS}")
        return cls(_share(values["ci"], text), int(most) if most is not None else None)

    def check_runs(self, runs: int) -> None:
        """Raises `PathloomError` if the settings have more runs than `most` allows."""
        if self.most is not None and self.most < runs:
            raise bad_input(
                f"--until `{self.text()}`: most is below the {runs} runs of the settings; expected {runs} or more"
            )

    def most_runs(self, runs: int) -> int:
        """Maximum number of runs of each scheme if the settings have `runs`."""
        return self.most if self.most is not None else min(max(MOST_TIMES * runs, LEAST_RUNS), MOST_RUNS)

    def text(self) -> str:
        """The text that `parse` reads."""
        most = f",most={self.most}" if self.most is not None else ""
        return f"ci={100 * self.share:.12g}%{most}"


def _share(value: str, text: str) -> float:
    try:
        share = float(value.removesuffix("%")) / 100 if value.endswith("%") else math.nan
    except ValueError:
        share = math.nan
    if not 0 < share <= 1:
        raise bad_input(f"--until `{text}`: ci: `{value}` is not valid; expected above 0% and at most 100%, such as 2%")
    return share


def uncertainty(schemes: Sequence[Row]) -> float | None:
    """The widest interval of any headline figure: of the paired difference to the best scheme, or of a single scheme.

    The result is a share of the larger mean. It is infinite if there is only one run, and None if no figure has a
    value.

    >>> def row(*means):
    ...     runs = [{"run": run, "throughput": {"mean": mean}} for run, mean in enumerate(means)]
    ...     return {"runs": runs, "throughput": {"mean": sum(means) / len(means)}}
    >>> uncertainty([row(0.5, 0.6), row(0.4, 0.5)]) < 1e-9, uncertainty([row(0.5)])
    (True, inf)
    """
    found = [_uncertainty_in(schemes, figure) for figure in HEADLINE.values()]
    return max((one for one in found if one is not None), default=None)


def has_bounds(schemes: Iterable[Row]) -> bool:
    """Whether a headline figure of any scheme is only a bound, because flows were not finished."""
    return any(figure.is_bound(row) for row in schemes for figure in HEADLINE.values())


def _uncertainty_in(schemes: Sequence[Row], figure: Figure) -> float | None:
    known = [(value, place) for place, row in enumerate(schemes) if (value := figure.of(row)) is not None]
    if not known:
        return None
    value, best = (max if figure.high_is_better else min)(known, key=lambda pair: pair[0])
    if len(known) == 1:
        half = ci95([one for run in schemes[best]["runs"] if (one := figure.of(run)) is not None])
        return _over(half, value)
    differences = paired_differences(schemes, figure.of, best)
    widths = [
        _over(difference["ci95"], max(abs(value), abs(other)))
        for other, place in known
        if (difference := differences[place]) is not None
    ]
    return max(widths, default=math.inf)


def _over(half: float | None, value: float) -> float:
    if half is None:
        return math.inf
    return half / abs(value) if value else (0.0 if half == 0 else math.inf)
