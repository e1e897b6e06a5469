"""The page of `pathloom show` in a real Chromium."""

from __future__ import annotations

import itertools
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path

import polars as pl
import pytest
from playwright.sync_api import Browser, expect

import pathloom
from conftest import Shown, Tab, axe, pixels, show, slide, wait


def test_the_fabric_is_drawn_and_changes_over_time(shown: Shown, tab: Tab) -> None:
    page = tab.open(shown.url)
    expect(page).to_have_title("failing – Pathloom")
    picture = page.locator("canvas").first
    slide(page, 5)
    page.wait_for_timeout(500)
    before = picture.screenshot()
    slide(page, 20)
    expect(page.locator("output")).to_have_text("4.20 s")
    page.wait_for_timeout(500)
    assert picture.screenshot() != before, "other links are used 3 s later"
    expect(page.get_by_role("heading", name="Down")).to_be_visible()
    expect(page.locator(".links").last).to_contain_text("a0_0")
    slide(page, 5)
    expect(page.get_by_role("heading", name="Down")).to_have_count(0)


def test_down_links_are_dashed_in_their_colour(shown: Shown, tab: Tab) -> None:
    page = tab.open(shown.url)
    down = "#b3261e"
    slide(page, 5)
    page.wait_for_timeout(500)
    assert pixels(page, "canvas", down) < 20
    slide(page, 20)
    page.wait_for_timeout(500)
    assert pixels(page, "canvas", down) > 200


def test_no_cable_ends_in_mid_air(shown: Shown, tab: Tab) -> None:
    page = tab.open(f"{shown.url}#fabric?at=2")
    page.wait_for_timeout(500)
    # Where one half of a cable carries something and the other half nothing, the other half is drawn in its own colour.
    assert pixels(page, "canvas", "#8d96a1") > 50


def test_a_link_shows_its_flows_and_a_flow_its_path_and_why(shown: Shown, results: Path, tab: Tab) -> None:
    page = tab.open(shown.url)
    page.get_by_label("Scheme").select_option("hedera:period=1s")
    slide(page, 14)
    page.wait_for_timeout(600)
    # The half of the cable from e0_0 up to a0_1 is clicked where it is drawn: near e0_0.
    page.get_by_label("Find a node or a link").fill("e0_0")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=2)).to_have_text("e0_0")
    page.get_by_role("button", name="e0_0 → a0_1").first.click()
    expect(page.get_by_role("heading", level=2)).to_have_text("e0_0 → a0_1")
    expect(page.locator(".panel")).to_contain_text("Whole run")
    paths = pl.read_parquet(results / "way-series.parquet").filter(
        (pl.col("scheme") == "hedera:period=1s") & (pl.col("run") == 1)
    )
    moved = paths.filter(pl.col("why").is_not_null())
    assert moved.height > 0, "the case has flows that were moved"
    flow = int(moved["flow"][0])
    page.keyboard.press("Escape")
    page.get_by_label("Flows of a host").fill(moved["path"][0].split()[0])
    page.locator(".flows button", has_text=re.compile(f"^{flow}: ")).click()
    expect(page.get_by_role("heading", level=2)).to_contain_text(f"Flow {flow}:")
    expect(page.locator(".ways li")).to_have_count(1)
    expect(page.locator(".history")).to_contain_text("hedera put it on")
    expect(page.get_by_role("img", name="Goodput of the flow over time")).to_be_visible()
    page.get_by_role("button", name="← Back").click()
    expect(page.get_by_role("heading", level=2)).to_have_text("hedera:period=1s")


def test_a_flow_shows_the_paths_that_it_does_not_take(shown: Shown, results: Path, tab: Tab) -> None:
    # The utilisation of the paths in the panel is that of the step at 2 s.
    page = tab.open(f"{shown.url}#fabric?at=2")
    flows = pl.read_parquet(results / "way-series.parquet").filter(
        (pl.col("scheme") == "ecmp") & (pl.col("run") == 1) & (pl.col("path").str.split(" ").list.len() == 7)
    )
    flow, own = flows.select("flow", "path").row(0)
    nodes = own.split()
    page.get_by_label("Flows of a host").fill(nodes[0])
    page.locator(".flows button", has_text=re.compile(f"^{flow}: ")).click()
    others = page.locator(".alternatives button")
    expect(others).to_have_count(3)
    every = pathloom.Fabric("fat-tree:k=4").paths(nodes[0], nodes[-1])
    names = [text.split("\n")[0].replace(" – ", " ") for text in others.all_inner_texts()]
    assert sorted([*names, " ".join(nodes[1:-1])]) == sorted(" ".join(path) for path in every)
    links = pl.read_parquet(results / "link-series.parquet").filter(
        (pl.col("scheme") == "ecmp") & (pl.col("run") == 1) & ((pl.col("at_s") - 2).abs() < 1e-6)
    )
    rates = links.select("source", "target", "rate_bps").iter_rows()
    known = {(source, target): rate_bps / 10e6 for source, target, rate_bps in rates}
    shown_values = [text.split("\n")[1] for text in others.all_inner_texts()]
    for name, value in zip(names, shown_values, strict=True):
        hops = name.split()
        assert value != "down", "the switch is up at 2 s"
        most = max(known.get(pair, 0.0) for pair in itertools.pairwise(hops))
        assert abs(float(value.removesuffix(" %")) - 100 * most) <= 0.6, (name, value, most)
    orange = "#a8480a"
    before = pixels(page, "canvas.over", orange)
    others.first.click()
    expect(others.first).to_have_attribute("aria-pressed", "true")
    wait("the other path is drawn", lambda: pixels(page, "canvas.over", orange) > before + 100)
    others.first.click()
    expect(others.first).to_have_attribute("aria-pressed", "false")


