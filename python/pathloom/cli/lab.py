"""`pathloom lab`."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pathloom.cli import compare, console
from pathloom.cli.help import App
from pathloom.cli.options import JsonOption, OutOption, SpecFileOption, plot_kinds, show_help_if_alone
from pathloom.cli.settings_options import takes_settings
from pathloom.errors import bad_input, nearest_hint, reason
from pathloom.experiments.running.simulation import RunFiles
from pathloom.experiments.settings.model import ROUTED_SWITCHES, setting
from pathloom.specs import LAB

if TYPE_CHECKING:
    from pathloom.lab.lab import Lab

app = App(
    help="Build fabrics from network namespaces and Open vSwitch on this machine, as root.",
    invoke_without_command=True,
    callback=show_help_if_alone,
)

NameOption = Annotated[
    str, typer.Option("--name", metavar="NAME", help="Name of the lab; several can exist at a time.")
]
DaemonsOption = Annotated[
    int | None,
    typer.Option(
        "--daemons",
        metavar="N",
        min=1,
        help="Daemons of Open vSwitch to spread switches over; one per processor, up to 4.",
    ),
]
HostsOption = Annotated[
    str,
    typer.Option(
        "--hosts", metavar="STACK", help="TCP of the hosts: newreno as in the simulator, linux, or linux/NAME."
    ),
]


TargetOption = Annotated[
    str,
    typer.Option(
        "--controller",
        metavar="TARGET",
        help="none (static routes), pathloom (our own), unix:/run/pathloom/NAME/ovs/FILE, or tcp:127.0.0.1:PORT "
        "inside the lab, which is for a single daemon.",
    ),
]
LiveSchemeOption = Annotated[
    str | None,
    typer.Option("--scheme", metavar="SPEC", help="Scheme of our controller, or of the static routes; default ecmp."),
]
ArpOption = Annotated[
    str,
    typer.Option(
        "--arp",
        metavar="HOW",
        help="static (hosts know all MAC addresses) or proxy (they ask our controller).",
    ),
]
SwitchesOption = Annotated[
    str | None,
    typer.Option(
        "--switches",
        metavar="SPEC",
        help="In place of Open vSwitch: routers (kernel, frr, frr:bfd=off), or switches that find paths themselves "
        "(tcp-path, tfe, arp-path).",
    ),
]


ApiOption = Annotated[
    bool,
    typer.Option(
        "--api",
        help="Serve the API and the page of our controller on this machine, for pathloom controller, curl, a browser.",
    ),
]


@app.command("up")
def up(
    fabric: Annotated[str, typer.Argument(metavar="FABRIC", help="fat-tree:k=4,rate=10Mbps,buffer=150 or a file.")],
    name: NameOption = "lab",
    controller: TargetOption = "none",
    scheme: LiveSchemeOption = None,
    hosts: HostsOption = "newreno",
    transport: Annotated[
        str | None, typer.Option("--transport", metavar="SPEC", help="Settings of newreno: newreno:iw=12KB.")
    ] = None,
    arp: ArpOption = "static",
    daemons: DaemonsOption = None,
    switches: SwitchesOption = None,
    controllers: Annotated[
        int, typer.Option("--controllers", metavar="N", help="1, or 3 of our own with an etcd each; one leads.")
    ] = 1,
    api: ApiOption = False,
) -> int:
    """Put a lab up.

    Example: pathloom lab up fat-tree:k=4,rate=10Mbps,buffer=150

    Example: pathloom lab up fat-tree:k=4,rate=10Mbps,buffer=150 --controller pathloom --api

    Example: pathloom lab up fat-tree:k=4,rate=10Mbps,buffer=150 --controllers 3 --scheme ofpt
    """
    from pathloom.fabrics import Fabric
    from pathloom.lab import system
    from pathloom.lab.hosts import host_stack
    from pathloom.lab.lab import Lab
    from pathloom.lab.program_switches import PROTOCOLS, is_protocol
    from pathloom.lab.routed.settings import RouterSettings

    lab = Lab(name)
    target = _controller(controller)
    if controllers != 1:
        return _up_with_members(
            lab, fabric, (controllers, controller, arp, switches), scheme, hosts, transport, daemons, api
        )
    _check_target(target, scheme, arp, api)
    routed = None
    if switches is not None:
        if target is not None or arp != "static" or daemons is not None:
            raise bad_input(
                "--switches: these switches have no controller and no daemons; leave out --controller, --arp and "
                "--daemons"
            )
        if switches in ROUTED_SWITCHES:
            routed = RouterSettings.of(switches, scheme or "ecmp")
        elif scheme is not None:
            raise bad_input(f"--scheme `{scheme}`: `{switches}` is the scheme of these switches; leave --scheme out")
        elif not is_protocol(switches):
            raise bad_input(f"--switches `{switches}`: expected one of {', '.join((*ROUTED_SWITCHES, *PROTOCOLS))}")
    stack = host_stack(hosts, transport)
    built = Fabric(fabric)
    try:
        with system.signals_as_interrupts():
            if routed is not None:
                blueprint = lab.up_routed(built, routed, stack, console.say, transport)
            elif switches is not None:
                blueprint = lab.up_with_programs(built, switches, stack, console.say)
            else:
                blueprint = lab.up(built, target, scheme or "ecmp", stack, console.say, arp, daemons, transport, api)
    finally:
        lab.release()
    print(f"lab `{name}` is up: {len(blueprint.switches)} switches, {len(blueprint.hosts)} hosts")
    _print_api(lab)
    return 0


def _check_target(target: str | None, scheme: str | None, arp: str, api: bool) -> None:
    """Raises `PathloomError` if options do not go with what controls the switches."""
    from pathloom.lab.controller import OWN

    if api and target != OWN:
        raise bad_input("--api: is the API of our own controller; add --controller pathloom")
    if arp not in ("static", "proxy") or (arp == "proxy" and target is None):
        raise bad_input(f"--arp `{arp}`: expected static, or proxy together with a --controller that answers")
    if scheme is not None and target not in (None, OWN):
        raise bad_input(f"--scheme `{scheme}`: is for our own controller; `{target}` has its own")


def _up_with_members(
    lab: Lab,
    spec: str,
    asked: tuple[int, str, str, str | None],
    scheme: str | None,
    hosts: str,
    transport: str | None,
    daemons: int | None,
    api: bool,
) -> int:
    """Puts a lab with several controllers up; `asked` has the options that go with one number of controllers only."""
    from pathloom.fabrics import Fabric
    from pathloom.lab import members, system
    from pathloom.lab.controller import OWN
    from pathloom.lab.hosts import host_stack

    count, target, arp, switches = asked
    if count != members.COUNT:
        raise bad_input(f"--controllers {count}: expected 1 or {members.COUNT}")
    if target not in ("none", OWN) or arp != "static" or switches is not None:
        raise bad_input(
            "--controllers: they are our own, with static ARP; leave out --controller, --arp and --switches"
        )
    system.check_machine()
    members.check_installed()
    built = Fabric(spec)
    stack = host_stack(hosts, transport)
    try:
        with system.signals_as_interrupts():
            _, leader = members.put_up(lab, built, scheme or "ecmp", stack, console.say, daemons, api=api)
    finally:
        lab.release()
    print(f"lab `{lab.name}` is up, with {count} controllers; {members.name(leader)} leads")
    _print_api(lab, leader)
    return 0


def _print_api(lab: Lab, leader: int = 0) -> None:
    """Prints how the API of a lab's controller is reached; nothing if the machine does not serve it."""
    from pathloom.lab import door

    found = door.row(lab.directory)
    if found is None:
        return
    sudo = "sudo " if os.environ.get("SUDO_UID") else ""
    url = found["url"].split(",")[leader]
    print(f"API, and a page for a browser with the token as its password: {found['url']}")
    print(f"  export PATHLOOM_URL={found['url']} PATHLOOM_TOKEN=$({sudo}cut -d ' ' -f 3 {found['tokens']})")
    print("  pathloom controller status")
    print(f'  curl -H "Authorization: Bearer $PATHLOOM_TOKEN" {url}/v1/state')


