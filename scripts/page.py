"""Makes the pictures of the page in the documentation, `docs/images/page*.png`, with Chromium.

`python scripts/page.py` runs two comparisons and opens their pages. In the first one a switch fails, and the picture is
of a time when it is down. The second one has 1,024 hosts, and one of the pods is unfolded.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parent.parent
IMAGES = ROOT / "docs/images"
CHROMIUM = "/usr/bin/chromium"


class Picture(NamedTuple):
    """A comparison, and what its page shows."""

    comparison: str
    view: str
    """The part of the address behind `#`. At 10 s, the switch is down."""
    with_flow: bool
    """Whether the longest flow of the fullest link is selected."""


PICTURES = {
    "page.png": Picture(
        "compare --fabric fat-tree:k=4,rate=10Mbps,buffer=150 --traffic web-search:load=0.5 --schemes ecmp,ofpt "
        "--duration 20s --runs 1 --seed 1 --series 200ms --fault 8s:down:a0_0 --fault 14s:up:a0_0",
        "fabric?at=10",
        True,
    ),
    "page-large.png": Picture(
        "compare --fabric fat-tree:k=16,rate=1Gbps --traffic web-search:load=0.1 --schemes ecmp,ofpt "
        "--duration 10ms --runs 1 --seed 1 --series 1ms",
        "fabric?at=0.008&open=pod-3",
        False,
    ),
}


def main() -> int:
    """Takes the pictures."""
    pathloom = [sys.executable, "-m", "pathloom"]
    for name, picture in PICTURES.items():
        with tempfile.TemporaryDirectory() as folder:
            comparison = [*pathloom, *picture.comparison.split(), "--out", "web"]
            subprocess.run(comparison, cwd=folder, check=True, stdout=subprocess.DEVNULL)
            command = [*pathloom, "show", "web", "--no-browser"]
            with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as server:
                assert server.stdout is not None
                try:
                    url = server.stdout.readline().split(": ", 1)[1].split()[0]
                    take(f"{url}#{picture.view}", picture.with_flow, IMAGES / name)
                finally:
                    server.terminate()
    return 0


def take(url: str, with_flow: bool, file: Path) -> None:
    """Opens the page and takes a picture."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1200, "height": 760}, color_scheme="light")
        page.goto(url)
        page.locator(".links button").first.wait_for()
        if with_flow:
            page.locator(".links button").first.click()
            page.locator(".flows button").first.click()
            page.locator(".ways li").first.wait_for()
        time.sleep(1)
        page.screenshot(path=file)
        browser.close()


if __name__ == "__main__":
    sys.exit(main())
