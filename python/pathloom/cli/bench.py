"""`pathloom bench`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from pathloom import _core, benchmark, fault_benchmark, solver_benchmark
from pathloom.cli import console
from pathloom.cli.controller import VERBATIM, bench_controller
from pathloom.cli.help import App
from pathloom.cli.options import JobsOption, JsonOption, SeedOption, job_count, seed_number, show_help_if_alone
from pathloom.errors import bad_input
from pathloom.experiments.running.threads import default_threads
from pathloom.extras import need

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
    settings = benchmark.settings(fabric, traffic, scheme, transport, duration, seed_number(seed) or 1)
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
    return "no flow was active" if goodput is None else f"{goodput:.4f}"


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

    λ is the value for flows that may split, `λ placed` that for flows on single paths. Times are CPU seconds of one
    core. If HiGHS exceeds its time limit, the optimum λ* stays empty. `bound` is the upper bound that Pathloom's own
    solver proves.

    Example: pathloom bench solver --json -
    """
    console.check_json_target(json)
    if exact:
        need("optimum", "--exact")
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
        str, typer.Option("--duration", metavar="TIME", help="How long to run, by the wall clock.")
    ] = "60s",
    seed: Annotated[
        str | None, typer.Option("--seed", metavar="N", help="Seed of the first schedule; then N + 1 and so on. [1]")
    ] = None,
    schedules: Annotated[
        int | None, typer.Option("--schedules", metavar="COUNT", min=1, help="Run this many, however long it takes.")
    ] = None,
    everything: Annotated[
        bool, typer.Option("--everything", help="Also draw cases that are known to break promises (docs/faults.md).")
    ] = False,
    over_openflow: Annotated[
        bool, typer.Option("--over-openflow", help="Run the live controller with switches that speak OpenFlow.")
    ] = False,
    jobs: JobsOption = None,
    json: JsonOption = None,
) -> None:
    """Draw small fabrics, schemes, workloads and faults that overlap, simulate them, and look for broken promises.

    Packets of a flow are lost only through a fault itself, and no packet goes in a loop. Every flow delivers packets
    again after the last repair. In the end no rule is left over or missing, and no flow is held. A schedule depends
    only on its seed. If one breaks a promise, the bench prints the command that repeats it, and the exit code is 1.
    That command prints the smallest form of the schedule.

    With --over-openflow, the live controller runs in virtual time and exchanges the bytes of OpenFlow with switches.
    Sessions are lost, byte streams are divided, switches are slow, refuse rules, answer in parts or restart. Agents of
    hosts announce transfers and hold them. Operators change schemes and take switches out of service.

    Example: pathloom bench faults --seed 1 --schedules 100
    """
    console.check_json_target(json)
    duration_s = _core.parse_time_s(duration)
    if duration_s <= 0:
        raise bad_input("--duration is 0s; give it a length, such as 60s")
    if everything and over_openflow:
        raise bad_input("--everything draws cases of the simulator; leave out --everything or --over-openflow")
    given = seed_number(seed)
    first = 1 if given is None else given

    command = fault_benchmark.Findings(first, everything, over_openflow).command
    findings = fault_benchmark.measure(
        first,
        duration_s,
        schedules,
        job_count(jobs) or default_threads(),
        everything,
        over_openflow,
        lambda own, lines: console.say(f"{command(own)}: {'; '.join(lines)}"),
    )
    if schedules == 1 and findings.broken:
        console.say(fault_benchmark.smallest(first, everything, over_openflow))
    if json is not None:
        console.put_json(json, findings.as_json())
    if json != console.STDOUT:
        broken = f"{len(findings.broken)} broke a promise" if findings.broken else "none broke a promise"
        console.put_text(
            f"{findings.schedules:,} schedules from seed {first} on, {broken}; {findings.per_hour:,} an hour\n"
        )
    if findings.broken:
        raise typer.Exit(1)


app.command("controller", context_settings=VERBATIM)(bench_controller)
