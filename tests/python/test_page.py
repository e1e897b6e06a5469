"""How a browser lays the report and the cell of a notebook out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import synthetic
from browser import ask
from pathloom.experiments.result import Result
from pathloom.fabrics import fat_tree
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
    assert found["images"] == 6
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


def test_the_cell_of_a_notebook_tells_of_runs_that_are_missing() -> None:
    cell = synthetic.result(fat_tree(k=2), {"spt": 1.0, "ecmp": 1.0}, runs=2, flows=30, interrupted=True)._repr_html_()
    assert "2 of 4 runs were finished" in cell
