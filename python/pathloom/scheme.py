"""The interface of schemes written in Python: events, actions and the base class.

A scheme is a class with a method `handle`. Its arguments are the simulated time, one event and a `View` of what a
controller can know. It returns actions, as a list or by `yield`:

>>> class Ecmp(Scheme):
...     def handle(self, now_ns: int, event: Event, view: View) -> Actions:
...         if isinstance(event, Started):
...             yield SetDefaults("ecmp")

`pathloom.compare(..., schemes=["hedera", Ecmp])` compares it with other schemes. On the command line its name is
`FILE.py:Ecmp`. Keys for its constructor follow a second colon: `FILE.py:Greedy:least=1000`.

Nodes, links and flows are identified by numbers. A path is the tuple of the links between two ToRs; it is empty if both
are the same switch. Times are whole nanoseconds.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from pathloom._core import Flow, Link, Node, View, hand_over

__all__ = [
    "MILLISECOND_NS",
    "SECOND_NS",
    "Action",
    "Actions",
    "Ageing",
    "Cells",
    "Event",
    "Flow",
    "FlowAdopted",
    "FlowArrived",
    "FlowFinished",
    "Flowlets",
    "Hold",
    "Link",
    "LinkChanged",
    "Measure",
    "MeasureAgain",
    "Needs",
    "Node",
    "Pace",
    "RatesMeasured",
    "Rehash",
    "Release",
    "Route",
    "RouteConfirmed",
    "RouteRejected",
    "Scheme",
    "SetDefaults",
    "SetWeights",
    "ShortestQueue",
    "Solve",
    "Solved",
    "Started",
    "SubflowArrived",
    "Timeout",
    "Unroute",
    "View",
    "hand_over",
]

MILLISECOND_NS = 1_000_000
SECOND_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Flowlets:
    """Packets that follow the one before within less than `gap_ns` take the same path."""

    gap_ns: int


@dataclass(frozen=True, slots=True)
class Cells:
    """The packets of each `size_bytes` of a flow take the same path. Successive cells have successive numbers."""

    size_bytes: int


@dataclass(frozen=True, slots=True)
class Rehash:
    """A sender changes its path when it meets congestion, as in FlowBender and PLB. Its transport must echo marks."""

    marked_share: float = 0.05
    """A round trip is congested if more than this share of its bytes was marked, 0 to 1."""
    rounds: int = 1
    """The path changes after this many congested round trips in a row."""
    idle_rounds: int = 0
    """The same where nothing is in flight, so that nothing is reordered; 0 for no change then."""
    on_timeout: bool = True
    """Whether the path changes when the retransmission timer expires."""
    suspension_ns: int = 0
    """After a time-out, congestion changes nothing for this time and a random part of it more."""


@dataclass(frozen=True, slots=True)
class ShortestQueue:
    """Switches choose the shortest queue of some next hops for each packet, as in DRILL."""

    drawn: int = 2
    """Number of next hops that are drawn at random for each packet."""
    remembered: int = 1
    """Number of next hops that are considered as well, because their queues were the shortest the last time."""


@dataclass(frozen=True, slots=True)
class Ageing:
    """Hosts mark packets by the bytes that their message has sent. Ports send packets of young messages first."""

    first_bytes: int
    """Bytes at which the first level ends."""
    factor: int = 4
    """Each further level ends at this many times the bytes of the one before."""
    levels: int = 8
    """Number of levels, at most 8."""
    announced: float = 0.0
    """Share of the messages whose size applications announce, 0 to 1. These are ranked by the bytes that are left."""


@dataclass(frozen=True, slots=True)
class Needs:
    """What a scheme needs from its controller."""

    detection: Literal["nothing", "label", "announced", "measured", "any"] = "label"
    """How long flows are detected: not at all, by the DSCP from hosts, by announcement, by rate, or by any of these."""
    nic_share: float = 0.1
    """For `measured` and `any`: a flow whose rate is this share of its access rate or more is long."""
    poll_period_ns: int | None = None
    """How often the flow counters of the ToRs are read; None for never."""
    subflows: bool = False
    """Whether the SYN of each MPTCP subflow is copied to the controller."""
    migration: Literal["tagged", "sfmm"] = "tagged"
    """How a flow is moved: with a tag for each version of its route, or by seamless flow migration (OFPT §5.3)."""
    rules: Literal["per_flow", "per_path"] = "per_flow"
    """Whether each flow has its own rules, or flows on one path share rules (OFPT §5.2)."""
    paces: bool = False
    """Whether the scheme limits long flows by `Pace`. Until then hosts may pace them at the rate of their card."""
    both_directions: bool = False
    """Whether the reverse direction of a connection takes the path of its flow backwards."""
    idle_timeout_s: int | None = None
    """Seconds after which switches remove the rules of an unused path; None for the controller's setting."""
    link_loads_every_ns: int | None = None
    """How often the port counters of all switches are read, for `View.link_load_bps`; None for never."""
    entropy: Literal["flow", "packet"] | Flowlets | Cells | Rehash = "flow"
    """Which packets of a flow take the same path where default routes spread flows: all, or each on its own, or by the
    rule of one of these classes. Hosts follow it by themselves, so it costs no call of the scheme for each packet."""
    selection: Literal["hash", "numbered", "round_robin"] | ShortestQueue = "hash"
    """How switches choose among the next hops of default routes: by a hash of five-tuple and entropy, by the entropy as
    the number of a path, one after another, or the shortest queue."""
    selection_tier: Literal["all", "tor", "aggregation", "core"] = "all"
    """The tier whose switches choose so; those of other tiers choose by hash."""
    ageing: Ageing | None = None
    """How hosts mark packets by age; None if they do not."""


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened. The view already includes it."""


@dataclass(frozen=True, slots=True)
class Started(Event):
    """The controller has started. A scheme can set the default routes now, by `SetDefaults`."""


@dataclass(frozen=True, slots=True)
class FlowArrived(Event):
    """A long flow was detected by the method in `Needs.detection`."""

    flow: int


@dataclass(frozen=True, slots=True)
class SubflowArrived(Event):
    """A further subflow of an MPTCP connection is being opened. All subflows share the token; None if unknown."""

    flow: int
    token: int | None


@dataclass(frozen=True, slots=True)
class FlowAdopted(Event):
    """A flow that already has a path was found, after a restart or when the scheme took over."""

    flow: int


@dataclass(frozen=True, slots=True)
class FlowFinished(Event):
    """A flow ended. The view includes it for the last time."""

    flow: int


@dataclass(frozen=True, slots=True)
class RatesMeasured(Event):
    """A round of measurements is in the view. `period_ns` is the time since the previous round."""

    period_ns: int


@dataclass(frozen=True, slots=True)
class LinkChanged(Event):
    """A link between two switches came up or went down. Both directions of a cable are reported."""

    link: int
    up: bool


@dataclass(frozen=True, slots=True)
class RouteConfirmed(Event):
    """Every switch has confirmed the path that was last requested for this flow."""

    flow: int


@dataclass(frozen=True, slots=True)
class RouteRejected(Event):
    """The path that was last requested for this flow could not be set up. The flow keeps its previous route."""

    flow: int
    why: str


@dataclass(frozen=True, slots=True)
class Solved(Event):
    """The modelled time of a `Solve` action has passed."""

    ticket: int
    answer: Any


@dataclass(frozen=True, slots=True)
class Timeout(Event):
    """The time that `poll_timeout` returned has been reached."""


@dataclass(frozen=True, slots=True)
class Action:
    """A request of a scheme to the controller. The actions of one call of `handle` are carried out in order."""


@dataclass(frozen=True, slots=True)
class SetDefaults(Action):
    """Sets the default routes, for flows that have no path from `Route`.

    They are one shortest path per ToR, one spanning tree for all, all shortest paths by hashing, one shortest path per
    host, or all shortest paths by hashing with weights by the capacity behind each next hop, in this order.
    """

    routes: Literal["single_path", "spanning_tree", "ecmp", "per_host", "weighted"]


@dataclass(frozen=True, slots=True)
class SetWeights(Action):
    """Sets how switches divide traffic among their next hops, where the default routes are `weighted`.

    By switch and destination ToR: the links by which the traffic leaves, each with a weight from 0 to 65535. Only their
    ratios count. They replace all weights that were set before. Links that are down or lead away from the ToR are left
    out. Of links between two switches with the same distance from the ToR, one direction may be used, so that there are
    no loops; the other one is left out. Switches that are not named divide by the capacity behind their next hops.
    """

    weights: Mapping[tuple[int, int], Mapping[int, int]]


@dataclass(frozen=True, slots=True)
class Route(Action):
    """Puts a flow on an individual path, or moves it to another one. No packet is lost by this.

    `rate_bps` is the bandwidth that the scheme plans for the flow (`View.allocated_bps`); only `Pace` enforces a rate.
    """

    flow: int
    path: Sequence[int]
    rate_bps: int | None = None


@dataclass(frozen=True, slots=True)
class Unroute(Action):
    """Puts a flow back on the default routes."""

    flow: int


@dataclass(frozen=True, slots=True)
class Hold(Action):
    """Stops a flow from sending, for at most the time of the lease."""

    flow: int
    lease_ns: int


@dataclass(frozen=True, slots=True)
class Release(Action):
    """Lets a held flow send."""

    flow: int


@dataclass(frozen=True, slots=True)
class Pace(Action):
    """Limits the rate at which a flow sends; None removes the limit."""

    flow: int
    rate_bps: int | None


@dataclass(frozen=True, slots=True)
class Measure(Action):
    """Reads the flow counters of the ToRs now, in addition to the periodic rounds. This counts as a round."""


@dataclass(frozen=True, slots=True)
class MeasureAgain(Action):
    """Reads the flow counters once more within the present round. This does not count as a round."""


@dataclass(frozen=True, slots=True)
class Solve(Action):
    """Models the time that a computation takes: its answer is delivered by `Solved` when `modelled_ns` have passed.

    The scheme computes the answer before it returns this action. JSON must be able to represent the answer. The time
    that Python takes for the computation never affects a result.
    """

    ticket: int
    answer: Any
    modelled_ns: int


Actions: TypeAlias = Iterable[Action]
"""What `handle` returns unless it returns None: a list, or a generator of actions."""


class Scheme(ABC):
    """The base class of schemes. Any class with `handle` is a scheme; this one adds the other methods with defaults.

    Every run makes a new instance. If the constructor has a parameter `seed`, it gets the seed of the run. Draw random
    numbers from this seed only, so that runs are repeatable. If a method raises an exception or returns an invalid
    action, all runs stop with a `SchemeError`. With `keep_going`, the actions for that event are dropped, flows keep
    their routes, the run continues, and the result is marked.
    """

    def needs(self) -> Needs:
        """Returns what the scheme needs from the controller. Called once, before any event."""
        return Needs()

    @abstractmethod
    def handle(self, now_ns: int, event: Event, view: View) -> Actions | None:
        """Handles one event and returns the resulting actions."""

    def poll_timeout(self) -> int | None:
        """Returns the time of the next `Timeout`, on the clock of `now_ns`, or None. Called after every event."""
        return None

    def save(self) -> Any:
        """Returns the state of the scheme as a value that JSON can represent, for a restart of the controller."""
        return None

    def restore(self, state: Any) -> None:  # noqa: B027
        """Restores the state that `save` returned. Called before any event."""
