"""Definitions of the words in a result, for the code, the report and the help texts."""

from __future__ import annotations

from typing import Final

MOUSE_BELOW_BYTES: Final = 10_000
"""Flows smaller than this are mice."""
ELEPHANT_ABOVE_BYTES: Final = 10_000_000
"""Flows larger than this are elephants; the flows between mice and elephants are rabbits."""
SIZE_CLASSES: Final = ("mouse", "rabbit", "elephant")

SIZE_BINS: Final = (
    ("< 10 KB", 0, 10_000),
    ("10-100 KB", 10_000, 100_000),
    ("100 KB-1 MB", 100_000, 1_000_000),
    ("1-10 MB", 1_000_000, 10_000_001),
    ("> 10 MB", 10_000_001, None),
)
"""Bins of the plots by flow size: label, smallest size in bytes, smallest size above the bin."""

DEFINITIONS: Final = (
    (
        "Throughput",
        "of a long-lived flow: its goodput over its optimum, the payload rate of its access link after headers and the "
        "acknowledgements that share the link. Of a finite flow: its ideal FCT over its FCT, the inverse of its "
        "slowdown. Between 0 and 1.",
    ),
    (
        "FCT",
        "flow completion time, from when the application has data to when the last byte has arrived. Long-lived flows "
        "have none.",
    ),
    (
        "Slowdown",
        "of a finite flow: its FCT over its ideal FCT. The ideal is a lower bound: its frames at the rate of the "
        "slower access link, and propagation. Handshake, slow start, and storing and forwarding in switches are left "
        "out, so a short flow has a slowdown of more than 1 even when it is alone. 1 or more.",
    ),
    (
        "Jain's index",
        "of fairness: the squared sum of the flows' throughput over their number times the sum of its squares. 1 where "
        "all have the same, 1/n where one of n has all. Worked out where no flow of any run is unfinished.",
    ),
    (
        "Completion time",
        "of a collective, a coflow (CCT) or an incast: from the start of its first flow to the end of its last one. "
        "Each iteration of a collective counts by itself.",
    ),
    (
        "Optimum",
        "worked out with --yardstick. Of throughput: the most that the mean over the flows can be when long-lived "
        "flows may be split over all paths in any shares, as a linear program solved exactly; no routing does better. "
        "Of FCT: the ideal FCT of slowdown, a lower bound. "
        "Links that are down at the start carry nothing; faults during the run are left out.",
    ),
    (
        "Unfinished flows",
        "No flow starts after the duration; flows under way have five times the duration more to finish, or with "
        "--until finished as long as it takes. A flow that is still unfinished then counts with the time it has had so "
        "far, in FCT and in throughput, so that stranding flows never looks good: FCT is then at least what is printed "
        "(≥), throughput at most (≤). A percentile is exact where all flows up to its rank are finished, whatever "
        "becomes of the others; otherwise it too is such a bound.",
    ),
    (
        "Mouse, rabbit, elephant",
        "a flow below 10 KB, from 10 KB to 10 MB, above 10 MB. (Independently of this, a host labels a flow as long "
        "from 100 KB on.)",
    ),
    (
        "Load",
        "offered payload per host over the rate of its access link.",
    ),
    (
        "Runs",
        "Run r has the seed s + r - 1, and all schemes meet the same flows in it. Means are means over the runs of "
        "each run's mean, ± is the half width of their 95 % confidence interval (Student's t); percentiles are of the "
        "flows of all runs together. Differences between schemes are taken run by run.",
    ),
    (
        "Best",
        "a scheme is called the best in a figure when it differs from every other scheme by more than 1 %, the "
        "probability of the paired difference by chance (over runs of the same seed), corrected for the number of "
        "pairs, is below 5 %, and its figure is no bound. Schemes are called equal when the whole 95 % confidence "
        "interval lies within 1 %. One run has no interval, and so no best.",
    ),
    (
        "Flows given a path",
        "by the scheme, in place of the default routes. A reroute is a move from such a path to another.",
    ),
    (
        "Utilisation",
        "bytes sent, headers included, over bytes that the link could have sent until the slowest scheme had ended, "
        "drain included. This time is the same for all schemes of a run, so equal bytes are equal utilisation.",
    ),
)
"""Word and meaning, for the report."""


NOT_MODELLED: Final = (
    (
        "Hosts",
        "processors, operating systems and offloads take no time: a packet waits for its link, and for a short random "
        "time at an idle card. Applications always read at once.",
    ),
    (
        "Switches",
        "look-ups take no time. A switch stores each packet whole before it forwards it. Ports do not share buffers.",
    ),
    (
        "Links",
        "lose packets only if the fabric or a fault says so. There are no pause frames (PFC), so no link is lossless.",
    ),
    ("Controller", "its messages have a delay of their own and take no capacity from the links of the fabric."),
    ("Other traffic", "such as ARP, name service or storage is absent, unless the scheme itself sends it."),
)
"""What the simulator leaves out, for the report."""


def size_class(size_bytes: int | None) -> str | None:
    """Mouse, rabbit or elephant; None for a long-lived flow.

    >>> size_class(9_999), size_class(10_000), size_class(10_000_001)
    ('mouse', 'rabbit', 'elephant')
    """
    if size_bytes is None:
        return None
    if size_bytes < MOUSE_BELOW_BYTES:
        return "mouse"
    return "elephant" if size_bytes > ELEPHANT_ABOVE_BYTES else "rabbit"