def test_a_click_on_the_picture_selects(shown: Shown, tab: Tab) -> None:
    page = tab.open(shown.url)
    page.locator("canvas.over").focus()
    page.keyboard.press("ArrowRight")
    name = page.get_by_role("heading", level=2).inner_text()
    assert name in [f"{tier}{pod}_{index}" for tier in "ea" for pod in range(4) for index in range(2)]
    box = page.locator("canvas.over").bounding_box()
    assert box is not None
    heading = page.get_by_role("heading", level=2)
    # A horizontal line between ToRs and aggregation switches crosses links to click.
    for place in range(12, 96, 2):
        page.mouse.click(box["x"] + box["width"] * place / 100, box["y"] + box["height"] * 0.6)
        with suppress(AssertionError):
            expect(heading).to_have_text(re.compile("^e.* → "), timeout=300)
            return
    pytest.fail(f"no click selected a link of a ToR; the last one selected {heading.inner_text()}")


def test_the_keyboard_reaches_everything(shown: Shown, tab: Tab) -> None:
    page = tab.open(shown.url)
    page.keyboard.press(".")
    page.keyboard.press(".")
    page.keyboard.press(",")
    expect(page.locator("output")).to_have_text("400 ms")
    page.keyboard.press(" ")
    expect(page.get_by_role("button", name="Pause")).to_be_visible()
    page.keyboard.press(" ")
    expect(page.get_by_role("button", name="Play")).to_be_visible()
    page.keyboard.press("2")
    expect(page.locator("article.lane")).to_have_count(2)
    page.keyboard.press("1")
    expect(page.locator(".explorer")).to_be_visible()
    page.keyboard.press("/")
    page.keyboard.type("c3")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=2)).to_have_text("c3")
    page.locator("canvas.over").focus()
    page.keyboard.press("ArrowDown")
    below = page.get_by_role("heading", level=2)
    expect(below).not_to_have_text("c3")
    assert below.inner_text().startswith("a")
    page.keyboard.press("Enter")
    focused = page.evaluate("document.activeElement.tagName")
    assert focused == "BUTTON"
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.keyboard.press("Escape")
    expect(page.get_by_role("heading", level=2)).to_have_text("ecmp")


def test_two_schemes_race_on_one_time_axis(shown: Shown, tab: Tab) -> None:
    page = tab.open(shown.url + "#race")
    lanes = page.locator("article.lane")
    expect(lanes).to_have_count(2)
    expect(lanes.nth(0)).to_contain_text("ecmp")
    expect(lanes.nth(1)).to_contain_text("hedera")
    for name in (
        "Cumulative distribution of flow completion times",
        "Share of flows finished over time",
        "Goodput of all",
    ):
        expect(page.get_by_role("img", name=name)).to_be_visible()
    slide(page, 10)
    early = [int(lane.locator(".score").inner_text().split()[0]) for lane in lanes.all()]
    slide(page, 60)
    late = [int(lane.locator(".score").inner_text().split()[0]) for lane in lanes.all()]
    assert all(a < b for a, b in zip(early, late, strict=True)), (early, late)
    assert page.locator("figure path.line").count() == 6


def test_the_race_begins_at_the_time_of_the_slider(shown: Shown, tab: Tab) -> None:
    page = tab.open(shown.url)
    slide(page, 60)
    at = page.locator("output").inner_text()
    page.get_by_role("link", name="Race").click()
    lanes = page.locator("article.lane")
    expect(lanes).to_have_count(2)
    expect(page.locator("output")).to_have_text(at)
    expect(lanes.nth(0).locator(".score")).to_contain_text(re.compile("^[1-9][0-9]* of"))


