"""Widgets of notebooks in a real Chromium. The cell is a page of the test, which speaks the protocol of anywidget."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import FrameLocator, expect

import pathloom
from conftest import Tab

_CELL = """<!doctype html><html lang="en"><title>Cell</title><body><div id="cell"></div><script type="module">
import widget from "./widget.js";
const listeners = new Set();
const model = {
    get: (name) => window.state[name],
    on: (_, listener) => listeners.add(listener),
    off: (_, listener) => listeners.delete(listener),
    send: async (content) => {
        const answer = JSON.parse(await window.kernel(JSON.stringify(content)));
        for (const listener of listeners) listener(answer);
    },
};
window.remove = widget.render({ model, el: document.getElementById("cell") });
</script>"""


class Cell:
    """A cell whose messages go to a widget of this process, as a kernel carries them."""

    def __init__(self, tab: Tab, shown: Any) -> None:
        self.tab, self.asked = tab, []
        page = tab.page
        answers: list[dict[str, Any]] = []
        shown.send = answers.append

        def kernel(text: str) -> str:
            self.asked.append(json.loads(text))
            shown._handle_custom_msg(json.loads(text), [])
            return json.dumps(answers.pop())

        page.expose_function("kernel", kernel)
        page.add_init_script(f"window.state = {json.dumps({'height': shown.height})};")
        page.route("**/cell", lambda route: route.fulfill(body=_CELL, content_type="text/html"))
        page.route("**/widget.js", lambda route: route.fulfill(body=shown._esm, content_type="text/javascript"))
        page.goto("http://127.0.0.1:9/cell")

    asked: list[dict[str, Any]]

    @property
    def frame(self) -> FrameLocator:
        return self.tab.page.frame_locator("iframe")


@pytest.fixture
def cell(tab: Tab) -> Callable[[Any], Cell]:
    return lambda shown: Cell(tab, shown)


@pytest.fixture(scope="module")
def result() -> Iterator[pathloom.Result]:
    yield pathloom.compare(
        fabric="fat-tree:k=4,rate=10Mbps", traffic="web-search:load=0.4", schemes=["ecmp", "spt"], duration="2s",
        runs=1, series="200ms",
    )  # fmt: skip


def test_a_result_has_the_views_of_the_page(cell: Callable[[Any], Cell], result: pathloom.Result) -> None:
    frame = (shown := cell(pathloom.widget(result, height="700px"))).frame
    expect(frame.get_by_role("heading", level=2)).to_have_text("ecmp")
    expect(shown.tab.page.locator("iframe")).to_have_css("height", "700px")
    expect(frame.locator("nav#views a")).to_have_text(["Fabric", "Race", "Matrix"])
    frame.get_by_role("link", name="Race").click()
    expect(frame.locator("article.lane")).to_have_count(2)
    frame.get_by_role("link", name="Matrix").click()
    expect(frame.locator("table.matrix td").first).to_be_visible()
    frame.get_by_role("link", name="Fabric").click()
    frame.get_by_label("Scheme").select_option("spt")
    expect(frame.get_by_role("heading", level=2)).to_have_text("spt")
    frame.locator(".flows button").first.click()
    expect(frame.get_by_role("heading", level=2)).to_contain_text("Flow ")
    expect(frame.get_by_role("heading", name="Path", exact=True)).to_be_visible()
    assert {one["path"].split("?")[0] for one in shown.asked} >= {
        "page",
        "v1/result",
        "v1/fabric",
        "v1/flow",
        "v1/race",
    }


def test_a_fabric_shows_its_paths(cell: Callable[[Any], Cell]) -> None:
    frame = cell(pathloom.widget(pathloom.fat_tree(k=4, rate="10Mbps"))).frame
    expect(frame.locator(".facts")).to_contain_text("10.0 Mbit/s")
    expect(frame.locator(".legend")).not_to_contain_text("utilisation")
    frame.get_by_label("Find a node or a link").fill("h0 h15")
    frame.locator(".found button").first.click()
    expect(frame.locator(".panel")).to_contain_text("4 shortest paths")
    expect(frame.locator(".hop .number")).to_have_text(["10.0 Mbit/s"] * 6)
    expect(frame.locator(".panel")).not_to_contain_text("Flows")


def test_a_frame_that_is_loaded_again_works_and_a_removed_one_is_silent(
    cell: Callable[[Any], Cell], result: pathloom.Result
) -> None:
    shown = cell(pathloom.widget(result))
    page = shown.tab.page
    expect(shown.frame.get_by_role("heading", level=2)).to_have_text("ecmp")
    page.evaluate("document.body.append(document.querySelector('#cell'))")
    expect(shown.frame.get_by_role("heading", level=2)).to_have_text("ecmp")
    page.evaluate("window.remove()")
    before = len(shown.asked)
    shown.frame.get_by_label("Scheme").select_option("spt")
    page.wait_for_timeout(300)
    assert len(shown.asked) == before


def test_a_saved_result_is_shown_like_one_in_memory(result: pathloom.Result, tmp_path: Path) -> None:
    result.save(tmp_path / "saved", kinds=["svg"])
    addresses = [
        "v1/fabric", "v1/links?scheme=spt&run=1", "v1/times?scheme=spt&run=1",
        "v1/frames?scheme=spt&run=1&first=0&count=9",
        "v1/flows?scheme=ecmp&run=1&order=age_s", "v1/flow?scheme=ecmp&run=1&flow=1", "v1/race?scheme=ecmp&run=1",
        "v1/flows?scheme=ecmp&run=1&link=3&at_s=1", "v1/flow?scheme=ecmp&run=1&flow=99999", "v1/nowhere",
    ]  # fmt: skip
    said = []
    for what in (result, pathloom.load(tmp_path / "saved"), tmp_path / "saved"):
        shown = pathloom.widget(what)
        answers: list[dict[str, Any]] = []
        shown.send = answers.append
        for number, path in enumerate(addresses):
            shown._handle_custom_msg({"view": "1", "id": number, "path": path}, [])
        said.append(json.loads(json.dumps(answers, allow_nan=False)))
    assert [one["status"] for one in said[0]] == [200] * 8 + [404] * 2
    assert said[0] == said[1] == said[2]
