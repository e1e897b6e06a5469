"""`pathloom with-paths`."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from pathloom.cli.options import PathsAddressOption
from pathloom.cli.path_options import (
    AOption,
    CountOption,
    PolicyOption,
    RouteOption,
    SearchOption,
    TokenOption,
    VerboseOption,
    make_broker,
    ratio_of,
)


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
        if broker.unreported is not None:
            _say(f"connections of static programs are not counted, because {broker.unreported}")
    return code


def _say(text: str) -> None:
    print(f"pathloom: with-paths: {text}", file=sys.stderr, flush=True)
