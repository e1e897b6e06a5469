"""The report has all its parts, and loads nothing from elsewhere."""

from __future__ import annotations

import base64
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from html import escape
from html.parser import HTMLParser
from pathlib import Path

import pytest
import yaml

import synthetic
from pathloom import __version__, compare
from pathloom.api.results import Result
from pathloom.experiments.results.definitions import DEFINITIONS, NOT_MODELLED
from pathloom.experiments.settings.identity import program_digest
from pathloom.fabrics import Fabric, fat_tree, jellyfish
from pathloom.report.cite import ADDRESS, AUTHORS, TITLE
from pathloom.report.palette import looks
from pathloom.report.plots import plots
from pathloom.report.tables import control_table, difference_table, main_table

ROOT = Path(__file__).resolve().parents[2]
VOID = {"meta", "img", "br", "wbr", "link", "input", "hr"}


class Checker(HTMLParser):
    """Proves that every tag is closed in order, and collects what the page refers to."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.references: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.references += [value or "" for name, value in attrs if name in ("src", "href")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def checked(html: str) -> Checker:
    checker = Checker()
    checker.feed(html)
    assert checker.open == []
    return checker


@pytest.fixture(scope="module")
def result() -> Result:
    return synthetic.result(fat_tree(k=4, rate="10Mbps"), {"spt": 0.6, "ecmp": 1.0, "hedera": 1.2}, unfinished=2)


@pytest.fixture(scope="module")
def report(result: Result) -> str:
    return result.report()


def test_the_page_loads_no_other_files(report: str) -> None:
    checker = checked(report)
    assert len(checker.references) == 7
    assert all(reference.startswith("data:image/svg+xml;base64,") for reference in checker.references)
    without_pictures = re.sub(r'data:[^"]+|<pre class="cite">.*?</pre>', "", report, flags=re.DOTALL)
    assert not re.search(r"https?://|@import|<script", without_pictures)


def test_every_picture_is_well_formed(report: str) -> None:
    for picture in checked(report).references:
        svg = base64.b64decode(picture.partition(",")[2])
        assert ET.fromstring(svg).tag.endswith("svg")


def test_tables_settings_definitions_and_the_command_are_present(result: Result, report: str) -> None:
    for cell in (cell for row in main_table(result.summary["schemes"]).rows for cell in row[1:]):
        assert cell.partition(" ± ")[0] in report
    for word in ("fat-tree:k=4,rate=10Mbps", "web-search:load=0.4", "made up", "control messages", "seeds 1 to 3"):
        assert word in report
    for word, _ in DEFINITIONS:
        assert f"<dt>{escape(word)}</dt>" in report
    assert "pathloom compare --fabric fat-tree:k=4,rate=10Mbps --traffic web-search:load=0.4" in report
    assert "--schemes spt,ecmp,hedera --duration 10s --runs 3 --seed 1" in report


def test_the_report_says_how_to_cite_it_and_what_is_not_modelled(report: str) -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    for key, word in {"title": TITLE, "repository-code": ADDRESS, "version": __version__}.items():
        assert citation[key] == word
        assert f"{{{word}}}" in report
    assert [author["name"] for author in citation["authors"]] == [AUTHORS]
    assert f"build {program_digest()[:8]}" in report
    assert "<dt>hedera</dt><dd>Al-Fares et al., Hedera, NSDI 2010</dd>" in report
    for word, _ in NOT_MODELLED:
        assert f"<dt>{escape(word)}</dt>" in report


def test_unfinished_flows_are_named(result: Result, report: str) -> None:
    rows = result.flows.filter(~result.flows["finished"])
    assert rows.height == 18
    for row in rows.iter_rows(named=True):
        assert f"{row['src']} → {row['dst']}" in report
    assert "18 flows were not complete" in report


def test_names_cannot_break_the_page() -> None:
    nasty = Fabric.from_node_link(fat_tree(k=2).to_node_link(), "<script>alert(1)</script>&.json")
    html = synthetic.result(nasty, {"ecmp": 1.0}, flows=50).report()
    checked(html)
    assert "<script" not in html
    assert "&lt;script&gt;alert(1)" in html


def test_an_interrupted_run_is_marked_on_top() -> None:
    html = synthetic.result(fat_tree(k=2), {"spt": 1.0, "ecmp": 1.0}, runs=2, flows=30, interrupted=True).report()
    checked(html)
    assert "Interrupted.</strong> 2 of 4 runs" in html


def test_pictures_have_the_digits_of_the_tables(result: Result) -> None:
    (drawn,) = [plot for plot in plots(result) if plot.name == "means"]
    shown = [{text.get_text() for text in axes.texts} for axes in drawn.figure.axes]
    table = main_table(result.summary["schemes"])
    for place, heading in enumerate(("mean throughput", "mean FCT")):
        cells = [row[table.headings.index(heading)] for row in table.rows]
        # The half width is in the length of the line.
        assert shown[place] == {re.sub(r" ± [\d.]+", "", cell) for cell in cells}


def test_trimmed_packets_have_a_column_where_there_are_any() -> None:
    def control(keys: str) -> dict[str, str]:
        fabric = f"leaf-spine:spines=2,leaves=3,hosts=4,rate=10Gbps{keys}"
        traffic = "incast:senders=8,size=60KB"
        found = compare(fabric=fabric, traffic=traffic, transport="uec", schemes=["rps"], duration="1ms", runs=1)
        table = control_table(found.summary_of_schemes)
        return dict(zip(table.headings, table.rows[0], strict=True))

    assert control(",trim=on,queue_bytes=30KB")["packets trimmed"] not in ("0 %", "–")
    assert "packets trimmed" not in control("")


def test_long_lived_flows_get_no_pictures_of_fct() -> None:
    result = synthetic.result(fat_tree(k=2), {"ecmp": 1.0}, flows=8, long_lived=True)
    assert [plot.name for plot in plots(result)] == ["throughput-cdf", "link-heat-map", "link-ranks"]
    html = result.report()
    checked(html)
    assert "mean FCT" not in html
    assert "Unfinished" not in re.sub(r"<dt>.*?</dt>", "", html)


def test_other_fabrics_and_many_schemes() -> None:
    schemes = {f"hedera:period={period}s": 1.0 for period in range(1, 11)}
    result = synthetic.result(jellyfish(switches=12, ports=6, hosts=24), schemes, runs=1, flows=40)
    checked(result.report())


def test_equal_results_make_equal_pictures(result: Result) -> None:
    again = synthetic.result(fat_tree(k=4, rate="10Mbps"), {"spt": 0.6, "ecmp": 1.0, "hedera": 1.2}, unfinished=2)
    assert [plot.svg for plot in plots(result)] == [plot.svg for plot in plots(again)]


def test_the_report_is_the_same_from_run_to_run(result: Result, report: str) -> None:
    again = synthetic.result(fat_tree(k=4, rate="10Mbps"), {"spt": 0.6, "ecmp": 1.0, "hedera": 1.2}, unfinished=2)
    again.outcomes = [replace(outcome, wall_s=1000.0) for outcome in again.outcomes]
    assert again.summary["schemes"][0]["wall_s"] > 100 * result.summary["schemes"][0]["wall_s"]
    assert again.report() == report


def test_a_scheme_keeps_its_look_from_report_to_report() -> None:
    first, second = looks(["spt", "ecmp", "hedera"]), looks(["hedera", "mine", "ecmp"])
    assert first["hedera"] == second["hedera"]
    assert first["ecmp"] == second["ecmp"]
    variants = looks(["hedera:period=1s", "hedera:period=5s", "ecmp"])
    assert len({look.colour for look in variants.values()}) == 3
    many = looks([f"mine:period={number}s" for number in range(20)])
    assert len({(look.colour, look.hatch) for look in many.values()}) == 20, "bars of one colour have other hatches"


def test_differences_are_called_clear_only_when_they_are() -> None:
    fabric = fat_tree(k=2)
    apart = difference_table(synthetic.result(fabric, {"spt": 0.2, "ecmp": 3.0}, runs=6, flows=300).summary["schemes"])
    assert apart is not None
    assert apart.rows[0][0] == "ecmp − spt"
    assert apart.rows[0][2] == "more"
    assert apart.rows[0][4] == "shorter"
    # Names of the same length give the same random numbers, so these two schemes are equal.
    alike = difference_table(synthetic.result(fabric, {"aaa": 1.0, "bbb": 1.0}, runs=6, flows=300).summary["schemes"])
    assert alike is not None
    assert alike.rows[0][2] == alike.rows[0][4] == "equal within 1 %"


def test_a_lead_due_to_unfinished_flows_is_called_unknown() -> None:
    fabric = fat_tree(k=2)
    schemes = {"spt": 3.0, "ecmp": 0.2}
    table = difference_table(synthetic.result(fabric, schemes, runs=6, flows=300, unfinished=3).summary["schemes"])
    assert table is not None
    assert table.rows[0][2] == table.rows[0][4] == "unknown: flows are unfinished"


def test_a_single_run_is_not_called_clear() -> None:
    html = synthetic.result(fat_tree(k=2), {"spt": 0.6, "ecmp": 1.0}, runs=1, flows=100).report()
    assert "a single run: no confidence interval" in html


def test_means_of_unfinished_flows_are_drawn_as_bounds(result: Result) -> None:
    def marks(of: Result) -> list[list[str]]:
        return [[text.get_text()[0] for text in axes.texts] for axes in plots(of)[0].figure.axes]

    assert marks(result) == [["≤"] * 3, ["≥"] * 3]
    finished = synthetic.result(fat_tree(k=4, rate="10Mbps"), {"spt": 0.6, "ecmp": 1.0})
    assert all(text.isdigit() for texts in marks(finished) for text in texts)
