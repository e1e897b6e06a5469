"""What is said of probes, from what was sent and what arrived."""

from __future__ import annotations

import numpy as np

from pathloom.lab.probes import Track, summary

MS = 1_000_000


def track(arrivals: list[tuple[int, float]], sent: int = 10) -> Track:
    """A probe a millisecond; arrivals by number and millisecond."""
    seqs = np.array([seq for seq, _ in arrivals], dtype=np.int64)
    times = np.array([round(at * MS) for _, at in arrivals], dtype=np.int64)
    return Track("h0", "h1", np.arange(sent, dtype=np.int64) * MS, seqs, times)


def test_a_calm_flow_has_nothing_to_report() -> None:
    calm = track([(seq, seq + 0.25) for seq in range(10)])
    assert (calm.lost, calm.duplicated, calm.reordered) == (0, 0, 0)
    assert (calm.longest_gap_ns, calm.longest_pause_ns) == (MS, MS)
    assert calm.outage_ns(0) == 0


def test_losses_doubles_and_overtaking_are_counted() -> None:
    rough = track([(0, 0.2), (2, 2.2), (1, 2.3), (2, 2.4), (6, 6.2), (5, 7.0), (4, 7.5), (9, 9.2)])
    assert (rough.lost, rough.duplicated, rough.reordered) == (3, 1, 3)
    assert rough.missing().tolist() == [3, 7, 8]
    assert summary([rough, rough])["lost"] == 6


def test_an_outage_lasts_until_the_first_arrival_sent_after_the_last_loss() -> None:
    cut = track([(seq, seq + 0.25) for seq in (0, 1, 2, 6, 7, 8, 9)])
    assert cut.outage_ns(3 * MS - MS // 2) == round(3.75 * MS)
    assert cut.outage_ns(3 * MS, until_ns=3 * MS) == 0, "sent before it was mended"
    black = track([(seq, seq + 0.25) for seq in range(5)])
    assert black.outage_ns(4 * MS) is None
    silent = track([])
    assert (silent.lost, silent.reordered, silent.longest_gap_ns) == (10, 0, 0)
