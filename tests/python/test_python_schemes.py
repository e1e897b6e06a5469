"""Schemes in Python have the same contract and give the same figures. For failures, see test_scheme_failures."""

from __future__ import annotations

import functools
import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest

import pathloom as pl
from conftest import SMALL, Cli
from pathloom import PathloomError, SchemeWarning
from pathloom.scheme import (
    MILLISECOND_NS,
    SECOND_NS,
    Action,
    Actions,
    Event,
    FlowArrived,
    FlowFinished,
    Hold,
    LinkChanged,
    Measure,
    Needs,
    Pace,
    RatesMeasured,
    Release,
    Route,
    RouteConfirmed,
    RouteRejected,
    Scheme,
    SetDefaults,
    Solve,
    Solved,
    Started,
    Timeout,
    Unroute,
    View,
    hand_over,
)

ROOT = Path(__file__).resolve().parents[2]
GREEDY = str(ROOT / "examples/greedy.py")
STRIDE: dict[str, Any] = {
    "fabric": "fat-tree:k=4,rate=10Mbps",
    "traffic": "long-lived:pattern=stride",
    "duration": "1s",
    "runs": 2,
}


class PyEcmp(Scheme):
    """ecmp in Python."""

    def needs(self) -> Needs:
        return Needs(detection="nothing")

    def handle(self, now_ns: int, event: Event, view: View) -> Actions | None:
        return [SetDefaults("ecmp")] if event == Started() else None


class First(Scheme):
    """Puts every long flow on the last of its shortest paths, and records all events and views."""

    seen: ClassVar[list[tuple[int, Event]]]
    views: ClassVar[list[View]]

    def handle(self, now_ns: int, event: Event, view: View) -> Actions:
        self.seen.append((now_ns, event))
        self.views.append(view)
        if isinstance(event, FlowArrived):
            flow = view.flow(event.flow)
            yield Route(flow.id, view.paths(flow.src_tor, flow.dst_tor)[-1], rate_bps=1_000_000)

    @classmethod
    def clear(cls) -> None:
        cls.seen, cls.views = [], []


