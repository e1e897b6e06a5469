"""Makes the picture of the page in the documentation, `docs/images/page.png`, with Chromium.

`python scripts/page.py` runs a comparison in which a switch fails, opens its page, and takes a screenshot at a time
when the switch is down.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs/images/page.png"
CHROMIUM = "/usr/bin/chromium"
COMPARISON = (
    "compare --fabric fat-tree:k=4,rate=10Mbps,buffer=150 --traffic web-search:load=0.5 --schemes ecmp,ofpt "
    "--duration 20s --runs 1 --seed 1 --series 200ms --fault 8s:down:a0_0 --fault 14s:up:a0_0 --out web"
)
STEP = "49"
"""Step of the time slider: at 10 s, the switch is down."""


def main() -> int:
    """Takes the picture."""
    pathloom = [sys.executable, "-m", "pathloom"]
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([*pathloom, *COMPARISON.split()], cwd=folder, check=True, stdout=subprocess.DEVNULL)
        command = [*pathloom, "show", "web", "--no-browser"]
        with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as server:
            assert server.stdout is not None
            try:
                take(server.stdout.readline().split(": ", 1)[1].split()[0])
            finally:
                server.terminate()
    return 0


def take(url: str) -> None:
    """Opens the page, selects a time and a flow, and takes the picture."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1200, "height": 760}, color_scheme="light")
        page.goto(url)
        page.get_by_label("Time", exact=True).fill(STEP)
        page.locator(".links button").first.click()
        page.locator(".flows button").first.click()
        page.locator(".ways li").first.wait_for()
        time.sleep(1)
        page.screenshot(path=PICTURE)
        browser.close()


if __name__ == "__main__":
    sys.exit(main())