@app.command("plan")
def plan(
    fabric: Annotated[str, typer.Argument(metavar="FABRIC", help="fat-tree:k=4,rate=10Mbps,buffer=150 or a file.")],
    name: NameOption = "lab",
    daemons: DaemonsOption = None,
    json: JsonOption = None,
) -> int:
    """Print the parts of a lab: bridges, datapath ids, ports, addresses. Needs no root.

    Example: pathloom lab plan fat-tree:k=4 --json -
    """
    from pathloom.fabrics import Fabric
    from pathloom.lab.blueprint import Blueprint, plan_dict
    from pathloom.lab.lab import Lab, daemon_count

    console.check_json_target(json)
    built = Fabric(fabric)
    content = plan_dict(Blueprint.of(Lab(name).name, built, daemon_count(None, daemons)), built)
    if json is not None:
        console.put_json(json, content)
    if json != console.STDOUT:
        rows = [[one["name"], one["bridge"], one["dpid"], ""] for one in content["switches"]]
        rows += [
            [one["name"], one["namespace"], "", " ".join(port["address"] for port in one["ports"])]
            for one in content["hosts"]
        ]
        console.table(None, ["node", "bridge or namespace", "datapath id", "addresses"], rows, 4)
    return 0


@app.command("status")
def status(
    name: Annotated[str | None, typer.Option("--name", metavar="NAME", help="Only this lab.")] = None,
    json: JsonOption = None,
) -> int:
    """Show the labs and their state.

    Example: pathloom lab status
    """
    from pathloom.lab.lab import known_labs
    from pathloom.lab.status import lab_status

    console.check_json_target(json)
    rows = [lab_status(one) for one in ([name] if name is not None else known_labs())]
    if json is not None:
        console.put_json(json, {"schema": 1, "labs": rows})
    if json != console.STDOUT:
        _print_status(rows)
    return 0


