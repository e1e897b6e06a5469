"""`pathloom export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pathloom.cli import console
from pathloom.cli.help import App
from pathloom.cli.options import show_help_if_alone
from pathloom.errors import bad_input, reason

app = App(help="Write plans as configurations of switches.", invoke_without_command=True, callback=show_help_if_alone)


@app.command("sonic")
def sonic(
    fabric: Annotated[str, typer.Argument(metavar="FABRIC", help="fat-tree:k=4 or a file.")],
    scheme: Annotated[
        str | None, typer.Option("--scheme", metavar="SPEC", help="Routes of spt, ecmp (default) or wcmp.")
    ] = None,
    plan: Annotated[Path | None, typer.Option("--plan", metavar="FILE", help="A plan of weights.")] = None,
    ports: Annotated[
        Path | None, typer.Option("--ports", metavar="FILE", help='Names of ports: {"e0": {"3": "Ethernet48"}}.')
    ] = None,
    srv6: Annotated[bool, typer.Option("--srv6", help="Also segments of switches and cables.")] = False,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FOLDER", help="New folder; it gets one folder per switch.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be written; write nothing.")] = False,
) -> int:
    """Write addresses, static routes and weights of a fabric for switches with SONiC.

    Example: pathloom export sonic leaf-spine:spines=2,leaves=2,hosts=2 --scheme wcmp --out configurations
    """
    from pathloom.fabrics import Fabric
    from pathloom.lab.blueprint import Blueprint
    from pathloom.lab.routed.numbering import check_size
    from pathloom.lab.routed.plan import plan_of, read_plan
    from pathloom.lab.routed.sonic import PortNames, exports_of

    if scheme is not None and plan is not None:
        raise bad_input("export sonic: expected --scheme or --plan, not both")
    if (out is None) != dry_run:
        raise bad_input("export sonic: expected one of --out FOLDER and --dry-run")
    built = Fabric(fabric)
    check_size(built)
    blueprint = Blueprint.of("export", built, routed=True)
    wanted = plan_of(blueprint, built, scheme or "ecmp") if plan is None else read_plan(plan, blueprint, built)
    exports = exports_of(blueprint, wanted, PortNames.read(ports), srv6)
    tables = ("INTERFACE", "STATIC_ROUTE", "SRV6_MY_SIDS")
    rows = [
        [one.switch, *(str(len(one.config.get(table, ()))) for table in tables), str(len(one.routes))]
        for one in exports
    ]
    console.table(None, ["switch", "addresses and ports", "static routes", "segments", "weighted routes"], rows, 2)
    if out is not None:
        try:
            out.mkdir()
            for one in exports:
                (out / one.folder).mkdir()
                for name, text in one.files().items():
                    (out / one.folder / name).write_text(text, encoding="utf-8")
        except OSError as error:
            raise bad_input(f"--out {out}: {reason(error)}; expected a new folder") from None
        print(f"Exported: {len(exports)} switches to {out}")
    return 0
