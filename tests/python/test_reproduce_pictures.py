"""Pictures and tables of published figures."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest

from pathloom.reproduction import measure, pictures, texts
from pathloom.reproduction.definitions import Figure
from pathloom.reproduction.library import FOLDER
from reproducing import TINY, reproduced


@pytest.mark.parametrize("kind", ["bars", "lines", "ranks", "time", "starts"])
def test_every_kind_of_picture_is_drawn(kind: str) -> None:
    metric = {"ranks": "throughput", "starts": "settled_rate"}.get(kind, "fct_mean")
    plot = {**TINY["plot"], "kind": kind, "metric": metric}
    setup = {**TINY["setup"], "sample": "20ms", "runs": 1}
    result = reproduced(Figure.model_validate({**TINY, "plot": plot, "setup": setup}))
    root = ET.fromstring(pictures.picture(result).svg)
    assert root.tag.endswith("svg")
    assert len(root.findall(".//{http://www.w3.org/2000/svg}path")) > 10


def test_every_point_of_the_picture_is_a_row(tiny: measure.Reproduced) -> None:
    rows = tiny.as_json()["rows"]
    assert [row["label"] for row in rows[6:]] == ["TCP, load 0.5", "ecmp, load 0.5"]
    assert all(row["published"] is None and row["measured"] > 0 for row in rows[6:])
    assert set(rows[0]) >= {"label", "unit", "published", "measured", "ci95", "difference", "cause"}


def test_printed_rows_fit_the_measured_values(tiny: measure.Reproduced) -> None:
    rows = texts.rows(tiny.published)
    assert rows[0][1] == "100 s"
    assert rows[0][3].startswith("−")
    assert rows[3][2:] == ["–", "–"]
    assert rows[4][1].startswith("≤ ")
    table = texts.measured_table(tiny)
    assert table is not None
    assert table[0] == ["load", "TCP", "ecmp"]
    assert [row[0] for row in table[1]] == ["0.2", "0.5"]
    assert dict(texts.setup_lines(tiny))["x"] == "0.2, 0.5"
    assert texts.command(tiny) == "pathloom reproduce ofpt/tiny"


def test_no_curve_is_cut_off(tiny: measure.Reproduced) -> None:
    """A flow may have more than its share of the link. The picture must include 120 %, and zero."""
    plot = tiny.figure.plot.model_copy(update={"kind": "ranks", "metric": "share"})
    figure = tiny.figure.model_copy(update={"plot": plot})
    data = {key: [replace(run, ranks={"share": [40.0, 120.0]}) for run in runs] for key, runs in tiny.data.items()}
    axes = pictures.picture(replace(tiny, figure=figure, data=data)).figure.axes[0]
    assert axes.dataLim.y1 == 120.0
    assert axes.get_ylim()[0] == 0.0
    assert axes.get_ylim()[1] > 120.0


def test_no_scheme_hides_another(tiny: measure.Reproduced) -> None:
    axes = pictures.picture(tiny).figure.axes[0]
    starts = [container[0].get_xdata()[0] for container in axes.containers]
    assert len(starts) == len(set(starts)) == 2
    assert sum(starts) / 2 == pytest.approx(0.2), "side by side, with the load in the middle"
    assert axes.get_ylim()[0] == 0.0, "nothing is below zero"


def test_a_picture_over_starting_times_measures_every_step() -> None:
    plot = {"kind": "starts", "metric": "settled_rate", "steps": 4, "from_bytes": 1000, "y": "Mbit/s"}
    figure = Figure.model_validate({**TINY, "plot": plot})
    assert [(measure.level, measure.from_bytes) for _, measure in figure.plot.measures()] == [
        (0.0, 1000),
        (0.25, 1000),
        (0.5, 1000),
        (0.75, 1000),
    ]


def test_the_terminal_names_installed_files_and_the_page_those_of_the_repository(
    tiny: measure.Reproduced,
) -> None:
    trace = FOLDER / "traces/one-flow.csv"
    assert trace.is_file()
    setup = tiny.figure.setup.model_copy(update={"traffic": f"flows:file={trace}"})
    result = replace(tiny, figure=tiny.figure.model_copy(update={"setup": setup}))
    assert dict(texts.setup_lines(result, where=str(FOLDER)))["traffic"] == f"flows:file={trace}"
    assert dict(texts.setup_lines(result))["traffic"] == "flows:file=published/traces/one-flow.csv"


def test_a_comparison_between_cases_is_not_a_published_point(tiny: measure.Reproduced) -> None:
    """The comparison is in per cent, the picture in another unit."""
    row = {"label": "more", "scheme": "spt", "metric": "fct_mean", "case": "0.5", "over_case": "0.2", "published": 0.0}
    result = reproduced(Figure.model_validate({**TINY, "rows": [row]}))
    labels = [line.label for line in result.lines]
    assert labels == ["more", "TCP, load 0.2", "ecmp, load 0.2", "TCP, load 0.5", "ecmp, load 0.5"]
    assert b"published" not in pictures.picture(result).svg
    assert b"published" in pictures.picture(tiny).svg


def test_powers_of_ten_are_numbers_on_a_picture() -> None:
    result = reproduced(Figure.model_validate({**TINY, "plot": {**TINY["plot"], "log": True}}))
    assert b"mathdefault" not in pictures.picture(result).svg


@pytest.mark.parametrize(("factor", "bottom"), [(1.0, 1.0), (0.02, 0.01)])
def test_bars_on_a_logarithmic_axis_are_seen_whole(
    factor: float, bottom: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = {("0.2", "spt"): 1.2, ("0.2", "ecmp"): 5.2, ("0.5", "spt"): 2.7, ("0.5", "ecmp"): 1.5}

    def value(_self: object, _measure: object, case: str, scheme: str) -> measure.Value:
        return measure.Value(factor * values[case, scheme], 0.1 * factor)

    plot = {**TINY["plot"], "kind": "bars", "log": True}
    result = reproduced(Figure.model_validate({**TINY, "plot": plot, "rows": []}))
    monkeypatch.setattr(measure.Reproduced, "value", value)
    axes = pictures.picture(result).figure.axes[0]
    lowest, highest = axes.get_ylim()
    assert lowest == pytest.approx(bottom)
    assert highest > 5.3 * factor
    labelled = [tick for tick in axes.get_yticks() if lowest <= tick <= highest]
    assert len(labelled) >= 2, "the eye can compare"
