"""`pathloom with-paths`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pathloom.cli.options import PathsAddressOption
from pathloom.cli.path_options import (
    MOST_PATHS,
    AOption,
    RouteOption,
    SearchOption,
    TokenOption,
    VerboseOption,
    make_broker,
    ratio_of,
)
from pathloom.errors import bad_input

if TYPE_CHECKING:
    from pathloom.streams.source_ports import PortPolicy
    from pathloom.streams.with_paths import PathSource


def with_paths(
    command: Annotated[list[str], typer.Argument(metavar="-- COMMAND...", help="Command to run.")],
    paths: Annotated[
        int | None, typer.Option("--paths", metavar="N", min=1, max=MOST_PATHS, help="Number of paths.")
    ] = None,
    controller: PathsAddressOption = None,
    policy: Annotated[
        str | None,
        typer.Option(
            "--policy",
            help="round-robin (default), single, optimal (with --a) or max-flow (with --path); with --map: spread "
            "(default) or least-used.",
        ),
    ] = None,
    path: RouteOption = None,
    a: AOption = None,
    search: SearchOption = None,
    token_file: TokenOption = None,
    source_map: Annotated[
        list[Path] | None,
        typer.Option(
            "--map",
            metavar="FILE",
            help="Choose source ports from this file of `pathloom lab paths --json`, without a controller. May be "
            "repeated.",
        ),
    ] = None,
    verbose: VerboseOption = False,
) -> int:
    """Run a command whose TCP connections take assigned paths, one after another.

    Example: pathloom with-paths --controller 10.0.0.254:8080 --paths 4 -- globus-url-copy -p 4 ftp://h1/f file:///f

    Example: pathloom with-paths --map paths.json -- iperf3 -c h15 -P 4
    """
    from pathloom.streams.with_paths import find_library, run

    broker: PathSource
    if source_map:
        unused = {"--paths": paths, "--controller": controller, "--path": path, "--a": a, "--search": search}
        for name, value in {**unused, "--token-file": token_file}.items():
            if value:
                raise bad_input(f"{name}: is for a controller, which --map does not ask; leave one of them out")
        broker = port_broker(source_map, policy or "spread", _say)
    elif paths is None:
        raise bad_input("--paths: is missing; expected the number of paths, or --map FILE")
    else:
        request = (paths, search, ratio_of(policy or "round-robin", path or [], a))
        broker = make_broker(controller, token_file, request, _say)
    code = run(command, find_library(), broker, _say)
    if verbose:
        _say(f"{broker.claimed} connections had a path of their own, {broker.without_path} had none")
        if broker.unreported is not None:
            _say(f"connections of static programs are not counted, because {broker.unreported}")
    return code


def port_broker(files: Sequence[Path], policy: str, say: Callable[[str], None]) -> PathSource:
    """Returns what chooses source ports from these maps. Raises `PathloomError`."""
    from pathloom.streams.port_broker import PortBroker
    from pathloom.streams.source_ports import PORT_POLICIES, MapFiles, SourcePorts

    known: PortPolicy | None = next((one for one in PORT_POLICIES if one == policy), None)
    if known is None:
        raise bad_input(f"--policy `{policy}`: with --map, expected one of {', '.join(PORT_POLICIES)}")
    maps = MapFiles(files)
    return PortBroker(SourcePorts(maps.read(), known, renew=maps.renew), say)


def _say(text: str) -> None:
    print(f"pathloom: with-paths: {text}", file=sys.stderr, flush=True)
