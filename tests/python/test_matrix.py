"""The matrix of links in reports on large fabrics, and the colours that the report shares with the page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import synthetic
from geometry import troubles
from pathloom.fabrics import Fabric, fat_tree, jellyfish, leaf_spine
from pathloom.report.dark import DARK_STEPS, LIGHT_STEPS
from pathloom.report.html import plain_table
from pathloom.report.matrix import blocks
from pathloom.report.plots import plots
from pathloom.report.tables import Table

WEB = Path(__file__).resolve().parents[2] / "web/src"


@pytest.mark.parametrize("fabric", [fat_tree(k=4), leaf_spine(), jellyfish()], ids=lambda fabric: fabric.spec)
def test_every_link_has_exactly_one_cell(fabric: Fabric) -> None:
    shown = blocks(fabric)
    cells = sorted(link for block in shown for column in block.links for link in column)
    assert cells == list(range(len(fabric.links["source"])))
    for block in shown:
        for node, links in zip(block.columns, block.links, strict=True):
            assert all(node in (fabric.links["source"][link], fabric.links["target"][link]) for link in links)
            assert fabric.nodes[node]["tier"] != "host"


def test_the_ways_of_a_fat_tree_are_blocks_with_pods_side_by_side() -> None:
    fabric = fat_tree(k=4)
    assert [block.label for block in blocks(fabric)] == [
        "hosts → ToRs",
        "ToRs → aggregation",
        "aggregation → cores",
        "cores → aggregation",
        "aggregation → ToRs",
        "ToRs → hosts",
    ]
    for block in blocks(fabric):
        pods = [fabric.nodes[node]["pod"] for node in block.columns]
        assert pods == sorted(pods) == [0, 0, 1, 1, 2, 2, 3, 3]


def test_the_report_of_1024_hosts_is_below_2_mb_and_readable() -> None:
    result = synthetic.result(fat_tree(k=16), {"ecmp": 1.0, "hedera": 1.2}, runs=1, flows=300)
    assert len(result.report()) < 2_000_000
    (picture,) = [plot for plot in plots(result) if plot.name == "link-heat-map"]
    assert "Each cell is one link" in picture.says
    assert troubles(picture.figure) == []


def test_page_and_report_have_the_same_colours_of_utilisation() -> None:
    text = (WEB / "colours.ts").read_text(encoding="utf-8")
    for name, steps in (("LIGHT", LIGHT_STEPS), ("DARK", DARK_STEPS)):
        (written,) = re.findall(rf"const {name} = \[(.*?)\];", text)
        assert tuple(re.findall(r"#[0-9a-f]{6}", written)) == steps


def test_columns_without_any_value_are_left_out() -> None:
    table = Table(["scheme", "kept", "empty", "unknown"], [["a", "1", "", "–"], ["b", "–", "", "–"]], [None] * 4)
    html = plain_table(table, "Example")
    assert re.findall(r'<th scope="col">(\w+)</th>', html) == ["scheme", "kept"]
    assert "<td>–</td>" in html