@app.command("controller")
def restart_controller(name: NameOption = "lab") -> int:
    """Start our own controller of a lab again, if it has ended; it adopts the existing rules.

    Example: pathloom lab controller --name lab
    """
    from pathloom.lab import door
    from pathloom.lab.lab import Lab

    lab = Lab(name)
    if count := (lab.state() or {}).get("controllers"):
        from pathloom.lab.members import Members

        lab.check_stands()
        door.reopen(lab.directory)
        members = Members(lab.blueprint(), lab.directory, count)
        ended = [number for number in members.numbers if members.running(number) is None]
        for number in ended:
            members.start(number)
        print(f"lab `{name}`: {len(ended)} of {count} controllers had ended and run again")
        return 0
    restarted = lab.restart_controller()
    print(f"lab `{name}`: the controller {'runs again; all switches are connected' if restarted else 'runs'}")
    return 0


@app.command("exec")
def execute(
    host: Annotated[
        str,
        typer.Argument(
            metavar="HOST",
            help="A host, a router, or `switches` for the first switches' namespace, then `switches2`.",
        ),
    ],
    command: Annotated[list[str], typer.Argument(metavar="-- CMD...", help="Command to run.")],
    name: NameOption = "lab",
) -> None:
    """Run a command on a host of a lab; it can use the names of all hosts.

    Example: pathloom lab exec h15 -- iperf3 -s -D

    Example: pathloom lab exec h0 -- iperf3 -c h15 -t 5
    """
    from pathloom.lab import hostd, management, system
    from pathloom.lab.blueprint import SWITCHES, ordinal
    from pathloom.lab.hosts import host_name
    from pathloom.lab.lab import Lab

    system.check_machine(system.ROUTER_TOOLS)
    lab = Lab(name)
    blueprint = lab.blueprint()
    namespaces = {one.name: one.namespace for one in blueprint.hosts}
    # Servers look their own name up, and find the address on the fabric.
    names = {one.name: host_name(one)[:64] for one in blueprint.hosts}
    if lab.routers() is not None:
        namespaces |= {one.name: one.namespace for one in blueprint.switches}
    else:
        namespaces |= {SWITCHES + ordinal(number): one for number, one in enumerate(blueprint.switch_namespaces)}
    if host not in namespaces:
        raise bad_input(f"lab `{name}`: no host is called `{host}`{nearest_hint(host, namespaces)}")
    os.environ[system.MARK] = str(lab.directory)
    os.environ["OVS_RUNDIR"] = str(lab.directory / "ovs")
    if management.is_there(lab.directory):
        os.environ.setdefault(management.VARIABLE, management.place())
    try:
        hostd.join(lab.directory, os.getpid())
        system.enter_for_good(namespaces[host], lab.own_files(), names.get(host))
        sys.stdout.flush()
        os.execvp(command[0], command)
    except OSError as error:
        raise bad_input(f"lab exec: `{command[0]}`: {reason(error)}") from None


