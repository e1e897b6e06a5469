"""Notes on a result: facts that a reader needs and that the figures do not show."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

import pathloom as pl
from conftest import Cli
from pathloom.experiments.results.idle_faults import idle_faults
from pathloom.experiments.results.notes import recovery_times
from pathloom.fabrics import Fabric
from pathloom.scheme import Actions, Event, FlowArrived, Route, Scheme, View

K4 = {"fabric": "fat-tree:k=4,rate=10Mbps", "traffic": "long-lived:pattern=stride"}


class Idle(Scheme):
    """Does nothing."""

    def handle(self, now_ns: int, event: Event, view: View) -> Actions | None:
        return None


class Placing(Scheme):
    """Gives every flow the first of its paths."""

    def handle(self, now_ns: int, event: Event, view: View) -> Actions:
        if isinstance(event, FlowArrived):
            flow = view.flow(event.flow)
            yield Route(flow.id, view.paths(flow.src_tor, flow.dst_tor)[0])


def notes(**more: Any) -> list[str]:
    settings: dict[str, Any] = {**K4, "schemes": ["ecmp"], "duration": "100ms", "runs": 2, **more}
    return pl.compare(**settings).notes


def test_a_fault_after_the_end_is_noted() -> None:
    assert notes(faults=["1s:down:c0"]) == [
        "fault 1s:down:c0 came after the end of every run (100 ms) and changed nothing"
    ]
    assert notes(faults=["50ms:down:c0"]) == []


def test_a_repair_without_a_fault_is_noted() -> None:
    assert notes(faults=["20ms:up:c0", "30ms:restore:a0_1-c3", "40ms:session-up:c1"]) == [
        "fault 20ms:up:c0 changed nothing: there was no down or flap of c0 left to mend",
        "fault 30ms:restore:a0_1-c3 changed nothing: there was no degrade or loss of a0_1-c3 left to mend",
        "fault 40ms:session-up:c1 changed nothing: there was no session-down of c1 left to mend",
    ]
    mended = ["10ms:down:c0", "20ms:up:c0", "10ms:loss:a0_1-c3:0.1", "20ms:restore:a0_1-c3"]
    assert [note for note in notes(faults=mended) if note.startswith("fault")] == []


@pytest.mark.parametrize(
    ("faults", "idle"),
    [
        (["1s:down:a0_0-c0", "2s:up:a0_0-c1"], ["2s:up:a0_0-c1"]),
        (["1s:down:a0_0-c0", "2s:up:c0-a0_0"], []),
        (["1s:down:a0_0-c0", "2s:up:a0_0-c0#1", "3s:up:a0_0-c0"], ["3s:up:a0_0-c0"]),
        (["1s:down:a0_0-c0+a1_0-c0", "2s:up:a1_0-c0", "3s:up:a0_0-c0"], []),
        (["1s:down:a0_0-c0+c1", "2s:up:c2+c3", "3s:up:c1+c2"], ["2s:up:c2+c3"]),
        # A switch that comes back does not mend a cable that was cut on its own, nor the reverse.
        (["1s:down:a0_0-c0", "2s:up:c0"], ["2s:up:c0"]),
        (["1s:down:c0", "2s:up:a0_0-c0"], ["2s:up:a0_0-c0"]),
        (["3s:up:c0", "1s:down:c0"], []),
        (["1s:down:c0", "2s:down:c0"], ["2s:down:c0"]),
        (["1s:down:c0", "2s:up:c0", "3s:down:c0"], []),
        (["1s:down:c0", "2s:down:c0+c1"], []),
        # The state of a cable during a flap is not known here. At the end it is up.
        (["1s:flap:c0:100ms/400ms/5", "2s:up:c0", "2100ms:down:c0"], []),
        (["1s:flap:c0:100ms/400ms/5", "4s:up:c0"], ["4s:up:c0"]),
        (["1s:degrade:c0:1Mbps", "2s:restore:c0-a0_0", "3s:restore:c0", "4s:restore:c0"], ["4s:restore:c0"]),
        (["1s:loss:a0_0-c0:0.1", "2s:restore:a0_0-c1"], ["2s:restore:a0_0-c1"]),
        (["1s:session-down:c0", "2s:session-down:c0", "3s:session-up:c1"], ["2s:session-down:c0", "3s:session-up:c1"]),
        (["1s:reboot:c0", "2s:controller-kill", "3s:controller-restart:snapshot"], []),
    ],
)
def test_faults_are_compared_by_their_targets(faults: list[str], idle: list[str]) -> None:
    fabric = Fabric("fat-tree:k=4,rate=10Mbps")
    assert list(idle_faults(fabric, faults)) == idle


def test_a_failure_of_a_failed_part_is_noted() -> None:
    assert notes(faults=["20ms:down:c0", "30ms:down:c0"]) == ["fault 30ms:down:c0 changed nothing: c0 was down already"]


def test_cables_that_are_down_from_the_start_can_be_mended() -> None:
    fabric = Fabric("fat-tree:k=4,fail=0.1")
    cable = fabric.links["up"].index(False)
    a, b = (fabric.names[fabric.links[end][cable]] for end in ("source", "target"))
    assert idle_faults(fabric, [f"1s:up:{b}-{a}"]) == {}
    assert list(idle_faults(fabric, [f"1s:down:{a}-{b}"])) == [f"1s:down:{a}-{b}"]


def test_a_fault_after_the_end_of_some_runs_is_noted() -> None:
    """Runs of finite flows end with their last flow, so at different times."""
    settings = {"fabric": "fat-tree:k=4", "traffic": "web-search:load=0.3", "runs": 3, "duration": "100ms"}
    result = pl.compare(schemes=["ecmp"], **settings)  # type: ignore[arg-type]
    ends_ns = sorted(one.outcome["end_ns"] for one in result.outcomes)
    between_ns = (ends_ns[0] + ends_ns[1]) // 2
    faults = ["1ns:loss:a0_1-c3:0", f"{between_ns}ns:restore:a0_1-c3"]
    (note,) = (one for one in notes(**settings, faults=faults) if one.startswith("fault"))
    assert note == f"fault {between_ns}ns:restore:a0_1-c3 came after the end of 1 of 3 runs and changed nothing in them"


def test_a_period_longer_than_the_run_and_a_scheme_that_never_acted() -> None:
    assert notes(schemes=["spt", "ecmp", "hedera"]) == [
        "scheme hedera: its period of 5s is longer than its longest run (100 ms); raise --duration or lower its key "
        "`period`",
        "scheme hedera never acted: it gave no flow a path, and all stayed on the default routes",
    ]
    assert notes(schemes=["hedera:elephant=0.2,period=1s"])[0].startswith(
        "scheme hedera:elephant=0.2,period=1s: its period of 1s is longer"
    )
    assert "its period of 100ms is as long as its longest run (100 ms);" in notes(schemes=["hedera:period=100ms"])[0]
    assert notes(schemes=["ecmp", "hedera:period=500ms"], duration="3s") == []


def test_a_scheme_that_acts_on_arrivals_gets_only_the_note_on_its_period() -> None:
    (note,) = notes(schemes=["ofpt"])
    assert "its period of 5s is longer than its longest run (100 ms);" in note


def test_a_scheme_in_python_that_never_acted_is_noted() -> None:
    assert notes(schemes=[Idle]) == [
        "scheme Idle never acted: it gave no flow a path, and all stayed on the default routes"
    ]
    assert notes(schemes=[Placing]) == []


def test_streams_on_paths_that_their_host_claimed_were_given_a_path() -> None:
    traces = Path(__file__).parents[2] / "published/traces"
    result = pl.compare(
        fabric=str(traces / "topology-b.json"),
        traffic=f"flows:file={traces / 'a-to-b-100MB.csv'}",
        schemes=["parallel-tcp:paths=3,streams=5"],
        duration="2s",
        runs=1,
    )
    assert not any("never acted" in note for note in result.notes)
    assert result.outcomes[0].outcome["control"]["routes"] == 5


MISSED = "not back before the next fault or the end of arrivals"


@pytest.mark.parametrize(
    ("recovery", "said"),
    [
        ((0.0, 0.0, 0), "goodput did not fall below 90 % of what it had been"),
        (
            (0.0, 0.0, 4),
            "after 4 of 8 faults (over all runs), goodput fell below 90 % of what it had been and was "
            f"{MISSED}; after the others it did not fall so far",
        ),
        (
            (0.0667, 0.2, 0),
            "goodput was back at 90 % of what it had been 66.7 ms after a fault on average, and after 200 ms at most",
        ),
        (
            (0.0667, 0.2, 1),
            "goodput was back at 90 % of what it had been 66.7 ms after a fault on average, and after 200 ms at most; "
            f"after 1 of 8 faults (over all runs), it was {MISSED}",
        ),
        ((None, None, 8), f"goodput fell below 90 % of what it had been, and was {MISSED}"),
    ],
)
def test_notes_on_recovery(recovery: tuple[float | None, float | None, int], said: str) -> None:
    figures = dict(zip(("mean", "max", "unrecovered"), recovery, strict=True)) | {"faults": 8}
    row = {"scheme": "ofpt", "recovery_s": figures, "flows": {"offered": 8, "long_lived": 8}}
    result = cast(Any, SimpleNamespace(summary_of_schemes=[row], settings=SimpleNamespace(series="20ms")))
    assert recovery_times(result) == [f"scheme ofpt: {said} (steps of 20ms)"]
    row["flows"] = {"offered": 9, "long_lived": 8}
    assert recovery_times(result) == [
        f"scheme ofpt: {said} (steps of 20ms); flows end here, so goodput falls without a fault too"
    ]


def test_flows_that_never_started_are_noted() -> None:
    (note,) = notes(traffic="all-reduce:size=1MB", runs=1)
    assert note.endswith(" of 480 flows never started and are in no FCT: they were to follow flows that did not finish")
    assert int(note.split()[0]) > 100


def connecting(schemes: list[str], size: str, **more: Any) -> list[str]:
    settings = {"fabric": "leaf-spine:spines=2,leaves=2,hosts=2,rate=10Gbps", "traffic": f"all-reduce:size={size}"}
    found = notes(**{**settings, "schemes": schemes, "runs": 1, **more})
    return [note for note in found if "SYN exchange" in note]


def test_schemes_whose_transfers_connect_are_noted_where_it_decides() -> None:
    schemes = ["ecmp", "arp-path", "mptcp-aware"]
    found = connecting(schemes, "400KB")
    assert [re.sub(r"\d+ %", "N %", note) for note in found] == [
        f"scheme {scheme}: each transfer begins with a SYN exchange and the initial window, because {why}; the "
        "exchange alone takes about N % of the FCT. Other schemes use connections that stand, unless "
        "--transport has handshake=on"
        for scheme, why in (
            ("arp-path", "its switches find paths by it"),
            ("mptcp-aware", "its controller recognises the subflows of a connection by it"),
        )
    ]
    assert connecting(schemes, "20MB") == [], "a SYN exchange is short beside long transfers"
    assert connecting(schemes, "400KB", transport="newreno:handshake=on") == [], "all schemes connect"
    assert connecting(schemes, "400KB", traffic="web-search:load=0.1") == [], "requests connect anyway"


def test_notes_are_printed_and_in_the_report_and_in_json(cli: Cli, tmp_path: Path) -> None:
    arguments = [word for key, value in K4.items() for word in (f"--{key}", value)]
    done = cli("run", *arguments, "--scheme", "hedera", "--duration", "50ms", "--out", "out")
    assert "\nNote: scheme hedera: its period of 5s is longer" in done.out
    for name in ("report.html", "result.json"):
        assert "its period of 5s is longer" in (tmp_path / "out" / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("worth", ["spt", "ecmp"])
def test_schemes_with_default_routes_only_get_no_note(worth: str) -> None:
    assert notes(schemes=[worth]) == []


def test_frames_of_different_sizes_are_noted() -> None:
    def noted(*schemes: str) -> list[str]:
        return [
            note
            for note in notes(schemes=list(schemes), fabric="fat-tree:k=4,rate=100Mbps", runs=1)
            if note.startswith("frames carry")
        ]

    assert noted("ecmp", "reps", "loom") == [
        "frames carry up to 1448 bytes under ecmp, 4086 bytes under reps and loom: larger frames spend less of each "
        "link on headers"
    ]
    assert noted("reps", "loom") == noted("ecmp", "mptcp") == []


def test_a_transport_that_does_not_fit_the_hosts_of_a_scheme_is_noted() -> None:
    def noted(scheme: str, transport: str) -> list[str]:
        given = notes(schemes=[scheme], transport=transport, runs=1)
        return [note for note in given if "has no effect" in note or "never acted" in note]

    said = ["scheme loom: its hosts run ndp, so --transport cubic has no effect on them"]
    assert noted("loom", "cubic") == said
    assert noted("reps", "roce") == ["scheme reps: its hosts run uec, so --transport roce has no effect on them"]
    assert noted("loom", "ndp:window=2") == noted("loom:hosts=tcp", "dctcp:gain=0.1") == noted("ecmp", "cubic") == []


@pytest.mark.parametrize(
    ("transport", "first"), [(None, "SYN"), ("newreno:handshake=off", "first segment")], ids=["syn", "data"]
)
@pytest.mark.parametrize("scheme", ["ecmp", "mptcp:subflows=2"])
def test_flows_whose_first_segment_was_lost_are_noted(transport: str | None, first: str, scheme: str) -> None:
    fabric = "fat-tree:k=4,rate=1Gbps,buffer=50"
    found = notes(fabric=fabric, schemes=[scheme], transport=transport, duration="20ms", faults=["0s:loss:e0_0-h0:1"])
    # The flow from h0 and the one to it, in each of two runs.
    text = f"scheme {scheme}: 4 of 32 flows delivered nothing, because their {first} or its answer was lost; "
    (own,) = [note for note in found if "delivered nothing" in note]
    assert own.startswith(text + "a host sends it again after 1 s (initial_rto); without them, the lowest")
    assert not any("delivered nothing" in note for note in notes(fabric=fabric, schemes=[scheme], duration="20ms"))


def test_flows_that_a_full_queue_locks_out_are_noted(tmp_path: Path) -> None:
    fabric = tmp_path / "star.csv"
    links = ["a,s,1Gbps,1us", "b,s,1Gbps,1us", "s,t,1Gbps,1us", "r,t,1Gbps,1us"]
    fabric.write_text("\n".join(["source,target,rate,delay", *links, ""]), encoding="utf-8")

    def own(transport: str) -> list[str]:
        found = notes(
            fabric=f"{fabric}:leaves=hosts",
            traffic="long-lived:pattern=incast",
            transport=transport,
            duration="500ms",
            runs=1,
        )
        return [note for note in found if "a full queue" in note]

    (note,) = own("newreno:jitter=0s,min_rto=5ms")
    assert note.startswith("scheme ecmp: 1 of 2 flows had 5 time-outs or more")
    assert own("newreno:min_rto=5ms") == []
