"""Options of `pathloom twin`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pathloom.cli.options import out_folder
from pathloom.experiments.settings.setting import NETWORK, OUTPUT, RUNS, WHAT

LedgerToFillOption = Annotated[
    Path | None,
    typer.Option("--ledger", metavar="FILE", help="Keep the predictions in this ledger.", rich_help_panel=OUTPUT),
]
LedgerOption = Annotated[
    Path, typer.Option("--ledger", metavar="FILE", help="Ledger of the predictions, as ask has made it.")
]

ControllerOption = Annotated[
    str | None,
    typer.Option("--controller", metavar="URL", help="API of a running controller.", rich_help_panel=WHAT),
]
FolderOption = Annotated[
    Path | None,
    typer.Option(
        "--from", metavar="FOLDER", help="Results of a simulated run, which is repeated.", rich_help_panel=WHAT
    ),
]
RecordsOption = Annotated[
    Path | None,
    typer.Option(
        "--records",
        metavar="FILE",
        help="Flow records: CSV or Parquet with start_s, src, dst, bytes, end_s; IPFIX; pcap with IPFIX or sFlow. "
        "Needs --fabric.",
        rich_help_panel=WHAT,
    ),
]
AtOption = Annotated[
    str | None,
    typer.Option("--at", metavar="TIME", help="Time of the run, or since the first flow: 5s.", rich_help_panel=WHAT),
]
FabricOption = Annotated[
    str | None, typer.Option("--fabric", metavar="SPEC", help="Fabric of --records.", rich_help_panel=WHAT)
]
SchemeOption = Annotated[
    str | None,
    typer.Option(
        "--scheme",
        metavar="SPEC",
        help="Scheme of --records, or one of those in FOLDER.  [default: ecmp, or the first]",
        rich_help_panel=WHAT,
    ),
]
RunOption = Annotated[str, typer.Option("--run", metavar="N", help="Which run of FOLDER.", rich_help_panel=WHAT)]
LearnOption = Annotated[
    str,
    typer.Option(
        "--learn", metavar="TIME", help="Watch the controller this long to learn arrivals.", rich_help_panel=WHAT
    ),
]
TransportOption = Annotated[
    str | None,
    typer.Option("--transport", metavar="SPEC", help="Transport of the hosts.", rich_help_panel=NETWORK),
]
NamesOption = Annotated[
    bool,
    typer.Option("--names", help="Keep names of hosts; by default they become h0, h1, …", rich_help_panel=OUTPUT),
]
ForkFileOption = Annotated[
    Path, typer.Option("--out", metavar="FILE", help="File of the fork.", rich_help_panel=OUTPUT)
]

ForkArgument = Annotated[Path, typer.Argument(metavar="FORK", help="File of `pathloom twin fork`.")]
QuestionsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[QUESTION…]",
        help="drain:SWITCH cut:CABLE fail:WHAT degrade:CABLE=RATE loss:CABLE=SHARE add:CABLE scheme:NAME "
        "weights:SWITCH-NEXT=WEIGHT load:x1.2, several joined by +",
    ),
]
FailuresOption = Annotated[
    str | None,
    typer.Option(
        "--failures",
        metavar="KIND",
        help="Ask for all failures of cables and switches, in place of questions: single or double.",
        rich_help_panel=WHAT,
    ),
]
WorstOption = Annotated[
    str,
    typer.Option("--worst", metavar="N", help="How many of the worst --failures run in packets.", rich_help_panel=RUNS),
]
MeasureOption = Annotated[
    str,
    typer.Option(
        "--for",
        metavar="MEASURE",
        help="What should be good: p99-fct-small, worst-pair, mean-throughput or completion.",
        rich_help_panel=WHAT,
    ),
]
DurationOption = Annotated[
    str, typer.Option("--duration", metavar="TIME", help="How long flows arrive in a fork.", rich_help_panel=RUNS)
]
RunsOption = Annotated[
    str, typer.Option("--runs", metavar="N", help="Forks of each alternative.", rich_help_panel=RUNS)
]
BudgetOption = Annotated[
    str | None,
    typer.Option(
        "--budget", metavar="TIME", help="Start no further fork after this time, but two.", rich_help_panel=RUNS
    ),
]
AnswerFolderOption = Annotated[
    Path | None,
    typer.Option(
        "--out",
        parser=out_folder,
        metavar="FOLDER",
        help="Folder for answer.json and a picture.",
        rich_help_panel=OUTPUT,
    ),
]

TakeBackOption = Annotated[
    bool,
    typer.Option(
        "--take-back",
        help="Take back what went worse than its interval. Without this, only say what would be sent.",
        rich_help_panel=WHAT,
    ),
]
KeepOption = Annotated[
    bool,
    typer.Option("--keep", help="Go on, and wait for what is carried out later. Ctrl-C ends it.", rich_help_panel=RUNS),
]
MetricsOption = Annotated[
    Path | None,
    typer.Option(
        "--metrics",
        metavar="FILE",
        help="Keep metrics for Prometheus in FILE, for the textfile collector of node_exporter.",
        rich_help_panel=OUTPUT,
    ),
]