@app.command("paths")
def paths(
    source: Annotated[str, typer.Argument(metavar="HOST", help="The host that opens connections: h0, or h0:eth1.")],
    target: Annotated[str, typer.Argument(metavar="HOST", help="The host that they go to.")],
    name: NameOption = "lab",
    port: Annotated[int, typer.Option("--port", min=1, max=65535, help="Destination port.")] = 5201,
    first: Annotated[int, typer.Option("--first", min=1, max=65535, help="First source port.")] = 40000,
    ports: Annotated[int, typer.Option("--ports", min=1, max=60000, help="Number of source ports.")] = 32,
    protocol: Annotated[str, typer.Option("--protocol", metavar="NAME", help="tcp or udp.")] = "tcp",
    ipv6: Annotated[bool, typer.Option("--ipv6", help="Connections over IPv6.")] = False,
    by: Annotated[
        str, typer.Option("--by", metavar="HOW", help="probes (packets from the host) or routes (ask the routers).")
    ] = "probes",
    follow: Annotated[
        bool, typer.Option("--follow", help="Look again after each change of routers, and write --json anew.")
    ] = False,
    json: JsonOption = None,
) -> int:
    """Show which source ports take which path in a lab of routers.

    Example: pathloom lab paths h0 h15 --ports 64

    Example: pathloom lab paths h0 h15 --json paths.json --follow
    """
    from pathloom.lab import system
    from pathloom.lab.lab import Lab
    from pathloom.lab.routed.report import Paths, Question, path_rows

    console.check_json_target(json)
    if protocol not in ("tcp", "udp") or by not in ("probes", "routes"):
        raise bad_input("lab paths: expected --protocol tcp or udp, and --by probes or routes")
    if first + ports > 65536:
        raise bad_input(f"--first {first}, --ports {ports}: source ports end at 65535; begin earlier, or take fewer")
    if follow and (json is None or json == console.STDOUT):
        raise bad_input("--follow: needs --json FILE, which is written anew after each change")
    system.check_machine(system.ROUTER_TOOLS)
    asked = Question(source, target, port, range(first, first + ports), protocol, ipv6, by)
    with Paths(Lab(name), asked) as found:
        if follow and json is not None:
            for line in found.follow():
                console.put_json(json, found.to_json())
                print(line, flush=True)
        found.refresh()
        content = found.to_json()
    if json is not None:
        console.put_json(json, content)
    if json != console.STDOUT:
        console.table(None, ["path", "ports", "first ones"], path_rows(content), 2)
    return 0


@app.command("weights")
def weights(
    name: NameOption = "lab",
    scheme: Annotated[
        str | None,
        typer.Option("--scheme", metavar="SPEC", help="Weights of wcmp, or equal ones of ecmp."),
    ] = None,
    plan: Annotated[Path | None, typer.Option("--plan", metavar="FILE", help="Weights of this file.")] = None,
    clear: Annotated[bool, typer.Option("--clear", help="Equal weights everywhere, as ecmp has them.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would change; change nothing.")] = False,
    json: JsonOption = None,
) -> int:
    """Set the weights of next hops in a lab of routers with static routes, while packets flow.

    Example: pathloom lab weights --scheme wcmp --dry-run

    Example: pathloom lab weights --clear
    """
    from pathloom.fabrics import Fabric
    from pathloom.lab import system
    from pathloom.lab.lab import Lab
    from pathloom.lab.routed.plan import plan_of, read_plan
    from pathloom.lab.routed.weights import apply, check_weights, differences, present

    console.check_json_target(json)
    if (scheme is not None) + (plan is not None) + clear != 1:
        raise bad_input("lab weights: expected one of --scheme SPEC, --plan FILE and --clear")
    system.check_machine(system.ROUTER_TOOLS)
    lab = Lab(name)
    blueprint, routers = lab.blueprint(), lab.routers()
    if routers is None:
        raise bad_input(f"lab `{name}`: its switches are no routers; `lab up --switches kernel` builds some")
    check_weights(routers)
    fabric = Fabric(blueprint.fabric)
    wanted = read_plan(plan, blueprint, fabric) if plan is not None else plan_of(blueprint, fabric, scheme or "ecmp")
    lab.hold()
    try:
        changed = differences(blueprint, present(routers), wanted)
        if not dry_run:
            apply(routers, wanted)
    finally:
        lab.release()
    if json is not None:
        console.put_json(json, wanted.to_dict(blueprint, fabric))
    if json != console.STDOUT:
        names = [node["name"] for node in fabric.nodes]

        def text(hops: tuple[tuple[int, int], ...]) -> str:
            return " ".join(f"{names[fabric.links['target'][link]]}:{weight}" for link, weight in hops) or "none"

        rows = [[one.switch, one.prefix, text(one.before), text(one.planned)] for one in changed]
        console.table(None, ["router", "prefix", "before", "planned"], rows, 2)
        print(f"{len(changed)} routes {'would change' if dry_run else 'changed'}")
    return 0


