"""Every central scheme beside hashing on fifteen workloads: none is clearly worse by its own doing."""

from __future__ import annotations

import pytest

import pathloom as pl
from pathloom.experiments.results.summary import paired_differences
from pathloom.experiments.results.verdicts import HEADLINE, Verdict, verdict

pytestmark = pytest.mark.long

SCHEMES = {"ecmp": ("hedera", "hedera-sa", "ofpt", "lessor", "loom", "loom:hosts=tcp"), "mptcp": ("mptcp-aware",)}
"""Central schemes by the scheme that hashes the same hosts' traffic. The hosts of loom pull packets; with
`hosts=tcp` they run TCP."""
SLOW, SOME, FAST = (f"fat-tree:k=4,rate={rate}" for rate in ("10Mbps", "100Mbps", "1Gbps"))
JELLYFISH = "jellyfish:switches=20,ports=8,hosts=40,rate=100Mbps"
SPINE = "leaf-spine:spines=4,leaves=4,hosts=4,rate=1Gbps"
ON_OFF = "on-off:load=0.5,pattern=random,sizes=web-search,max_size=1MB"
WORKLOADS = {
    "stride": (SLOW, "long-lived:pattern=stride", "5s", "throughput"),
    "permutation": (SLOW, "long-lived:pattern=permutation", "5s", "throughput"),
    "random": (SLOW, "long-lived:pattern=random", "5s", "throughput"),
    "one-to-four": (SLOW, "long-lived:pattern=one-to-4-even", "5s", "throughput"),
    "all-to-all": (SLOW, "long-lived:pattern=all-to-all", "5s", "throughput"),
    "jellyfish": (JELLYFISH, "long-lived:pattern=permutation", "1s", "throughput"),
    "web search at 0.3": (FAST, "web-search:load=0.3", "200ms", "fct_s"),
    "web search at 0.8": (FAST, "web-search:load=0.8", "200ms", "fct_s"),
    "data mining": (FAST, "data-mining:load=0.5,max_size=10MB", "200ms", "fct_s"),
    "hadoop": (FAST, "hadoop:load=0.5", "100ms", "fct_s"),
    "on-off": (SLOW, ON_OFF, "5s", "fct_s"),
    "leaf-spine": (SPINE, "web-search:load=0.6", "200ms", "fct_s"),
    "collective": (SPINE, "all-to-all:size=1MB,order=random", "200ms", "completion_s"),
    "incast of 20 KB": (FAST, "incast:senders=15,size=20KB,period=50ms", "200ms", "completion_s"),
    "incast of 256 KB": (SOME, "incast:senders=15,size=256KB,period=1s", "3s", "fct_s"),
}
"""Fabric, traffic, duration and the figure that counts, by name."""
ALLOWED = 0.05
"""By how much a scheme may be worse than hashing, as a share, if the runs show it at all."""
BY_NATURE = {
    ("incast of 256 KB", "ofpt"): 0.4,
    ("incast of 256 KB", "loom"): 0.35,
    ("incast of 256 KB", "loom:hosts=tcp"): 0.35,
    ("incast of 256 KB", "mptcp-aware"): 0.35,
    ("collective", "mptcp-aware"): 3.0,
}
"""Larger shares, for reasons that docs/schemes.md names."""


def worse(workload: str, hashed: str) -> dict[str, float]:
    """How much worse than `hashed` the schemes are that are clearly worse, run by run, as a share of its figure."""
    fabric, traffic, duration, figure = WORKLOADS[workload]
    until = None if figure == "throughput" else "finished"
    schemes = [hashed, *SCHEMES[hashed]]
    result = pl.compare(fabric=fabric, traffic=traffic, schemes=schemes, duration=duration, runs=5, seed=1, until=until)
    rows = {row["scheme"]: row for row in result.summary["schemes"]}
    compared, base = HEADLINE[figure], rows[hashed][figure]["mean"]
    differences = paired_differences([rows[scheme] for scheme in schemes], compared.of, 0)
    found = {}
    for scheme, difference in zip(schemes[1:], differences[1:], strict=True):
        assert difference is not None
        if verdict(difference) is Verdict.CLEAR:
            value = rows[scheme][figure]["mean"]
            found[scheme] = (base / value if compared.high_is_better else value / base) - 1
    return found


@pytest.mark.parametrize("hashed", SCHEMES)
@pytest.mark.parametrize("workload", WORKLOADS)
def test_no_scheme_is_worse_than_hashing(workload: str, hashed: str) -> None:
    too_much = {
        scheme: round(share, 3)
        for scheme, share in worse(workload, hashed).items()
        if share > BY_NATURE.get((workload, scheme), ALLOWED)
    }
    assert not too_much, f"{workload}: worse than {hashed}: {too_much}"
