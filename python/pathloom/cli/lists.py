"""`pathloom scheme`, `pathloom transport` and `pathloom traffic`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from pathloom import _core
from pathloom.cli import completion, console
from pathloom.cli.help import App
from pathloom.cli.options import JsonOption, show_help_if_alone
from pathloom.errors import bad_input

schemes = App(help="Routing schemes: list, show.", invoke_without_command=True, callback=show_help_if_alone)
transports = App(help="Transports of hosts: list, show.", invoke_without_command=True, callback=show_help_if_alone)
traffic = App(help="Traffic: list.", invoke_without_command=True, callback=show_help_if_alone)


@schemes.command("list")
def list_schemes(json: JsonOption = None) -> None:
    """List the schemes.

    Example: pathloom scheme list
    """
    entries = _core.schemes()
    if json is not None:
        console.put_json(json, entries)
        return
    console.table(None, ["scheme", "what it does"], [[entry["name"], entry["about"]] for entry in entries], 2)


@schemes.command("show")
def show_scheme(
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="A scheme of `pathloom scheme list`.", autocompletion=completion.schemes),
    ],
    json: JsonOption = None,
) -> None:
    """Show what a scheme does, its publication, its keys, and which fabrics can carry it.

    Example: pathloom scheme show hedera
    """
    entry = _named(name)
    if json is not None:
        console.put_json(json, entry)
        return
    print(f"{entry['name']}: {entry['about']}\nPublished in: {entry['paper']}")
    print(f"Hosts run: {entry['transport']}, which --transport refines")
    if entry["keys"]:
        print()
        console.table(
            None,
            ["key", "default", "what it does"],
            [[k["name"], k["default"], k["about"]] for k in entry["keys"]],
            3,
        )
    else:
        print("It takes no keys.")
    print()
    rows = [[one["name"], ": ".join(filter(None, (one["carried"], one["why"])))] for one in entry["encodings"]]
    console.table(None, ["paths named by", "carried"], rows, 2)


def _named(name: str) -> dict[str, Any]:
    entries = {entry["name"]: entry for entry in _core.schemes()}
    if name not in entries:
        _core.scheme_name(name)  # Raises with the nearest name, unless it is a scheme with keys.
        raise bad_input(f"scheme `{name}`: name it without keys, such as {', '.join(entries)}")
    return entries[name]


@transports.command("list")
def list_transports(json: JsonOption = None) -> None:
    """List the transports.

    Example: pathloom transport list
    """
    entries = _core.transports()
    if json is not None:
        console.put_json(json, entries)
        return
    rows = [[entry["name"], entry["about"], entry["source"]] for entry in entries]
    console.table(None, ["transport", "what it is", "published in"], rows, 3)


@transports.command("show")
def show_transport(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME", help="A transport of `pathloom transport list`.", autocompletion=completion.transports
        ),
    ],
    json: JsonOption = None,
) -> None:
    """Show what a transport is, its publication, and its keys for --transport.

    Example: pathloom transport show newreno
    """
    entries = {entry["name"]: entry for entry in _core.transports()}
    if name not in entries:
        _core.transport_settings(name)  # Raises with the nearest name, unless it is a transport with keys.
        raise bad_input(f"transport `{name}`: name it without keys, such as {', '.join(entries)}")
    entry = entries[name]
    if json is not None:
        console.put_json(json, entry)
        return
    print(f"{entry['name']}: {entry['about']}\nPublished in: {entry['source']}\n")
    rows = [[key["name"], key["default"], key["about"], key["source"]] for key in entry["keys"]]
    console.table(None, ["key", "default", "what it sets", "source"], rows, 4)
    own = {"mptcp": "subflows=8,min_rto=1ms", "uec": "entropy=reps", "roce": "recovery=irn", "hpcc": "eta=0.9"}
    usual = "iw=15KB,min_rto=1ms" if any(key["name"] == "min_rto" for key in entry["keys"]) else "mtu=9000B"
    print(f"\nFor example: --transport {entry['name']}:{own.get(entry['name'], usual)}")


@traffic.command("list")
def list_traffic(json: JsonOption = None) -> None:
    """List the kinds of traffic and their keys.

    Example: pathloom traffic list
    """
    entries = _core.traffics()
    if json is not None:
        console.put_json(json, entries)
        return
    for entry in entries:
        print(f"{entry['name']}: {entry['about']}")
    print()
    keys: dict[tuple[str, str], list[str]] = {}
    for entry in entries:
        for key in entry["keys"]:
            keys.setdefault((key["name"], key["about"]), []).append(entry["name"])
    rows = [[name, about, ", ".join(users)] for (name, about), users in keys.items()]
    console.table(None, ["key", "what it sets (default)", "of"], rows, 3)
