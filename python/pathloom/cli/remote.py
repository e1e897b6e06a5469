"""`pathloom controller status`, `flows`, `why` and the like: commands for the HTTP API of a running controller."""

from __future__ import annotations

import time
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from pathloom._core import PathloomError
from pathloom.cli import console
from pathloom.cli.exits import EXIT_ERROR
from pathloom.cli.help import App
from pathloom.cli.options import JsonOption
from pathloom.errors import ToolError
from pathloom.remote import DEFAULT_URL, URL_VARIABLE, Controller, find_token, make_token, quote

app = App(
    add_completion=False,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)

UrlOption = Annotated[
    str,
    typer.Option(
        "--url", envvar=URL_VARIABLE, metavar="URL[,URL]", help="Its API; of several controllers, the leader answers."
    ),
]
TokenOption = Annotated[
    Path | None,
    typer.Option("--token-file", metavar="FILE", help="File with a token, or with several; default: PATHLOOM_TOKEN."),
]
CaOption = Annotated[
    Path | None, typer.Option("--ca", metavar="FILE", help="Authority of the controller's certificate, as PEM.")
]


def _controller(url: str, token_file: Path | None, ca: Path | None) -> Controller:
    return Controller(url, find_token(token_file), ca)


def _rate(rate_bps: float | None) -> str:
    return "" if rate_bps is None else f"{rate_bps / 1e6:.1f}"


def _show(json: str | None, content: dict[str, Any]) -> bool:
    """Writes JSON if `json` names a target. Returns whether a table should be printed too."""
    if json is not None:
        console.put_json(json, {"schema": 1, **content})
    return json != console.STDOUT


@app.command("status")
def status(
    url: UrlOption = DEFAULT_URL, token_file: TokenOption = None, ca: CaOption = None, json: JsonOption = None
) -> int:
    """Show the state of a controller.

    Example: pathloom controller status
    """
    controller = _controller(url, token_file, ca)
    try:
        state = controller.ask("GET", "/v1/state")
    except (PathloomError, ToolError) as problem:
        cluster = controller.cluster()
        if cluster is None:
            raise
        console.say(f"pathloom: {problem}")
        if _show(json, {"state": None, "cluster": cluster}):
            _print_cluster(cluster)
        return EXIT_ERROR
    if _show(json, {"state": state}):
        flows, cables = state["flows"], state["cables"]
        print(f"{state['scheme']} is in charge of {state['fabric']}, up {state['uptime_s']:.0f} s")
        print(f"version   {state['version']}")
        if process := state.get("scheme_process"):
            failures = f", {process['errors']} events failed" if process["errors"] else ""
            why = f"; the last one ended: {process['problem']}" if process["problem"] else ""
            print(f"process   {process['state']}, started {process['starts']} times{failures}{why}")
        if cluster := state.get("cluster"):
            _print_cluster(cluster)
        print(f"switches  {state['sessions']} of {state['switches']} connected")
        print(f"cables    {cables['up']} up, {cables['down']} down, {cables['drained']} out of service")
        print(
            f"flows     {flows['known']} known, {flows['long']} long; {flows['own_path']} on paths of their own, "
            f"{flows['changing_path']} changing, {flows['default_routes']} on default routes, {flows['held']} waiting"
        )
        print(f"busy      {100 * state['busy_share']:.0f} % of a core")
    return 0


def _print_cluster(cluster: dict[str, Any]) -> None:
    if cluster["leads_since_s"] is None:
        age = "" if cluster["age_s"] is None else f" since {cluster['age_s']:.1f} s"
        print(f"leader    {cluster['leader'] or 'none'}, as {cluster['name']} knows{age}")
    else:
        doubt = "" if cluster["confirmed"] else "; etcd does not confirm it"
        since = _moment(cluster["leads_since_s"])
        print(f"leader    {cluster['name']} since {since}, election {cluster['election']}{doubt}")
    members = [f"{one['name']} {one['lag_s']:.1f} s ago" for one in cluster["members"]]
    if members:
        print(f"members   told etcd about themselves: {', '.join(members)}")
    if hand_over := cluster["hand_over"]:
        print(f"hand-over {_moment(hand_over['at_s'])}, to {hand_over['to']}: {hand_over['cause']}")
    if cluster["stored_before_s"] is not None:
        print(f"state     stored in etcd {cluster['stored_before_s']:.1f} s ago")


def _moment(at_s: float) -> str:
    return datetime.fromtimestamp(at_s).astimezone().isoformat(" ", "seconds")


@app.command("switches")
def switches(
    url: UrlOption = DEFAULT_URL, token_file: TokenOption = None, ca: CaOption = None, json: JsonOption = None
) -> int:
    """List the switches.

    Example: pathloom controller switches
    """
    rows = list(_controller(url, token_file, ca).pages("/v1/switches"))
    if _show(json, {"switches": rows}):
        lines = [
            [
                row["name"],
                row["datapath_id"],
                row["peer"] or "not connected",
                f"{row['ports_up']}/{row['ports']}",
                str(row["rules"]),
                str(row["foreign_rules"]),
                "" if row["rtt_us"] is None else f"{row['rtt_us']:.0f}",
                "out of service" if row["drained"] else "",
            ]
            for row in rows
        ]
        console.table(
            None, ["switch", "datapath id", "session", "ports up", "rules", "of others", "RTT, us", ""], lines, 3
        )
    return 0


