"""The yardstick: optima known in closed form, and on a fabric small enough to calculate by hand."""

import math
from itertools import pairwise

import pytest

from pathloom import PathloomError, _core
from pathloom.optimum import Flow, Method, max_concurrent, max_throughput
from pathloom.solver_worker import demands

GBPS = 1e9


def fat_tree(k: int, more: str = "") -> tuple[_core.Fabric, list[int]]:
    fabric = _core.Fabric.from_spec(f"fat-tree:k={k},rate=1Gbps{more}")
    return fabric, [index for index, node in enumerate(fabric.nodes()) if node["tier"] == "host"]


@pytest.mark.parametrize("method", ["choose", "simplex", "ipm", "pdlp"])
def test_a_stride_fills_a_healthy_fat_tree(method: Method) -> None:
    fabric, hosts = fat_tree(4)
    flows: list[Flow] = [(hosts[i], hosts[(i + 8) % 16], GBPS) for i in range(16)]
    found = max_concurrent(fabric, flows, method=method)
    assert found.exact
    assert found.value == pytest.approx(1.0, abs=1e-5)
    assert found.rates_bps == pytest.approx([GBPS] * 16, rel=1e-4)
    assert max_throughput(fabric, flows, method=method).value == pytest.approx(16 * GBPS, rel=1e-5)


def test_the_closed_form_of_a_healthy_fat_tree() -> None:
    fabric, hosts = fat_tree(4)
    # All four hosts of a pod send 1 Gbit/s to another pod. The two of the first ToR also send 0.5 Gbit/s to a third.
    flows: list[Flow] = [(hosts[i], hosts[8 + i], GBPS) for i in range(4)]
    flows += [(hosts[i], hosts[12 + i], 0.5 * GBPS) for i in range(2)]
    # (k/2) / ToR load = 2/3, (k/2)² / pod load = 4/5.
    assert max_concurrent(fabric, flows).value == pytest.approx(2 / 3)
    # One flow can use all links of its ToR, but only one link of its host.
    assert max_concurrent(fabric, flows[-1:]).value == pytest.approx(4.0)
    assert max_concurrent(fabric, flows[-1:], access_links=True).value == pytest.approx(2.0)


def test_failures_and_longer_paths_count() -> None:
    fabric = _core.Fabric.from_node_link(_core.Fabric.from_spec("diamond").to_node_link(), "diamond")
    names = [node["name"] for node in fabric.nodes()]
    hosts = [index for index, node in enumerate(fabric.nodes()) if node["tier"] == "host"]
    links = fabric.links()
    rate = float(links["rate_bps"][0])
    flow = [(hosts[0], hosts[-1], rate)]
    assert len(names) > 2
    assert max_throughput(fabric, flow).value == pytest.approx(rate)
    broken, hosts = fat_tree(4, ",fail=0.2,fail_seed=2")
    ring: list[Flow] = [(a, b, GBPS) for a, b in pairwise([*hosts[::2], hosts[0]])]
    whole = max_concurrent(fat_tree(4)[0], ring).value
    part = max_concurrent(broken, ring)
    assert 0 < part.value < whole
    assert part.rates_bps == pytest.approx([part.value * GBPS] * len(ring), rel=1e-6)


@pytest.mark.parametrize("seed", range(1, 6))
@pytest.mark.parametrize(
    "spec",
    [
        "fat-tree:k=4,rate=1Gbps",
        "fat-tree:k=4,rate=1Gbps,fail=0.15,fail_seed={seed}",
        "jellyfish:switches=12,ports=6,hosts=24,seed={seed},rate=1Gbps",
        "vl2:d0=2,d1=4,d2=4,hosts=4,fail=0.1,fail_seed={seed}",
    ],
)
def test_column_generation_reaches_the_optimum_of_the_full_program(spec: str, seed: int) -> None:
    fabric = _core.Fabric.from_spec(spec.format(seed=seed))
    flows = demands(fabric, "random-4", seed)
    whole, paths = (max_concurrent(fabric, flows, method=method) for method in ("simplex", "paths"))
    assert whole.exact
    assert paths.exact
    assert paths.method == "paths"
    assert paths.value == pytest.approx(whole.value, rel=2e-6)
    assert paths.rates_bps == pytest.approx(whole.rates_bps, rel=1e-5)


def test_limits_of_the_method_of_paths_are_reported() -> None:
    fabric, hosts = fat_tree(4)
    flow: list[Flow] = [(hosts[0], hosts[-1], GBPS)]
    assert max_concurrent(fabric, [(hosts[0], hosts[1], GBPS)], method="paths").value == math.inf
    with pytest.raises(PathloomError, match="`paths` ignores links of hosts"):
        max_concurrent(fabric, flow, method="paths", access_links=True)
    with pytest.raises(PathloomError, match="`paths` cannot maximise throughput"):
        max_throughput(fabric, flow, method="paths")
    dual = _core.Fabric.from_spec("jellyfish:switches=10,ports=6,hosts=20,homes=2,seed=1,rate=1Gbps")
    ends = [index for index, node in enumerate(dual.nodes()) if node["tier"] == "host"]
    with pytest.raises(PathloomError, match="has 2 ToRs"):
        max_concurrent(dual, [(ends[0], ends[9], GBPS)], method="paths")
    stopped = max_concurrent(fabric, flow, method="paths", time_limit_s=0.0)
    assert not stopped.exact
    assert math.isnan(stopped.value)


def test_two_ports_of_a_host_are_both_used() -> None:
    fabric = _core.Fabric.from_spec("jellyfish:switches=10,ports=6,hosts=20,homes=2,seed=1,rate=1Gbps")
    hosts = [index for index, node in enumerate(fabric.nodes()) if node["tier"] == "host"]
    found = max_throughput(fabric, [(hosts[0], hosts[11], math.inf)])
    assert found.value == pytest.approx(2 * GBPS)


def test_flows_within_a_tor_take_no_path() -> None:
    fabric, hosts = fat_tree(4)
    assert max_concurrent(fabric, [(hosts[0], hosts[1], GBPS)]).value == math.inf
    assert max_throughput(fabric, [(hosts[0], hosts[1], math.inf)]).value == pytest.approx(GBPS)


@pytest.mark.parametrize(
    ("flows", "said"),
    [
        ([], "no flows"),
        ([(0, 20, 1.0)], "node 0 is no host"),
        ([(20, 10**9, 1.0)], "is no host"),
        ([(20, 21, 0.0)], "a demand of 0.0 b/s"),
        ([(20, 21, math.nan)], "a demand of nan b/s"),
        ([(20, 21, math.inf)], "a demand of inf b/s"),
    ],
)
def test_bad_input_is_named(flows: list[Flow], said: str) -> None:
    fabric, _ = fat_tree(4)
    with pytest.raises(PathloomError, match=said):
        max_concurrent(fabric, flows)
