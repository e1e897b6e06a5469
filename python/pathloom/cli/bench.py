"""`pathloom bench`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from pathloom import _core, benchmark, fault_benchmark, solver_benchmark
from pathloom.cli import console
from pathloom.cli.help import App
from pathloom.cli.options import JobsOption, JsonOption, SeedOption, show_help_if_alone, whole_number
from pathloom.errors import bad_input
from pathloom.experiments.workers import default_threads

app = App(help="Measure how fast Pathloom is.", invoke_without_command=True, callback=show_help_if_alone)


@app.command("sim")
def sim(
    fabric: Annotated[str, typer.Option("--fabric", metavar="SPEC", help="Fabric to simulate.")] = benchmark.FABRIC,
    traffic: Annotated[str, typer.Option("--traffic", metavar="SPEC", help="Traffic to simulate.")] = benchmark.TRAFFIC,
    scheme: Annotated[str, typer.Option("--scheme", metavar="SPEC", help="Routing scheme.")] = benchmark.SCHEME,
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
    """Simulate one run on one core and print its speed.

    A packet-hop is a packet or acknowledgement that crosses a link. Only the time spent simulating counts, as CPU time;
    memory is that of a process that does nothing else.

    Example: pathloom bench sim --fabric fat-tree:k=8 --duration 100ms
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


@app.command("solver")
def solver(
    sizes: Annotated[
        list[int] | None, typer.Option("--k", metavar="K", help="Size of a FatTree; may be repeated. [4, 8 and 16]")
    ] = None,
    exact: Annotated[bool, typer.Option("--exact/--no-exact", help="Also compute the optimum by HiGHS.")] = True,
    time_limit: Annotated[
        str, typer.Option("--time-limit", metavar="TIME", help="Time limit of HiGHS for one optimum.")
    ] = "120s",
    json: JsonOption = None,
) -> None:
    """Measure allocation: maximum concurrent flow beside the exact optimum, placement quality, one arrival, one round.

    Beside λ, what flows may split to reach, stands what the placement of single paths reaches.
    Times are CPU seconds of one core. Where HiGHS does not finish in its time the optimum stays empty; the bound
    that our own solver proves stands beside it.

    Example: pathloom bench solver --json -
    """
    console.check_json_target(json)
    for k in sizes or ():
        _core.Fabric.from_spec(f"fat-tree:k={k}")
    time_limit_s = _core.parse_time_s(time_limit)
    rows = solver_benchmark.measure(sizes or [4, 8, 16], exact, time_limit_s, lambda name: console.say(f"{name} …"))
    if json is not None:
        console.put_json(json, rows)
    if json != console.STDOUT:
        headings = ["case", "time", "λ", "λ placed", "bound", "λ*", "HiGHS", "memory", "of HiGHS"]
        console.table(None, headings, [_solver_line(row) for row in rows], 1)


def _solver_line(row: dict[str, Any]) -> list[str]:
    def number(key: str, form: str) -> str:
        return "" if row[key] is None else form.format(row[key])

    seconds = row["time_s"]
    time = f"{seconds * 1e6:.1f} µs" if seconds < 1e-4 else f"{seconds * 1e3:.1f} ms"
    return [
        row["case"],
        time,
        number("lambda", "{:.4f}"),
        number("lambda_place", "{:.4f}"),
        number("bound", "{:.4f}"),
        number("lambda_opt", "{:.4f}"),
        number("opt_time_s", "{:.2f} s"),
        number("peak_rss_mb", "{:.0f} MB"),
        number("opt_peak_rss_mb", "{:.0f} MB"),
    ]


@app.command("faults")
def faults(
    duration: Annotated[
        str, typer.Option("--duration", metavar="TIME", help="How long to go on, by the wall clock.")
    ] = "60s",
    seed: Annotated[
        str | None, typer.Option("--seed", metavar="N", help="Seed of the first schedule; then N + 1 and so on. [1]")
    ] = None,
    schedules: Annotated[
        int | None, typer.Option("--schedules", metavar="COUNT", min=1, help="Run so many, however long it takes.")
    ] = None,
    everything: Annotated[
        bool, typer.Option("--everything", help="Draw what is known to break promises as well (docs/faults.md).")
    ] = False,
    jobs: JobsOption = None,
    json: JsonOption = None,
) -> None:
    """Draw small fabrics, schemes, workloads and faults that overlap, simulate them, and look for broken promises.

    No packet of a standing flow is lost but by a fault itself, none goes in a loop; every flow delivers again after the
    last repair; in the end no rule is left over or missing, and nobody waits. Each schedule follows from its seed
    alone: one that breaks a promise prints as the command that repeats it, which also prints the schedule in its
    smallest form. Exit code 1 if any did.

    Example: pathloom bench faults --seed 1 --schedules 100
    """
    console.check_json_target(json)
    duration_s = _core.parse_time_s(duration)
    if duration_s <= 0:
        raise bad_input("--duration is 0s; give it a length, such as 60s")
    given = whole_number("--seed", seed)
    first = 1 if given is None else given

    command = fault_benchmark.Findings(first, everything).command
    findings = fault_benchmark.measure(
        first,
        duration_s,
        schedules,
        whole_number("--jobs", jobs) or default_threads(),
        everything,
        lambda own, lines: console.say(f"{command(own)}: {'; '.join(lines)}"),
    )
    if schedules == 1 and findings.broken:
        _, smallest = _core.fault_schedule(first, everything, True)
        console.say(smallest.rstrip())
    if json is not None:
        console.put_json(json, findings.as_json())
    if json != console.STDOUT:
        broken = f"{len(findings.broken)} broke a promise" if findings.broken else "none broke a promise"
        console.put_text(
            f"{findings.schedules:,} schedules from seed {first} on, {broken}; {findings.per_hour:,} an hour\n"
        )
    if findings.broken:
        raise typer.Exit(1)