def test_the_address_shows_the_same_view_to_others(shown: Shown, tab: Tab, browser: Browser) -> None:
    page = tab.open(shown.url)
    page.get_by_label("Scheme").select_option("hedera:period=1s")
    page.get_by_label("Run").select_option("2")
    slide(page, 14)
    page.get_by_label("Find a node or a link").fill("e0_0")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=2)).to_have_text("e0_0")
    parts = ("#fabric?", "scheme=hedera", "run=2", "at=3", "node=e0_0")
    wait("the address has the view", lambda: all(part in page.evaluate("location.href") for part in parts))
    other = Tab(browser, 1400, 900)
    seen = other.open(page.evaluate("location.href"))
    expect(seen.get_by_role("heading", level=2)).to_have_text("e0_0")
    expect(seen.get_by_label("Scheme")).to_have_value("hedera:period=1s")
    expect(seen.get_by_label("Run")).to_have_value("2")
    expect(seen.locator("output")).to_have_text(page.locator("output").inner_text())
    seen.get_by_role("button", name="← Back").click()
    expect(seen.locator(".panel")).to_contain_text("All 2 runs together")
    expect(seen.locator(".panel")).to_contain_text("Busiest links now, run 2")
    seen.goto(f"{shown.url}#race?a=hedera:period%3D1s&b=ecmp&at=6.4")
    expect(seen.locator("article.lane").nth(0)).to_contain_text("hedera")
    expect(seen.locator("article.lane").nth(1)).to_contain_text("ecmp")
    expect(seen.locator("output")).to_have_text("6.40 s")
    other.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1400, 3840])
@pytest.mark.parametrize("view", ["fabric", "race", "matrix"])
def test_no_view_scrolls_sideways_and_axe_finds_nothing(
    browser: Browser, shown: Shown, view: str, width: int, scheme: str
) -> None:
    tab = Tab(browser, width, {360: 740, 1400: 900, 3840: 2160}[width], scheme)
    page = tab.open(f"{shown.url}#{view}")
    slide(page, 20)
    page.wait_for_timeout(300)
    if view == "fabric":
        page.locator(".flows button").first.click()
        expect(page.get_by_role("heading", level=2)).to_contain_text("Flow")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(int(part) for part in ground[4:-1].split(",")) < 200) == (scheme == "dark"), ground
    assert axe(page) == []
    tab.close()


def test_a_result_without_series_shows_the_whole_run(tmp_path: Path, cli_results: Path, tab: Tab) -> None:
    for one in show(cli_results):
        page = tab.open(one.url)
        expect(page.locator("#time")).to_contain_text("--series")
        expect(page.locator(".links button").first).to_contain_text("%")
        page.locator(".flows button").first.click()
        expect(page.locator(".panel")).to_contain_text("Paths were not recorded")


@pytest.fixture
def cli_results(tmp_path: Path) -> Path:
    folder = tmp_path / "whole"
    pathloom.run(fabric="diamond:rate=10Mbps", traffic="hadoop:load=0.5", scheme="ecmp", duration="1s").save(folder)
    return folder


def test_nothing_can_be_changed_and_other_sites_are_refused(shown: Shown) -> None:
    def status(path: str, method: str = "GET", host: str | None = None) -> int:
        asked = urllib.request.Request(shown.url + path, method=method, headers={"Host": host} if host else {})
        try:
            with urllib.request.urlopen(asked, timeout=10) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            with error:
                return error.code

    assert status("v1/result") == 200
    assert status("v1/result", method="POST") == 501
    assert status("v1/result", host="evil.example") == 403
    assert status("..%2f..%2fetc/passwd") == 404
    for bad in (
        "v1/flows",
        "v1/flows?scheme=ecmp&run=9",
        "v1/frames?scheme=ecmp&run=x",
        "v1/flows?scheme=ecmp&run=1&order=x",
    ):
        assert status(bad) == 404, bad


def test_ctrl_c_ends_it_cleanly(results: Path) -> None:
    for one in show(results):
        one.process.send_signal(signal.SIGINT)
        assert one.process.wait(10) == 0
        assert one.process.stderr is not None and one.process.stderr.read() == ""


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere"], "no such folder"),
        (["."], "has no result.json"),
        (["RESULTS", "--listen", "192.0.2.1"], "cannot listen on 192.0.2.1"),
        (["RESULTS", "--port", "70000"], "65535"),
    ],
)
def test_bad_input_is_one_line(results: Path, tmp_path: Path, arguments: list[str], words: str) -> None:
    filled = [str(results) if word == "RESULTS" else word for word in arguments]
    command = [sys.executable, "-m", "pathloom", "show", *filled, "--no-browser"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=60, check=False)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr
    assert words in done.stderr
