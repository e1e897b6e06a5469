"""How good predictions were: coverage of their intervals, order of the alternatives, errors."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pathloom.twin.intervals import COVERAGE
from pathloom.twin.ledger import Prediction

LEAST_RANKED = 3
"""Outcomes of a question from which a rank correlation is computed."""


@dataclass(frozen=True)
class Score:
    """How good the predictions of a ledger were. A figure is None if no outcome counts for it."""

    predictions: int
    outcomes: int
    coverage: float | None
    """Share of the outcomes that are in the prediction interval, which should have 90 % of them."""
    mean_error: float | None
    """Mean of |predicted − measured| / |measured|."""
    bias: float | None
    """Mean of (predicted − measured) / |measured|."""
    rank_correlation: float | None
    """Mean of Spearman's coefficient over the questions with three outcomes or more."""
    best_first: float | None
    """Share of these questions in which the alternative with the best outcome was named first among them."""

    def json(self) -> dict[str, Any]:
        """The score as JSON."""
        return {"schema": 1, "nominal_coverage": COVERAGE, **asdict(self)}


def score_of(predictions: Sequence[Prediction]) -> Score:
    """The score of predictions.

    >>> one = [Prediction(1, name, rank, 10.0 - rank, 8.0 - rank, 12.0 - rank, True, 9.9 - rank) for rank, name in
    ...        enumerate("abc", start=1)]
    >>> score = score_of(one)
    >>> score.coverage, score.rank_correlation, score.best_first, round(score.bias, 4)
    (1.0, 1.0, 1.0, 0.0128)
    """
    known = [one for one in predictions if one.outcome is not None]
    within = [
        one.low <= one.outcome <= one.high
        for one in known
        if one.low is not None and one.high is not None and one.outcome is not None
    ]
    errors = [(one.mean - one.outcome) / abs(one.outcome) for one in known if one.outcome]
    by_question: dict[int, list[Prediction]] = defaultdict(list)
    for one in known:
        by_question[one.question].append(one)
    ranked = [of for of in by_question.values() if len(of) >= LEAST_RANKED]
    return Score(
        predictions=len(predictions),
        outcomes=len(known),
        coverage=_mean([float(inside) for inside in within]),
        mean_error=_mean([abs(error) for error in errors]),
        bias=_mean(errors),
        rank_correlation=_mean([_spearman(of) for of in ranked]),
        best_first=_mean([float(_best_was_first(of)) for of in ranked]),
    )


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None


def _spearman(predictions: Sequence[Prediction]) -> float:
    """Correlation of the ranks of means and outcomes; equal values share the mean of their ranks."""
    means = _ranks([one.mean for one in predictions])
    outcomes = _ranks([one.outcome or 0.0 for one in predictions])
    centre = (len(predictions) + 1) / 2
    products = math.fsum((one - centre) * (other - centre) for one, other in zip(means, outcomes, strict=True))
    squares = [math.fsum((rank - centre) ** 2 for rank in ranks) for ranks in (means, outcomes)]
    # If all outcomes are equal, no order is right or wrong.
    return products / math.sqrt(squares[0] * squares[1]) if all(squares) else 0.0


def _ranks(values: Sequence[float]) -> list[float]:
    """Ranks from 1 on.

    >>> _ranks([3.0, 1.0, 3.0])
    [2.5, 1.0, 2.5]
    """
    return [
        sum(other < value for other in values) + (1 + sum(other == value for other in values)) / 2 for value in values
    ]


def _best_was_first(predictions: Sequence[Prediction]) -> bool:
    more = predictions[0].more_is_better
    first = min(predictions, key=lambda one: one.rank)
    outcomes = [one.outcome for one in predictions if one.outcome is not None]
    return first.outcome == (max(outcomes) if more else min(outcomes))