def figures(summary: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns the figures of schemes in `result.json`, without their names and wall-clock times."""

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: plain(one) for key, one in value.items() if "wall" not in key and key != "scheme"}
        return [plain(one) for one in value] if isinstance(value, list) else value

    return [plain(scheme) for scheme in summary["schemes"]]


def actor(act: Callable[[View, Event], Any], needs: Needs | None = None) -> type:
    """Returns a scheme whose actions come from a function."""

    class Actor(Scheme):
        def needs(self) -> Needs:
            return needs or Needs()

        def handle(self, now_ns: int, event: Event, view: View) -> Any:
            return act(view, event)

    return Actor


def test_ecmp_in_python_gives_the_figures_of_ecmp() -> None:
    result = pl.compare(
        fabric="fat-tree:k=4,rate=10Mbps",
        traffic="web-search:load=0.5",
        schemes=["ecmp", PyEcmp],
        duration="1s",
        runs=2,
        faults=["300ms:down:a0_0", "600ms:up:a0_0"],
    )
    ours, python = figures(result.summary)
    assert python == ours
    assert result.summary["settings"]["schemes"] == ["ecmp", "PyEcmp"]
    assert result.troubles == []


def test_the_greedy_example_beats_ecmp() -> None:
    result = pl.compare(schemes=["ecmp", f"{GREEDY}:Greedy:paths=8"], **{**STRIDE, "duration": "5s", "runs": 3})
    ecmp, greedy = (scheme["throughput"]["mean"] for scheme in result.summary["schemes"])
    assert greedy > ecmp + 0.1
    assert result.troubles == []


def test_a_view_shows_the_fabric_and_its_flows() -> None:
    First.clear()
    pl.run(scheme=First, **{**STRIDE, "runs": 1}, faults=["200ms:down:a0_0-c0"])
    view = First.views[-1]
    assert [len(view.hosts), len(view.switches), len(view.tors)] == [16, 20, 8]
    assert [node.id for node in view.nodes] == list(range(36))
    assert {node.tier for node in view.nodes} == {"host", "tor", "aggregation", "core"}
    cable = view.links[view.link_between(view.find("a0_0") or 0, view.find("c0") or 0) or 0]
    assert (view.nodes[cable.source].name, view.nodes[cable.target].name) == ("a0_0", "c0")
    assert (cable.rate_bps, cable.between_switches, view.links[cable.reverse].source) == (10**7, True, cable.target)
    assert sorted(view.links_down) == sorted([cable.id, cable.reverse])
    assert not view.is_up(cable.id)
    assert (view.defaults, list(view.flows)) == ("ecmp", [flow.id for flow in view.long_flows()])
    assert 0 <= view.busy_share <= 1
    for flow in view.flows.values():
        route = flow.route or ()
        assert flow.long and flow.intended_route == route and flow.allocated_bps == 1_000_000
        assert (view.links[route[0]].source, view.links[route[-1]].target) == (flow.src_tor, flow.dst_tor)
        assert view.nodes[flow.src_host].tier == "host" and flow.five_tuple[4] == 6
    assert sum(view.allocated_bps()) == sum(10**6 * len(flow.route or ()) for flow in view.flows.values())
    with pytest.raises(KeyError, match="flow 7"):
        view.flow(7)
    with pytest.raises(IndexError, match="is not a switch"):
        view.paths(view.hosts[0], view.tors[0])


def test_a_kept_view_does_not_change() -> None:
    First.clear()
    pl.run(scheme=First, **{**STRIDE, "runs": 1})
    arrivals = [view for (_, event), view in zip(First.seen, First.views, strict=True) if type(event) is FlowArrived]
    assert [len(view.flows) for view in arrivals] == list(range(1, 17))
    assert arrivals[0].flow(next(iter(arrivals[0].flows))).route is None


def test_events_come_in_order_and_say_what_happened() -> None:
    First.clear()
    pl.run(
        scheme=First,
        fabric="fat-tree:k=4,rate=10Mbps",
        traffic="hadoop:load=0.5",
        duration="1s",
        faults=["200ms:down:a0_0-c0", "500ms:up:a0_0-c0"],
    )
    times = [now_ns for now_ns, _ in First.seen]
    kinds = {type(event) for _, event in First.seen}
    assert times == sorted(times)
    assert First.seen[0] == (0, Started())
    assert {FlowArrived, FlowFinished, RouteConfirmed, LinkChanged} <= kinds
    changes = [(event.up, now_ns // MILLISECOND_NS // 10) for now_ns, event in First.seen if type(event) is LinkChanged]
    assert changes[:2] == [(False, 20), (False, 20)] and changes[2:] == [(True, 50), (True, 50)]


def test_hosts_of_a_pacing_scheme_start_at_the_rates_of_their_interfaces() -> None:
    class Unpaced(PyEcmp):
        def needs(self) -> Needs:
            return Needs(detection="label")

    class Paced(PyEcmp):
        def needs(self) -> Needs:
            return Needs(detection="label", paces=True)

    def sent_again(scheme: type[Scheme]) -> int:
        fabric, traffic = "fat-tree:k=4,rate=100Mbps", "incast:senders=6,size=1MB,period=1s"
        result = pl.run(scheme=scheme, fabric=fabric, traffic=traffic, duration="1s", runs=1)
        return int(result.flows["retransmits"].sum())

    # Six senders that have twelve segments in flight each find room in a queue of a hundred.
    assert sent_again(Unpaced) > 50
    assert sent_again(Paced) == 0


def test_measuring_timeouts_and_solving() -> None:
    told: list[Any] = []

    class Measuring(Scheme):
        wake_at: int | None = 10 * MILLISECOND_NS

        def needs(self) -> Needs:
            return Needs("measured", nic_share=0.1, poll_period_ns=SECOND_NS // 5)

        def handle(self, now_ns: int, event: Event, view: View) -> Actions:
            match event:
                case Timeout():
                    self.wake_at = None
                    told.append(now_ns)
                    yield Measure()
                    yield Solve(3, {"now": now_ns, "list": [1.5, None]}, modelled_ns=20 * MILLISECOND_NS)
                case Solved(ticket, answer):
                    told.append((now_ns, ticket, answer))
                case RatesMeasured():
                    told.append([flow.rate_bps for flow in view.flows.values() if flow.rate_bps])

        def poll_timeout(self) -> int | None:
            return self.wake_at

    result = pl.run(scheme=Measuring, **{**STRIDE, "runs": 1})
    woken, *_ = (one for one in told if isinstance(one, int))
    ((solved, ticket, answer),) = (one for one in told if isinstance(one, tuple))
    assert woken == 10 * MILLISECOND_NS
    assert ticket == 3 and answer == {"now": woken, "list": [1.5, None]}
    assert 20 * MILLISECOND_NS <= solved - woken < 25 * MILLISECOND_NS
    assert any(isinstance(one, list) and len(one) == 16 for one in told)
    assert result.troubles == []


def test_holding_pacing_and_removing_routes() -> None:
    def slow(view: View, event: Event) -> list[Action]:
        return [Pace(event.flow, 1_000_000)] if isinstance(event, FlowArrived) else []

    def held(view: View, event: Event) -> list[Action]:
        return [Hold(event.flow, 10 * SECOND_NS)] if isinstance(event, FlowArrived) else []

    def changing_its_mind(view: View, event: Event) -> list[Action]:
        match event:
            case FlowArrived(flow):
                known = view.flow(flow)
                path = view.paths(known.src_tor, known.dst_tor)[0]
                return [Hold(flow, SECOND_NS), Release(flow), Pace(flow, None), Route(flow, path)]
            case RouteConfirmed(flow):
                return [Unroute(flow)]
        return []

    def mean(act: Callable[[View, Event], list[Action]]) -> tuple[float, int]:
        row = pl.run(scheme=actor(act), **{**STRIDE, "runs": 1}).summary["schemes"][0]
        return row["throughput"]["mean"], row["control"]["messages"]

    free, paced = mean(lambda _view, _event: [])[0], mean(slow)[0]
    assert mean(held)[0] < 0.02 < paced < 0.11 < free
    assert mean(changing_its_mind)[1] > 16 * 8


def test_an_exception_keeps_the_routes_and_is_reported_once() -> None:
    class Failing(PyEcmp):
        def handle(self, now_ns: int, event: Event, view: View) -> Actions | None:
            if isinstance(event, FlowArrived):
                raise RuntimeError("no idea\nwhere to put it")
            return super().handle(now_ns, event, view)

        def needs(self) -> Needs:
            return Needs()

    with pytest.warns(SchemeWarning) as caught:
        result = pl.compare(schemes=["ecmp", Failing], keep_going=True, **STRIDE)
    (warning,) = caught
    text = str(warning.message)
    assert "scheme Failing failed 32 times, its flows stayed where they were; first in run 1: " in text
    assert "Traceback" in text and 'raise RuntimeError("no idea\\nwhere to put it")' in text
    assert warning.filename == __file__
    (note,) = (note for note in result.notes if "Failing" in note)
    assert "\n" not in note and "RuntimeError: no idea where to put it" in note
    assert note in result.summary["traffic"]["notes"]
    rows = result.summary["schemes"]
    assert rows[1]["throughput"] == rows[0]["throughput"]


def test_an_exception_after_the_first_actions_drops_them_all() -> None:
    class HalfWay(PyEcmp):
        def handle(self, now_ns: int, event: Event, view: View) -> Actions:
            yield SetDefaults("single_path")
            raise ValueError

    with pytest.warns(SchemeWarning, match=r"HalfWay\.handle at 0 s: ValueError"):
        result = pl.compare(schemes=["ecmp", HalfWay], keep_going=True, **STRIDE)
    ecmp, half_way = figures(result.summary)
    assert (ecmp.pop("failures"), half_way.pop("failures")) == (0, 2)
    assert half_way == ecmp


def with_view(make: Callable[[View, int], Any]) -> type:
    return actor(lambda view, event: make(view, event.flow) if isinstance(event, FlowArrived) else None)


BAD_ACTIONS: list[tuple[Callable[[View, int], Any], str]] = [
    (lambda _view, _flow: [Unroute(99)], r"action Unroute\(flow=99\): flow: no flow 99 is known"),
    (
        lambda _view, flow: [Route(flow, (0, 1))],
        r"action Route\(flow=\d+, path=\(0, 1\).*: path: link .* touches a host",
    ),
    (lambda _view, flow: [Route(flow, (10**6,))], "path: the fabric has no link"),
    (lambda _view, flow: [Route(flow, [-1])], r"action Route.*: path: OverflowError"),
    (lambda _view, flow: [Route(flow, "ab")], r"action Route.*: path: TypeError"),  # type: ignore[arg-type]
    (lambda _view, flow: [Route(flow, ())], r"path: leads from (e\d_\d) to \1; expected \1 to e\d_\d"),
    (lambda _view, flow: [Route("x", ())], r"flow: TypeError"),  # type: ignore[arg-type]
    (lambda view, flow: [Route(flow, view.paths(*ends(view, flow))[0], 1.5)], "rate_bps: TypeError"),  # type: ignore[arg-type]
    (
        lambda _view, _flow: [SetDefaults("best")],  # type: ignore[arg-type]
        "routes: `best` is not one of single_path, spanning_tree, ecmp, per_host",
    ),
    (lambda _view, flow: [Hold(flow, -1)], "lease_ns: OverflowError"),
    (lambda _view, _flow: [Solve(1, object(), 0)], "answer: TypeError: Object of type object is not JSON"),
    (lambda _view, _flow: [5], "action 5: is not an action"),
    (lambda _view, _flow: [Action()], r"action Action\(\): is not an action that a scheme may return"),
    (lambda _view, _flow: 5, "handle returned .*int.*; expected actions"),
    (lambda _view, flow: Unroute(flow), "handle returned .*Unroute.*; expected actions"),
]


def ends(view: View, flow: int) -> tuple[int, int]:
    known = view.flow(flow)
    return known.src_tor, known.dst_tor


@pytest.mark.parametrize(("make", "expected"), BAD_ACTIONS)
def test_a_bad_action_is_named_and_dropped(make: Callable[[View, int], Any], expected: str) -> None:
    with pytest.warns(SchemeWarning, match=rf"Actor\.handle at [\d.e-]+ s: \w+: (?s:.)*{expected}"):
        result = pl.run(
            scheme=with_view(make),
            fabric="fat-tree:k=4",
            traffic="long-lived:pattern=stride",
            duration="5ms",
            keep_going=True,
        )
    assert result.summary["schemes"][0]["control"]["reroutes"] == 0


def test_a_path_over_a_dead_link_is_rejected_and_not_an_error() -> None:
    rejections: list[str] = []

    class Stubborn(Scheme):
        paths: ClassVar[dict[int, tuple[int, ...]]] = {}

        def handle(self, now_ns: int, event: Event, view: View) -> Actions:
            match event:
                case FlowArrived(flow):
                    self.paths[flow] = view.paths(*ends(view, flow))[0]
                case LinkChanged(link, up=False):
                    for flow, path in self.paths.items():
                        if link in path:
                            yield Route(flow, path)
                case RouteRejected(_, why):
                    rejections.append(why)

    result = pl.run(scheme=Stubborn, **{**STRIDE, "runs": 1}, faults=["200ms:down:a0_0-c0"])
    assert rejections and all("is down" in why for why in rejections)
    assert result.troubles == []


@pytest.mark.parametrize(
    ("needs", "expected"),
    [
        (lambda: Needs("guess"), "detection: `guess` is not one of nothing, label, announced, measured"),  # type: ignore[arg-type]
        (lambda: Needs("measured"), "`measured` needs a poll_period_ns"),
        (lambda: Needs(nic_share=2), "nic_share: expected a share"),
        (lambda: Needs(poll_period_ns=0), "poll_period_ns: expected a time above 0"),
        (lambda: {}, "needs returned .*detection|needs returned .*nic_share"),
        (lambda: 1 // 0, "ZeroDivisionError"),
    ],
)
def test_bad_needs_are_bad_input(needs: Callable[[], Any], expected: str) -> None:
    class Needy(PyEcmp):
        def needs(self) -> Needs:
            return needs()  # type: ignore[no-any-return]

    with pytest.raises(PathloomError, match=rf"scheme `Needy`: .*{expected}"):
        pl.run(scheme=Needy, **STRIDE)


class Counting(PyEcmp):
    def __init__(self, start: Any = 0, fail: str = "") -> None:
        self.count, self.fail = start, fail

    def save(self) -> Any:
        return {"count": self.count}

    def restore(self, state: Any) -> None:
        if self.fail:
            raise ValueError(self.fail)
        self.count = state["count"]


def test_saved_state_is_restored() -> None:
    new = Counting()
    hand_over(Counting([1, {"a": None}, 2.5, "ü"]), new)
    assert new.count == [1, {"a": None}, 2.5, "ü"]
    hand_over(PyEcmp(), PyEcmp())
    with pytest.raises(PathloomError, match=r"save: .*not JSON serializable"):
        hand_over(Counting({1}), Counting())
    with pytest.raises(PathloomError, match="ValueError: of another make"):
        hand_over(Counting(), Counting(fail="of another make"))


def test_jobs_do_not_change_the_result() -> None:
    results = [
        pl.compare(schemes=[f"{GREEDY}:Greedy", PyEcmp, "ecmp"], **{**STRIDE, "runs": 3}, jobs=jobs)
        for jobs in (1, 2, 4)
    ]
    assert figures(results[0].summary) == figures(results[1].summary) == figures(results[2].summary)
    assert results[0].flows.equals(results[1].flows)


def test_each_run_has_an_instance_and_its_seed() -> None:
    seeds: list[int] = []

    class Seeded(PyEcmp):
        def __init__(self, seed: int, least: int = 3) -> None:
            seeds.append(seed)

    pl.compare(schemes=[Seeded], **{**STRIDE, "runs": 3}, seed=40)
    assert sorted(seeds) == [40, 41, 42]
    with pytest.raises(PathloomError, match=r"scheme `Counting`: cannot be made: TypeError"):
        pl.run(scheme=functools.partial(Counting, nonsense=1), **STRIDE)  # type: ignore[call-arg]


def test_ambiguous_or_invalid_schemes_are_refused() -> None:
    namesake = type("ecmp", (PyEcmp,), {})
    for schemes, expected in [
        ([PyEcmp, PyEcmp], "two are named `PyEcmp`"),
        ([namesake], "two are named `ecmp`"),
        ([PyEcmp()], "is not a class; expected a name or a class"),
        ([int], "scheme `int`: has no method `handle"),
        ("spt,ecmp", r"is a single text; expected a list, such as \['spt', 'ecmp'\]"),
    ]:
        with pytest.raises(PathloomError, match=expected):
            pl.compare(schemes=schemes, **STRIDE)  # type: ignore[arg-type]
    named = type("Other", (PyEcmp,), {"name": "mine"})
    assert pl.run(scheme=named, **STRIDE).summary["settings"]["schemes"] == ["mine"]


SOURCE = """
from dataclasses import dataclass
from beside import ROUTES
from pathloom.scheme import SetDefaults, Started

@dataclass
class Mine:
    routes: str = ROUTES
    share: float = 0.5

    def handle(self, now_ns, event, view):
        return [SetDefaults(self.routes)] if event == Started() else None
"""


def test_a_file_on_the_command_line(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(SOURCE, encoding="utf-8")
    (tmp_path / "beside.py").write_text("ROUTES = 'single_path'\n", encoding="utf-8")
    done = cli("compare", *SMALL, "--schemes", "spt,mine.py,mine.py:Mine:routes=ecmp,share=1,ecmp", "--json", "-")
    assert done.code == 0, done.err
    assert done.err == ""
    spt, mine, hashed, ecmp = figures(json.loads(done.out))
    assert (mine["fct_s"], hashed["fct_s"]) == (spt["fct_s"], ecmp["fct_s"]) and mine != hashed


@pytest.mark.parametrize(
    ("scheme", "source", "expected"),
    [
        ("gone.py:Mine", "", "cannot read `gone.py`: no such file"),
        ("f.py:Mine", "x = (", r"line 1: SyntaxError"),
        ("f.py:Mine", "\nimport nowhere_at_all", r"line 2: ModuleNotFoundError: No module named 'nowhere_at_all'"),
        ("f.py:Mime", "class Mine:\n    def handle(self): ...", r"no class `Mime` .*; did you mean `Mine`\?"),
        ("f.py", "class A:\n    handle = 1\nclass B(A): ...", "f.py has several classes; name one of A, B"),
        ("f.py:A", "A = 5", "f.py has no class with a method `handle`"),
        ("f.py:loud=1", "class A:\n    handle = 1", r"the class is missing .*expected f.py:CLASS:loud=1"),
        ("f.py:A:x=1", "class A:\n    handle = 1", r"unknown key `x` \(it takes none\)"),
        ("f.py:A:x=1,x=2", "class A:\n    handle = 1\n    def __init__(self, x=0): ...", "x is given twice"),
        (
            "f.py:A:x=b",
            "class A:\n    handle = 1\n    def __init__(self, x=0): ...",
            "x: `b` is not valid; expected a whole",
        ),
        ("f.py:A", "class A:\n    handle = 1\n    def __init__(self): 1 / 0", "cannot be made: ZeroDivisionError"),
    ],
)
def test_unusable_files_are_refused(cli: Cli, tmp_path: Path, scheme: str, source: str, expected: str) -> None:
    (tmp_path / "f.py").write_text(source, encoding="utf-8")
    done = cli("run", *SMALL, "--scheme", scheme, "--out", "out")
    assert (done.code, done.out, len(done.err.splitlines())) == (2, "", 1)
    with pytest.raises(PathloomError, match=expected):
        raise PathloomError(done.err)
    assert not (tmp_path / "out").exists()


def test_a_working_scheme_gives_no_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pl.run(scheme=PyEcmp, **STRIDE)
