"""`result.plot`: the pictures of the report, drawn into axes of the user."""

from __future__ import annotations

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

import pathloom as pl
from pathloom.api.results import Result
from pathloom.report.palette import looks

mpl.use("agg")
SCHEMES = ["spt", "ecmp"]


@pytest.fixture(scope="module")
def result() -> Result:
    return pl.compare(
        fabric="fat-tree:k=4,rate=10Mbps", traffic="hadoop:load=0.5", schemes=SCHEMES, duration="1s", runs=1
    )


@pytest.mark.parametrize("name", ["throughput_cdf", "fct_cdf", "fct_by_size", "slowdown_by_size", "link_ranks"])
def test_a_picture_is_drawn_into_the_axes_that_are_given(result: Result, name: str) -> None:
    # A figure without a canvas of ours, as in a program with its own windows.
    axes = Figure().add_subplot()
    assert getattr(result.plot, name)(ax=axes) is axes
    look = looks(SCHEMES)
    drawn = {line.get_label(): line.get_color() for line in axes.lines}
    assert drawn == {scheme: look[scheme].colour for scheme in SCHEMES}
    assert axes.get_xlabel() and axes.get_ylabel()
    assert axes.get_legend() is not None


def heights(line: Line2D) -> list[float]:
    return [float(y) for y in np.asarray(line.get_ydata())]


def test_a_median_is_that_of_the_flows(result: Result) -> None:
    axes = result.plot.fct_by_size()
    assert isinstance(axes, Axes)
    small = result.flows.filter(
        (result.flows["scheme"] == "ecmp") & (result.flows["size_bytes"] < 10_000) & result.flows["age_s"].is_not_null()
    )
    ecmp = next(line for line in axes.lines if line.get_label() == "ecmp")
    assert small.height > 2
    assert heights(ecmp)[0] == pytest.approx(small["age_s"].median())
    above = heights(result.plot.fct_by_size(quantile=0.95).lines[0])
    assert all(high >= low for high, low in zip(above, heights(axes.lines[0]), strict=True))


def test_what_cannot_be_drawn_is_named(result: Result) -> None:
    endless = pl.run(scheme="ecmp", fabric="diamond", traffic="long-lived", duration="50ms")
    with pytest.raises(pl.PathloomError, match=r"plot\.fct_cdf: the result has no such flows"):
        endless.plot.fct_cdf()
    with pytest.raises(pl.PathloomError, match=r"plot\.fct_by_size: quantile: 95 is not valid"):
        result.plot.fct_by_size(quantile=95)
