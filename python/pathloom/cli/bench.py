"""`pathloom bench`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from pathloom import benchmark
from pathloom.cli import console
from pathloom.cli.options import JsonOption, SeedOption, show_help_if_alone, whole_number

app = typer.Typer(help="Measure how fast Pathloom is.", invoke_without_command=True, callback=show_help_if_alone)


@app.command("sim")
def sim(
    fabric: Annotated[str, typer.Option("--fabric", metavar="SPEC", help="What is simulated.")] = benchmark.FABRIC,
    traffic: Annotated[str, typer.Option("--traffic", metavar="SPEC", help="What it carries.")] = benchmark.TRAFFIC,
    scheme: Annotated[str, typer.Option("--scheme", metavar="SPEC", help="How it is routed.")] = benchmark.SCHEME,
    transport: Annotated[
        str, typer.Option("--transport", metavar="SPEC", help="What hosts run.")
    ] = benchmark.TRANSPORT,
    duration: Annotated[str, typer.Option("--duration", metavar="TIME", help="Simulated time.")] = benchmark.DURATION,
    seed: SeedOption = None,
    instructions: Annotated[
        bool, typer.Option("--instructions", help="Count instructions per hop with valgrind; takes minutes.")
    ] = False,
    json: JsonOption = None,
) -> None:
    """Simulate one run on one core and say how fast that was.

    A packet-hop is a packet or acknowledgement that crosses a link. Only the time spent simulating counts, as CPU time;
    memory is that of a process that does nothing else.
    """
    console.check_json_target(json)
    settings = benchmark.settings(fabric, traffic, scheme, transport, duration, whole_number("--seed", seed) or 1)
    row = benchmark.measure(settings)
    if instructions:
        row["instructions_per_hop"] = benchmark.instructions_per_hop(settings, duration)
    if json is not None:
        console.put_json(json, row)
    if json != console.STDOUT:
        console.table(None, ["", ""], _lines(row), 1)


def _lines(row: dict[str, Any]) -> list[list[str]]:
    per_hop = row["instructions_per_hop"]
    return [
        ["packet-hops", f"{row['hops']:,}"],
        ["CPU time", f"{row['cpu_s']:.2f} s"],
        ["packet-hops per CPU second", f"{row['hops_per_cpu_s'] / 1e6:.2f} million"],
        ["events per CPU second", f"{row['events_per_cpu_s'] / 1e6:.2f} million"],
        ["instructions per hop", f"{per_hop:.0f}" if per_hop is not None else "not counted (--instructions)"],
        ["goodput, share of the optimum", f"{row['goodput']:.4f}"],
        [f"  in the first {benchmark.START_UP_SHARE:.0%}", _share(row["goodput_start_up"])],
        ["  after that", _share(row["goodput_after"])],
        ["peak memory", f"{row['peak_rss_mb']:.1f} MB"],
        ["of which the interpreter", f"{row['interpreter_rss_mb']:.1f} MB"],
    ]


def _share(goodput: float | None) -> str:
    return "nothing was under way" if goodput is None else f"{goodput:.4f}"
