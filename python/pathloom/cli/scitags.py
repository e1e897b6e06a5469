"""`pathloom streams scitags`."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
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


def scitags(
    pipe: Annotated[
        Path, typer.Option("--pipe", metavar="FILE", help="Named pipe to read; it is made if it is not there.")
    ],
    paths: CountOption,
    controller: PathsAddressOption = None,
    policy: PolicyOption = "round-robin",
    path: RouteOption = None,
    a: AOption = None,
    search: SearchOption = None,
    token_file: TokenOption = None,
    verbose: VerboseOption = False,
) -> None:
    """Give paths to the connections that programs announce on a named pipe, as scitags do. Ctrl-C ends it.

    Example: pathloom streams scitags --pipe /run/pathloom-scitags --paths 4 --controller 10.0.0.254:8080
    """
    from pathloom.streams.scitags import Announcements, Pipe, serve

    broker = make_broker(controller, token_file, (paths, search, ratio_of(policy, path or [], a)), _say)
    announcements = Announcements(broker, _say, any_host=token_file is not None)
    ended = False

    def end(*_: object) -> None:
        nonlocal ended
        ended = True

    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        lines = Pipe(pipe)
        try:
            _say(f"reading announcements from {pipe}")
            serve(lines, announcements, lambda: ended)
        finally:
            lines.close()
    finally:
        broker.release()
        for number, handler in before.items():
            signal.signal(number, handler)
    if verbose:
        counts = f"{announcements.ignored} were ignored, {announcements.bad} lines were unreadable"
        _say(f"{broker.claimed} announcements gave a path, {broker.without_path} gave none, {counts}")


def _say(text: str) -> None:
    print(f"pathloom: scitags: {text}", file=sys.stderr, flush=True)
