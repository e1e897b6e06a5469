"""`pathloom streams` and `pathloom assign`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pathloom.cli import console, scitags
from pathloom.cli.help import App
from pathloom.cli.options import JsonOption, PathsAddressOption, show_help_if_alone
from pathloom.cli.path_options import check_a, parse_path, parse_policy
from pathloom.errors import ToolError, bad_input
from pathloom.quantities import rate_text, time_text

if TYPE_CHECKING:
    from pathloom.streams import Route

app = App(
    help="Parallel TCP streams: how many of them a path can use.",
    invoke_without_command=True,
    callback=show_help_if_alone,
)

MOST_STREAMS = 100_000


@app.command("fit")
def fit_command(
    file: Annotated[
        Path, typer.Argument(metavar="FILE.csv", help="Columns streams,bandwidth,latency,seconds: 4,50Mbps,60ms,377.1")
    ],
    out: Annotated[Path | None, typer.Option("--out", "-o", metavar="PICTURE", help="Draw the fit: FILE.png.")] = None,
    json: JsonOption = None,
) -> None:
    """Fit `a` of n = max(1, a·B·R) to measured transfer times.

    Example: pathloom streams fit times.csv --out fit.png
    """
    from pathloom.streams import fit, predicted, read_measurements
    from pathloom.streams.picture import check_picture, draw

    if out is not None:
        check_picture(out)
    fitted = fit(read_measurements(file))
    if out is not None:
        draw(fitted, out)
    rows = [(one, predicted(fitted.mean, one.rate_bps, one.latency_s)) for one in fitted.best]
    if json is not None:
        content = {
            "schema": 1,
            "a": fitted.mean,
            "a_least_squares": fitted.least_squares,
            "best": [
                {
                    "rate_bps": one.rate_bps,
                    "latency_s": one.latency_s,
                    "streams": one.streams,
                    "predicted": number,
                }
                for one, number in rows
            ],
        }
        console.put_json(json, content)
        return
    headings = ["bandwidth", "latency", "best streams", "predicted"]
    texts = [
        [rate_text(one.rate_bps), time_text(one.latency_s), str(one.streams), f"{number:.1f}"] for one, number in rows
    ]
    console.table(None, headings, texts)
    print(f"\na = {fitted.mean:.4g} (mean, as published), {fitted.least_squares:.4g} (least squares)")
    print("streams per Mbit/s of bandwidth and per ms of latency")
    if out is not None:
        print(f"Picture: {out}")


@app.command()
def advise(
    a: Annotated[float, typer.Option("--a", help="Streams per Mbit/s and ms; `pathloom streams fit` measures it.")],
    path: Annotated[
        list[str] | None,
        typer.Option(
            "--path",
            metavar="RATE,LATENCY",
            help="A path: 100Mbps,20ms. Links that it shares with others follow: 100Mbps,20ms,s1-s2=100Mbps.",
        ),
    ] = None,
    assignment: Annotated[
        int | None,
        typer.Option("--assignment", metavar="ID", help="Paths that a controller assigned and measures."),
    ] = None,
    controller: PathsAddressOption = None,
    policy: Annotated[
        str, typer.Option("--policy", help="optimal, round-robin, single, or max-flow (over shared links).")
    ] = "optimal",
    streams: Annotated[
        int | None, typer.Option("--streams", help="Streams in all; by default as many as the paths can use.")
    ] = None,
    json: JsonOption = None,
) -> None:
    """Say how many streams to open, and how to spread them over the paths.

    Example: pathloom streams advise --path 100Mbps,20ms --path 50Mbps,60ms --a 0.001495
    """
    from pathloom.streams import apportion, optimum, ratio, throughput_bps

    check_a(a)
    known = parse_policy(policy)
    if streams is not None and not 1 <= streams <= MOST_STREAMS:
        raise bad_input(f"--streams {streams}: expected 1 to {MOST_STREAMS}")
    if not path and assignment is None:
        raise bad_input("--path: is missing; expected RATE,LATENCY such as 100Mbps,20ms, or --assignment ID")
    routes = (
        [parse_path(text) for text in path or []] if assignment is None else _assigned(assignment, controller, path)
    )
    shares = ratio(known, routes, a)
    usable = [optimum(a, route.rate_bps, route.latency_s) for route in routes]
    total = streams or min(sum(usable), MOST_STREAMS)
    counts = apportion(shares, total)
    if json is not None:
        rows = zip(routes, counts, usable, shares, strict=True)
        content: dict[str, Any] = {
            "schema": 1,
            "a": a,
            "policy": policy,
            "streams": total,
            "throughput_bps": throughput_bps(shares, routes),
            "paths": [
                {
                    "rate_bps": route.rate_bps,
                    "latency_s": route.latency_s,
                    "streams": count,
                    "usable": most,
                    "share": share / sum(shares),
                }
                for route, count, most, share in rows
            ],
        }
        console.put_json(json, content)
        return
    texts = [
        [f"path {number}", rate_text(route.rate_bps), time_text(route.latency_s), str(count), str(most)]
        for number, (route, count, most) in enumerate(zip(routes, counts, usable, strict=True), 1)
    ]
    console.table(None, ["", "rate", "latency", "streams", "can use"], texts)
    print(f"\n{total} streams in the ratio {':'.join(str(count) for count in counts)} ({policy})")


def _assigned(assignment: int, controller: str | None, path: list[str] | None) -> list[Route]:
    """Returns the paths of an assignment as the controller measured them. Raises `PathloomError`, `ToolError`."""
    from pathloom.streams.paths import ControllerAddress, Paths, Refused, Unreachable, route

    where = controller or os.environ.get("PATHLOOM_PATHS")
    if path or not where:
        raise bad_input("--assignment: expected --controller ADDRESS:PORT beside it, and no --path")
    line = Paths(ControllerAddress.parse(where), None)
    try:
        return [route(row) for row in line.assignment(assignment)["paths"]]
    except Refused as error:
        raise bad_input(f"--assignment {assignment}: {error}") from None
    except Unreachable as error:
        raise ToolError(f"the controller at {where} does not answer ({error})") from None
    finally:
        line.close()


def assign(
    controller: Annotated[str, typer.Argument(metavar="CONTROLLER", help="Address of the controller.")],
    port: Annotated[int, typer.Argument(metavar="PORT", help="Port of [paths] in its configuration.")],
    src_ip: Annotated[str, typer.Argument(metavar="SRC_IP", help="Address of the sending host: this one.")],
    src_mac: Annotated[str, typer.Argument(metavar="SRC_MAC", help="Its hardware address.")],
    dst_ip: Annotated[str, typer.Argument(metavar="DST_IP", help="Address of the receiving host.")],
    path_num: Annotated[int, typer.Argument(metavar="PATHS", help="Number of paths.")],
) -> None:
    """Ask a controller for paths between two hosts; print the number of paths found and the id of the assignment.

    Example: pathloom assign 192.0.2.1 7790 10.0.0.1 02:00:00:00:00:01 10.0.7.1 4
    """
    from pathloom.streams.service import Service

    found, assignment = Service(controller, port).assign(src_ip, src_mac, dst_ip, path_num)
    print(found, assignment)


app.command("scitags")(scitags.scitags)
