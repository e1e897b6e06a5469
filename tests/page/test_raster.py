"""The lines that the page draws as pixels (web/src/raster.ts), compared with those of Chromium's canvas."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

WEB = Path(__file__).resolve().parents[2] / "web"
COMPARE = """([lineWidth, ends]) => {
    const [width, height] = [120, 80];
    const canvas = Object.assign(document.createElement('canvas'), { width, height });
    const context = canvas.getContext('2d', { alpha: false });
    const raster = new raster_ts.Raster(width, height);
    raster.fill(raster_ts.pixelOf(context, '#fff'));
    context.fillStyle = '#fff';
    context.fillRect(0, 0, width, height);
    context.strokeStyle = '#3366cc';
    context.lineWidth = lineWidth;
    const colour = raster_ts.pixelOf(context, '#3366cc');
    for (const [fromX, fromY, toX, toY] of ends) {
        context.beginPath();
        context.moveTo(fromX, fromY);
        context.lineTo(toX, toY);
        context.stroke();
        raster.line(fromX, fromY, toX, toY, lineWidth, colour);
    }
    const reference = context.getImageData(0, 0, width, height).data;
    let [ours, theirs, apart] = [0, 0, 0];
    raster.image.data.forEach((value, at) => {
        ours += 255 - value;
        theirs += 255 - reference[at];
        apart += Math.abs(value - reference[at]);
    });
    const at = (x, y) => [...raster.image.data.slice(4 * (y * width + x), 4 * (y * width + x) + 4)];
    return { ours, theirs, apart, middle: at(60, 40), corner: at(2, 77) };
}"""
STAR = [
    (60, 40, 60 + dx, 40 + dy) for dx, dy in [(0, 35), (9, -35), (-30, 33), (50, 20), (-50, 3), (-50, 0), (31, -31)]
]


@pytest.fixture(scope="module")
def page(browser: Browser) -> Iterator[Page]:
    command = ["node_modules/.bin/esbuild", "src/raster.ts", "--bundle", "--format=iife", "--global-name=raster_ts"]
    code = subprocess.run(command, cwd=WEB, capture_output=True, text=True, check=True).stdout
    one = browser.new_page()
    one.evaluate(code.replace("var raster_ts", "window.raster_ts", 1))
    yield one
    one.close()


@pytest.mark.parametrize("line_width", [0.5, 1, 1.3, 3, 8])
def test_lines_look_like_those_of_the_canvas(page: Page, line_width: float) -> None:
    found = page.evaluate(COMPARE, [line_width, STAR])
    # The canvas draws lines of at most a pixel a tenth too light, and cuts ends at right angles to the line.
    assert abs(found["ours"] - found["theirs"]) < (0.05 if line_width > 1 else 0.13) * found["theirs"]
    assert found["apart"] < (0.2 if line_width > 1 else 0.5) * found["theirs"]
    if line_width >= 3:
        assert found["middle"] == [0x33, 0x66, 0xCC, 255]
    assert found["corner"] == [255, 255, 255, 255]


def test_lines_that_leave_the_picture_are_cut_off(page: Page) -> None:
    ends = [(60, 40, 9000, 7000), (60, 40, -5000, 30), (60, 40, 70, -30_000), (-900, 90, 900, 85), (130, -5, 135, 500)]
    found = page.evaluate(COMPARE, [2, ends])
    assert abs(found["ours"] - found["theirs"]) < 0.05 * found["theirs"]
    assert found["apart"] < 0.15 * found["theirs"]


def test_two_halves_of_a_line_leave_no_gap_and_do_not_overlap(page: Page) -> None:
    halves = [(10.2, 5.3, 41.7, 33.1), (73.2, 60.9, 41.7, 33.1)]
    two = page.evaluate(COMPARE, [0.7, halves])["ours"]
    one = page.evaluate(COMPARE, [0.7, [(10.2, 5.3, 73.2, 60.9)]])["ours"]
    assert abs(two - one) < 0.002 * one
