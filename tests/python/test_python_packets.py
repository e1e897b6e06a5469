"""Schemes in Python whose packets choose: the same figures as the built-in schemes with the same needs."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest

import pathloom as pl
from pathloom import PathloomError, SchemeWarning
from pathloom.scheme import (
    Actions,
    Ageing,
    Cells,
    Event,
    Flowlets,
    Needs,
    Rehash,
    Scheme,
    SetDefaults,
    SetWeights,
    ShortestQueue,
    Started,
    View,
)

GUIDE = (Path(__file__).resolve().parents[2] / "docs/python-schemes.md").read_text(encoding="utf-8")
CASE: dict[str, Any] = {
    "fabric": "fat-tree:k=4,rate=1Gbps,buffer=50,fail=0.1",
    "traffic": "web-search:load=0.6",
    "duration": "60ms",
    "runs": 1,
}


def needing(needs: Needs) -> type[Scheme]:
    class Needy(Scheme):
        def needs(self) -> Needs:
            return needs

        def handle(self, now_ns: int, event: Event, view: View) -> Actions:
            if isinstance(event, Started):
                yield SetDefaults("ecmp")

    return Needy


def figures(scheme: str | type[Scheme], **more: Any) -> list[tuple[Any, ...]]:
    flows = pl.run(scheme=scheme, **{**CASE, **more}).flows
    columns = ("src", "dst", "size_bytes", "start_s", "fct_s", "bytes")
    return flows.select([name for name in columns if name in flows.columns]).rows()


NOTHING: dict[str, Any] = {"detection": "nothing"}


@pytest.mark.parametrize(
    ("built_in", "needs"),
    [
        ("rps", Needs(**NOTHING, entropy="packet")),
        ("rps:order=round-robin", Needs(**NOTHING, selection="round_robin")),
        ("letflow:gap=100us", Needs(**NOTHING, entropy=Flowlets(100_000))),
        ("presto:cell=20KB", Needs(**NOTHING, entropy=Cells(20_000), selection="numbered")),
        ("drill", Needs(**NOTHING, selection=ShortestQueue())),
        ("drill:at=tor", Needs(**NOTHING, selection=ShortestQueue(), selection_tier="tor")),
        ("flowbender", Needs(**NOTHING, entropy=Rehash())),
        (
            "plb",
            Needs(**NOTHING, entropy=Rehash(marked_share=0.5, rounds=12, idle_rounds=3, suspension_ns=60 * 10**9)),
        ),
    ],
    ids=lambda value: value.partition(":")[0] if isinstance(value, str) else "",
)
def test_needs_of_packets_give_the_figures_of_the_built_in_scheme(built_in: str, needs: Needs) -> None:
    expected = figures(built_in)
    assert figures(needing(needs)) == expected
    assert expected != figures("ecmp"), "the case tells them apart"


class Weights(Scheme):
    """Divides the traffic of every switch: the first of its next hops has a weight, and the others have another one."""

    first: ClassVar[int] = 7
    others: ClassVar[int] = 7

    def needs(self) -> Needs:
        return Needs(detection="nothing")

    def handle(self, now_ns: int, event: Event, view: View) -> Actions:
        if isinstance(event, Started):
            yield SetDefaults("weighted")
            yield SetWeights(self.weights(view))

    def weights(self, view: View) -> Mapping[tuple[int, int], Mapping[int, int]]:
        """Weights for all pairs of ToRs: those of the links of all shortest paths."""
        hops: dict[tuple[int, int], set[int]] = {}
        for source in view.tors:
            for target in view.tors:
                for path in view.paths(source, target) if source != target else ():
                    for link in path:
                        hops.setdefault((view.links[link].source, target), set()).add(link)
        return {
            at: {link: self.others if place else self.first for place, link in enumerate(sorted(links))}
            for at, links in hops.items()
        }


def sent_by_core(scheme: str | type[Scheme], fabric: str = "fat-tree:k=4,rate=1Gbps") -> dict[str, int]:
    """Bytes that each core switch sends."""
    case: dict[str, Any] = {"traffic": "long-lived:pattern=stride", "duration": "50ms"}
    links = pl.run(scheme=scheme, fabric=fabric, **case).links
    sent: dict[str, int] = {}
    for source, count in links.select("source", "sent_bytes").iter_rows():
        if source.startswith("c"):
            sent[source] = sent.get(source, 0) + count
    return sent


def test_weights_divide_the_traffic() -> None:
    class First(Weights):
        others = 0

    used = {core for core, count in sent_by_core(First).items() if count}
    assert used == {"c0"}, "all traffic takes the first next hop of each switch"
    assert figures(Weights, fabric="fat-tree:k=4,rate=1Gbps") == figures("ecmp", fabric="fat-tree:k=4,rate=1Gbps")


def test_the_example_of_the_guide_spares_a_spine(tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
    (code,) = (block for block in blocks if "class Spared" in block)
    (tmp_path / "spared.py").write_text(code, encoding="utf-8")
    sent = sent_by_core(f"{tmp_path}/spared.py", fabric="leaf-spine:spines=4,leaves=4,hosts=4,rate=1Gbps")
    share = sent["c0"] / sum(sent.values())
    assert 0.9 / 31 < share < 1.1 / 31, "one of 1 + 10 + 10 + 10"


def test_ageing_serves_short_flows_first() -> None:
    case: dict[str, Any] = {"traffic": "web-search:load=0.8", "fabric": "fat-tree:k=4,rate=1Gbps", "duration": "200ms"}

    def short_mean_s(scheme: type[Scheme]) -> float:
        flows = pl.run(scheme=scheme, transport="newreno:min_rto=10ms", **case).flows
        times = [fct for size, fct in flows.select("size_bytes", "fct_s").iter_rows() if size < 100_000 and fct]
        return float(sum(times) / len(times))

    aged = short_mean_s(needing(Needs(**NOTHING, ageing=Ageing(20_000))))
    assert aged < 0.8 * short_mean_s(needing(Needs(**NOTHING)))


@pytest.mark.parametrize(
    ("needs", "expected"),
    [
        (lambda: Needs(entropy="packets"), "entropy: `packets` is not one of flow, packet"),  # type: ignore[arg-type]
        (lambda: Needs(entropy=5), "entropy: expected flow, packet, Flowlets, Cells or Rehash, not int"),  # type: ignore[arg-type]
        (lambda: Needs(entropy=Flowlets(-1)), "gap_ns: OverflowError"),
        (lambda: Needs(entropy=Cells(0)), "size_bytes: expected 1 or more"),
        (lambda: Needs(entropy=Rehash(marked_share=2)), "marked_share: expected a share of bytes, 0 to 1"),
        (lambda: Needs(entropy=Rehash(rounds=0)), "rounds: expected 1 or more"),
        (lambda: Needs(selection="best"), "selection: `best` is not one of hash, numbered, round_robin"),  # type: ignore[arg-type]
        (lambda: Needs(selection_tier="spine"), "selection_tier: `spine` is not one of all, tor, aggregation, core"),  # type: ignore[arg-type]
        (lambda: Needs(selection=ShortestQueue(drawn=0)), "drawn: expected 1 or more"),
        (lambda: Needs(selection=ShortestQueue(drawn=300)), "drawn: OverflowError"),
        (lambda: Needs(ageing=Ageing(0)), "first_bytes: expected 1 or more"),
        (lambda: Needs(ageing=Ageing(1, factor=1)), "factor: expected 2 or more"),
        (lambda: Needs(ageing=Ageing(1, levels=9)), "levels: expected 1 to 8, the queues of a port"),
    ],
)
def test_bad_needs_of_packets_are_bad_input(needs: Callable[[], Needs], expected: str) -> None:
    with pytest.raises(PathloomError, match=expected):
        pl.run(scheme=needing(needs()), **CASE)


def test_a_scheme_that_reacts_to_marks_needs_a_transport_that_echoes_them() -> None:
    with pytest.raises(PathloomError, match=r"--transport: expected dctcp:… or roce:…"):
        pl.run(scheme=needing(Needs(entropy=Rehash())), transport="cubic", **CASE)


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        ({(10**6, 0): {0: 1}}, "weights: no node 1000000 is known"),
        ({(20, 21): {10**6: 1}}, "weights: link 1000000 does not leave"),
        ({(20, 21): {}}, "with a weight above 0"),
        ({(20, 21): {0: 70_000}}, "weights: OverflowError"),
        ({20: {0: 1}}, "weights: TypeError"),
    ],
)
def test_bad_weights_are_named(weights: Any, expected: str) -> None:
    class Bad(Scheme):
        def handle(self, now_ns: int, event: Event, view: View) -> Actions:
            yield SetWeights(weights)

    with pytest.warns(SchemeWarning, match=rf"action SetWeights(?s:.)*{expected}"):
        pl.run(scheme=Bad, fabric="fat-tree:k=4", traffic="long-lived", duration="1ms", keep_going=True)
