"""The layout of the report and of the cell of a notebook in a browser."""

from __future__ import annotations

import itertools
import math
import re
from importlib.resources import files
from pathlib import Path

import pytest
from matplotlib.colors import to_rgb

import synthetic
from browser import ask
from pathloom.api.results import Result
from pathloom.fabrics import fat_tree
from pathloom.report.dark import with_dark_mode
from pathloom.report.palette import DARK, looks
from test_pictures import EIGHT

LAID_OUT = r"""
const troubles = [];
const texts = (element) => {
  const range = document.createRange();
  range.selectNodeContents(element);
  return [...range.getClientRects()].filter((one) => one.width > 0.5);
};
const meet = (a, b) => a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 1 && b.top < a.bottom - 1;
for (const table of document.querySelectorAll("table")) {
  const cells = [...table.querySelectorAll("th, td")].map((cell) => [cell, texts(cell)]);
  for (const [cell, own] of cells) {
    const box = cell.getBoundingClientRect();
    if (own.some((one) => one.left < box.left - 1 || one.right > box.right + 1))
      troubles.push(`${cell.textContent} reaches out of its cell`);
    for (const [other, theirs] of cells)
      if (other !== cell && own.some((one) => theirs.some((two) => meet(one, two))))
        troubles.push(`${cell.textContent} covers ${other.textContent}`);
  }
}
for (const image of document.images)
  if (!image.naturalWidth || image.getBoundingClientRect().right > window.innerWidth)
    troubles.push(`${image.alt} is not shown in whole`);
if (document.documentElement.scrollWidth > window.innerWidth) troubles.push("the page is wider than the window");
return {width: window.innerWidth, tables: document.querySelectorAll("table").length, images: document.images.length,
  troubles};
"""

STYLES = r"""
const keys = ["color", "backgroundColor", "fontSize", "fontFamily", "margin", "padding", "borderBottom", "display",
  "maxWidth", "textAlign", "whiteSpace"];
return [...document.querySelectorAll(".host, .host *:not(.pathloom-result, .pathloom-result *)")].map((element) => {
  const style = window.getComputedStyle(element);
  return [element.tagName, ...keys.map((key) => style[key])];
});
"""

NOTEBOOK = (
    "<!DOCTYPE html><style>body { font: 13px serif; } td { text-align: center; }</style>"
    '<body class="host"><h1 class="host">Title</h1><h2 class="host">Part</h2><p class="host under headline">Text</p>'
    '<table class="host schemes many wide"><thead><tr><th>a</th><th>b</th></tr></thead>'
    '<tbody><tr><th>c</th><td class="best">1</td></tr></tbody></table>'
    '<figure class="host"><figcaption>x</figcaption></figure><pre class="host"><code>y</code></pre>CELL</body>'
)


@pytest.fixture(scope="module")
def result() -> Result:
    speeds = {scheme: 0.4 + 0.2 * place for place, scheme in enumerate(EIGHT)}
    return synthetic.result(fat_tree(k=4), speeds, runs=2, flows=300, unfinished=2)


@pytest.mark.parametrize("width_px", [600, 1400])
@pytest.mark.parametrize("schemes", [2, 8])
def test_no_cell_covers_another_and_nothing_is_wider_than_the_window(
    result: Result, width_px: int, schemes: int, tmp_path: Path
) -> None:
    if schemes == 2:
        result = synthetic.result(fat_tree(k=4), {"spt": 0.6, "ecmp": 1.0}, runs=2, flows=300, unfinished=2)
    found = ask(result.report(), width_px, LAID_OUT, tmp_path)
    assert found["width"] == width_px
    assert found["tables"] >= 3
    assert found["images"] == 7
    assert found["troubles"] == []


def test_the_cell_of_a_notebook_is_small_and_leaves_the_notebook_alone(result: Result, tmp_path: Path) -> None:
    cell = result._repr_html_()
    assert len(cell) < 200_000 < len(result.report())
    assert not re.search(r"<(html|head|body|title|script|!doctype)", cell, re.IGNORECASE)
    (css,) = re.findall(r"<style>(.*?)</style>", cell, re.DOTALL)
    selectors = [one.strip() for group in re.findall(r"([^{}]+)\{[^{}]*\}", css) for one in group.split(",")]
    assert len(selectors) > 10
    assert all(one.startswith(".pathloom-result") for one in selectors), selectors
    shown = ask(NOTEBOOK.replace("CELL", cell), 1000, LAID_OUT, tmp_path)
    assert (shown["images"], shown["tables"], shown["troubles"]) == (2, 2, [])
    bare = ask(NOTEBOOK.replace("CELL", ""), 1000, STYLES, tmp_path)
    assert len(bare) > 10
    assert ask(NOTEBOOK.replace("CELL", cell), 1000, STYLES, tmp_path) == bare


