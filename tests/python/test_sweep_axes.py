"""The axes of a sweep: allowed settings, allowed names, and their values in plots."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pathloom
from geometry import troubles
from pathloom.experiments.sweeps.plan import SweepPlan
from pathloom.report.sweep_plots import plots as sweep_plots

AXES = {"fabric": "diamond", "traffic": "hadoop:load=0.5", "schemes": ["ecmp"], "duration": "10ms", "runs": 1}


def test_schemes_and_numbers_can_be_axes(tmp_path: Path) -> None:
    plan = SweepPlan.of(
        {
            "fabric": "diamond",
            "traffic": "long-lived",
            "schemes": ["{scheme}", "hedera:period={period}"],
            "runs": "{runs}",
            "seed": 5,
            "fault": "{when}:down:s1-s2",
            "grid": {"scheme": ["ecmp", "spt"], "period": ["1s", "2s"], "runs": [1, 2], "when": ["10ms"]},
        }
    )
    assert len(plan.points) == 8
    point = plan.points[-1]
    assert point.settings.schemes == ("spt", "hedera:period=2s")
    assert (point.settings.runs, point.settings.faults) == (2, ("10ms:down:s1-s2",))
    assert plan.series(point) == ["spt", "hedera:period={period}"]
    assert plan.scheme_axes == ["scheme"]


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"traffic": "hadoop:load={run}"}, "run"),
        ({"traffic": "hadoop:load={runs}"}, "runs"),
        ({"traffic": "hadoop:load={scheme}"}, "scheme"),
        ({"traffic": "hadoop:load={throughput_mean}"}, "throughput_mean"),
        ({"traffic": "hadoop:load={fct_p99_censored}"}, "fct_p99_censored"),
        ({"seed": "{seed}", "runs": 2}, "seed"),
    ],
)
def test_an_axis_may_not_have_the_name_of_a_column(settings: dict[str, Any], name: str) -> None:
    values = [1, 2] if name == "seed" else [0.2, 0.4]
    with pytest.raises(pathloom.PathloomError) as raised:
        SweepPlan.of({**AXES, **settings, "grid": {name: values}})
    assert str(raised.value) == (
        f"sweep: {name}: is the name of a column of the tables; choose another name for the axis"
    )


def test_an_axis_may_have_the_name_of_a_column_that_has_its_values(tmp_path: Path) -> None:
    for name in ("seed", "runs"):
        settings = {**AXES, name: f"{{{name}}}", "grid": {name: [1, 2]}}
        assert pathloom.sweep(settings, tmp_path / name).table[name].to_list() == [1, 2]
        with pytest.raises(pathloom.PathloomError, match=f"{name}: --until adds runs"):
            pathloom.sweep(settings, tmp_path / name, until="ci=50%")
    in_schemes = {**AXES, "schemes": ["{scheme}"], "grid": {"scheme": ["ecmp", "spt"]}}
    assert pathloom.sweep(in_schemes, tmp_path / "scheme").runs["scheme"].to_list() == ["ecmp", "spt"]


def test_long_values_of_an_axis_cover_no_others(tmp_path: Path) -> None:
    faults = ["50ms:degrade:c0-e1:1Mbps", "50ms:loss:c0-e1:0.01", "50ms:flap:c0-e1:10ms/20ms/3"]
    values = {
        "fabric": "diamond:rate=10Mbps",
        "traffic": "hadoop:load={load}",
        "schemes": ["ecmp"],
        "duration": "1s",
        "runs": 1,
        "faults": ["{fault}"],
        "grid": {"fault": faults, "load": [0.3, 0.5, 0.7]},
    }
    result = pathloom.sweep(values, tmp_path / "out")
    for plot in sweep_plots(result):
        assert "Fct" not in plot.title and not plot.says.startswith(plot.title)
        if plot.name.endswith("-by-load"):
            assert plot.figure.axes[0].get_xticks().tolist() == [0.3, 0.5, 0.7]
        leaving = [trouble for trouble in troubles(plot.figure) if "leaves the page" in trouble]
        assert leaving == [], plot.name
        if plot.name.endswith("-by-fault"):
            for axes in plot.figure.axes:
                labels = axes.get_xticklabels()
                assert [label.get_text() for label in labels] == faults
                # For rotated texts, the distance between their lines matters, not their rectangles.
                xs = [axes.transData.transform((place, 0.0))[0] for place in axes.get_xticks()]
                apart_px = min(np.diff(xs)) * math.sin(math.radians(float(labels[0].get_rotation())))
                assert apart_px > float(labels[0].get_fontsize()) * plot.figure.dpi / 72, plot.name
