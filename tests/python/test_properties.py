"""Random specifications give a fabric, traffic or scheme, or one line that says what is wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from conftest import FAST
from pathloom import _core
from pathloom._core import PathloomError
from pathloom.experiments.settings.model import Settings
from pathloom.fabrics import Fabric
from pathloom.specs import split_specs

QUICK = settings(deadline=None, derandomize=True, max_examples=150, suppress_health_check=[HealthCheck.too_slow])

NAMES = st.sampled_from(
    [
        "fat-tree",
        "vl2",
        "leaf-spine",
        "three-layer",
        "jellyfish",
        "dumbbell",
        "diamond",
        "parallel-paths",
        "fat",
        "",
        "é",
    ]
)
KEYS = st.sampled_from(
    [
        "k",
        "d0",
        "d1",
        "hosts",
        "spines",
        "leaves",
        "switches",
        "ports",
        "homes",
        "seed",
        "rate",
        "buffer",
        "fail",
        "rates",
        "",
    ]
)
NUMBERS = st.integers(-2, 12).map(str)
ODDITIES = st.sampled_from(
    ["", "nan", "inf", "1e9", "-0", "10Mbps", "1us", "0.05", "9" * 30, "two", "=", "é", "\x00", " 4 "]
)
VALUES = st.one_of(NUMBERS, NUMBERS, ODDITIES)
SPECS = st.builds(
    lambda name, pairs: name + ":" + ",".join(f"{key}={value}" for key, value in pairs),
    NAMES,
    st.lists(st.tuples(KEYS, VALUES), max_size=4),
)


def made(call: Callable[[], Any], given: str = "") -> Any:
    """Returns the result of a call; None if it was refused with one good line. The line may repeat the `given` text."""
    try:
        return call()
    except PathloomError as error:
        text = str(error)
        assert text.strip()
        assert "\n" not in text
        assert "Error" in given or "Error" not in text
        return None


@given(SPECS)
@QUICK
def test_fabrics(spec: str) -> None:
    fabric = made(lambda: Fabric(spec))
    if fabric is not None:
        summary = fabric.summary()
        assert summary["hosts"] >= 2
        assert summary["links"] == 2 * summary["cables"]
        assert Fabric.from_node_link(fabric.to_node_link()).links == fabric.links


@given(st.text(max_size=40))
@QUICK
def test_any_text_at_all(text: str) -> None:
    made(lambda: Fabric(text.replace("/", "")), text)
    made(lambda: _core.scheme_name(text), text)
    made(lambda: _core.parse_time_s(text), text)
    made(lambda: split_specs(text), text)
    made(lambda: Fabric.from_node_link(text), text)
    made(lambda: Fabric.from_node_link(text, "x.graphml"), text)


@given(
    traffic=st.builds(
        lambda name, pairs: name + ":" + ",".join(f"{key}={value}" for key, value in pairs),
        st.sampled_from(["web-search", "hadoop", "on-off", "long-lived", "incast", "all-reduce", "all-to-all"]),
        st.lists(
            st.tuples(
                st.sampled_from(["load", "pattern", "size", "senders", "hosts", "on", "stride", "flows", "jitter"]),
                st.sampled_from(
                    ["0.1", "0.9", "1", "2", "-1", "10KB", "1us", "1ms", "stride", "permutation", "incast", "x"]
                ),
            ),
            max_size=3,
        ),
    ),
    scheme=st.sampled_from([*FAST, "hedera-sa:period=1ms", "hedera:elephant=2"]),
    transport=st.sampled_from([None, "newreno:iw=3KB", "newreno:iw=0KB", "newreno:acks=1,handshake=on"]),
    faults=st.lists(st.sampled_from(["0s:down:c0", "200us:down:e0-c1", "1ms:up:c0", "1ms:down:h0-e0", "1ms:down:e0"])),
    seed=st.integers(0, 2**40),
)
@QUICK
def test_every_run_that_is_accepted_ends_and_loses_no_packet(
    traffic: str, scheme: str, transport: str | None, faults: list[str], seed: int
) -> None:
    run = {
        "fabric": "leaf-spine:spines=2,leaves=2,hosts=2,rate=100Mbps,buffer=10",
        "fabric_text": None,
        "traffic": traffic,
        "scheme": scheme,
        "transport": transport,
        "control": None,
        "duration": "2ms",
        "seed": seed,
        "faults": faults,
        "pcap": None,
        "event_log": None,
    }
    simulation = made(lambda: _core.Simulation(json.dumps(run)))
    if simulation is None:
        return
    assert simulation.advance(simulation.end_s) <= simulation.end_s
    assert simulation.done
    outcome = simulation.outcome()  # Raises when packets are not accounted for.
    flows = outcome["flows"]
    finite = flows["size_bytes"] >= 0
    assert (flows["delivered_bytes"][finite] <= flows["size_bytes"][finite]).all()
    finished = flows["finish_ns"] >= 0
    assert (flows["delivered_bytes"][finished] == flows["size_bytes"][finished]).all()
    known = flows["throughput"][flows["throughput"] == flows["throughput"]]
    assert ((known >= 0) & (known <= 1)).all()


@given(
    st.dictionaries(
        st.sampled_from([*Settings.model_fields, "x", "rnus"]), st.one_of(st.text(max_size=5), st.integers())
    )
)
@QUICK
def test_settings_of_any_kind(values: dict[str, Any]) -> None:
    made(lambda: Settings.of(values))
