"""`pathloom bench solver` on its smallest case, and a comparison of its solver with the exact optimum."""

import json

import pytest

from pathloom import PathloomError, _core, solver_benchmark, solver_worker
from pathloom.optimum import max_concurrent


def within_a_hundredth(k: int, pattern: str, more: str) -> None:
    """Compares the solver at ε = 0.05 with HiGHS's optimum, which is exact to a millionth."""
    fabric = _core.Fabric.from_spec(f"fat-tree:k={k},rate=1Gbps{more}")
    flows = solver_worker.demands(fabric, pattern, seed=3)
    level, bound, _, _ = _core.max_concurrent_flow(fabric, flows, 0.05)
    best = max_concurrent(fabric, flows)
    assert best.exact
    assert 0.99 * best.value <= level <= best.value * (1 + 2e-6)
    assert best.value <= bound * (1 + 2e-6)


HEALTH = ["", ",fail=0.05,fail_seed=1", ",fail=0.05,fail_seed=2"]


@pytest.mark.parametrize("pattern", ["permutation", "random-4"])
@pytest.mark.parametrize("more", [*HEALTH, ",fail=0.1,fail_seed=2"])
@pytest.mark.parametrize("k", [4, 8])
def test_within_a_hundredth_of_the_optimum(k: int, pattern: str, more: str) -> None:
    within_a_hundredth(k, pattern, more)


@pytest.mark.long
@pytest.mark.parametrize("pattern", ["permutation", "random-4"])
@pytest.mark.parametrize("more", HEALTH)
def test_within_a_hundredth_of_the_optimum_at_1024_hosts(pattern: str, more: str) -> None:
    within_a_hundredth(16, pattern, more)


def test_a_case_has_all_its_figures() -> None:
    name, task = next(solver_benchmark.cases([4]))
    assert name == "k=4 permutation healthy"
    own = solver_worker.own_solver({**task, "epsilon": 0.05})
    best = solver_worker.optimum({**task, "kind": "concurrent", "time_limit_s": 60.0})
    assert own["lambda"] == pytest.approx(best["lambda_opt"], rel=0.01)
    # Edge colouring gives each flow of a permutation its own links.
    assert own["lambda_place"] == pytest.approx(1.0)
    assert own["lambda_place"] <= own["lambda"] * (1 + 1e-6)
    assert own["time_s"] > 0
    assert best["opt_exact"]
    assert json.dumps({**own, **best})


@pytest.mark.parametrize(("more", "least"), [("", 0.5), (",fail=0.05,fail_seed=1", 0.3)])
def test_single_paths_serve_no_more_than_split_flows(more: str, least: float) -> None:
    fabric = _core.Fabric.from_spec(f"fat-tree:k=8,rate=1Gbps{more}")
    flows = solver_worker.demands(fabric, "random-4", seed=2)
    _, bound, _, _ = _core.max_concurrent_flow(fabric, flows, 0.05)
    placed = solver_worker.lambda_place(fabric, flows)
    assert placed is not None
    assert least * bound <= placed <= bound * (1 + 1e-6)


def test_within_a_tor_nothing_is_placed() -> None:
    fabric = _core.Fabric.from_spec("fat-tree:k=4,rate=1Gbps")
    first, second, *_ = solver_worker.hosts_of(fabric)
    assert solver_worker.lambda_place(fabric, [(first, second, 1e9)]) is None


def test_a_placer_in_python() -> None:
    fabric = _core.Fabric.from_spec("fat-tree:k=4,rate=1Gbps")
    first, *_, last = solver_worker.hosts_of(fabric)
    placer = _core.Placer(fabric)
    path = placer.arrive(1, first, last)
    assert path is not None
    assert len(path) == 4
    placer.wait(2, first, last)
    assert placer.path(1) == path
    assert placer.path(2) is None
    assert placer.round(9)[:3] == (1, 0, 0)
    assert placer.max_min_bps().tolist() == pytest.approx([5e8, 5e8])
    assert placer.depart(1)
    assert not placer.depart(1)
    placer.lift_all()
    assert placer.round(0)[0] == 1
    with pytest.raises(PathloomError, match="flow 2 is placed already"):
        placer.arrive(2, first, last)
    with pytest.raises(PathloomError, match="both must be hosts"):
        placer.arrive(3, first, 0)
    with pytest.raises(PathloomError, match="epsilon"):
        _core.max_concurrent_flow(fabric, [(first, last, 1.0)], 2.0)
