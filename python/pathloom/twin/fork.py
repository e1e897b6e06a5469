"""A fork: the state of a fabric at one moment, as a file (`.plf`) that needs no Pathloom to be read (docs/twin.md)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Self

from pathloom import _core
from pathloom.errors import bad_input, reason
from pathloom.experiments.results.output_files import write_text
from pathloom.fabrics import Fabric

FORMAT, VERSION = "pathloom-fork", 1
SUFFIX = ".plf"
FABRIC_NAME = "fork.json"
"""Name of the fabric of a fork in messages."""
PORT_KEYS = frozenset(
    {
        "addresses",
        "alpha",
        "control_queue",
        "ecn",
        "pfc",
        "pfc_headroom",
        "queue_bytes",
        "queue_weights",
        "queues",
        "red",
        "red_ecn",
        "red_p",
        "red_weight",
        "scale_queues",
        "shared_buffer",
        "trim",
        "trim_bytes",
    }
)
"""Keys of fabrics that a graph does not have."""
WRITE_AGAIN = "write it again with `pathloom twin fork`"


@dataclass(frozen=True)
class Flows:
    """Flows under way, as columns of equal length."""

    src: list[str] = field(default_factory=list)
    dst: list[str] = field(default_factory=list)
    age_s: list[float] = field(default_factory=list)
    """Time since the first packet."""
    sent_bytes: list[int] = field(default_factory=list)
    """Payload that has arrived."""
    size_bytes: list[int | None] = field(default_factory=list)
    """Payload of the whole flow; None if nobody has announced it."""
    endless: list[bool] = field(default_factory=list)
    """Whether the flow has no end."""
    rate_bps: list[int] = field(default_factory=list)
    """Payload rate just before the fork."""
    window_bytes: list[int] = field(default_factory=list)
    slow_start: list[bool] = field(default_factory=list)
    path: list[list[str] | None] = field(default_factory=list)
    """Switches that its data cross; None if they are not known."""

    def __len__(self) -> int:
        return len(self.src)


@dataclass(frozen=True)
class Arrivals:
    """How new flows arrive."""

    flows_per_s: float
    sizes: Mapping[str, Any]
    """`bytes` and `share`: quantiles of the sizes; `tail_exponent`: of the Pareto distribution beyond the last one."""
    pairs: Mapping[str, list[Any]]
    """`src`, `dst` and `share` of the flows."""
    batch_flows: float = 1.0
    """Mean number of flows that arrive together; the index of dispersion of counts is twice this, less 1."""
    batch_s: float = 0.0
    """Time over which the starts of a batch are spread."""

    @classmethod
    def none(cls) -> Self:
        """No arrivals."""
        return cls(0.0, {"bytes": [1.0], "share": [1.0], "tail_exponent": 1.5}, {"src": [], "dst": [], "share": []})


@dataclass(frozen=True)
class Fork:
    """The state of a fabric at one moment, and how flows arrive."""

    fabric: Mapping[str, Any]
    """Node-link graph. Edges that are down have `failed`, slow ones their present `rate_bps`."""
    scheme: str
    flows: Flows
    arrivals: Arrivals
    transport: str | None = None
    control: str | None = None
    ports: str = ""
    """Keys of the ports of switches, as in a specification: `ecn=65,queues=2`."""
    source: Mapping[str, Any] = field(default_factory=dict)
    """Where the fork is from: `kind` is controller, simulation or records."""
    notes: list[str] = field(default_factory=list)

    @property
    def hosts(self) -> list[str]:
        """Names of the hosts, in the order of the graph."""
        return [str(node["id"]) for node in self.fabric["nodes"] if node.get("tier") == "host"]

    def graph(self) -> Fabric:
        """The fabric as it is now."""
        return Fabric.from_node_link(json.dumps(self.fabric), self.fabric_name)

    @property
    def fabric_name(self) -> str:
        """The name of the fabric in the settings of runs."""
        return f"{FABRIC_NAME}:{self.ports}" if self.ports else FABRIC_NAME

    def anonymised(self) -> Fork:
        """The same fork with hosts called h0, h1, … in the order of the graph. Names of switches stay.

        The fork has no addresses, and the names that the source gave it are left out.
        """
        new = {host: f"h{place}" for place, host in enumerate(self.hosts)}
        graph = json.loads(json.dumps(self.fabric))
        for node in graph["nodes"]:
            node["id"] = new.get(node["id"], node["id"])
        for edge in graph["edges"]:
            for end in ("source", "target", "from"):
                if end in edge:
                    edge[end] = new.get(edge[end], edge[end])

        def named(columns: Mapping[str, Any]) -> dict[str, Any]:
            return {**columns, **{end: [new[host] for host in columns[end]] for end in ("src", "dst")}}

        flows = Flows(**named({one.name: getattr(self.flows, one.name) for one in fields(Flows)}))
        arrivals = Arrivals(**{**vars(self.arrivals), "pairs": named(self.arrivals.pairs)})
        source = {key: self.source[key] for key in ("kind", "at_s") if key in self.source}
        return replace(self, fabric=graph, flows=flows, arrivals=arrivals, source=source)

    def text(self) -> str:
        """The content of the file: JSON with a line for each column."""
        head = {
            "format": FORMAT,
            "version": VERSION,
            "pathloom": _core.__version__,
            "source": dict(self.source),
            "notes": list(self.notes),
            "scheme": self.scheme,
            "transport": self.transport,
            "control": self.control,
            "ports": self.ports,
        }
        lines = [f'"{key}": {json.dumps(value)}' for key, value in head.items()]
        lines.append(f'"flows": {_columns(asdict(self.flows))}')
        lines.append(f'"arrivals": {_columns(asdict(self.arrivals))}')
        lines.append(f'"fabric": {json.dumps(self.fabric)}')
        return "{" + ",\n".join(lines) + "}\n"

    def write(self, path: Path) -> None:
        """Writes the file. Raises `PathloomError`."""
        write_text(path, self.text())


def port_keys(spec: str) -> str:
    """The keys of a specification that a graph does not have.

    >>> port_keys("fat-tree:k=4,ecn=65,rate=1Gbps,queues=2"), port_keys("diamond")
    ('ecn=65,queues=2', '')
    """
    _, _, keys = spec.partition(":")
    return ",".join(key for key in keys.split(",") if key.partition("=")[0].strip() in PORT_KEYS)


def _columns(values: Mapping[str, Any]) -> str:
    return "{" + ",\n ".join(f'"{name}": {json.dumps(column)}' for name, column in values.items()) + "}"


def read_fork(path: Path) -> Fork:
    """Reads a fork. Raises `PathloomError` with the file, the field and the way out."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise bad_input(f"fork `{path}`: {reason(error)}") from None
    except ValueError as error:
        raise bad_input(f"fork `{path}`: is damaged: {error}; {WRITE_AGAIN}") from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise bad_input(f"fork `{path}`: format: is not `{FORMAT}`; expected a file of `pathloom twin fork`")
    if content.get("version") != VERSION:
        found = content.get("version")
        raise bad_input(f"fork `{path}`: version: {found} is not {VERSION}, which this Pathloom reads; {WRITE_AGAIN}")
    try:
        return _fork_of(content)
    except _Wrong as error:
        raise bad_input(f"fork `{path}`: {error}; {WRITE_AGAIN}") from None


