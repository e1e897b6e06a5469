"""A real Chromium, and the page of real results."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, expect, sync_playwright

import pathloom
from pathloom.waiting import await_event

CHROMIUM = "/usr/bin/chromium"
"""`make test-page` installs it (scripts/prepare.sh)."""
expect.set_options(timeout=30_000)
AXE = Path(__file__).resolve().parents[2] / "web/node_modules/axe-core/axe.min.js"


class Shown(NamedTuple):
    """A running `pathloom show`."""

    url: str
    process: subprocess.Popen[str]


@pytest.fixture(scope="session")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A comparison in which a switch fails and comes back, with series."""
    folder = tmp_path_factory.mktemp("results") / "failing"
    pathloom.compare(
        fabric="fat-tree:k=4,rate=10Mbps,buffer=150",
        traffic="web-search:load=0.5",
        schemes=["ecmp", "hedera:period=1s"],
        duration="8s",
        runs=2,
        series="200ms",
        faults=["3s:down:a0_0", "6s:up:a0_0"],
    ).save(folder)
    return folder


@pytest.fixture(scope="session")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A comparison on 1,024 hosts, in which a cable fails."""
    folder = tmp_path_factory.mktemp("large") / "k16"
    pathloom.compare(
        fabric="fat-tree:k=16,rate=1Gbps,buffer=100",
        traffic="long-lived:pattern=stride",
        schemes=["ecmp", "spt"],
        duration="20ms",
        runs=1,
        series="500us",
        faults=["10ms:down:a0_0-c1"],
    ).save(folder)
    return folder


@pytest.fixture(scope="session")
def shown(results: Path) -> Iterator[Shown]:
    yield from show(results)


@pytest.fixture(scope="session")
def shown_large(large: Path) -> Iterator[Shown]:
    yield from show(large)


def show(folder: Path) -> Iterator[Shown]:
    """Runs `pathloom show` on any free port."""
    command = [sys.executable, "-m", "pathloom", "show", str(folder), "--no-browser"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stderr is not None
    line = process.stdout.readline()
    assert "http://127.0.0.1:" in line, process.stderr.read()
    try:
        yield Shown(line.split(": ", 1)[1].split()[0], process)
    finally:
        process.terminate()
        process.wait(10)
        process.stdout.close()
        process.stderr.close()


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


class Tab:
    """A tab that records the errors of its page."""

    def __init__(self, browser: Browser, width: int, height: int, scheme: str = "light", **more: object) -> None:
        self.context: BrowserContext = browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme="dark" if scheme == "dark" else "light",
            **more,  # type: ignore[arg-type]
        )
        self.page: Page = self.context.new_page()
        self.problems: list[str] = []
        self.page.on("console", self._note)
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))

    def _note(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.problems.append(message.text)

    def open(self, url: str) -> Page:
        """Opens a page, and waits until its fabric is drawn."""
        self.page.goto(url)
        # The page allows no evaluation of text, so Playwright cannot wait within it.
        wait(
            "the fabric is drawn", lambda: self.page.evaluate("performance.getEntriesByName('fabric drawn').length > 0")
        )
        return self.page

    def close(self) -> None:
        """Closes the tab. Fails if the page reported an error."""
        self.context.close()
        assert self.problems == []


@pytest.fixture
def tab(browser: Browser) -> Iterator[Tab]:
    one = Tab(browser, 1400, 900)
    yield one
    one.close()


def wait(what: str, holds: Callable[[], object], deadline_s: float = 60) -> None:
    """Waits until a condition holds."""
    assert await_event(lambda: bool(holds()), deadline_s, 0.05), what


def slide(page: Page, step: int) -> None:
    """Moves the slider to a step."""
    page.get_by_label("Time", exact=True).fill(str(step))


_ROWS = """([canvas, colour]) => {
    const from = document.querySelector(canvas);
    const context = new OffscreenCanvas(from.width, from.height).getContext('2d', { willReadFrequently: true });
    context.drawImage(from, 0, 0);
    const { data } = context.getImageData(0, 0, from.width, from.height);
    const wanted = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
    const rows = new Array(from.height).fill(0);
    for (let at = 0; at < data.length; at += 4) {
        const far = wanted.reduce((sum, value, channel) => sum + Math.abs(data[at + channel] - value), 0);
        if (data[at + 3] > 200 && far < 24) rows[Math.floor(at / 4 / from.width)]++;
    }
    return rows;
}"""


def pixel_rows(page: Page, canvas: str, colour: str) -> list[int]:
    """Returns how many pixels of a colour each row of a canvas has."""
    return [int(count) for count in page.evaluate(_ROWS, [canvas, colour])]


def pixels(page: Page, canvas: str, colour: str) -> int:
    """Returns how many pixels of a colour a canvas has."""
    return sum(pixel_rows(page, canvas, colour))


def axe(page: Page) -> list[str]:
    """Returns the violations that axe finds on a page."""
    page.evaluate(AXE.read_text(encoding="utf-8"))
    found = page.evaluate("axe.run()")
    return [
        f"{one['id']}: {node['target']}: {node['failureSummary']}"
        for one in found["violations"]
        for node in one["nodes"]
    ]
