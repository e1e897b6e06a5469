"""`pathloom show`."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Annotated

import typer


def show(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A results folder of `compare` or `run`.")],
    port: Annotated[
        int, typer.Option("--port", metavar="N", min=0, max=65535, help="TCP port; 0 takes any that is free.")
    ] = 0,
    listen: Annotated[
        str,
        typer.Option(
            "--listen",
            metavar="ADDRESS",
            help="Anyone who reaches this address can read the results; no token is asked for.",
        ),
    ] = "127.0.0.1",
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page in a browser.")] = True,
) -> int:
    """Show a result as an interactive page: links over time, flows and their paths, two schemes side by side.

    The page is served on this machine alone, until Ctrl-C. Results of `--series` have a time slider.

    Example: pathloom show results/stride
    """
    from pathloom.show import sources
    from pathloom.show.results import Results
    from pathloom.show.server import PageServer

    with PageServer(Results(sources.folder(folder)), listen, port) as server, contextlib.suppress(KeyboardInterrupt):
        print(f"{folder}: {server.url} (Ctrl-C ends it)", flush=True)
        if browser:
            import webbrowser

            webbrowser.open(server.url)
        server.serve_forever()
    return 0
