"""Carries out an alternative on a running fabric, by the means that lose nothing: drains and changes of the scheme."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pathloom import _core
from pathloom.errors import bad_input
from pathloom.fabrics import Fabric
from pathloom.remote import Controller, quote
from pathloom.twin.fork import FABRIC_NAME
from pathloom.twin.from_controller import graph_of
from pathloom.twin.questions import Alternative, scheme_after

CAN_BE_DONE = ("drain", "cut", "scheme", "weights")
"""Kinds of changes that a controller can carry out."""


@dataclass(frozen=True)
class Step:
    """A request to the controller."""

    method: str
    path: str
    body: Mapping[str, Any] | None = None

    @property
    def text(self) -> str:
        """The request in a line."""
        return f"{self.method} {self.path}" + (f" {json.dumps(self.body)}" if self.body else "")


@dataclass(frozen=True)
class Guard:
    """What must stay true."""

    least_paths: int = 2
    """Shortest paths that must be left between any two ToRs."""


def steps_of(alternative: Alternative, scheme: str, back: bool = False) -> list[Step]:
    """The requests that carry an alternative out, or those that take it back.

    `scheme` is the one in charge before it is carried out. Raises `PathloomError`.
    """
    if not alternative.parts:
        raise bad_input("apply: nothing is nothing to carry out; name another alternative")
    steps = []
    for part in alternative.parts:
        if part.kind not in CAN_BE_DONE:
            raise bad_input(
                f"apply `{alternative.name}`: a controller cannot carry out {part.text}; it can do "
                f"{', '.join(CAN_BE_DONE)}"
            )
        verb = "undrain" if back else "drain"
        match part.kind:
            case "drain":
                steps.append(Step("POST", f"/v1/switches/{quote(part.value)}/{verb}"))
            case "cut":
                steps.append(Step("POST", f"/v1/links/{quote(_ends(part.value))}/{verb}"))
    if changes_scheme(alternative):
        steps.append(Step("PUT", "/v1/scheme", {"scheme": scheme if back else scheme_after(scheme, alternative)}))
    return steps[::-1] if back else steps


def changes_scheme(alternative: Alternative) -> bool:
    """Whether a scheme, or the weights of the scheme, are changed."""
    return any(part.kind in ("scheme", "weights") for part in alternative.parts)


def _ends(cable: str) -> str:
    """The cable as the API names it: FROM,TO."""
    if "#" in cable or cable.count("-") != 1:
        raise bad_input(f"cut:{cable}: the controller names cables FROM,TO; use `pathloom controller drain` for it")
    return cable.replace("-", ",")


def check_guards(controller: Controller, alternative: Alternative, guard: Guard) -> dict[str, Any]:
    """Checks that an alternative may be carried out now. Returns how the fabric is before. Raises `PathloomError`."""
    state = controller.ask("GET", "/v1/state")
    switches, links = list(controller.pages("/v1/switches")), list(controller.pages("/v1/links"))
    graph, _ = graph_of(state["fabric"], switches, links)
    drained = [row["name"] for row in switches if row["drained"]]
    check_pods(graph, alternative, drained)
    check_paths(graph, alternative, guard)
    return {"scheme": state["scheme"], "drained": drained}


def check_pods(graph: Mapping[str, Any], alternative: Alternative, drained: Sequence[str]) -> None:
    """Raises `PathloomError` if two switches of one pod would be out of service."""
    pods = {node["id"]: node.get("pod") for node in graph["nodes"]}
    for name in (part.value for part in alternative.parts if part.kind == "drain"):
        others = [part.value for part in alternative.parts if part.kind == "drain" and part.value != name]
        alike = [other for other in (*drained, *others) if other != name and pods.get(other) is not None]
        same = [other for other in alike if pods[other] == pods.get(name)]
        if same:
            raise bad_input(
                f"apply `{alternative.name}`: {same[0]} of the pod {pods[name]} is or would be out of service too; "
                "put it back first"
            )


def check_paths(graph: Mapping[str, Any], alternative: Alternative, guard: Guard) -> None:
    """Raises `PathloomError` if fewer shortest paths than the guard says would be left between two ToRs."""
    changed = json.loads(json.dumps(graph))
    out = {part.value for part in alternative.parts if part.kind == "drain"}
    cut = [set(part.value.split("-")) for part in alternative.parts if part.kind == "cut"]
    for edge in changed["edges"]:
        ends = {edge["source"], edge["target"]}
        if ends & out or ends in cut:
            edge["failed"] = True
    fabric = Fabric.from_node_link(json.dumps(changed), FABRIC_NAME)
    tors = [node["name"] for node in fabric.nodes if node["tier"] == "tor"]
    for one, other in itertools.combinations(tors, 2):
        count = len(fabric.paths(one, other, "shortest", guard.least_paths))
        if count < guard.least_paths:
            raise bad_input(
                f"apply `{alternative.name}`: {count} of at least {guard.least_paths} paths would be left between "
                f"{one} and {other}; --least-paths allows fewer"
            )


def apply_to_controller(controller: Controller, steps: Sequence[Step]) -> None:
    """Sends the requests in turn. Raises `PathloomError` with the step that was refused; earlier steps stay."""
    for step in steps:
        controller.ask(step.method, step.path, step.body)


def apply_to_run(run: _core.Simulation, alternative: Alternative, scheme: str) -> None:
    """Carries an alternative out in a simulated run under a scheme, which takes the place of the real fabric."""
    steps_of(alternative, scheme)
    for part in alternative.parts:
        if part.kind in ("drain", "cut"):
            run.drain(part.value, True)
    if changes_scheme(alternative):
        run.set_scheme(scheme_after(scheme, alternative))
