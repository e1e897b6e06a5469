"""Questions to a fork: what would happen if …? Each alternative is a fork with other settings.

>>> [part.text for part in parse_alternative("drain:c0+load:x1.2").parts]
['drain:c0', 'load:x1.2']
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pathloom import _core
from pathloom._core import PathloomError
from pathloom.errors import bad_input, nearest_hint
from pathloom.twin.fork import Fork

NOTHING = "nothing"
FAIL_AT = "2ms"
"""Time of a failure in the fork: after all flows under way have started."""
KINDS = {
    "drain": "drain:SWITCH takes a switch out of service without loss, before the fork goes on",
    "cut": "cut:CABLE takes a cable (e0_0-a0_1) out of service without loss",
    "fail": "fail:WHAT: a cable or a switch fails, with the losses until the scheme reacts",
    "degrade": "degrade:CABLE=RATE: a cable has another rate from the start",
    "loss": "loss:CABLE=SHARE: a cable loses this share of packets, from 0 to 1",
    "add": "add:CABLE or add:CABLE=RATE: a further cable between two switches",
    "scheme": "scheme:NAME: another scheme, with the keys of `pathloom scheme list`",
    "weights": "weights:SWITCH-NEXT=WEIGHT, several with / between them: under wcmp, a next hop has another weight",
    "load": "load:xFACTOR: flows arrive faster (x1.2) or slower (x0.5)",
}
"""Kinds of questions, and what they mean."""
WEIGHTED = "wcmp"
"""The scheme that takes weights of next hops."""
MOST_WEIGHT = 60
_LOAD = re.compile(r"x?([0-9]*\.?[0-9]+)")
_PART = re.compile(r"\+(?=(?:" + "|".join(KINDS) + r"):)")


@dataclass(frozen=True)
class Part:
    """One change of an alternative."""

    kind: str
    value: str

    @property
    def text(self) -> str:
        """As in the question."""
        return f"{self.kind}:{self.value}"


@dataclass(frozen=True)
class Alternative:
    """What could be done, or could happen: changes that are made together."""

    name: str
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Scenario:
    """A fork with the changes of an alternative."""

    name: str
    graph: Mapping[str, Any]
    scheme: str
    load: float = 1.0
    faults: tuple[str, ...] = ()
    fails: tuple[str, ...] = ()
    """Cables and switches that the faults take down."""

    def settled(self) -> Mapping[str, Any]:
        """The graph after all failures. Hosts keep their cables, because a graph has no hosts without one."""
        if not self.fails:
            return self.graph
        graph: dict[str, Any] = json.loads(json.dumps(self.graph))
        tiers = {str(node["id"]): node.get("tier") for node in graph["nodes"]}
        for name in self.fails:
            ends = [(edge, (edge["source"], edge["target"])) for edge in graph["edges"]]
            of_node = [edge for edge, both in ends if name in both and "host" not in (tiers[both[0]], tiers[both[1]])]
            for edge in of_node if name in tiers else _cables(graph, name):
                edge["failed"] = True
        return graph


def parse_alternative(text: str) -> Alternative:
    """Reads `drain:c0` or, joined, `drain:c0+load:x1.2`. Raises `PathloomError`.

    >>> parse_alternative("drian:c0")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    pathloom._core.PathloomError: question `drian:c0`: `drian` is not one of drain, ...; did you mean `drain`?
    """
    if text.strip() == NOTHING:
        return Alternative(NOTHING, ())
    parts = []
    for one in _PART.split(text.strip()):
        kind, colon, value = one.partition(":")
        if kind not in KINDS:
            hint = nearest_hint(kind, KINDS)
            raise bad_input(f"question `{text}`: `{kind}` is not one of {', '.join(KINDS)}{hint}")
        if not colon or not value.strip():
            raise bad_input(f"question `{text}`: {one} names nothing; expected {KINDS[kind]}")
        parts.append(Part(kind, value.strip()))
    return Alternative(text.strip(), tuple(parts))


def parse_alternatives(texts: Iterable[str]) -> list[Alternative]:
    """Reads all alternatives; «nothing» comes first. Raises `PathloomError`."""
    found = [parse_alternative(NOTHING)]
    for text in texts:
        one = parse_alternative(text)
        if one.name in (other.name for other in found[1:]):
            raise bad_input(f"question `{text}`: is given twice; name each alternative once")
        if one.parts:
            found.append(one)
    if len(found) == 1:
        raise bad_input("no question; expected alternatives such as drain:c0 or scheme:hedera")
    return found


def scenario_of(fork: Fork, alternative: Alternative) -> Scenario:
    """The fork with the changes of an alternative. Raises `PathloomError` if they do not fit its fabric."""
    scenario = Scenario(alternative.name, json.loads(json.dumps(fork.fabric)), fork.scheme)
    for part in alternative.parts:
        try:
            scenario = _CHANGES[part.kind](scenario, part.value)
        except PathloomError as error:
            raise bad_input(f"question `{alternative.name}`: {error}") from None
    return replace(scenario, scheme=scheme_after(fork.scheme, alternative))


def scheme_after(scheme: str, alternative: Alternative) -> str:
    """The scheme under an alternative, with its weights. Raises `PathloomError` if the scheme takes none.

    >>> scheme_after("ecmp", parse_alternative("weights:e0_0-a0_0=3/e0_0-a0_1=1+scheme:wcmp"))
    'wcmp:weights=e0_0-a0_0:3/e0_0-a0_1:1'
    """
    for part in alternative.parts:
        if part.kind == "scheme":
            scheme = part.value
    weights = [_weight(text) for part in alternative.parts if part.kind == "weights" for text in part.value.split("/")]
    if not weights:
        return scheme
    name, _, keys = scheme.partition(":")
    if name != WEIGHTED:
        raise bad_input(
            f"question `{alternative.name}`: {name} takes no weights of next hops, only {WEIGHTED} does; add it: "
            f"scheme:{WEIGHTED}+{alternative.name}"
        )
    known = keys.partition("weights=")[2]
    given = [] if known in ("", "capacity") else [known]
    return f"{WEIGHTED}:weights=" + "/".join([*given, *(f"{hop}:{weight}" for hop, weight in weights)])


def _weight(text: str) -> tuple[str, int]:
    """The switch with its next hop, and the weight: e0_0-a0_1=3."""
    hop, _, weight = text.rpartition("=")
    if not hop or not weight.isdigit() or int(weight) > MOST_WEIGHT:
        raise bad_input(
            f"weights `{text}`: expected SWITCH-NEXT=WEIGHT with a weight from 0 to {MOST_WEIGHT}, such as e0_0-a0_1=3"
        )
    return hop, int(weight)


def _drain(scenario: Scenario, name: str) -> Scenario:
    node = _node(scenario.graph, name)
    if node.get("tier") == "host":
        raise bad_input(f"{name} is a host; expected a switch")
    cables = [edge for edge in scenario.graph["edges"] if name in (edge["source"], edge["target"])]
    tiers = {one["id"]: one.get("tier") for one in scenario.graph["nodes"]}
    for edge in cables:
        if "host" in (tiers[edge["source"]], tiers[edge["target"]]):
            raise bad_input(f"{name} has hosts, which would be cut off; expected a switch without hosts")
        edge["failed"] = True
    return scenario


def _cut(scenario: Scenario, name: str) -> Scenario:
    for edge in _cables(scenario.graph, name):
        edge["failed"] = True
    return scenario


def _fail(scenario: Scenario, name: str) -> Scenario:
    if "-" in name and name not in {str(node["id"]) for node in scenario.graph["nodes"]}:
        _cables(scenario.graph, name)
    else:
        _node(scenario.graph, name)
    faults = (*scenario.faults, f"{FAIL_AT}:down:{name}")
    return replace(scenario, faults=faults, fails=(*scenario.fails, name))


def _degrade(scenario: Scenario, text: str) -> Scenario:
    name, rate_bps = _with_rate(text, "degrade:e0_0-a0_1=100Mbps")
    for edge in _cables(scenario.graph, name):
        edge["rate_bps"] = rate_bps
        edge.pop("back_rate_bps", None)
    return scenario


def _loss(scenario: Scenario, text: str) -> Scenario:
    name, _, share = text.rpartition("=")
    try:
        number = float(share)
    except ValueError:
        number = -1.0
    if not name or not 0 <= number <= 1:
        raise bad_input(f"loss `{text}`: expected CABLE=SHARE with a share from 0 to 1, such as e0_0-a0_1=0.01")
    for edge in _cables(scenario.graph, name):
        edge["loss"] = number
        edge.pop("back_loss", None)
    return scenario


def _add(scenario: Scenario, text: str) -> Scenario:
    edges = scenario.graph["edges"]
    name, given_bps = _with_rate(text, "add:e0_0-a0_1=1Gbps") if "=" in text else (text, None)
    ends = _ends(scenario.graph, name)
    tiers = {one["id"]: one.get("tier") for one in scenario.graph["nodes"]}
    for end in ends:
        if tiers[end] == "host":
            raise bad_input(f"{end} is a host; expected a cable between two switches")
    alike = [edge for edge in edges if {tiers[edge["source"]], tiers[edge["target"]]} == {tiers[end] for end in ends}]
    between = [edge for edge in edges if "host" not in (tiers[edge["source"]], tiers[edge["target"]])]
    model = (alike or between)[0]
    number = max(int(edge.get("cable", place)) for place, edge in enumerate(edges)) + 1
    kept = {key: model[key] for key in ("rate_bps", "delay_ps", "buffer_packets") if key in model}
    rate = {"rate_bps": given_bps} if given_bps is not None else {}
    edges.append(
        {"source": ends[0], "target": ends[1], "key": number, "cable": number, "from": ends[0], **kept, **rate}
    )
    return scenario


def _scheme(scenario: Scenario, name: str) -> Scenario:
    _core.scheme_name(name)
    return scenario


def _weights(scenario: Scenario, text: str) -> Scenario:
    """Checks names only: `scheme_after` adds the weights to the scheme."""
    for one in text.split("/"):
        hop, _ = _weight(one)
        _cables(scenario.graph, hop)
        first, _ = _ends(scenario.graph, hop.partition("#")[0])
        if _node(scenario.graph, first).get("tier") == "host":
            raise bad_input(f"{first} is a host; expected a switch and its next hop, such as e0_0-a0_1=3")
    return scenario


def _load(scenario: Scenario, text: str) -> Scenario:
    found = _LOAD.fullmatch(text)
    if found is None or not 0 <= float(found[1]) <= 100:
        raise bad_input(f"load `{text}`: expected a factor from x0 to x100, such as x1.2")
    return replace(scenario, load=scenario.load * float(found[1]))


_CHANGES: dict[str, Callable[[Scenario, str], Scenario]] = {
    "drain": _drain,
    "cut": _cut,
    "fail": _fail,
    "degrade": _degrade,
    "loss": _loss,
    "add": _add,
    "scheme": _scheme,
    "weights": _weights,
    "load": _load,
}


def _with_rate(text: str, example: str) -> tuple[str, int]:
    name, equals, rate = text.rpartition("=")
    found = re.fullmatch(r"([0-9]*\.?[0-9]+)\s*([kMGT]?)bps", rate.strip())
    if not equals or found is None or float(found[1]) <= 0:
        raise bad_input(f"`{text}`: expected CABLE=RATE with a unit, such as {example}")
    return name, round(float(found[1]) * {"": 1, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}[found[2]])


def _node(graph: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    for node in graph["nodes"]:
        if node["id"] == name:
            return dict(node)
    hint = nearest_hint(name, (str(node["id"]) for node in graph["nodes"]))
    raise bad_input(f"no node of the fork is called `{name}`{hint}")


def _ends(graph: Mapping[str, Any], name: str) -> tuple[str, str]:
    """The two nodes of a cable's name. Names of nodes may contain a hyphen."""
    names = {str(node["id"]) for node in graph["nodes"]}
    for place, letter in enumerate(name):
        if letter == "-" and name[:place] in names and name[place + 1 :] in names:
            return name[:place], name[place + 1 :]
    left, _, right = name.partition("-")
    for part in (left, right):
        _node(graph, part)
    raise bad_input(f"`{name}` is not a cable; expected two neighbours, such as e0_0-a0_1")


def _cables(graph: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    """The cables between two neighbours; `a-b#2` is the second one."""
    bare, _, number = name.partition("#")
    ends = set(_ends(graph, bare))
    found = [edge for edge in graph["edges"] if {edge["source"], edge["target"]} == ends]
    if not found:
        raise bad_input(f"`{name}`: the two nodes are not neighbours; expected the two ends of a cable")
    if not number:
        return found
    if not number.isdigit() or not 1 <= int(number) <= len(found):
        raise bad_input(f"`{name}`: expected #1 to #{len(found)}")
    return [found[int(number) - 1]]
