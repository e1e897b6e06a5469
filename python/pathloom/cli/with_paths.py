"""`pathloom with-paths`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pathloom.cli.options import PathsAddressOption
from pathloom.errors import bad_input, reason

if TYPE_CHECKING:
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


def with_paths(
    command: Annotated[list[str], typer.Argument(metavar="-- COMMAND...", help="Command to run.")],
    paths: CountOption,
    controller: PathsAddressOption = None,
    policy: PolicyOption = "round-robin",
    path: RouteOption = None,
    a: AOption = None,
    search: SearchOption = None,
    token_file: TokenOption = None,
    verbose: VerboseOption = False,
) -> int:
    """Run a command whose TCP connections take assigned paths, one after another.

    Example: pathloom with-paths --controller 10.0.0.254:8080 --paths 4 -- globus-url-copy -p 4 ftp://h1/f file:///f
    """
    from pathloom.streams.with_paths import find_library, run

    broker = make_broker(controller, token_file, (paths, search, ratio_of(policy, path or [], a)), _say)
    code = run(command, find_library(), broker, _say)
    if verbose:
        _say(f"{broker.claimed} connections had a path of their own, {broker.without_path} had none")
    return code


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
    from pathloom.cli.streams import check_a, parse_path, parse_policy
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


def _say(text: str) -> None:
    print(f"pathloom: with-paths: {text}", file=sys.stderr, flush=True)
