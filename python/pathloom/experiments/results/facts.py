"""What the notes on a result are made from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import polars as pl

from pathloom.experiments.results.outcome import RunOutcome
from pathloom.experiments.settings.model import Settings
from pathloom.fabrics import Fabric


class Facts(Protocol):
    """The facts of a result, without the notes on them."""

    settings: Settings
    fabric: Fabric
    outcomes: list[RunOutcome]
    execution_notes: list[str]
    changed_files: list[str]

    @property
    def flows(self) -> pl.DataFrame:
        """One row per flow and run."""
        ...

    @property
    def summary_of_schemes(self) -> Sequence[Mapping[str, Any]]:
        """The `schemes` of `result.json`."""
        ...