class _Wrong(Exception):
    """A field is missing or has the wrong form."""


def _fork_of(content: Mapping[str, Any]) -> Fork:
    graph = _field(content, "fabric", dict)
    for name in ("nodes", "edges"):
        rows = _field(graph, name, list, "fabric.")
        if not all(isinstance(row, dict) for row in rows):
            raise _Wrong(f"fabric.{name}: expected a list of objects")
    columns, arrivals = _field(content, "flows", dict), _field(content, "arrivals", dict)
    flows = Flows(**{one.name: _field(columns, one.name, list, "flows.") for one in fields(Flows)})
    for one in fields(Flows):
        if len(getattr(flows, one.name)) != len(flows):
            found = len(getattr(flows, one.name))
            raise _Wrong(f"flows.{one.name}: has {found} values; expected {len(flows)}, one for each flow")
    model = Arrivals(
        flows_per_s=float(_field(arrivals, "flows_per_s", (int, float), "arrivals.")),
        sizes=_field(arrivals, "sizes", dict, "arrivals."),
        pairs=_field(arrivals, "pairs", dict, "arrivals."),
        batch_flows=float(_field(arrivals, "batch_flows", (int, float), "arrivals.")),
        batch_s=float(_field(arrivals, "batch_s", (int, float), "arrivals.")),
    )
    return Fork(
        fabric=graph,
        scheme=_field(content, "scheme", str),
        flows=flows,
        arrivals=model,
        transport=_field(content, "transport", (str, type(None))),
        control=_field(content, "control", (str, type(None))),
        ports=_field(content, "ports", str),
        source=_field(content, "source", dict),
        notes=[str(note) for note in _field(content, "notes", list)],
    )


def _field(of: Mapping[str, Any], name: str, kind: type | tuple[type, ...], place: str = "") -> Any:
    if name not in of:
        raise _Wrong(f"{place}{name}: is missing")
    # A bool is an int in Python.
    if not isinstance(of[name], kind) or isinstance(of[name], bool):
        kinds = kind if isinstance(kind, tuple) else (kind,)
        expected = " or ".join("null" if one is type(None) else one.__name__ for one in kinds)
        raise _Wrong(f"{place}{name}: is a {type(of[name]).__name__}; expected {expected}")
    return of[name]
