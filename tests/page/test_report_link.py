"""The report of a result, as the page offers it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

import pathloom
from conftest import Shown, Tab, axe, show


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An all-to-all in which the cable of host h5 is slow."""
    folder = tmp_path_factory.mktemp("results") / "job"
    pathloom.compare(
        fabric="leaf-spine:spines=4,leaves=4,hosts=4,rate=100Gbps,degrade=h5-e1:25Gbps",
        traffic="all-to-all:size=100KB",
        schemes=["ecmp", "rps"],
        duration="10ms",
        until="finished",
        runs=1,
        transport="dctcp",
    ).save(folder)
    return folder


@pytest.fixture(scope="module")
def shown_job(job: Path) -> Iterator[Shown]:
    yield from show(job)


@pytest.mark.parametrize("width", [1400, 600])
def test_the_pictures_of_ranks_are_one_click_away(shown_job: Shown, tab: Tab, width: int) -> None:
    page = tab.open(shown_job.url)
    page.set_viewport_size({"width": width, "height": 800})
    with page.expect_popup() as opened:
        page.get_by_role("link", name="Ranks").click()
    report = opened.value
    expect(report).to_have_url(f"{shown_job.url}report.html#rank-timeline")
    picture = report.get_by_role("img", name="Ranks over time")
    expect(picture).to_be_in_viewport()
    assert picture.evaluate("image => image.naturalWidth") > 100, "the picture may be loaded"
    assert report.evaluate("getComputedStyle(document.documentElement).getPropertyValue('--paper')"), "styles apply"
    assert report.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert axe(page) == []


def test_results_without_jobs_have_a_report_but_no_ranks(shown: Shown, tab: Tab) -> None:
    page = tab.open(shown.url)
    expect(page.get_by_role("link", name="Report")).to_have_attribute("href", "report.html")
    expect(page.get_by_role("link", name="Ranks")).to_have_count(0)


@pytest.fixture
def shown_without_report(job: Path, tmp_path: Path) -> Iterator[Shown]:
    for file in job.iterdir():
        if file.name != "report.html" and file.is_file():
            (tmp_path / file.name).write_bytes(file.read_bytes())
    yield from show(tmp_path)


# The tab comes last, so that it is closed before its server.
def test_a_folder_without_its_report_has_no_link(shown_without_report: Shown, tab: Tab) -> None:
    page = tab.open(shown_without_report.url)
    expect(page.get_by_label("Scheme")).to_be_visible()
    expect(page.get_by_role("link", name="Report")).to_have_count(0)