@app.command("links")
def links(
    url: UrlOption = DEFAULT_URL,
    token_file: TokenOption = None,
    ca: CaOption = None,
    json: JsonOption = None,
) -> int:
    """List the links, one row per direction, with their loads.

    Example: pathloom controller links --json -
    """
    rows = list(_controller(url, token_file, ca).pages("/v1/links"))
    if _show(json, {"links": rows}):
        lines = [
            [
                row["id"],
                row["to"],
                row["state"],
                str(row["flows"]),
                _rate(row["load_bps"]),
                _rate(row["rate_bps"]),
                str(row["dropped_packets"]),
            ]
            for row in rows
        ]
        console.table(None, ["link", "to", "state", "flows", "load, Mbps", "rate, Mbps", "dropped"], lines, 3)
    return 0


@app.command("flows")
def flows(
    url: UrlOption = DEFAULT_URL,
    token_file: TokenOption = None,
    ca: CaOption = None,
    json: JsonOption = None,
    long: Annotated[bool, typer.Option("--long", help="Only long flows.")] = False,
) -> int:
    """List the flows that the controller knows.

    Example: pathloom controller flows
    """
    rows = list(_controller(url, token_file, ca).pages("/v1/flows" + ("?long=true" if long else "")))
    if _show(json, {"flows": rows}):
        now = time.time()
        lines = [
            [
                row["id"],
                _tuple(row["five_tuple"]),
                row["phase"],
                " - ".join(row["path"] or []),
                _rate(row["rate_bps"]),
                f"{max(0.0, now - row['since_s']):.0f}",
            ]
            for row in rows
        ]
        console.table(None, ["flow", "five-tuple", "phase", "path", "rate, Mbps", "age, s"], lines, 4)
    return 0


def _tuple(five_tuple: dict[str, Any]) -> str:
    proto = {6: "tcp", 17: "udp"}.get(five_tuple["proto"], five_tuple["proto"])
    return f"{five_tuple['src']}:{five_tuple['src_port']},{five_tuple['dst']}:{five_tuple['dst_port']},{proto}"


@app.command("why")
def why(
    flow: Annotated[str, typer.Argument(metavar="FLOW", help="Its id, or SRC:PORT,DST:PORT,PROTO.")],
    url: UrlOption = DEFAULT_URL,
    token_file: TokenOption = None,
    ca: CaOption = None,
    json: JsonOption = None,
) -> int:
    """Show why a flow is on its path, and its other paths.

    Example: pathloom controller why 10.0.0.1:4000,10.0.7.1:80,tcp
    """
    content = _controller(url, token_file, ca).ask("GET", f"/v1/flows/{quote(flow)}/why")
    if _show(json, {"why": content}):
        print(content["why"])
        for one in content["history"]:
            at = time.strftime("%H:%M:%S", time.localtime(one["at_s"]))
            print(f"{at}  {one['scheme']} {one['decision']}, because of this: {one['cause']}")
        lines = [
            [
                "is here" if one["current"] else "",
                " - ".join(one["path"]),
                one["fullest"] or "",
                f"{100 * one['load_share']:.0f} %",
            ]
            for one in content["candidates"]
        ]
        console.table(None, ["", "path", "fullest link", "its load"], lines, 3)
    return 0


@app.command("drain")
def drain(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A switch, or a link: NODE:PORT or FROM,TO.")],
    url: UrlOption = DEFAULT_URL,
    token_file: TokenOption = None,
    ca: CaOption = None,
) -> int:
    """Take a switch or a cable out of service without loss: flows and default routes move off it.

    Example: pathloom controller drain c0
    """
    return _serve(_controller(url, token_file, ca), name, "drain")


@app.command("undrain")
def undrain(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A switch, or a link: NODE:PORT or FROM,TO.")],
    url: UrlOption = DEFAULT_URL,
    token_file: TokenOption = None,
    ca: CaOption = None,
) -> int:
    """Take a switch or a cable back into service.

    Example: pathloom controller undrain c0
    """
    return _serve(_controller(url, token_file, ca), name, "undrain")


def _serve(controller: Controller, name: str, verb: str) -> int:
    kind = "links" if ":" in name or "," in name else "switches"
    row = controller.ask("POST", f"/v1/{kind}/{quote(name)}/{verb}")
    state = row["state"] if kind == "links" else ("out of service" if row["drained"] else "in service")
    print(f"{name}: {state}")
    return 0


