"""Link loads in the view of a scheme, and the path of the reverse direction of its flows."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import pathloom as pl
from pathloom.scheme import MILLISECOND_NS, Actions, Event, FlowArrived, Needs, Route, Scheme, Started, Timeout, View


class Watcher(Scheme):
    """Puts the only flow on one path, and records the final loads of the links of the path in both directions."""

    seen: ClassVar[dict[bool, dict[str, list[int | None]]]] = {}

    def __init__(self, both: bool = False) -> None:
        self.both = both
        self.wants_ns: int | None = None
        self.path: tuple[int, ...] = ()
        self.uplink = 0

    def needs(self) -> Needs:
        return Needs(link_loads_every_ns=50 * MILLISECOND_NS, both_directions=self.both)

    def poll_timeout(self) -> int | None:
        return self.wants_ns

    def handle(self, now_ns: int, event: Event, view: View) -> Actions:
        if isinstance(event, Started):
            assert all(view.link_load_bps(link) is None for link in range(len(view.links)))
            self.wants_ns = 950 * MILLISECOND_NS
        elif isinstance(event, FlowArrived):
            flow = view.flow(event.flow)
            self.path = view.paths(flow.src_tor, flow.dst_tor)[-1]
            uplink = view.link_between(flow.src_host, flow.src_tor)
            assert uplink is not None
            self.uplink = uplink
            yield Route(flow.id, self.path)
        elif isinstance(event, Timeout):
            self.wants_ns = None
            back = [view.links[link].reverse for link in self.path]
            self.seen[self.both] = {
                "uplink": [view.link_load_bps(self.uplink)],
                "path": [view.link_load_bps(link) for link in self.path],
                "back": [view.link_load_bps(link) for link in back],
            }


class Both(Watcher):
    """A watcher that routes both directions of the flow."""

    def __init__(self) -> None:
        super().__init__(both=True)


def test_link_loads_are_what_links_carry_in_both_directions(tmp_path: Path) -> None:
    flows = tmp_path / "one.csv"
    flows.write_text("start_s,src,dst,size_bytes\n0.01,h0,h15,100000000\n", encoding="utf-8")
    Watcher.seen.clear()
    pl.compare(
        fabric=pl.fat_tree(k=4, rate="10Mbps"),
        traffic=pl.flows(str(flows)),
        schemes=[Watcher, Both],
        duration="1s",
        runs=1,
        jobs=1,
    )
    for both, loads in Watcher.seen.items():
        # The links are full. One frame in 50 ms is 2.4 % of the load.
        assert all(load is not None and 9_900_000 < load < 10_100_000 for load in loads["uplink"] + loads["path"])
        # One acknowledgement of 66 bytes for two frames, on the same path if the scheme asks for both directions.
        acks_bps = 66 / (2 * 1514) * 10_000_000
        alike = [load is not None and abs(load - acks_bps) < 0.1 * acks_bps for load in loads["back"]]
        assert all(alike) if both else not all(alike), loads
    assert set(Watcher.seen) == {False, True}


class Loudest(Scheme):
    """Records the highest load of the link between the two switches of a dumbbell."""

    most_bps: ClassVar[list[int]] = []

    def __init__(self) -> None:
        self.wants_ns: int | None = 20 * MILLISECOND_NS

    def needs(self) -> Needs:
        return Needs(link_loads_every_ns=20 * MILLISECOND_NS)

    def poll_timeout(self) -> int | None:
        return self.wants_ns

    def handle(self, now_ns: int, event: Event, view: View) -> Actions:
        if isinstance(event, Timeout):
            self.wants_ns = now_ns + 20 * MILLISECOND_NS
            hosts = set(view.hosts)
            between = [link.id for link in view.links if hosts.isdisjoint({link.source, link.target})]
            self.most_bps.append(max(view.link_load_bps(link) or 0 for link in between))
        return ()


def test_packets_that_wait_are_no_load() -> None:
    Loudest.most_bps.clear()
    pl.compare(
        fabric="dumbbell:hosts=2,switch_rate=10Mbps,host_rate=100Mbps",
        traffic="hadoop:load=0.3",
        schemes=[Loudest],
        duration="1s",
        runs=1,
        jobs=1,
    )
    # A frame of 1514 bytes in 20 ms is 0.6 Mbit/s.
    assert 5_000_000 < max(Loudest.most_bps) < 10_700_000