@app.command("srv6")
def segments(
    source: Annotated[str, typer.Argument(metavar="HOST", help="The host that sends: h0, or h0:eth1.")],
    target: Annotated[str, typer.Argument(metavar="HOST", help="The host that its packets go to.")],
    name: NameOption = "lab",
    via: Annotated[
        str | None, typer.Option("--via", metavar="ROUTERS", help="The routers of the path: a0_0,c1,a3_0.")
    ] = None,
    clear: Annotated[bool, typer.Option("--clear", help="Leave the path to the routers again.")] = False,
) -> int:
    """Put all IPv6 packets from a host to another one on a path of a lab of routers, by segments in each packet.

    Example: pathloom lab srv6 h0 h15 --via a0_0,c1,a3_0

    Example: pathloom lab srv6 h0 h15 --clear
    """
    from pathloom.lab import system
    from pathloom.lab.lab import Lab
    from pathloom.lab.routed import srv6

    if (via is None) != clear:
        raise bad_input("lab srv6: expected one of --via ROUTERS and --clear")
    system.check_machine(system.ROUTER_TOOLS)
    lab = Lab(name)
    blueprint = lab.blueprint()
    if lab.routers() is None:
        raise bad_input(f"lab `{name}`: its switches are no routers; `lab up --switches kernel` or frr builds some")
    if not srv6.is_possible():
        raise bad_input("lab srv6: this kernel has no segment routing (CONFIG_IPV6_SEG6_LWTUNNEL)")
    (_, start), (_, end) = blueprint.host_port(source), blueprint.host_port(target)
    if start.address == end.address:
        raise bad_input(f"lab srv6: {source} and {target} are one host; name two")
    if via is None:
        had = srv6.remove(blueprint, start, end)
        print(f"routers choose the path from {source} to {target}" + ("" if had else ", as before"))
        return 0
    path = srv6.path_via(blueprint, start, end, [one.strip() for one in via.split(",")])
    srv6.put(blueprint, path)
    count = len(srv6.segments(path))
    print(f"{count} segments lead from {source} to {target}: {srv6.overhead_bytes(count)} bytes in each packet")
    return 0


LIVE_SCHEMES = replace(setting("schemes"), help="spt,ecmp; others with --lab controller=pathloom.")


@app.command("run")
@takes_settings(
    leave_out=("until", "fidelity", "yardstick", "worlds", "keep_going", "series"), texts={"schemes": LIVE_SCHEMES}
)
def run(given: dict[str, Any], spec: SpecFileOption = None, out: OutOption = None, json: JsonOption = None) -> int:
    """Put a lab up, run experiments in it in real time, and take it down: `compare --worlds lab`.

    Example: pathloom lab run --fabric fat-tree:k=4,rate=10Mbps,buffer=150 --traffic long-lived:pattern=stride
    --schemes spt,ecmp --duration 20s --runs 1
    """
    settings = compare.settings_of({**given, "worlds": (LAB,)}, spec)
    outputs = compare.Outputs(out, json, plot_kinds(None), resume=False)
    return compare.carry_out("compare", settings, RunFiles(), compare.Workers(None, None), outputs)


@app.command("down")
def down(
    name: NameOption = "lab",
    every: Annotated[bool, typer.Option("--all", help="Every lab of this machine.")] = False,
) -> int:
    """Take a lab down, in any state; also removes the remains of a killed one.

    Example: pathloom lab down

    Example: pathloom lab down --all
    """
    from pathloom.lab import system
    from pathloom.lab.lab import Lab, known_labs

    system.check_machine(system.ROUTER_TOOLS)
    for one in known_labs() if every else [name]:
        gone = Lab(one).down()
        print(f"lab `{one}` is down" if gone else f"lab `{one}`: there is none")
    return 0


