"""Defaults: OFPT compared with ecmp on a collective without time-outs, and the default minimum time-out."""

from __future__ import annotations

import html
import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from conftest import Cli
from pathloom.api.comparison import compare
from pathloom.experiments.settings.fitting_min_rto import default_min_rto, default_min_rto_ns
from pathloom.experiments.settings.model import Settings
from pathloom.fabrics import Fabric
from pathloom.reproduction import measure
from pathloom.reproduction.definitions import PUBLISHED
from pathloom.reproduction.library import figures

COLLECTIVE = ["--traffic", "all-to-all:size=1MB,order=random", "--schemes", "ecmp,ofpt"]
RUNS = ["--duration", "2s", "--runs", "3", "--seed", "901"]


@pytest.mark.parametrize(
    ("fabric", "transport"),
    [
        ("fat-tree:k=4,rate=1Gbps,buffer=10000", "newreno:jitter=0s"),
        ("fat-tree:k=4,rate=1Gbps", "newreno:min_rto=1ms,initial_rto=10ms,jitter=0s"),
    ],
    ids=["deep buffers", "short time-outs"],
)
def test_the_median_of_a_collective_is_no_longer_than_under_ecmp(cli: Cli, fabric: str, transport: str) -> None:
    done = cli("compare", "--fabric", fabric, "--transport", transport, *COLLECTIVE, *RUNS, "--json", "-")
    assert done.code == 0, done.err
    ecmp, ofpt = json.loads(done.out)["schemes"]
    assert ofpt["flows"]["unfinished"] == ecmp["flows"]["unfinished"] == 0
    for figure in ("mean", "p50", "p99"):
        assert ofpt["fct_s"][figure] < ecmp["fct_s"][figure], figure


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, "20ms"),
        ({"transport": "cubic:acks=1"}, "20ms"),
        ({"transport": "newreno:min_rto=5ms"}, None),
        ({"fabric": "fat-tree:k=4,rate=10Mbps"}, None),
        ({"worlds": ("sim", "lab")}, None),
        ({"fit_min_rto": False}, None),
    ],
    ids=str,
)
def test_the_minimum_time_out_fits_a_fast_fabric_unless_it_is_set(
    changed: dict[str, Any], expected: str | None
) -> None:
    values = {"fabric": "fat-tree:k=4,rate=1Gbps,buffer=20", "traffic": "long-lived", "schemes": ("ecmp",)}
    settings = Settings.of(values | changed)
    trips = Fabric(settings.fabric).round_trip_ps()
    assert list(trips or ()) == Fabric(settings.fabric).summary()["round_trip_ps"]
    assert default_min_rto(settings, trips) == expected
    assert default_min_rto_ns(settings, None) == (20_000_000 if expected else None)


def test_the_command_repeats_a_result_without_that_default(cli: Cli, tmp_path: Path) -> None:
    """No option sets `fit_min_rto = false`. A key of the transport has the same effect, for all schemes."""
    lines = ['traffic = "incast:senders=12,size=1MB,receiver=h0"', 'schemes = ["ecmp", "mptcp"]', "fit_min_rto = false"]
    lines += ['fabric = "fat-tree:k=4,rate=10Gbps"', 'duration = "100ms"', "runs = 1"]
    (tmp_path / "linux.toml").write_text("\n".join(lines))
    result = json.loads(
        cli("compare", "--spec", str(tmp_path / "linux.toml"), "--json", "-", "--out", str(tmp_path / "first")).out
    )
    (command,) = re.findall("<pre><code>pathloom (.*)</code></pre>", (tmp_path / "first" / "report.html").read_text())
    words = shlex.split(html.unescape(command))
    assert words[words.index("--transport") + 1] == "newreno:min_rto=200ms"
    again = json.loads(cli(*words, "--json", "-", "--out", str(tmp_path / "second")).out)
    assert [row["fct_s"] for row in again["schemes"]] == [row["fct_s"] for row in result["schemes"]]
    ecmp, mptcp = result["schemes"]
    assert ecmp["timeout_wait"]["sampled_s"] > 0.1 * ecmp["timeouts"] > 0
    assert mptcp["timeouts"] > 0


def test_a_run_that_ends_while_senders_wait_notes_that_no_time_out_expired() -> None:
    result = compare(fabric="fat-tree:k=4,fail=0.1", traffic="long-lived", schemes=["spt"], duration="50ms", runs=1)
    (row,) = result.summary["schemes"]
    assert row["timeouts"] == 0 and row["timeout_wait"]["share"] > 0.1
    (note,) = [note for note in result.notes if note.startswith("time-outs")]
    assert note.endswith("though none had expired when the run ended")


def test_published_figures_have_the_time_outs_of_linux() -> None:
    plans = [one for figure in figures("all") for one in measure.plan(figure, PUBLISHED, 1)]
    assert not any(one.settings.fit_min_rto for one in plans)


def test_every_transport_has_the_fitted_time_out() -> None:
    """Also schemes with a transport of their own. Senders lose last segments, and none waits 200 ms."""
    incast = {"fabric": "fat-tree:k=4,rate=10Gbps", "traffic": "incast:senders=12,size=1MB,receiver=h0", "runs": 1}
    for scheme in ("ecmp", "mptcp"):
        result = compare(schemes=[scheme], duration="100ms", **incast)  # type: ignore[arg-type]
        (row,) = result.summary["schemes"]
        assert row["timeouts"] > 0
        assert row["timeout_wait"]["sampled_s"] < 0.1 * row["timeouts"]
