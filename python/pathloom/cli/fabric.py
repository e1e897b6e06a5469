"""`pathloom fabric`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from pathloom import _core
from pathloom.cli import completion, console
from pathloom.cli.help import App
from pathloom.cli.options import JsonOption, show_help_if_alone
from pathloom.errors import bad_input, nearest_hint
from pathloom.experiments.settings.min_rto import shorter_min_rto, usual_min_rto
from pathloom.quantities import counted, rate_text, time_text
from pathloom.tiers import TOR, Words, tier_words

app = App(help="Fabrics: list, show, draw, export.", invoke_without_command=True, callback=show_help_if_alone)

SpecArgument = Annotated[
    str,
    typer.Argument(
        metavar="SPEC",
        help="fat-tree:k=4, or FILE.graphml, .json, .csv, .topo.",
        autocompletion=completion.fabrics,
    ),
]


@app.command("list")
def list_fabrics(json: JsonOption = None) -> None:
    """List the built-in fabrics and their keys.

    Example: pathloom fabric list
    """
    fabrics = _core.fabrics()
    if json is not None:
        console.put_json(json, fabrics)
        return
    console.table(None, ["fabric, with its defaults", "what it is"], [[f["example"], f["about"]] for f in fabrics], 2)
    print("\nA file in GraphML (as the Internet Topology Zoo publishes it) or node-link JSON: FILE.graphml, FILE.json;")
    print("a list of edges, FILE.csv with the columns source,target,rate,delay; or a topology of htsim, FILE.topo;")
    print("with hosts=1 at every node if the file has no hosts. In doubt, leaves=hosts or leaves=switches decides what")
    print(
        "nodes with a single neighbour are. Edges state their rate as rate (10Gbps), rate_bps, capacity, bandwidth, bw"
    )
    print(
        "or speed (Mbit/s without a unit), LinkSpeed, or a label like OC-192. Each direction of a directed graph keeps"
    )
    print("its own. `pathloom fabric show FILE` notes what it took for what, and what it had to guess.")
    print(f"Every fabric takes: {fabrics[0]['common_keys']}")


@app.command()
def show(spec: SpecArgument, json: JsonOption = None) -> None:
    """Show the sizes, rates, path counts and the bisection of a fabric.

    Example: pathloom fabric show jellyfish:homes=2
    """
    from pathloom.fabrics import Fabric

    fabric = Fabric(spec)
    summary = fabric.summary()
    if json is not None:
        console.put_json(json, summary)
        return
    console.table(None, ["", ""], [[label, text] for label, text in _lines(summary, tier_words(fabric)) if text], 2)


def _lines(summary: dict[str, Any], words: dict[str, Words]) -> list[tuple[str, str]]:
    paths, tor = summary["shortest_paths"], words.get("tor", TOR)
    tiers = ", ".join(words[row["tier"]].counted(row["nodes"]) for row in summary["tiers"])
    ratio = summary["oversubscription"]

    def rates(ends: list[int] | None) -> str:
        return " to ".join(rate_text(rate) for rate in sorted(set(ends or [])))

    return [
        ("fabric", summary["spec"]),
        ("nodes", f"{summary['nodes']} ({tiers})"),
        ("cables", f"{summary['cables']}, of these {summary['switch_cables']} between switches"),
        ("failed cables", str(summary["failed_cables"] or "")),
        ("host links", rates(summary["host_rate_bps"])),
        ("switch links", rates(summary["switch_rate_bps"])),
        ("shortest paths", _paths_text(paths, tor) if paths else ""),
        ("longest of them", f"{counted(summary['diameter_hops'], 'hop')} between two {tor.many}" if paths else ""),
        ("round trips", _round_trip_text(summary["round_trip_ps"])),
        ("min_rto by default", _default_rto_text(summary["round_trip_ps"])),
        (f"{tor.one} pairs apart", str(summary["pairs_apart"] or "")),
        ("oversubscription", f"{ratio:g} : 1 at the worst {tor.one}" if ratio is not None else ""),
        ("bisection", _bisection_text(summary["bisection"])),
        *(("note", note) for note in summary["notes"]),
    ]


def _paths_text(paths: dict[str, int], tor: Words) -> str:
    """Returns how many shortest paths there are.

    >>> _paths_text({"min": 2, "max": 4, "median": 4}, TOR)
    '2 to 4 between two ToRs, median 4'
    >>> _paths_text({"min": 4, "max": 4, "median": 4}, TOR)
    '4 between any two ToRs'
    """
    if paths["min"] == paths["max"]:
        return f"{paths['min']} between any two {tor.many}"
    return f"{paths['min']} to {paths['max']} between two {tor.many}, median {paths['median']}"


def _round_trip_text(round_trip_ps: list[int] | None) -> str:
    """Returns the longest round trips, which help users to choose time-outs.

    >>> _round_trip_text([24_000_000, 158_000_000])
    'at most 24 µs with empty queues, 158 µs with full ones, of full frames both ways'
    """
    if round_trip_ps is None:
        return ""
    idle, full = (time_text(ps / 1e12) for ps in round_trip_ps)
    return f"at most {idle} with empty queues, {full} with full ones, of full frames both ways"


def _default_rto_text(round_trip_ps: list[int] | None) -> str:
    """Returns the default minimum time-out of a fabric, if Linux's is too long for it.

    >>> _default_rto_text([24_000_000, 158_000_000])
    '1 ms, four of the longest round trips (--transport newreno:min_rto=200ms is Linux)'
    >>> _default_rto_text([24_000_000_000, 158_000_000_000])
    ''
    """
    shorter = shorter_min_rto(round_trip_ps)
    if shorter is None:
        return ""
    time = time_text(_core.parse_time_s(shorter))
    return f"{time}, four of the longest round trips (--transport newreno:min_rto={usual_min_rto()} is Linux)"


def _bisection_text(bisection: dict[str, Any] | None) -> str:
    """Returns the bisection bandwidth, exact or as bounds, and the host ports of the two halves.

    >>> _bisection_text({"bps": 49e9, "kind": "upper-bound", "at_least_bps": 7e9, "host_ports": [98, 99]})
    'at most 49 Gbit/s, the best cut found, and at least 7 Gbit/s, between 98 and 99 host ports'
    """
    if bisection is None:
        return ""
    rate, least = rate_text(bisection["bps"]), rate_text(bisection["at_least_bps"])
    exact = bisection["kind"] == "exact"
    value = f"{rate}, exact," if exact else f"at most {rate}, the best cut found, and at least {least},"
    return f"{value} between {bisection['host_ports'][0]} and {bisection['host_ports'][1]} host ports"


@app.command()
def draw(
    spec: SpecArgument,
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="FILE", help="Output file; its suffix selects SVG, PNG or PDF.")
    ] = Path("fabric.svg"),
) -> None:
    """Draw a fabric: Clos fabrics in tiers, graphs with coordinates and HammingMesh as maps, Jellyfish as a circle.

    Example: pathloom fabric draw fat-tree:k=4 --out k4.svg
    """
    from pathloom.fabrics import Fabric

    fabric, replaced = Fabric(spec), _replaced(out)
    fabric.draw(out)
    print(f"Drawing: {out}{replaced}")


@app.command()
def export(
    spec: SpecArgument,
    form: Annotated[str, typer.Option("--format", metavar="FORMAT", help="graphml or json (node-link).")] = "json",
    out: Annotated[
        str, typer.Option("--out", "-o", metavar="FILE", help="Where to write it; - is standard output.")
    ] = "-",
) -> None:
    """Write a fabric as GraphML or node-link JSON; both can be read back with --fabric.

    Example: pathloom fabric export vl2 --format graphml --out vl2.graphml
    """
    from pathloom.experiments.results.output_files import write_text
    from pathloom.fabrics import Fabric

    forms = ["graphml", "json"]
    if form not in forms:
        raise bad_input(f"--format `{form}`: expected graphml or json{nearest_hint(form, forms)}")
    fabric = Fabric(spec)
    text = fabric.to_graphml() if form == "graphml" else fabric.to_node_link()
    if out == console.STDOUT:
        console.put_text(text)
    else:
        replaced = _replaced(Path(out))
        write_text(Path(out), text)
        print(f"Exported: {out}{replaced}")


def _replaced(out: Path) -> str:
    """Returns what to print after the name of a file that is about to be written over an older one."""
    return " (replaces an older file)" if out.is_file() else ""
