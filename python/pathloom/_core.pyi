"""The simulator: fabrics, path search and packet-level runs, written in Rust."""

from typing import Any, final

import numpy.typing as npt

__all__ = [
    "Fabric",
    "PathloomError",
    "Simulation",
    "__version__",
    "fabrics",
    "nearest",
    "parse_time_s",
    "scheme_name",
    "schemes",
    "traffics",
    "transport_settings",
]

__version__: str

class PathloomError(ValueError):
    """Bad input. Its text is one line: what is wrong and where, what was expected, the nearest valid name."""

@final
class Fabric:
    """Hosts, switches and the cables between them."""

    @staticmethod
    def from_spec(spec: str) -> Fabric:
        """Builds `fat-tree:k=4,rate=10Mbps`, or reads `FILE.graphml` or `FILE.json`."""

    @staticmethod
    def from_node_link(text: str, spec: str) -> Fabric:
        """Builds what node-link JSON text describes; `spec` is its name, with keys if any."""

    @property
    def spec(self) -> str:
        """The specification it was built from."""

    @property
    def notes(self) -> list[str]:
        """What was left out, renamed or guessed when it was read from a file."""

    def nodes(self) -> list[dict[str, Any]]:
        """One dict per node, in order: name, tier, pod, position."""

    def links(self) -> dict[str, npt.NDArray[Any]]:
        """Columns of the directed links.

        source, target (node numbers), source_port, target_port (counted from 1), rate_bps, delay_ps, buffer_packets,
        up.
        """

    def addresses(self) -> list[tuple[str, int, int]]:
        """Every address, its host (a node number) and the link from that host, in ascending order of address."""

    def to_node_link(self) -> str:
        """Node-link JSON, as networkx reads it."""

    def to_graphml(self) -> str:
        """GraphML text."""

    def summary(self) -> dict[str, Any]:
        """Sizes, rates, numbers of shortest paths, diameter, oversubscription, bisection."""

    def paths(self, source: str, target: str, how: str = "shortest", limit: int = 16) -> list[list[str]]:
        """Paths between two switches (or the ToRs of two hosts) as node names.

        `how` is `shortest`, `k-shortest`, `k-edge-disjoint` or `simple:N`, all paths of at most N hops.
        """

@final
class Simulation:
    """One run of one scheme."""

    def __new__(cls, settings: str) -> Simulation:
        """Prepares a run from settings as JSON text; see `pathloom.experiments.execution`."""

    def advance(self, until_s: float) -> float:
        """Simulates up to a time, without holding the interpreter; returns the simulated seconds reached."""

    def finish(self) -> None:
        """Completes the files that are written beside the run (pcap, event log); without it they are removed."""

    @property
    def done(self) -> bool:
        """Whether nothing is left to simulate."""

    @property
    def end_s(self) -> float:
        """When the run ends at the latest, drain included, in simulated seconds."""

    @property
    def description(self) -> str:
        """What was generated: parameters, sources of tables, load achieved."""

    @property
    def notes(self) -> list[str]:
        """What a reader of the results should know of the workload."""

    def offered(self) -> list[dict[str, Any]]:
        """The flows as the run will offer them, so that another world can carry the same.

        One dict per flow: `start_ns`, which counts from the end of the flows `after` where there are such; src, dst,
        src_address, dst_address, src_port, dst_port, size_bytes, coflow, dscp, optimum_bps, ideal_fct_ns; `ways`, the
        links that data and acknowledgements cross by the rules as they stand.
        """

    def switch_tables(self) -> str:
        """What every switch has been told so far: JSON rows of node number, rules and groups."""

    def outcome(self) -> dict[str, Any]:
        """What the run gave so far: `flows` and `links` as columns, `packets`, `control`, `end_ns`.

        A whole number that is not there is -1, a real one NaN.
        """

def parse_time_s(text: str) -> float:
    """Reads `300ms` as seconds."""

def nearest(word: str, known: list[str]) -> str | None:
    """The name of `known` that was probably meant by `word`."""

def scheme_name(spec: str) -> str:
    """Checks the specification of a scheme and gives its name."""

def schemes() -> list[dict[str, Any]]:
    """Every scheme: name, about, paper, keys (each a dict of name, default and about)."""

def traffics() -> list[dict[str, Any]]:
    """Every kind of traffic: name, about, keys (each a dict of name and about)."""

def fabrics() -> list[dict[str, Any]]:
    """Every fabric that has a name: name, example, about, common_keys."""

def transport_settings(spec: str | None = None) -> dict[str, Any]:
    """What a `--transport` says, or the default: sizes in bytes, times in ns."""
