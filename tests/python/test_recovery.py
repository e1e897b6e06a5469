"""Time to recover after a fault."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pathloom
from pathloom.experiments.results.outcome import RunOutcome
from pathloom.experiments.results.recovery import Recovery, recoveries
from pathloom.experiments.settings.model import Job, Settings


def found(goodput: list[float], faults: list[str], **settings: str) -> list[Recovery]:
    """Returns the recoveries in a run with this goodput in steps of 100 ms."""
    at_s = np.round(np.arange(1, len(goodput) + 1) * 0.1, 9)
    series = {"flow.at_s": at_s, "flow.goodput_bps": np.array(goodput)}
    outcome = RunOutcome(Job("ecmp", 1, 1), {"series": series}, 0.0)
    values: dict[str, Any] = {"fabric": "diamond", "traffic": "long-lived", "schemes": ("ecmp",), "series": "100ms"}
    return recoveries(outcome, Settings.of({**values, "duration": "1s", "faults": tuple(faults), **settings}))


@pytest.mark.parametrize(
    ("goodput", "faults", "expected"),
    [
        ([10, 10, 10, 2, 5, 9, 10, 10, 10, 10], ["300ms:down:c0"], [(0.3, 0.3)]),
        ([10, 10, 10, 10, 2, 5, 9, 10, 10, 10], ["300ms:down:c0"], [(0.3, 0.4)]),
        ([10, 10, 10, 9.5, 9.1, 10, 10, 10, 10, 10], ["300ms:loss:c0:0.1"], [(0.3, 0.0)]),
        ([10, 10, 10, 2, 2, 2, 2, 2, 2, 2], ["300ms:down:c0"], [(0.3, None)]),
        (
            [10, 10, 10, 2, 2, 10, 2, 2, 10, 10],
            ["300ms:down:c0", "400ms:up:c0", "600ms:down:c1"],
            [(0.3, 0.3), (0.6, 0.3)],
        ),
        ([0, 0, 0, 5, 5, 5, 5, 5, 5, 5], ["300ms:down:c0"], []),
        ([10] * 10, ["300ms:up:c0"], []),
        ([10] * 10, ["2s:down:c0"], []),
        ([10, 10, 2, 10, 10, 10, 10, 10, 10, 10], ["250ms:down:c0", "250ms:down:c1"], [(0.25, 0.15)]),
    ],
)
def test_recovery_is_read_from_the_goodput(
    goodput: list[float], faults: list[str], expected: list[tuple[float, float | None]]
) -> None:
    assert [(one.at_s, one.took_s) for one in found(goodput, faults)] == expected


def test_an_unknown_time_to_recover_is_noted() -> None:
    settings: dict[str, Any] = {"fabric": "dumbbell:rate=10Mbps", "traffic": "long-lived", "schemes": ["ecmp"]}
    result = pathloom.compare(**settings, duration="1s", series="2s", faults=["500ms:down:e0-e1", "600ms:up:e0-e1"])
    said = [note for note in result.notes if "is unknown" in note]
    assert said == [
        "the time to recover from the fault at 500 ms is unknown: there was no goodput in the steps of 2s that ended "
        "before it"
    ]
    known = pathloom.compare(**settings, duration="1s", series="100ms", faults=["500ms:down:e0-e1", "2s:down:e0-e1"])
    assert not any("is unknown" in note for note in known.notes)


def test_a_fault_of_a_cable_is_recovered_from() -> None:
    settings: dict[str, Any] = {
        "fabric": "diamond:rate=10Mbps,hosts=2",
        "traffic": "long-lived",
        "duration": "2s",
        "runs": 2,
        "faults": ["500ms:down:e0-c0"],
    }
    with_series = pathloom.compare(schemes=["ecmp", "spt"], series="20ms", **settings)
    for scheme in with_series.summary["schemes"]:
        recovery = scheme["recovery_s"]
        assert recovery["faults"] == 2
        assert [run["recovery_s"]["faults"] for run in scheme["runs"]] == [1, 1]
        assert recovery["max"] is None or 0 <= recovery["mean"] <= recovery["max"] <= 1.5
    row = with_series.table.row(0, named=True)
    assert {"recovery_mean_s", "recovery_max_s", "recovery_faults", "recovery_unrecovered"} <= set(row)
    assert any("goodput was back" in note or "goodput did not fall" in note for note in with_series.notes)
    without = pathloom.compare(schemes=["ecmp"], **settings)
    assert without.summary["schemes"][0]["recovery_s"] is None
    assert "recovery_mean_s" not in without.table.columns