@app.command("resync")
def resync(
    name: Annotated[str | None, typer.Argument(metavar="SWITCH", help="One switch; default: all.")] = None,
    url: UrlOption = DEFAULT_URL,
    token_file: TokenOption = None,
    ca: CaOption = None,
) -> int:
    """Read the rules of switches again now, and repair changes of others.

    The controller does so by itself all the time, one switch after another. Its log and /metrics say what it found.

    Example: pathloom controller resync a0_1
    """
    path = "/v1/resync" if name is None else f"/v1/switches/{quote(name)}/resync"
    answer = _controller(url, token_file, ca).ask("POST", path)
    connected = answer["sessions"] if name is None else int(answer["peer"] is not None)
    print(f"{name or 'all switches'}: {connected} connected, being read")
    return 0


@app.command("announce")
def announce(
    flow: Annotated[str, typer.Argument(metavar="FLOW", help="SRC:PORT,DST:PORT,PROTO.")],
    size_bytes: Annotated[int | None, typer.Option("--size-bytes", min=1, help="Payload bytes, if known.")] = None,
    url: UrlOption = DEFAULT_URL,
    token_file: TokenOption = None,
    ca: CaOption = None,
) -> int:
    """Announce a flow before its first packet.

    Example: pathloom controller announce 10.0.0.1:4000,10.0.7.1:80,tcp --size-bytes 100000000
    """
    from pathloom.errors import bad_input

    try:
        src, dst, *proto = flow.split(",")
        (src_address, src_port), (dst_address, dst_port) = src.split(":"), dst.split(":")
        number = {"tcp": 6, "udp": 17}.get(proto[0]) if proto else 6
        five_tuple = {
            "src": src_address,
            "dst": dst_address,
            "proto": int(proto[0]) if number is None else number,
            "src_port": int(src_port),
            "dst_port": int(dst_port),
        }
    except ValueError:
        raise bad_input(f"`{flow}`: expected SRC:PORT,DST:PORT,PROTO such as 10.0.0.1:4000,10.0.7.1:80,tcp") from None
    body = {"five_tuple": five_tuple, "size_bytes": size_bytes}
    answer = _controller(url, token_file, ca).ask("POST", "/v1/flows", body)
    known = answer["flow"]
    print(answer["note"] + (f": {known['id']}, {known['phase']}" if known else ""))
    return 0


@app.command("dry-run")
def dry_run(
    scheme: Annotated[str, typer.Argument(metavar="SCHEME", help="hedera:period=1s")],
    url: UrlOption = DEFAULT_URL,
    token_file: TokenOption = None,
    ca: CaOption = None,
    json: JsonOption = None,
) -> int:
    """Predict the effect of another scheme on the existing flows. Nothing is sent.

    Example: pathloom controller dry-run hedera:period=1s
    """
    run = _controller(url, token_file, ca).ask("POST", "/v1/scheme/dry-run", {"scheme": scheme})
    if _show(json, {"dry_run": run}):
        print(f"{run['scheme']} would move {run['moved']} of {run['flows']} flows of {run['instead_of']}")
        lines = [
            [what, _rate(one["max_min_mean_bps"]), _rate(one["max_min_least_bps"]), f"{one['max_load_share']:.2f}"]
            for what, one in (("now", run["now"]), ("then", run["then"]))
        ]
        console.table(None, ["", "mean rate, Mbps", "least rate, Mbps", "fullest link, load"], lines, 1)
    return 0


@app.command("scheme")
def scheme(
    name: Annotated[str | None, typer.Argument(metavar="[SCHEME]", help="Put this one in charge.")] = None,
    url: UrlOption = DEFAULT_URL,
    token_file: TokenOption = None,
    ca: CaOption = None,
) -> int:
    """Show the scheme in charge, or put another one in charge without loss.

    Example: pathloom controller scheme

    Example: pathloom controller scheme ofpt
    """
    controller = _controller(url, token_file, ca)
    answer = (
        controller.ask("GET", "/v1/scheme") if name is None else controller.ask("PUT", "/v1/scheme", {"scheme": name})
    )
    print(f"{answer['scheme']} is in charge")
    return 0


@app.command("fall-back")
def fall_back(url: UrlOption = DEFAULT_URL, token_file: TokenOption = None, ca: CaOption = None) -> int:
    """Put ecmp in charge: every flow goes back to the default routes.

    Example: pathloom controller fall-back
    """
    answer = _controller(url, token_file, ca).ask("POST", "/v1/scheme/fall-back")
    print(f"{answer['scheme']} is in charge")
    return 0


@app.command("token")
def token(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the token's user, such as grafana.")],
    role: Annotated[
        str, typer.Option("--role", metavar="ROLE", help="read, or operate (also change things).")
    ] = "read",
    file: Annotated[
        Path | None, typer.Option("--file", metavar="FILE", help="Add the token to this file; otherwise only print it.")
    ] = None,
) -> int:
    """Make a token for the API.

    Example: pathloom controller token grafana --role read --file /etc/pathloom/tokens
    """
    print(make_token(name, role, file))
    return 0


COMMANDS = frozenset(command.name for command in app.registered_commands)
"""Commands for a running controller; all others go to the native program."""
