"""The simulator: fabrics, path search and packet-level runs, written in Rust."""

from collections.abc import Callable, Mapping
from typing import Any, Literal, final

import numpy.typing as npt

__all__ = [
    "Fabric",
    "Flow",
    "Link",
    "Node",
    "PathloomError",
    "Placer",
    "Simulation",
    "View",
    "__version__",
    "fabrics",
    "fault_schedule",
    "hand_over",
    "max_concurrent_flow",
    "nearest",
    "parse_time_s",
    "scheme_name",
    "schemes",
    "traffics",
    "transport_settings",
    "transports",
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

    def simulated_keys(self) -> list[str]:
        """Keys of the specification that only a simulated network can follow: loss, queues, red."""

    def addresses(self) -> list[tuple[str, int, int]]:
        """Every address, its host (a node number) and the link from that host, in ascending order of address."""

    def to_node_link(self) -> str:
        """Node-link JSON, as networkx reads it."""

    def to_graphml(self) -> str:
        """GraphML text."""

    def summary(self) -> dict[str, Any]:
        """Sizes, rates, numbers of shortest paths, diameter, oversubscription, bisection."""

    def round_trip_ps(self) -> tuple[int, int] | None:
        """Longest round trip between hosts on different ToRs, with empty and with full queues, as in the summary."""

    def paths(self, source: str, target: str, how: str = "shortest", limit: int = 16) -> list[list[str]]:
        """Paths between two switches (or the ToRs of two hosts) as node names.

        `how` is `shortest`, `k-shortest`, `k-edge-disjoint` or `simple:N`, all paths of at most N hops.
        """

@final
class Simulation:
    """One run of one scheme."""

    def __new__(
        cls, settings: str, scheme: object | None = None, make: Callable[[], object] | None = None
    ) -> Simulation:
        """Prepares a run from settings as JSON text; see `pathloom.experiments.execution`.

        `scheme`, an object with a method `handle`, stands in for the scheme that the settings name; `make` makes
        another for each controller that a fault starts.
        """

    def advance(self, until_s: float) -> float:
        """Simulates up to a time, without holding the interpreter; returns the simulated seconds reached."""

    @property
    def one_thread(self) -> str | None:
        """Why the run stays on one thread, however many it is given; None if it does not."""

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

    def cable_faults(self) -> list[tuple[int, bool, list[int]]]:
        """Cables that go down or come back, in order of time: nanoseconds, whether they come back, one link of each.

        Raises `PathloomError` when a fault is of something else.
        """
    def keep_ways(self) -> None:
        """Notes from now on which way each subflow takes when it closes, for `take_ways`."""
    def take_ways(self) -> list[tuple[int, int, list[int], str | None]]:
        """The ways of the subflows that closed since the last call, then those of the open ones.

        Each is the number of its flow, its source port, the links that its data would cross, and why it is there, where
        the controller has placed it. Nothing in the run changes.
        """
    def switch_tables(self) -> str:
        """What every switch has been told so far: JSON rows of node number, rules and groups."""

    @property
    def troubles(self) -> tuple[int, str, str] | None:
        """How often a scheme in Python failed, the first failure in one line, and its traceback; None if it did not."""

    def outcome(self) -> dict[str, Any]:
        """What the run gave so far: `flows`, `subflows`, `links` (columns), `packets`, `control`, `programs`, `end_ns`.

        `subflows` has the subflows of transfers that have several, with the numbers of the links that each crosses.

        A whole number that is not there is -1, a real one NaN.
        """

@final
class Node:
    """A host or switch."""

    @property
    def id(self) -> int:
        """Its number, the place in `View.nodes`."""

    @property
    def name(self) -> str:
        """Its name, such as `e0_1`."""

    @property
    def tier(self) -> Literal["host", "tor", "aggregation", "core"]:
        """Where it stands in the fabric."""

    @property
    def pod(self) -> int | None:
        """Its pod, where the fabric has any."""

@final
class Link:
    """One direction of a cable."""

    @property
    def id(self) -> int:
        """Its number, the place in `View.links`."""

    @property
    def source(self) -> int:
        """The node that sends into it."""

    @property
    def target(self) -> int:
        """The node that receives from it."""

    @property
    def reverse(self) -> int:
        """The other direction of the cable."""

    @property
    def rate_bps(self) -> int:
        """Bits per second."""

    @property
    def delay_ps(self) -> int:
        """Propagation delay in picoseconds."""

    @property
    def buffer_packets(self) -> int:
        """Packets that may wait, not counting the one being sent."""

    @property
    def between_switches(self) -> bool:
        """Whether no end of it is a host."""

@final
class Flow:
    """What a controller knows of one flow, at the moment of the view it was taken from."""

    @property
    def id(self) -> int:
        """Its number; never given twice."""

    @property
    def src_host(self) -> int:
        """Sending host."""

    @property
    def dst_host(self) -> int:
        """Receiving host."""

    @property
    def src_tor(self) -> int:
        """Switch that the sender is attached to: where its paths begin."""

    @property
    def dst_tor(self) -> int:
        """Switch that the receiver is attached to: where its paths end."""

    @property
    def five_tuple(self) -> tuple[str, int, str, int, int]:
        """Source address and port, destination address and port, IP protocol."""

    @property
    def arrived_ns(self) -> int:
        """When the controller first heard of it."""

    @property
    def size_bytes(self) -> int | None:
        """Payload bytes in all, if the application announced them."""

    @property
    def mptcp_token(self) -> int | None:
        """Token of the MPTCP connection it belongs to."""

    @property
    def long(self) -> bool:
        """Whether the scheme was told of it."""

    @property
    def route(self) -> tuple[int, ...] | None:
        """Links of the path it is on; None on the default routes."""

    @property
    def pending(self) -> tuple[int, ...] | None:
        """Links of a path that was asked for and is not confirmed yet."""

    @property
    def intended_route(self) -> tuple[int, ...] | None:
        """The path it is on, or is about to be on."""

    @property
    def allocated_bps(self) -> int | None:
        """The bandwidth the scheme counts on for it."""

    @property
    def counted_bytes(self) -> int:
        """Bytes counted at its source ToR, headers included, at the last reading."""

    @property
    def rate_bps(self) -> int | None:
        """Rate over the last measuring period, headers included."""

@final
class View:
    """A snapshot of what the controller knows. It may be kept; what is not looked at costs nothing."""

    @property
    def nodes(self) -> tuple[Node, ...]:
        """All nodes, by number."""

    @property
    def links(self) -> tuple[Link, ...]:
        """All directed links, by number."""

    @property
    def hosts(self) -> list[int]:
        """The hosts."""

    @property
    def switches(self) -> list[int]:
        """The switches."""

    @property
    def tors(self) -> list[int]:
        """The switches with hosts."""

    def find(self, name: str) -> int | None:
        """The node of that name."""

    def link_between(self, source: int, target: int) -> int | None:
        """The link from one node to another."""

    def is_up(self, link: int) -> bool:
        """Whether packets can cross a link."""

    @property
    def links_down(self) -> list[int]:
        """The directed links that are down."""

    @property
    def flows(self) -> Mapping[int, Flow]:
        """All flows that are known, in order of arrival; those that are not long too, if the switches count them."""

    def flow(self, flow: int) -> Flow:
        """One flow, without making an object of every other. Raises `KeyError` when it is not known."""

    def long_flows(self) -> list[Flow]:
        """The flows that the scheme was told of."""

    def paths(self, source: int, target: int, how: str = "shortest", limit: int = 64) -> list[tuple[int, ...]]:
        """Paths between two ToRs over links that are up, as tuples of links.

        `how` is `shortest`, `k-shortest`, `k-edge-disjoint` or `simple:N`, all paths of at most N hops.
        """

    def link_load_bps(self, link: int) -> int | None:
        """What a link carried between the last two readings of its port's counters (`Needs.link_loads_every_ns`)."""

    def allocated_bps(self) -> list[int]:
        """By link: the bandwidth that the scheme counts on there, summed over routes and pending routes."""

    @property
    def defaults(self) -> Literal["single_path", "spanning_tree", "ecmp", "per_host"]:
        """How flows without a path of their own are routed."""

    @property
    def busy_share(self) -> float:
        """Share of the last second or so that the controller was busy, 0 to 1."""

    def switch_rtt_ns(self, switch: int) -> int | None:
        """Round-trip time to a switch, where one was measured."""

def fault_schedule(
    seed: int, everything: bool = False, smallest: bool = False, sabotage: bool = False
) -> tuple[list[str], str]:
    """Runs the fault schedule of a seed: the promises that it breaks, a line each, and the schedule in words.

    `everything` draws what is known to break promises as well; `smallest` leaves out what does not matter to the first
    promise broken; `sabotage` has switches confirm what they have not done, which must be found.
    """

def hand_over(old: object, new: object) -> None:
    """Gives what one scheme remembers to another, by way of JSON text, as a restart of the controller does.

    Raises `PathloomError` when JSON cannot hold it or `new` cannot read it.
    """

def parse_time_s(text: str) -> float:
    """Reads `300ms` as seconds."""

def nearest(word: str, known: list[str]) -> str | None:
    """The name of `known` that was probably meant by `word`."""

def scheme_name(spec: str) -> str:
    """Checks the specification of a scheme and gives its name."""

def schemes() -> list[dict[str, Any]]:
    """Every scheme: name, about, paper, transport of its hosts, keys (each a dict of name, default and about)."""

def transports() -> list[dict[str, Any]]:
    """Every transport: name, about, source, keys (each a dict of name, default, about and source)."""

def traffics() -> list[dict[str, Any]]:
    """Every kind of traffic: name, about, keys (each a dict of name and about)."""

def fabrics() -> list[dict[str, Any]]:
    """Every fabric that has a name: name, example, about, common_keys."""

def transport_settings(spec: str | None = None) -> dict[str, Any]:
    """What a `--transport` says of each connection, or the default: sizes in bytes, times in ns; and its name."""

def max_concurrent_flow(
    fabric: Fabric, flows: list[tuple[int, int, float]], epsilon: float
) -> tuple[float, float, int, int]:
    """The maximum concurrent flow of (sending host, receiving host, b/s): λ, its bound, rounds, operations.

    Hosts are node numbers. What is down from the start carries nothing; links of hosts are no limit.
    """

@final
class Placer:
    """Flows on one path each, on the links of a fabric that are up from the start. Hosts are node numbers."""

    def __new__(cls, fabric: Fabric) -> Placer:
        """No flows."""

    def wait(self, flow_id: int, src: int, dst: int) -> None:
        """Takes a flow in; the next round places it."""

    def arrive(self, flow_id: int, src: int, dst: int) -> list[int] | None:
        """Takes a flow in and places it at once; the links of its path between its ToRs."""

    def path(self, flow_id: int) -> list[int] | None:
        """The links of a flow's path between its ToRs; None without one."""

    def depart(self, flow_id: int) -> bool:
        """Takes a flow out; whether it was there."""

    def lift_all(self) -> None:
        """Takes all flows off their paths."""

    def round(self, most_moves: int) -> tuple[int, int, int, int]:
        """One round: flows placed, moved, left without a path; operations."""

    def max_min_bps(self) -> npt.NDArray[Any]:
        """Max-min rates, by ascending name of the flow."""
