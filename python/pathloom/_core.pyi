"""The simulator: fabrics, path search and packet-level runs, written in Rust."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, final

import numpy.typing as npt

__all__ = [
    "Binder",
    "Fabric",
    "Flow",
    "Link",
    "Node",
    "PathloomError",
    "Placer",
    "SchemeHost",
    "Simulation",
    "View",
    "ViewChanges",
    "__commit__",
    "__profile__",
    "__version__",
    "fabrics",
    "fault_schedule",
    "fitting_min_rto_ns",
    "hand_over",
    "max_concurrent_flow",
    "max_min_rates",
    "nearest",
    "parse_time_s",
    "scheme_encodings",
    "scheme_name",
    "scheme_transport",
    "schemes",
    "traffic_parts",
    "traffics",
    "transport_settings",
    "transports",
]

__version__: str
__profile__: str
"""How the library was compiled: `release` or `dev`."""
__commit__: str | None
"""Commit of the sources of a package; None in other builds."""

class PathloomError(ValueError):
    """Bad input. Its text is one line: what is wrong and where, what was expected, the nearest valid name."""

@final
class Fabric:
    """Hosts, switches and the cables between them."""

    @staticmethod
    def from_spec(spec: str) -> Fabric:
        """Builds `fat-tree:k=4,rate=10Mbps`, or reads a file: `FILE.graphml`, `.json`, `.csv` or `.topo`."""

    @staticmethod
    def from_node_link(text: str, spec: str) -> Fabric:
        """Builds a fabric from node-link JSON text. `spec` is its name, which may have keys."""

    @property
    def spec(self) -> str:
        """The specification that the fabric was built from."""

    @property
    def notes(self) -> list[str]:
        """What was left out, renamed or guessed when the fabric was read from a file."""

    def nodes(self) -> list[dict[str, Any]]:
        """One dict per node, in order: name, tier, pod, position."""

    def links(self) -> dict[str, npt.NDArray[Any]]:
        """Columns of the directed links.

        source, target (node numbers), source_port, target_port (counted from 1), rate_bps, delay_ps, buffer_packets,
        up.
        """

    def simulated_keys(self) -> list[str]:
        """Keys of the specification that only the simulator can apply: loss, queues, red."""

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
class Binder:
    """A scheme over a fabric of routers: it chooses the source ports of connections, and so their paths.

    A key is source address and port, and destination address and port, by which the scheme knows a TCP connection.
    Times are in nanoseconds, and do not go back.
    """

    def __new__(cls, fabric: Fabric, scheme: str, seed: int) -> Binder:
        """Starts the scheme at time 0. Raises `PathloomError` for one without a central part."""

    def set_ports(self, source: str, target: str, port: int, paths: Mapping[int, Sequence[int]]) -> None:
        """Replaces the known source ports of TCP connections to a port, with the links of their paths."""

    def open(
        self, now_ns: int, key: tuple[str, int, str, int], long: bool, size_bytes: int | None
    ) -> tuple[int | None, list[int], bool]:
        """A connection is about to open. Returns its source port, its path, and whether the scheme chose the path.

        None: no free port of the path is known. Raises `PathloomError` if the connection is open already, or an address
        is unknown.
        """

    def port_is_taken(self, key: tuple[str, int, str, int]) -> int | None:
        """Returns another port of the same path, because another program has the one that was given."""

    def sent(self, now_ns: int, key: tuple[str, int, str, int], packets: int, size_bytes: int) -> None:
        """Packets and bytes, with headers, that a connection has sent since it opened."""

    def close(self, now_ns: int, key: tuple[str, int, str, int]) -> None:
        """A connection has ended."""

    def poll_timeout(self) -> int | None:
        """When `advance` must be called next, unless another method is called before."""

    def advance(self, now_ns: int) -> None:
        """Does what is due."""

    def counts(self) -> dict[str, Any]:
        """What was done: opened, chosen, without_port, moves_refused, polls, polling_period_s."""

@final
class Simulation:
    """One run of one scheme."""

    def __new__(
        cls, settings: str, scheme: object | None = None, make: Callable[[], object] | None = None
    ) -> Simulation:
        """Prepares a run from settings as JSON text; see `pathloom.experiments.running.execution`.

        `scheme`, an object with a method `handle`, replaces the scheme that the settings name. `make` makes a new one
        for each controller that a fault starts.
        """

    def advance(self, until_s: float) -> float:
        """Simulates up to a time without holding the interpreter lock. Returns the simulated seconds reached."""

    @property
    def one_thread(self) -> str | None:
        """Why the run uses one thread, however many it is given; None if it can use several."""

    def finish(self) -> None:
        """Completes the files that the run writes (pcap, event log); without this call they are removed."""

    @property
    def done(self) -> bool:
        """Whether nothing is left to simulate."""

    @property
    def end_s(self) -> float:
        """The latest end of the run, drain included, in simulated seconds."""

    @property
    def first_subflows(self) -> tuple[int, bool]:
        """Subflows of the next transfer and those that start before it could end; whether they acknowledge packets."""

    @property
    def description(self) -> str:
        """The generated traffic: parameters, sources of tables, load achieved."""

    @property
    def notes(self) -> list[str]:
        """What a reader of the results should know about the workload."""

    def offered(self) -> list[dict[str, Any]]:
        """The flows that the run will offer, so that another world can carry the same flows.

        One dict per flow: `start_ns`, counted from the end of the flows in `after` if there are any; src, dst,
        src_address, dst_address, src_port, dst_port, size_bytes, coflow, dscp, optimum_bps, ideal_fct_ns; `ways`, the
        links that data and acknowledgements cross under the present rules.
        """

    def cable_faults(self) -> list[tuple[int, bool, list[int]]]:
        """The faults of cables, in order of time: nanoseconds, whether the cables come up, and one link of each cable.

        Raises `PathloomError` if a fault concerns anything but cables.
        """
    def drain(self, name: str, out: bool) -> None:
        """Takes a switch or a cable (`e0_0-a0_0`) out of service without loss, or back into it if `out` is false."""
    def set_scheme(self, spec: str) -> None:
        """Puts another scheme in charge of the running controller, without loss."""
    def keep_ways(self) -> None:
        """Records from now on the path of each subflow when it closes, for `take_ways`."""
    def take_ways(self) -> list[tuple[int, int, list[int], str | None]]:
        """The paths of the subflows that closed since the last call, then those of the open subflows.

        Each item has the number of the flow, the source port, the links that its data would cross, and the reason for
        this path if the controller has chosen it. The call does not change the run.
        """
    def switch_tables(self) -> str:
        """The rules and groups that every switch has received so far: JSON rows of node number, rules and groups."""

    @property
    def troubles(self) -> tuple[int, str, str] | None:
        """How often a scheme in Python failed, the first failure in one line, and its traceback; None if never."""

    def outcome(self) -> dict[str, Any]:
        """Results so far: `flows`, `subflows`, `links` (columns), `packets`, `control`, `programs`, `end_ns`.

        `flows` has a column `delay_ns`: the time between the end of what a flow waited for and its start, -1 if it
        starts at a time of its own.

        `subflows` has the subflows of transfers with several subflows, and the numbers of the links that each crosses.

        A missing whole number is -1, a missing real number NaN.
        """

@final
class Node:
    """A host or switch."""

    @property
    def id(self) -> int:
        """Number of the node: its index in `View.nodes`."""

    @property
    def name(self) -> str:
        """Name of the node, such as `e0_1`."""

    @property
    def tier(self) -> Literal["host", "tor", "aggregation", "core"]:
        """Tier of the node in the fabric."""

    @property
    def pod(self) -> int | None:
        """Pod of the node, if the fabric has pods."""

@final
class Link:
    """One direction of a cable."""

    @property
    def id(self) -> int:
        """Number of the link: its index in `View.links`."""

    @property
    def source(self) -> int:
        """Number of the node that sends on the link."""

    @property
    def target(self) -> int:
        """Number of the node that receives from the link."""

    @property
    def reverse(self) -> int:
        """Number of the link in the other direction of the cable."""

    @property
    def rate_bps(self) -> int:
        """Rate in bits per second."""

    @property
    def delay_ps(self) -> int:
        """Propagation delay in picoseconds."""

    @property
    def buffer_packets(self) -> int:
        """Maximum number of queued packets, without the one that is being sent."""

    @property
    def between_switches(self) -> bool:
        """Whether both ends of the link are switches."""

@final
class Flow:
    """What a controller knows about one flow, at the time of the view that it was read from."""

    @property
    def id(self) -> int:
        """Number of the flow; no number is used twice."""

    @property
    def src_host(self) -> int:
        """Sending host."""

    @property
    def dst_host(self) -> int:
        """Receiving host."""

    @property
    def src_tor(self) -> int:
        """Switch that the sender is attached to; paths begin there."""

    @property
    def dst_tor(self) -> int:
        """Switch that the receiver is attached to; paths end there."""

    @property
    def five_tuple(self) -> tuple[str, int, str, int, int]:
        """Source address and port, destination address and port, IP protocol."""

    @property
    def arrived_ns(self) -> int:
        """Time when the controller first learned of the flow."""

    @property
    def size_bytes(self) -> int | None:
        """Total payload bytes, if the application announced them."""

    @property
    def mptcp_token(self) -> int | None:
        """Token of the MPTCP connection that the flow belongs to."""

    @property
    def long(self) -> bool:
        """Whether the flow was reported to the scheme as a long flow."""

    @property
    def route(self) -> tuple[int, ...] | None:
        """Links of the path that the flow is on; None on the default routes."""

    @property
    def pending(self) -> tuple[int, ...] | None:
        """Links of a path that was requested and is not confirmed yet."""

    @property
    def intended_route(self) -> tuple[int, ...] | None:
        """Links of the requested path if there is one, else of the present path."""

    @property
    def allocated_bps(self) -> int | None:
        """The bandwidth that the scheme plans for the flow."""

    @property
    def counted_bytes(self) -> int:
        """Bytes that the source ToR had counted at the last reading, headers included."""

    @property
    def rate_bps(self) -> int | None:
        """Rate over the last measuring period, headers included."""

@final
class View:
    """A snapshot of what the controller knows. It may be kept. Parts that are not read cost nothing."""

    @property
    def nodes(self) -> tuple[Node, ...]:
        """All nodes, by number."""

    @property
    def links(self) -> tuple[Link, ...]:
        """All directed links, by number."""

    @property
    def hosts(self) -> list[int]:
        """Node numbers of the hosts."""

    @property
    def switches(self) -> list[int]:
        """Node numbers of the switches."""

    @property
    def tors(self) -> list[int]:
        """Node numbers of the switches with hosts."""

    def find(self, name: str) -> int | None:
        """Number of the node with that name; None if there is none."""

    def link_between(self, source: int, target: int) -> int | None:
        """Number of the link from one node to another; None if there is none."""

    def is_up(self, link: int) -> bool:
        """Whether packets can cross a link."""

    @property
    def links_down(self) -> list[int]:
        """The directed links that are down."""

    @property
    def flows(self) -> Mapping[int, Flow]:
        """All known flows, in order of arrival. Short flows are included if the switches count them."""

    def flow(self, flow: int) -> Flow:
        """One flow, without making an object of every other. Raises `KeyError` when it is not known."""

    def long_flows(self) -> list[Flow]:
        """The flows that were reported to the scheme as long flows."""

    def paths(self, source: int, target: int, how: str = "shortest", limit: int = 64) -> list[tuple[int, ...]]:
        """Paths between two ToRs over links that are up, as tuples of links.

        `how` is `shortest`, `k-shortest`, `k-edge-disjoint` or `simple:N`, all paths of at most N hops.
        """

    def link_load_bps(self, link: int) -> int | None:
        """Mean rate of a link between the last two readings of its port counters (`Needs.link_loads_every_ns`)."""

    def allocated_bps(self) -> list[int]:
        """The bandwidth that the scheme plans on each link, summed over routes and pending routes."""

    @property
    def defaults(self) -> Literal["single_path", "spanning_tree", "ecmp", "per_host"]:
        """How flows that have no path from `Route` are routed."""

    @property
    def busy_share(self) -> float:
        """Share of the last second or so that the controller was busy, 0 to 1."""

    def switch_rtt_ns(self, switch: int) -> int | None:
        """Round-trip time to a switch; None if none was measured."""

@final
class SchemeHost:
    """The answers of a scheme in Python to the lines of a live controller (`pathloom.scheme_process`)."""

    def __new__(cls, label: str, scheme: object, hello: str) -> SchemeHost:
        """A host for an object with a method `handle`. `hello` is the first line of the controller.

        Raises `PathloomError`.
        """

    @staticmethod
    def seed_of(label: str, hello: str) -> int:
        """The seed in the first line of a controller. Raises `PathloomError` if it is of another version."""

    def greeting(self) -> str:
        """The first line for the controller."""

    def answer(self, line: str) -> tuple[str, str | None]:
        """The answer to a line of the controller, and the traceback of an exception in the scheme.

        After an exception the answer has no actions. Raises `PathloomError` if the line cannot be used.
        """

@final
class ViewChanges:
    """What changes in the views of a scheme, as a live controller tells it to a process."""

    def __init__(self) -> None: ...
    def next(self, view: View) -> str:
        """What has changed since the view of the last call, as JSON."""

def fault_schedule(
    seed: int, everything: bool = False, smallest: bool = False, sabotage: bool = False
) -> tuple[list[str], str]:
    """Runs the fault schedule of a seed. Returns the promises that it breaks, one line each, and the schedule in words.

    `everything` also draws cases that are known to break promises. `smallest` leaves out what does not matter to the
    first broken promise. `sabotage` makes switches confirm what they have not done; the checks must find this.
    """

def hand_over(old: object, new: object) -> None:
    """Passes the state of one scheme to another as JSON text, as a restart of the controller does.

    Raises `PathloomError` if JSON cannot represent the state or `new` cannot read it.
    """

def parse_time_s(text: str) -> float:
    """Reads `300ms` as seconds."""

def fitting_min_rto_ns(full_round_trip_ps: int) -> int:
    """The minimum time-out for a longest round trip with full queues: four of these, rounded up to one digit."""

def nearest(word: str, known: list[str]) -> str | None:
    """The name in `known` that `word` probably stands for; None if there is none."""

def scheme_name(spec: str) -> str:
    """Checks the specification of a scheme and returns its name."""

def scheme_transport(spec: str) -> str:
    """The name of the transport that the hosts of a scheme run by default."""

def schemes() -> list[dict[str, Any]]:
    """Every scheme: name, about, paper, transport of its hosts, keys (each a dict of name, default and about).

    `encodings` are those of `scheme_encodings`.
    """

def scheme_encodings(spec: str) -> list[dict[str, str]]:
    """Which ways of naming paths to a fabric can carry a scheme.

    One dict each: name, carried (`yes`, `in part` or `no`), why. Raises `PathloomError` for an unknown scheme.
    """

def transports() -> list[dict[str, Any]]:
    """Every transport: name, about, source, keys (each a dict of name, default, about and source)."""

def traffic_parts(traffic: str) -> list[str]:
    """The specifications that `+` joins in a specification of traffic. Raises `PathloomError`."""

def traffics() -> list[dict[str, Any]]:
    """Every kind of traffic: name, about, keys (each a dict of name and about)."""

def fabrics() -> list[dict[str, Any]]:
    """Every fabric that has a name: name, example, about, common_keys."""

def transport_settings(spec: str | None = None) -> dict[str, Any]:
    """Settings of each connection by a `--transport` or by default (sizes in bytes, times in ns), and its name."""

def max_concurrent_flow(
    fabric: Fabric, flows: list[tuple[int, int, float]], epsilon: float
) -> tuple[float, float, int, int]:
    """The maximum concurrent flow of (sending host, receiving host, b/s): λ, its bound, rounds, operations.

    Hosts are node numbers. Links that are down from the start carry nothing. Links of hosts are no limit.
    """

def max_min_rates(capacity: list[float], flows: list[list[int]]) -> npt.NDArray[Any]:
    """Max-min fair rates in the unit of the capacities. A flow has the numbers of the links that it crosses."""

@final
class Placer:
    """Places each flow on one path, over the links of a fabric that are up from the start. Hosts are node numbers."""

    def __new__(cls, fabric: Fabric) -> Placer:
        """Makes a placer without flows."""

    def wait(self, flow_id: int, src: int, dst: int) -> None:
        """Adds a flow; the next round places it."""

    def arrive(self, flow_id: int, src: int, dst: int) -> list[int] | None:
        """Adds a flow and places it at once. Returns the links of its path between its ToRs; None without a path."""

    def path(self, flow_id: int) -> list[int] | None:
        """The links of a flow's path between its ToRs; None without a path."""

    def depart(self, flow_id: int) -> bool:
        """Removes a flow. Returns whether it was there."""

    def lift_all(self) -> None:
        """Takes all flows off their paths."""

    def round(self, most_moves: int) -> tuple[int, int, int, int]:
        """Carries out a round. Returns how many flows were placed, moved and left without a path; operations."""

    def max_min_bps(self) -> npt.NDArray[Any]:
        """Max-min rates in b/s, in ascending order of flow numbers."""
