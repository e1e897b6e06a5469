"""The page of a live controller in a real Chromium: events, alarms, tokens, drains and schemes."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from playwright.sync_api import Browser, Page, expect

from conftest import Tab, axe, wait
from pathloom._core import PathloomError
from pathloom.native import program
from pathloom.remote import Controller, find_token, make_token


class Live(NamedTuple):
    """A controller without connected switches."""

    url: str
    operate: str
    read: str
    asked: Controller


API = re.compile(r"the API listens.*?127\.0\.0\.1:(\d+)")
COLOURS = re.compile(r"\x1b\[\d*m")


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    place = tmp_path_factory.mktemp("controller")
    read = make_token("looker", "read", place / "tokens").split()[-1]
    make_token("doer", "operate", place / "tokens")
    (place / "controller.toml").write_text(
        'fabric = { spec = "fat-tree:k=4,rate=10Mbps" }\nlisten = { address = "127.0.0.1:0" }\n'
        'discovery = { links = "off" }\n[api]\naddress = "127.0.0.1:0"\ntokens = "tokens"\n',
        encoding="utf-8",
    )
    with (place / "log").open("w") as log:
        process = subprocess.Popen([program(), "--config", str(place / "controller.toml")], stderr=log)
    operate = find_token(place / "tokens")

    def port() -> str | None:
        """The port that the kernel has chosen for the API."""
        found = API.search(COLOURS.sub("", (place / "log").read_text()))
        return found and found[1]

    wait("the API listens", port)
    url = f"http://127.0.0.1:{port()}"
    asked = Controller(url, operate)

    def drains() -> bool:
        """Whether the controller takes a switch out of service. It waits for switches first, and none connects here."""
        try:
            asked.ask("POST", "/v1/switches/c0/drain")
        except PathloomError:
            return False
        return True

    wait("drains are accepted", drains)
    asked.ask("POST", "/v1/switches/c0/undrain")
    yield Live(f"{url}/", operate, read, asked)
    process.terminate()
    assert process.wait(60) == 0


@pytest.fixture
def page(browser: Browser, live: Live) -> Iterator[Page]:
    """The page in a browser whose password is a token with role read."""
    tab = Tab(browser, 1400, 900, http_credentials={"username": "me", "password": live.read})
    yield tab.open(live.url)
    tab.problems = [text for text in tab.problems if "status of 409" not in text]
    tab.close()


def use_token(page: Page, token: str) -> None:
    page.get_by_label("Token").fill(token)
    page.get_by_role("button", name="Use").click()


def test_events_arrive_and_show_alarms(page: Page) -> None:
    expect(page.locator("#title")).to_contain_text("live")
    expect(page.locator("#title .badge")).to_contain_text("20 alarms")
    page.get_by_role("link", name="Operate").click()
    expect(page.locator(".alarms li.critical")).to_have_count(20)
    expect(page.locator(".alarms")).to_contain_text("c3 has no session")
    expect(page.get_by_role("region", name="Switches").locator("tbody tr")).to_have_count(20)


def test_the_matrix_has_a_cell_for_each_cable(page: Page) -> None:
    expect(page.locator("#title")).to_contain_text("live")
    page.get_by_role("link", name="Matrix").click()
    table = page.get_by_role("table", name=re.compile("aggregation and core"))
    expect(table.get_by_role("row")).to_have_count(9)
    expect(table.locator("button.cell")).to_have_count(16)
    # No switch is connected, so nothing is known about any cable.
    assert set(table.locator("button.cell").all_inner_texts()) <= {"–", "×down"}
    table.locator("button.cell").first.click()
    expect(page.get_by_role("heading", level=2)).to_have_text("a0_0 → c0")


def test_a_token_with_role_read_changes_nothing(page: Page, live: Live) -> None:
    page.get_by_role("link", name="Operate").click()
    expect(page.get_by_text("looker, role read")).to_be_visible()
    expect(page.get_by_role("button", name="Put in charge")).to_be_disabled()
    expect(page.get_by_role("button", name="Drain c0", exact=True)).to_be_disabled()
    # A browser also sends a password with requests that other sites cause. So a password changes nothing and starts no
    # dry run.
    use_token(page, live.read)
    page.get_by_label("Scheme").fill("hedera")
    page.get_by_role("button", name="Dry run").click()
    expect(page.locator(".prediction")).to_be_visible()
    assert live.asked.ask("GET", "/v1/state")["scheme"] == "ecmp"


def test_an_operator_drains_a_switch_and_takes_it_back_after_confirmation(page: Page, live: Live) -> None:
    page.get_by_role("link", name="Operate").click()
    use_token(page, live.operate)
    expect(page.get_by_text("doer, role operate")).to_be_visible()
    page.get_by_role("button", name="Drain c0", exact=True).click()
    page.get_by_role("button", name="Cancel").click()
    assert live.asked.ask("GET", "/v1/switches/c0")["drained"] is False
    page.get_by_role("button", name="Drain c0", exact=True).click()
    page.get_by_role("button", name="Take out of service").click()
    expect(page.get_by_role("button", name="Undrain c0")).to_be_visible()
    assert live.asked.ask("GET", "/v1/switches/c0")["drained"] is True
    page.get_by_role("button", name="Drain e0_0", exact=True).click()
    page.get_by_role("button", name="Take out of service").click()
    expect(page.locator(".answer")).to_contain_text("hosts are connected to e0_0")
    page.get_by_role("button", name="Undrain c0").click()
    page.get_by_role("button", name="Take back").click()
    expect(page.get_by_role("button", name="Drain c0", exact=True)).to_be_visible()
    assert live.asked.ask("GET", "/v1/switches/c0")["drained"] is False


def test_an_operator_drains_a_cable_in_the_picture(page: Page, live: Live) -> None:
    page.get_by_role("link", name="Operate").click()
    use_token(page, live.operate)
    expect(page.get_by_text("doer, role operate")).to_be_visible()
    page.get_by_role("link", name="Fabric").click()
    page.get_by_label("Find a node or a link").fill("e0_0 a0_1")
    page.locator(".found button").first.click()
    expect(page.get_by_role("heading", level=2)).to_have_text("e0_0 → a0_1")
    page.get_by_role("button", name="Take it out of service").click()
    page.get_by_role("button", name="Take out of service", exact=True).click()
    expect(page.locator(".lead strong")).to_have_text("draining")
    page.get_by_role("button", name="Take it back into service").click()
    page.get_by_role("button", name="Take back", exact=True).click()
    wait("the cable is back", lambda: live.asked.ask("GET", "/v1/links/e0_0,a0_1")["state"] == "up")


def test_an_operator_puts_a_scheme_in_charge_and_falls_back(page: Page, live: Live) -> None:
    page.get_by_role("link", name="Operate").click()
    use_token(page, live.operate)
    expect(page.get_by_text("doer, role operate")).to_be_visible()
    page.get_by_label("Scheme").fill("hedera:period=1s")
    page.get_by_role("button", name="Put in charge").click()
    page.get_by_role("dialog").get_by_role("button", name="Put in charge").click()
    expect(page.locator(".answer")).to_have_text("hedera:period=1s is in charge.")
    expect(page.locator(".cards .facts").first).to_contain_text("hedera:period=1s")
    page.get_by_role("button", name="Fall back to ecmp").click()
    page.get_by_role("dialog").get_by_role("button", name="Fall back").click()
    expect(page.locator(".cards .facts").first).to_contain_text("ecmp")
    assert live.asked.ask("GET", "/v1/state")["scheme"] == "ecmp"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1400, 3840])
def test_the_view_fits_and_axe_finds_nothing(browser: Browser, live: Live, width: int, scheme: str) -> None:
    size = {360: 740, 1400: 900, 3840: 2160}[width]
    tab = Tab(browser, width, size, scheme, http_credentials={"username": "me", "password": live.read})
    page = tab.open(live.url)
    page.goto(f"{live.url}#operate")
    expect(page.locator(".alarms li.critical").first).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert axe(page) == []
    tab.close()