def test_the_cell_of_a_notebook_names_missing_runs() -> None:
    cell = synthetic.result(fat_tree(k=2), {"spt": 1.0, "ecmp": 1.0}, runs=2, flows=30, interrupted=True)._repr_html_()
    assert "2 of 4 runs were finished" in cell


AXE = files("axe_core_python").joinpath("axe.min.js").read_text(encoding="utf-8")
VIOLATIONS = r"""
for (const folded of document.querySelectorAll("details")) folded.open = true;
return window.axe.run(document).then((found) => ({
  passes: found.passes.length,
  violations: found.violations.map((one) => `${one.id}: ${one.help}: ${one.nodes[0].html}`),
}));
"""


def with_axe(page: str) -> str:
    return page.replace("</head>", f"<script>{AXE}</script></head>", 1)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width_px", [600, 1400])
def test_axe_finds_no_barrier_in_the_report(result: Result, width_px: int, dark: bool, tmp_path: Path) -> None:
    found = ask(with_axe(result.report()), width_px, VIOLATIONS, tmp_path, dark=dark)
    assert found["passes"] > 20
    assert found["violations"] == []


def test_axe_finds_an_inserted_barrier(result: Result, tmp_path: Path) -> None:
    page = with_axe(result.report()).replace("</main>", '<p style="color: #ccc">faint</p><img src="x"></main>')
    found = "\n".join(ask(page, 1400, VIOLATIONS, tmp_path)["violations"])
    assert "color-contrast" in found and "image-alt" in found


BRIGHTNESS = r"""
const brightness = (image) => {
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = 40;
  const context = canvas.getContext("2d");
  context.drawImage(image, 0, 0, 40, 40);
  const pixels = context.getImageData(0, 0, 40, 40).data;
  let sum = 0;
  for (let place = 0; place < pixels.length; place += 4) sum += pixels[place] + pixels[place + 1] + pixels[place + 2];
  return sum / (pixels.length / 4) / 3;
};
const ground = window.getComputedStyle(document.body).backgroundColor.match(/\d+/g).map(Number);
return [...ground.slice(0, 3).map(Number), ...[...document.images].map(brightness)];
"""


def test_page_and_pictures_follow_the_preference_for_dark_pages(result: Result, tmp_path: Path) -> None:
    light = ask(result.report(), 1000, BRIGHTNESS, tmp_path)
    dark = ask(result.report(), 1000, BRIGHTNESS, tmp_path, dark=True)
    assert len(light) == len(dark) == 3 + 7
    assert min(light) > 180, light
    assert max(dark) < 80, dark


def test_pictures_with_pixels_are_not_changed() -> None:
    svg = '<svg><image href="x"/><path style="fill: #ffffff"/></svg>'
    assert with_dark_mode(svg) == svg


def test_no_two_schemes_look_alike_on_a_dark_page() -> None:
    """Checks distances in CIE Lab. One unit is about the smallest difference that an eye can see."""
    colours = [look.colour for look in looks(EIGHT).values()]
    for mode in ({}, DARK):
        places = [lab(mode.get(colour, colour)) for colour in colours]
        assert min(math.dist(one, other) for one, other in itertools.combinations(places, 2)) > 17


def lab(colour: str) -> tuple[float, float, float]:
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in to_rgb(colour)]
    weights = ((0.4124, 0.3576, 0.1805), (0.2126, 0.7152, 0.0722), (0.0193, 0.1192, 0.9505))
    white = (0.9505, 1.0, 1.089)
    sums = [sum(a * b for a, b in zip(row, linear, strict=True)) for row in weights]
    x, y, z = ((value / top) ** (1 / 3) for value, top in zip(sums, white, strict=True))
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def test_long_tables_of_pairs_are_folded_and_short_ones_are_not(result: Result) -> None:
    assert "<details><summary>All pairs" in result.report()
    few = synthetic.result(fat_tree(k=2), {"spt": 0.6, "ecmp": 1.0, "hedera": 1.2}, runs=2, flows=100)
    assert "<details open><summary>All pairs" in few.report()
