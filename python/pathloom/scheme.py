"""What a scheme written in Python speaks of: events in, actions out.

A scheme is a class with a method `handle`. It is given the simulated time, one event and a `View` of what a controller
can know, and answers with actions, as a list or by `yield`:

>>> class Ecmp(Scheme):
...     def handle(self, now_ns: int, event: Event, view: View) -> Actions:
...         if isinstance(event, Started):
...             yield SetDefaults("ecmp")

`pathloom.compare(..., schemes=["hedera", Ecmp])` runs it beside the others; on the command line it is
`FILE.py:Ecmp`, with keys for its constructor behind a colon: `FILE.py:Greedy:least=1000`.

Nodes, links and flows go by their numbers; a path is the tuple of the links between two ToRs, empty when both are the
same. Times are whole nanoseconds.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from pathloom._core import Flow, Link, Node, View, hand_over

__all__ = [
    "MILLISECOND_NS",
    "SECOND_NS",
    "Action",
    "Actions",
    "Event",
    "Flow",
    "FlowAdopted",
    "FlowArrived",
    "FlowFinished",
    "Hold",
    "Link",
    "LinkChanged",
    "Measure",
    "MeasureAgain",
    "Needs",
    "Node",
    "Pace",
    "RatesMeasured",
    "Release",
    "Route",
    "RouteConfirmed",
    "RouteRejected",
    "Scheme",
    "SetDefaults",
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
class Needs:
    """What a scheme needs from its controller."""

    detection: Literal["nothing", "label", "announced", "measured", "any"] = "label"
    """How long flows are found: not at all, by the DSCP that hosts give them, by announcement, by their rate."""
    nic_share: float = 0.1
    """`measured`: a flow at this share of its access rate or more is long."""
    poll_period_ns: int | None = None
    """How often the flow counters of the ToRs are read; None for never."""
    subflows: bool = False
    """Whether the SYN of each MPTCP subflow is copied to the controller."""
    migration: Literal["tagged", "sfmm"] = "tagged"
    """How a flow is moved: by a tag of each version of its route, or by seamless flow migration (OFPT §5.3)."""
    rules: Literal["per_flow", "per_path"] = "per_flow"
    """Whether flows on one path share rules (OFPT §5.2)."""
    paces: bool = False
    """Whether long flows are told how fast to send, by `Pace`; until then hosts pace them to their cards' rates."""
    both_directions: bool = False
    """Whether the other direction of a connection takes the path of its flow, reversed."""
    idle_timeout_s: int | None = None
    """Seconds after which rules of a path that nothing uses go by themselves; None for the controller's setting."""
    link_loads_every_ns: int | None = None
    """How often the port counters of all switches are read, for `View.link_load_bps`; None for never."""


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened. The view already shows it."""


@dataclass(frozen=True, slots=True)
class Started(Event):
    """The controller runs: the place for `SetDefaults`."""


@dataclass(frozen=True, slots=True)
class FlowArrived(Event):
    """A long flow was found, in the way that `Needs.detection` says."""

    flow: int


@dataclass(frozen=True, slots=True)
class SubflowArrived(Event):
    """A further subflow of an MPTCP connection asked to be opened; all share the token, None if it is not known."""

    flow: int
    token: int | None


@dataclass(frozen=True, slots=True)
class FlowAdopted(Event):
    """A flow was found standing on a path: after a restart, or when the scheme took over."""

    flow: int


@dataclass(frozen=True, slots=True)
class FlowFinished(Event):
    """A flow ended; the view shows it for the last time."""

    flow: int


@dataclass(frozen=True, slots=True)
class RatesMeasured(Event):
    """A round of measurements is in the view; the round before was so long ago."""

    period_ns: int


@dataclass(frozen=True, slots=True)
class LinkChanged(Event):
    """A link between two switches came up or went down; both directions are told."""

    link: int
    up: bool


@dataclass(frozen=True, slots=True)
class RouteConfirmed(Event):
    """Every switch has confirmed the path last asked for this flow."""

    flow: int


@dataclass(frozen=True, slots=True)
class RouteRejected(Event):
    """The path last asked for this flow could not be set up; the flow stays where it was."""

    flow: int
    why: str


@dataclass(frozen=True, slots=True)
class Solved(Event):
    """The modelled time of a `Solve` is over."""

    ticket: int
    answer: Any


@dataclass(frozen=True, slots=True)
class Timeout(Event):
    """The time that `poll_timeout` asked for has come."""


@dataclass(frozen=True, slots=True)
class Action:
    """Something a scheme wants done. The actions of one `handle` are carried out in their order."""


@dataclass(frozen=True, slots=True)
class SetDefaults(Action):
    """How flows without a path of their own go.

    One shortest path per ToR, one spanning tree for all, hashed over all shortest paths, or a shortest path per host.
    """

    routes: Literal["single_path", "spanning_tree", "ecmp", "per_host"]


@dataclass(frozen=True, slots=True)
class Route(Action):
    """Puts a flow on a path of its own, or on another one if it has one; no packet is lost over it.

    `rate_bps` is what the scheme counts on for it (`View.allocated_bps`); only `Pace` enforces a rate.
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
    """Keeps a flow from sending, for the lease at most."""

    flow: int
    lease_ns: int


@dataclass(frozen=True, slots=True)
class Release(Action):
    """Lets a held flow send."""

    flow: int


@dataclass(frozen=True, slots=True)
class Pace(Action):
    """Lets a flow send at most at this rate; None lifts the limit."""

    flow: int
    rate_bps: int | None


@dataclass(frozen=True, slots=True)
class Measure(Action):
    """Reads the flow counters of the ToRs now, besides the periodic rounds. It counts as a round."""


@dataclass(frozen=True, slots=True)
class MeasureAgain(Action):
    """Reads them once more within the round under way. It counts as no round."""


@dataclass(frozen=True, slots=True)
class Solve(Action):
    """Charges the time that working out an answer takes: it comes back as `Solved` when that time is over.

    The answer, of which JSON must hold all, is worked out in place; what Python took for it never shows in a result.
    """

    ticket: int
    answer: Any
    modelled_ns: int


Actions: TypeAlias = Iterable[Action]
"""What `handle` gives, unless it gives None: a list, or what a generator yields."""


class Scheme(ABC):
    """The base of a scheme. Any class with `handle` will do; this one states the other methods and their defaults.

    Every run makes an instance of its own; one whose constructor takes a `seed` is given the seed of the run, the only
    source of chance that keeps runs repeatable. When a method raises, or gives an invalid action, all runs stop with
    a `SchemeError`. With `keep_going` the actions for that event are dropped, the flows stay where they are, the
    run goes on, and the result is marked.
    """

    def needs(self) -> Needs:
        """What the controller must do for it. Asked once, before any event."""
        return Needs()

    @abstractmethod
    def handle(self, now_ns: int, event: Event, view: View) -> Actions | None:
        """Takes one event and gives the actions it leads to."""

    def poll_timeout(self) -> int | None:
        """When it wants a `Timeout`, in the time of `now_ns`; asked after every event."""
        return None

    def save(self) -> Any:
        """What it remembers, as JSON can hold it; for a restart of the controller."""
        return None

    def restore(self, state: Any) -> None:  # noqa: B027
        """Takes back what `save` gave; called before any event."""
