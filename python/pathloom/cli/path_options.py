"""Options of the commands that request paths, and what is made of them."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pathloom import _core
from pathloom.errors import bad_input, reason

if TYPE_CHECKING:
    from pathloom.streams import Policy, Route
    from pathloom.streams.with_paths import Broker

CONTROLLER = "PATHLOOM_PATHS"
"""Environment variable with the address of the controller, for commands that do not name it."""
MOST_PATHS = 64

Ratio = Callable[[Sequence[Mapping[str, Any]]], Sequence[float]]


CountOption = Annotated[int, typer.Option("--paths", metavar="N", min=1, max=MOST_PATHS, help="Number of paths.")]
PolicyOption = Annotated[
    str, typer.Option("--policy", help="round-robin, single, optimal (with --a) or max-flow (with --path).")
]
RouteOption = Annotated[
    list[str] | None,
    typer.Option(
        "--path", metavar="RATE,LATENCY", help="What a path carries, instead of what the controller measures."
    ),
]
AOption = Annotated[
    float | None, typer.Option("--a", help="Streams per Mbit/s and ms; `pathloom streams fit` measures it.")
]
SearchOption = Annotated[
    str | None, typer.Option("--search", help="breadth-first or edge-disjoint; default: the controller's.")
]
TokenOption = Annotated[
    Path | None, typer.Option("--token-file", metavar="FILE", help="Token of role operate, for other hosts.")
]
VerboseOption = Annotated[bool, typer.Option("--verbose", "-v", help="Print the number of connections with paths.")]


def make_broker(
    controller: str | None,
    token_file: Path | None,
    request: tuple[int, str | None, Ratio | None],
    say: Callable[[str], None],
) -> Broker:
    """Returns the broker that claims paths, made from the options of a command. Raises `PathloomError`."""
    from pathloom.streams.paths import ControllerAddress
    from pathloom.streams.with_paths import Broker, PathRequest

    where = controller or os.environ.get(CONTROLLER)
    if not where:
        raise bad_input(f"--controller: is missing, and ${CONTROLLER} is not set; expected ADDRESS:PORT")
    count, search, ratio = request
    if search not in (None, "breadth-first", "edge-disjoint"):
        raise bad_input(f"--search `{search}`: expected breadth-first or edge-disjoint")
    return Broker(ControllerAddress.parse(where, _token(token_file)), PathRequest(count, search, ratio), say)


def ratio_of(policy: str, paths: list[str], a: float | None) -> Ratio | None:
    """Returns the ratio in which connections take the paths; None if the controller assigns the paths in turn."""
    from pathloom.streams import ratio
    from pathloom.streams.paths import route

    known = parse_policy(policy)
    if known == "round-robin":
        return None
    if known == "max-flow" and not paths:
        raise bad_input(
            "--policy max-flow: expected a --path RATE,LATENCY for each path, with the links that they share"
        )
    if known == "optimal" and a is None:
        raise bad_input("--policy optimal: needs --a; `pathloom streams fit` measures it")
    factor = 1.0 if a is None else check_a(a)
    given = [parse_path(one) for one in paths]
    return lambda rows: ratio(known, given or [route(row) for row in rows], factor)


def _token(file: Path | None) -> str | None:
    if file is None:
        return None
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise bad_input(f"--token-file {file}: cannot be read: {reason(error)}") from None


def check_a(a: float) -> float:
    """Returns `a`. Raises `PathloomError` unless it is a finite number above 0."""
    if not 0 < a < math.inf:
        raise bad_input(f"--a {a:g}: expected a number above 0, such as 0.001495")
    return a


def parse_policy(text: str) -> Policy:
    """Returns the policy of this name. Raises `PathloomError` if there is none."""
    from pathloom.streams import POLICIES

    known: Policy | None = next((known for known in POLICIES if known == text), None)
    if known is None:
        raise bad_input(f"--policy `{text}`: expected one of {', '.join(POLICIES)}")
    return known


def parse_path(text: str) -> Route:
    """Parses a path: RATE,LATENCY and its shared links. Raises `PathloomError`."""
    from pathloom.streams import Route
    from pathloom.streams.model import parse_rate_bps

    parts = [part.strip() for part in text.split(",")]
    if len(parts) < 2:
        raise bad_input(f"--path `{text}`: expected RATE,LATENCY such as 100Mbps,20ms")
    links = {}
    for part in parts[2:]:
        name, equals, rate = part.partition("=")
        if not name or not equals:
            raise bad_input(f"--path `{text}`: `{part}` is not a shared link; expected NAME=RATE such as s1-s2=100Mbps")
        links[name] = parse_rate_bps(rate)
    try:
        return Route(parse_rate_bps(parts[0]), _core.parse_time_s(parts[1]), links)
    except _core.PathloomError as error:
        raise bad_input(f"--path `{text}`: {error}") from None
