"""The page with a fabric of 320 switches: folded pods, the paths of a flow and of a pair, and the matrix."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any, cast

from playwright.sync_api import Browser, Page, expect

from conftest import Shown, Tab, axe, pixel_rows, wait

PATH = "#0072b2"
"""Colour of the first path, in light mode."""
FULL = "#3c1835"
"""Colour of a link that is full, in light mode."""
MOST_BYTES = 600_000
"""For the first view of 1,024 hosts."""


def heading(page: Page) -> str:
    return page.get_by_role("heading", level=2).inner_text()


def at(page: Page, place: str) -> None:
    """Waits until the address has a text."""
    wait(place, lambda: place in page.evaluate("decodeURIComponent(location.href)"))


def answer(page: Page, path: str) -> Any:
    return page.evaluate(f"fetch('{path}').then(answer => answer.json())")


def test_pods_are_folded_and_a_click_unfolds_one(shown_large: Shown, tab: Tab) -> None:
    page = tab.open(f"{shown_large.url}#fabric?at=0.005")
    box = page.locator("canvas.over").bounding_box()
    assert box is not None
    seen: list[str] = []
    # A click on the column of a pod selects a bundle, or unfolds the pod.
    for place in range(12, 96):
        page.mouse.click(box["x"] + box["width"] * 0.5, box["y"] + box["height"] * place / 100)
        if page.get_by_role("button", name=re.compile("^Fold pod")).count():
            break
        seen.append(heading(page))
    assert any("→" in one and "aggregation switches of pod" in one for one in seen), seen
    page.get_by_role("button", name=re.compile("^Fold pod")).click()
    expect(page.get_by_role("button", name=re.compile("^Fold"))).to_have_count(0)


def test_the_keyboard_unfolds_a_pod_and_the_address_keeps_it(shown_large: Shown, tab: Tab, browser: Browser) -> None:
    page = tab.open(f"{shown_large.url}#fabric?at=0.005")
    page.locator("canvas.over").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    name = re.fullmatch(r"8 (ToRs|aggregation switches) of pod (\d+)", heading(page))
    assert name is not None, heading(page)
    expect(page.locator(".panel")).to_contain_text("64 cables")
    at(page, f"group=pod-{name[2]}/")
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name=f"Fold pod {name[2]}")).to_be_visible()
    at(page, f"open=pod-{name[2]}")
    other = Tab(browser, 1400, 900)
    seen = other.open(page.evaluate("location.href"))
    expect(seen.get_by_role("button", name=f"Fold pod {name[2]}")).to_be_visible()
    other.close()
    page.get_by_role("button", name="Unfold all").click()
    at(page, "open=all")
    page.get_by_role("button", name="Fold all").click()
    wait("the address is short again", lambda: "open=" not in page.evaluate("location.href"))


def test_bundles_show_their_fullest_cable_or_the_mean(shown_large: Shown, tab: Tab) -> None:
    page = tab.open(f"{shown_large.url}#fabric?at=0.005")
    page.wait_for_timeout(500)
    assert sum(pixel_rows(page, "canvas", FULL)) > 1000, "each bundle has a full cable"
    page.get_by_label("Colour of bundles").select_option("mean of cables")
    at(page, "bundles=mean")
    wait("no bundle is full", lambda: sum(pixel_rows(page, "canvas", FULL)) == 0)
    page.get_by_role("link", name="Race").click()
    expect(page.get_by_label("Colour of bundles")).to_have_value("mean")


def test_a_bundle_tells_about_its_cables(shown_large: Shown, tab: Tab) -> None:
    page = tab.open(f"{shown_large.url}#fabric?at=0.015&bundle=pod-0/aggregation+to+core/core")
    expect(page.get_by_role("heading", level=2)).to_have_text("8 aggregation switches of pod 0 → 64 core switches")
    expect(page.locator(".facts")).to_contain_text("63 of 64 are up")
    page.locator(".links button").first.click()
    expect(page.get_by_role("heading", level=2)).to_have_text(re.compile("^a0_. → c"))


def test_the_path_of_a_flow_is_drawn_whole(shown_large: Shown, tab: Tab) -> None:
    page = tab.open(f"{shown_large.url}#fabric?at=0.005")
    assert sum(pixel_rows(page, "canvas.over", PATH)) == 0
    page.locator(".flows button").first.click()
    expect(page.locator(".ways li")).to_have_count(1)
    wait("the path is drawn", lambda: sum(pixel_rows(page, "canvas.over", PATH)) > 0)
    rows = pixel_rows(page, "canvas.over", PATH)
    drawn = [row for row, count in enumerate(rows) if count > 0]
    # From the hosts to the core tier, with gaps where switches are drawn above it.
    assert drawn[-1] - drawn[0] > 0.6 * len(rows)
    assert max(b - a for a, b in pairwise(drawn)) < 0.06 * len(rows)


def test_the_paths_of_a_pair_have_a_picture_of_their_own(shown_large: Shown, tab: Tab, browser: Browser) -> None:
    page = tab.open(f"{shown_large.url}#fabric?at=0.015")
    page.get_by_label("Find a node or a link").fill("h0 h1023")
    page.get_by_role("button", name="Paths h0 → h1023").click()
    expect(page.locator(".lead")).to_have_text("64 shortest paths of 6 links")
    expect(page.locator(".hop")).to_have_count(6)
    expect(page.locator(".hop").nth(2)).to_have_text(re.compile("^64 links from aggregation to core.* %, 1 down$"))
    at(page, "pair=h0+to+h1023")
    other = Tab(browser, 1400, 900)
    seen = other.open(page.evaluate("location.href"))
    expect(seen.get_by_role("heading", level=2)).to_have_text("h0 → h1023")
    other.close()
    page.get_by_role("button", name="← Back").click()
    page.locator(".flows button").first.click()
    expect(page.get_by_role("heading", level=2)).to_have_text(re.compile("^Flow"))
    flow = re.fullmatch(r"Flow \d+: (h\d+) → (h\d+)", heading(page))
    assert flow is not None
    page.get_by_role("button", name="All shortest paths of this pair").click()
    expect(page.get_by_role("heading", level=2)).to_have_text(f"{flow[1]} → {flow[2]}")
    expect(page.locator(".flows button")).to_have_count(1)


def test_the_matrix_has_the_utilisation_of_every_cable(shown_large: Shown, tab: Tab, browser: Browser) -> None:
    page = tab.open(f"{shown_large.url}#matrix?at=0.015&direction=up")
    table = page.get_by_role("table", name=re.compile("aggregation and core"))
    expect(table.get_by_role("row")).to_have_count(17)
    expect(table.get_by_role("columnheader")).to_have_count(64)
    fabric = answer(page, "v1/fabric")
    names = [node["name"] for node in fabric["nodes"]]
    ends = list(zip(fabric["links"]["source"], fabric["links"]["target"], strict=True))
    frame = answer(page, "v1/frames?scheme=ecmp&run=1&first=29&count=1")["utilisation"][0]
    up = {(names[a], names[b]): (frame[link] + 5) // 10 for link, (a, b) in enumerate(ends)}
    rows = cast(list[list[str]], [row.get_by_role("cell").all_inner_texts() for row in table.get_by_role("row").all()])
    for pod in (1, 7, 15):
        expected = [str(up[f"a{pod}_{core // 8}", f"c{core}"]) for core in range(64)]
        assert rows[1 + pod] == expected, pod
    assert "down" in rows[1][1], "the cable a0_0 – c1"
    page.get_by_role("button", name="pod 0").click()
    expect(table.get_by_role("row")).to_have_count(25)
    at(page, "open=pod-0")
    # One cell is in the order of the tab key; arrows go to the others.
    table.locator('button[tabindex="0"]').focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=2)).to_have_text("a0_0 → c2")
    at(page, "#fabric?")
    page.get_by_role("link", name="Matrix").click()
    page.get_by_label("Cables").select_option("ToRs and aggregation")
    expect(page.get_by_role("columnheader")).to_have_count(8)
    at(page, "tiers=tor-aggregation")
    other = Tab(browser, 1400, 900)
    seen = other.open(page.evaluate("location.href").replace("#matrix", "#fabric"))
    seen.get_by_role("link", name="Matrix").click()
    expect(seen.get_by_label("Cables")).to_have_value("tor-aggregation")
    expect(seen.get_by_label("Direction")).to_have_value("up")
    assert axe(seen) == []
    other.close()


def test_what_an_address_names_wrongly_is_ignored(shown_large: Shown, tab: Tab) -> None:
    page = tab.open(
        f"{shown_large.url}#fabric?at=soon&open=%25,pod-99&link=999999&pair=h0+to+nobody&tiers=x&direction=y"
    )
    expect(page.get_by_role("heading", level=2)).to_have_text("ecmp")
    expect(page.locator("output")).to_have_text("500 µs")
    expect(page.get_by_role("button", name=re.compile("^Fold"))).to_have_count(0)
    page.get_by_role("link", name="Matrix").click()
    expect(page.get_by_role("columnheader")).to_have_count(64)


def test_the_first_view_is_small(shown_large: Shown, tab: Tab) -> None:
    page = tab.open(shown_large.url)
    expect(page.locator(".flows button").first).to_be_visible()
    page.wait_for_timeout(500)
    sizes = page.evaluate("performance.getEntriesByType('resource').map(one => [one.name, one.transferSize])")
    assert any("v1/frames" in name for name, _ in sizes)
    assert sum(size for _, size in sizes) < MOST_BYTES, sizes
