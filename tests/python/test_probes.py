"""Figures of probes, from the probes that were sent and that arrived."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pathloom._core import PathloomError
from pathloom.fabrics import Fabric
from pathloom.lab.blueprint import Blueprint
from pathloom.lab.probes import Probes, Track, summary

MS = 1_000_000


def track(arrivals: list[tuple[int, float]], sent: int = 10) -> Track:
    """Makes a track with one probe per millisecond. Arrivals are pairs of number and time in ms."""
    seqs = np.array([seq for seq, _ in arrivals], dtype=np.int64)
    times = np.array([round(at * MS) for _, at in arrivals], dtype=np.int64)
    return Track("h0", "h1", np.arange(sent, dtype=np.int64) * MS, seqs, times)


def test_an_undisturbed_flow_has_no_losses() -> None:
    calm = track([(seq, seq + 0.25) for seq in range(10)])
    assert (calm.lost, calm.duplicated, calm.reordered) == (0, 0, 0)
    assert (calm.longest_gap_ns, calm.longest_pause_ns) == (MS, MS)
    assert calm.outage_ns(0) == 0


def test_losses_duplicates_and_reordering_are_counted() -> None:
    rough = track([(0, 0.2), (2, 2.2), (1, 2.3), (2, 2.4), (6, 6.2), (5, 7.0), (4, 7.5), (9, 9.2)])
    assert (rough.lost, rough.duplicated, rough.reordered) == (3, 1, 3)
    assert rough.missing().tolist() == [3, 7, 8]
    assert summary([rough, rough])["lost"] == 6


def test_an_outage_lasts_until_the_first_arrival_sent_after_the_last_loss() -> None:
    cut = track([(seq, seq + 0.25) for seq in (0, 1, 2, 6, 7, 8, 9)])
    assert cut.outage_ns(3 * MS - MS // 2) == round(3.75 * MS)
    assert cut.outage_ns(3 * MS, until_ns=3 * MS) == 0, "only losses before `until_ns` count"
    black = track([(seq, seq + 0.25) for seq in range(5)])
    assert black.outage_ns(4 * MS) is None
    silent = track([])
    assert (silent.lost, silent.reordered, silent.longest_gap_ns) == (10, 0, 0)


def test_probes_use_the_named_ports(tmp_path: Path) -> None:
    blueprint = Blueprint.of("x", Fabric("jellyfish:switches=6,ports=6,hosts=6,homes=2"))
    first, other = blueprint.hosts[0], blueprint.hosts[3]
    probes = Probes(blueprint, tmp_path, [("h0", "h3"), ("h0:eth1", "h3"), ("h3:eth1", "h0:eth0")], first_port=7000)
    ends = [(flow["from"], flow["to"]) for flow in probes._plan["flows"]]
    assert ends == [
        ([first.ports[0].address, 7000], [other.ports[0].address, 7000]),
        ([first.ports[1].address, 7001], [other.ports[0].address, 7001]),
        ([other.ports[1].address, 7002], [first.ports[0].address, 7002]),
    ]
    assert [flow["source"] for flow in probes._plan["flows"]] == [first.namespace, first.namespace, other.namespace]
    for pair, problem in (
        (("h0:eth2", "h3"), "has no port eth2; expected one of eth0, eth1"),
        (("h0", "h9"), "`h9` is no host"),
    ):
        with pytest.raises(PathloomError, match=problem):
            Probes(blueprint, tmp_path, [pair])