def _controller(text: str) -> str | None:
    from pathloom.lab import controller
    from pathloom.native import program

    if text == "none":
        return None
    if text == controller.OWN:
        program()
        return text
    kind, _, rest = text.partition(":")
    if kind not in ("tcp", "ssl", "unix") or not rest:
        raise bad_input(
            f"--controller `{text}`: expected none, pathloom, tcp:127.0.0.1:PORT, ssl:127.0.0.1:PORT or unix:PATH"
        )
    return text


def _routers(routers: dict[str, Any]) -> str:
    if routers["kind"] == "kernel":
        return "routers with static routes:"
    return f"routers with BGP (FRR){' and BFD' if routers['bfd'] else ''}:"


def _host_agent(agent: dict[str, Any]) -> str:
    if agent["process"] is None:
        return "none: only transfers of `lab run` are announced, paced and held"
    if agent["enforces"]:
        return "labels, announces, paces and holds connections of all programs"
    return f"labels and announces connections of all programs; {agent['warning'] or 'BPF is not used'}"


def _print_status(rows: list[dict[str, Any]]) -> None:
    if not rows:
        print("no lab is up")
    for row in rows:
        broken = f": {row['way_out']}" if row["state"] in ("broken", "orphaned") else ""
        print(f"{row['name']}: {row['state']}{broken}")
        if row["state"] != "up":
            continue
        connected = sum(switch["connected"] is True for switch in row["switches"])
        target = row["controller"]
        late = "" if connected == len(row["switches"]) else " (Open vSwitch records sessions every 5 s)"
        steering = f"{target}: {connected} connected{late}" if target else f"none; static routes of {row['scheme']}"
        print(f"  fabric      {row['fabric']}")
        programs = row["programs"]
        kind = "Open vSwitch" if programs is None else f"{programs['protocol']} (pathloom-switch)"
        if row["routers"] is not None:
            kind = _routers(row["routers"])
        print(f"  switches    {len(row['switches'])}, {kind} {'runs' if row['switching'] else 'does not run'}")
        print(f"  hosts       {len(row['hosts'])}, {row['stack']}")
        if programs is not None:
            _print_programs(programs["switches"])
            steering = "none; the switches find the paths"
        print(f"  controller  {steering}")
        for one in row.get("controllers", ()):
            runs = f"process {one['process']}" if one["process"] is not None else "does not run"
            print(f"              {one['name']}: {runs}{', leads' if one['leads'] else ''}")
        if row["api"] is not None:
            closed = "" if row["api"]["open"] else f": closed; `pathloom lab controller --name {row['name']}` opens it"
            print(f"  API         {row['api']['url']}, token in {row['api']['tokens']}{closed}")
        if "way_out" in row:
            print(f"              {row['way_out']}")
            print(f"              last line of its log: {row['last_words'] or 'none'}")
        if programs is None and (row["routers"] is None or row["host_agent"]["process"] is not None):
            print(f"  host agent  {_host_agent(row['host_agent'])}")
        print(f"  drops       {sum(link['dropped_packets'] for link in row['links'])} packets at switches")
        if row["routers"] is not None:
            reasons = ", ".join(f"{number} {reason}" for reason, number in row["routers"]["drops"].items() if number)
            print(f"  outside     {reasons or 'none'} (packets that routers dropped outside queues)")
        for note in row["notes"]:
            print(f"  note        {note}")


def _print_programs(switches: list[dict[str, Any]]) -> None:
    running = [one for one in switches if one["process"] is not None]
    confirmed = sum(one["confirmed_entries"] for one in running)
    flows = sum(one["kernel_flows"] for one in running)
    print(f"  tables      {confirmed} confirmed entries, {flows} flows in the kernel, over {len(running)} switches")
    for one in running:
        for port in one["ports"]:
            if port["refused"] or port["limited"]:
                why = f", last: {port['refused_last']}" if port["refused_last"] else ""
                print(
                    f"  refused     {one['name']} port {port['number']} ({port['interface']}): "
                    f"{port['refused'] + port['limited']} frames{why}"
                )
