"""The parts of a lab and the flows of its runs, as far as they can be tested without root."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from conftest import Cli
from pathloom import _core
from pathloom.errors import ToolError
from pathloom.experiments.settings.model import LabSettings, Settings
from pathloom.fabrics import Fabric
from pathloom.lab import controller, delays, hosts, lab, links, rules, system
from pathloom.lab.agent import Agent
from pathloom.lab.blueprint import Blueprint, spread
from pathloom.lab.faults import FaultSchedule
from pathloom.lab.lab import daemon_count
from pathloom.lab.tables import default_tables
from pathloom.lab.transfers import Transfer, count

K4 = "fat-tree:k=4,rate=10Mbps,buffer=150"


def test_cables_whose_probes_were_late_are_named_once(tmp_path: Path) -> None:
    late = "WARN pathloom_controller::hub: no probe gets through a cable, although its ports are up; it is not used"
    lines = [f'{late} a="{a}" b="a0 port 1"' for a in ("t0 port 3", "t1 port 3", "t0 port 3")]
    earlier = [f'{late} a="t9 port 3" b="a0 port 1"', "INFO the controller runs"]
    (tmp_path / "controller.log").write_text("\n".join([*earlier, *lines]), encoding="utf-8")
    cables = controller.cables_without_probes(tmp_path)
    assert cables == ["t0 port 3 to a0 port 1", "t1 port 3 to a0 port 1"]
    assert controller.without_probes_text(cables) == (
        "flows left 2 cables without a fault, because their probes were late or lost "
        "(t0 port 3 to a0 port 1, t1 port 3 to a0 port 1): the machine is too busy for the lab"
    )
    assert "(c0, c1, c2, ...)" in controller.without_probes_text(["c0", "c1", "c2", "c3"])


def simulation(scheme: str, traffic: str = "hadoop:load=0.3") -> _core.Simulation:
    settings: dict[str, Any] = {
        "fabric": K4, "fabric_text": None, "traffic": traffic, "scheme": scheme, "transport": None, "control": None,
        "duration": "500ms", "seed": 3, "faults": [], "pcap": None, "event_log": None,
    }  # fmt: skip
    return _core.Simulation(json.dumps(settings))


def test_a_plan_has_the_numbers_of_the_fabric(cli: Cli) -> None:
    outcome = cli("lab", "plan", K4, "--json", "-")
    assert outcome.code == 0, outcome.err
    plan = json.loads(outcome.out)
    assert [int(switch["dpid"], 16) for switch in plan["switches"]] == list(range(1, 21))
    assert len({switch["bridge"] for switch in plan["switches"]}) == 20
    assert [host["ports"][0]["address"] for host in plan["hosts"][:3]] == ["10.0.0.1", "10.0.0.2", "10.0.1.1"]
    assert len({port["mac"] for host in plan["hosts"] for port in host["ports"]}) == 16
    ends = [(cable[end], cable[f"{end}_port"]) for cable in plan["cables"] for end in ("source", "target")]
    assert len(set(ends)) == len(ends) == 96
    assert "10.0.7.2" in cli("lab", "plan", K4).out
    assert len(json.loads(cli("lab", "plan", K4, "--daemons", "1", "--json", "-").out)["switch_namespaces"]) == 1
    several = json.loads(cli("lab", "plan", K4, "--daemons", "3", "--json", "-").out)
    assert several["switch_namespaces"] == [f"pathloom.lab.switches{number}" for number in ("", 2, 3)]
    assert {switch["namespace"] for switch in several["switches"]} == set(several["switch_namespaces"])


def test_a_blueprint_is_read_back_as_it_was_written() -> None:
    blueprint = Blueprint.of("x", Fabric("jellyfish:switches=6,ports=6,hosts=6,homes=2"), 2)
    assert Blueprint.from_dict(json.loads(json.dumps(blueprint.to_dict()))) == blueprint
    assert {len(host.ports) for host in blueprint.hosts} == {2}


@pytest.mark.parametrize("spec", [K4, "vl2", "jellyfish:switches=9,ports=6,hosts=9", "diamond"])
@pytest.mark.parametrize("daemons", [1, 2, 3, 4, 100])
def test_daemons_share_every_tier_equally(spec: str, daemons: int) -> None:
    fabric = Fabric(spec)
    daemon_of, links = spread(fabric, daemons), fabric.links
    tiers = {node: one["tier"] for node, one in enumerate(fabric.nodes) if one["tier"] != "host"}
    assert daemon_of.keys() == tiers.keys()
    count = min(daemons, len(tiers))
    assert set(daemon_of.values()) == set(range(count))
    rates = [
        sum(rate for rate, source in zip(links["rate_bps"], links["source"], strict=True) if source == node)
        for node in range(len(fabric.nodes))
    ]
    for tier in set(tiers.values()):
        own = [node for node in tiers if tiers[node] == tier]
        loads = [sum(rates[node] for node in own if daemon_of[node] == daemon) for daemon in range(count)]
        assert max(loads) - min(loads) <= max(rates[node] for node in own)
    blueprint = Blueprint.of("x", fabric, daemons)
    assert sorted(port.link for place in blueprint.switch_namespaces for port in blueprint.ports_in(place)) == sorted(
        link for link, source in enumerate(links["source"]) if source in tiers
    )


def test_settings_of_the_lab_are_read() -> None:
    told = LabSettings.parse("hosts=linux,controller=pathloom,pin=off,daemons=3")
    assert told == LabSettings("linux", "pathloom", False, 3)
    for text in ("daemons=0", "daemons=-1", "daemons=", "daemons=two"):
        with pytest.raises(_core.PathloomError, match=f"lab `{text}`: expected .* daemons=1 or more, or switches=ovs"):
            LabSettings.parse(text)
    with pytest.raises(_core.PathloomError, match="lab `pin=off`: is for runs in the lab; add --worlds"):
        Settings.of({"fabric": K4, "traffic": "long-lived", "schemes": ("ecmp",), "lab": "pin=off"}, "here")


def test_an_address_inside_a_lab_needs_a_single_daemon() -> None:
    address = "tcp:127.0.0.1:6653"
    assert (daemon_count(address, None), daemon_count(address, 1), daemon_count("unix:/x", 3)) == (1, 1, 3)
    assert daemon_count("pathloom", None) == daemon_count(None, None) >= 1
    with pytest.raises(_core.PathloomError, match="only one daemon can reach `tcp:"):
        daemon_count(address, 2)


def test_offered_flows_are_those_that_the_run_carries() -> None:
    run = simulation("ecmp")
    offered = run.offered()
    ends = Fabric(K4).links
    for flow in offered:
        there, back = flow["ways"]
        assert (ends["source"][there[0]], ends["target"][there[-1]]) == (flow["src"], flow["dst"])
        assert (ends["source"][back[0]], ends["target"][back[-1]]) == (flow["dst"], flow["src"])
    run.advance(10.0)
    flows = run.outcome()["flows"]
    for column in ("src", "dst", "src_port", "dst_port", "size_bytes"):
        assert flows[column].tolist() == [flow[column] for flow in offered]
    assert {flow["dscp"] for flow in offered} == {0, 8}
    assert all((flow["dscp"] == 8) == (flow["size_bytes"] >= 100_000) for flow in offered)


def test_flows_that_wait_name_what_they_wait_for() -> None:
    offered = simulation("spt", "all-reduce:size=160KB").offered()
    assert [flow["after"] for flow in offered[:16]] == [[]] * 16
    assert all(flow["after"] for flow in offered[16:])


def test_flows_are_pinned_only_where_a_switch_would_hash() -> None:
    run, fabric = simulation("ecmp"), Fabric(K4)
    tables: list[tuple[int, Any, Any]] = json.loads(run.switch_tables())
    spread = {node: rules.spread_ports(groups) for node, _, groups in tables}
    flow = next(flow for flow in run.offered() if len(flow["ways"][0]) == 6)
    pins = list(rules.pin_lines(flow, fabric.links, spread))
    # On paths through the core, the ToR and the aggregation switch on the way up choose, in both directions.
    assert [fabric.nodes[node]["tier"] for node, _ in pins] == ["tor", "aggregation"] * 2
    assert f"tp_src={flow['src_port']},nw_dst={flow['dst_address']}" in pins[0][1]
    single = {node: rules.spread_ports(groups) for node, _, groups in default_tables(fabric, "spt")}
    assert list(rules.pin_lines(flow, fabric.links, single)) == []


def test_rules_and_groups_are_written_for_ovs_ofctl() -> None:
    (_, own, groups), *_ = default_tables(Fabric(K4), "hedera")
    lines = [rules.flow_line(rule, copies=True) for rule in own]
    assert any("tcp_flags=+syn-ack" in line and "actions=CONTROLLER:128,goto_table:1" in line for line in lines)
    assert not any("CONTROLLER" in rules.flow_line(rule, copies=False) for rule in own)
    group = rules.group_line(groups[0], salt=7)
    assert "type=select,selection_method=dp_hash,selection_method_param=7" in group
    assert "bucket=bucket_id:1,weight:1,watch_port:4,actions=output:4" in group


def test_a_delay_that_cannot_be_kept_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    assert links.differences(Blueprint.of("x", Fabric("diamond"))) == []
    monkeypatch.setattr(delays, "find", lambda _name: None)
    (note,) = links.differences(Blueprint.of("x", Fabric("parallel-paths:rates=10Mbps/5Mbps,delays=1ms/20ms")))
    assert "does not keep link delays: the fabric asks for up to 10 ms" in note


def test_hosts_get_the_settings_of_the_transport() -> None:
    stack = hosts.host_stack("newreno", "newreno:iw=12KB,min_rto=250ms,acks=1,mss=1000B")
    assert stack.route == "initcwnd 12 rto_min 250ms advmss 1000 quickack 1"
    assert stack.sysctls["net.ipv4.tcp_sack"] == "0"
    assert stack.sysctls["net.ipv4.tcp_limit_output_bytes"] == "2800"
    # Segments of 1448 bytes without time stamps take as long as those of the simulator, which have them.
    tuned = hosts.host_stack("newreno", "newreno:rwnd=auto")
    assert tuned.sysctls["net.ipv4.tcp_rmem"] == "4096 131072 6291456"
    usual = hosts.host_stack("newreno", None)
    assert "advmss 1448" in usual.route
    assert (usual.sysctls["net.ipv4.tcp_timestamps"], usual.missing_header_bytes) == ("0", 12)
    assert hosts.host_stack("linux", None).missing_header_bytes == 0
    assert hosts.host_stack("linux/bbr", None).route == "congctl bbr"
    assert hosts.host_stack("linux", "cubic:jitter=1ms,byte_counting=on").route == "congctl cubic"
    refused = [("newreno", "cubic"), ("newreno", "newreno:sack=on"), ("linux", "cubic:min_rto=1ms")]
    refused += [("newreno", "mptcp:cc=uncoupled,sack=off"), ("linux", "mptcp:cc=cubic")]
    for kind, transport in refused:
        with pytest.raises(_core.PathloomError, match="--transport"):
            hosts.host_stack(kind, transport)
    with pytest.raises(_core.PathloomError, match="kernels have no setting for small_queues"):
        hosts.host_stack("newreno", "newreno:small_queues=off")
    with pytest.raises(_core.PathloomError, match="kernels have no setting for ssthresh"):
        hosts.host_stack("newreno", "newreno:ssthresh=30KB")
    with pytest.raises(_core.PathloomError, match="hosts `linux/a b`: expected newreno"):
        hosts.host_stack("linux/a b", None)


@pytest.mark.parametrize(
    ("scheme", "transport", "expected"),
    [
        ("mptcp-aware:paths=disjoint,subflows=3,manager=fullmesh", None, hosts.Subflows(3, "fullmesh", "lia")),
        # The scheme sets the number of subflows.
        ("mptcp:subflows=2", "mptcp:subflows=8,cc=uncoupled", hosts.Subflows(2, "ndiffports", "lia")),
        ("ecmp", "mptcp:subflows=8,cc=uncoupled", hosts.Subflows(8, "ndiffports", "uncoupled")),
        ("mptcp", "newreno:sack=on", hosts.Subflows(4, "ndiffports", "lia")),
        ("hedera", "cubic", None),
        ("file.py", None, None),
    ],
)
def test_hosts_open_the_subflows_of_the_scheme_or_the_transport(
    scheme: str, transport: str | None, expected: hosts.Subflows | None
) -> None:
    assert hosts.subflows_of(scheme, transport) == expected


def test_hosts_with_subflows_have_selective_acknowledgements() -> None:
    stack = hosts.host_stack("newreno", "mptcp:subflows=8,cc=uncoupled")
    assert hosts.subflow_sysctls(stack, True) == {"net.ipv4.tcp_sack": "1"}
    assert hosts.subflow_sysctls(stack, False) == {"net.ipv4.tcp_sack": "0"}
    assert hosts.subflow_sysctls(hosts.host_stack("linux", None), True) == {}


def test_cables_are_restored_after_faults(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr(system, "batch", lambda _tool, _namespace, lines: told.extend(lines))
    blueprint = Blueprint.of("x", Fabric("diamond"))
    link = blueprint.switch_ports[0].link
    port = next(one for one in blueprint.switch_ports if one.link == link)
    # The cable would come up again long after the end of the run.
    schedule = FaultSchedule(blueprint, [(0, False, [link]), (10**15, True, [link])])
    schedule.begin(time.monotonic_ns())
    while not told:
        time.sleep(0.001)
    schedule.end()
    mine = [line for line in told if f" {port.interface} " in line]
    assert mine == [f"link set {port.interface} down", f"link set {port.interface} up"]


def test_a_failed_fault_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = Event()

    def fail(_tool: str, _namespace: str, _lines: list[str]) -> None:
        failed.set()
        raise ToolError("no such device")

    blueprint = Blueprint.of("x", Fabric("diamond"))
    schedule = FaultSchedule(blueprint, [(0, False, [blueprint.switch_ports[0].link])])
    with monkeypatch.context() as patch:
        patch.setattr(system, "batch", fail)
        schedule.begin(time.monotonic_ns())
        assert failed.wait(10)
    monkeypatch.setattr(system, "batch", lambda _tool, _namespace, _lines: None)
    with pytest.raises(ToolError, match="no such device"):
        schedule.end()


@pytest.mark.parametrize("spec", ["mine.csv", "fabrics/mine.csv:buffer=50", "diamond"])
def test_the_controller_of_a_lab_reads_the_fabric_from_its_own_folder(
    spec: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run").mkdir()
    (tmp_path / "fabrics").mkdir()
    for folder in (tmp_path, tmp_path / "fabrics"):
        (folder / "mine.csv").write_text("source,target,rate\nh0,s0,1Gbps\nh1,s0,1Gbps\n", encoding="utf-8")
    controller.write_config(tmp_path / "run", Fabric(spec), "ecmp", 1)
    written = tomllib.loads((tmp_path / "run/controller.toml").read_text(encoding="utf-8"))["fabric"]["spec"]
    assert written == ("diamond" if spec == "diamond" else "fabric.json")
    named = tmp_path / "run" / written if written.endswith(".json") else written
    assert len(Fabric(str(named)).links["source"]) == len(Fabric(spec).links["source"])


def test_an_ignored_signal_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN), signal.getsignal(signal.SIGTERM)
    try:
        with system.signals_as_interrupts():
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
            assert signal.getsignal(signal.SIGTERM) is signal.default_int_handler
            with system.uninterrupted():
                os.kill(os.getpid(), signal.SIGHUP)
        assert signal.getsignal(signal.SIGTERM) is before[1]
    finally:
        signal.signal(signal.SIGHUP, before[0])


def transfer(**spec: Any) -> Transfer:
    return Transfer(0, {"start_ns": 0, "after": [], "size_bytes": 1000, **spec}, 0)


def test_flows_due_within_the_duration_start_even_if_late() -> None:
    agent = Agent({"duration_ns": 1000, "drain": 5, "namespaces": {}, "flows": []})
    assert agent.may_start(transfer(start_ns=999).spec, stopped=True)
    assert not agent.may_start(transfer(start_ns=1000).spec, stopped=True)
    assert not agent.may_start(transfer(start_ns=999, size_bytes=None).spec, stopped=True), "nothing would end it"
    assert agent.may_start(transfer(start_ns=5000, after=[1]).spec, stopped=True)


def test_time_outs_that_the_kernel_does_not_count_are_unknown() -> None:
    class End:
        proto = socket.IPPROTO_TCP

        def __init__(self, *lengths: int) -> None:
            self.lengths = list(lengths)

        def getsockopt(self, *_words: int) -> bytes:
            return bytes(self.lengths.pop(0))

    for lengths, found in (((248, 248), 0), ((232, 232), None), ((248, 232), None)):
        one, end = transfer(), End(*lengths)
        for _ in lengths:
            count(one, end)  # type: ignore[arg-type]
        assert one.row()["timeouts"] == found


def test_the_agent_raises_its_limit_of_open_files() -> None:
    program = (
        "import resource; from pathloom.lab.agent import allow_descriptors, DESCRIPTORS\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (64, 4096)); allow_descriptors()\n"
        "print(resource.getrlimit(resource.RLIMIT_NOFILE)[0] in (4096, DESCRIPTORS))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"


def test_an_event_log_is_read_up_to_an_incomplete_line(tmp_path: Path) -> None:
    lines = [{"at": 5, "input": "timeout"}, {"at": 6, "input": {"barrier_reply": {}}}, {"at": 7, "output": {"x": 1}}]
    text = "".join(f"{json.dumps(line)}\n" for line in lines)
    (tmp_path / controller.EVENTS).write_text(text[:-4], encoding="utf-8")
    assert controller.messages(tmp_path, since_ns=0) == 1


def test_long_cables_are_two_pairs_with_a_forwarder_between_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delays, "find", lambda name: f"/bin/{name}")
    # Half a delay for each of a path's two links: those of the first path have 0.5 ms, which is not kept.
    blueprint = Blueprint.of("x", Fabric("parallel-paths:rates=10Mbps/5Mbps,delays=1ms/20ms"))
    (note,) = links.differences(blueprint)
    assert "link delays below 1 ms: the fabric asks for up to 500 µs" in note
    long = [(one.link, other.link) for one, other in delays.cables(blueprint)]
    assert long == [(8, 9), (10, 11)]
    assert delays.interfaces(blueprint) == ["d8", "d9", "d10", "d11"]
    lines = [line for _, line in links.veth_lines(blueprint)]
    assert f"link add l8 type veth peer name d8 netns {blueprint.namespace}" in lines
    assert f"link add l9 type veth peer name d9 netns {blueprint.namespace}" in lines
    assert not any("peer name l9" in line or "peer name l8" in line for line in lines)
    assert any("l4 type veth peer name l5" in line for line in lines)


def test_a_cable_to_a_host_may_be_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delays, "find", lambda name: f"/bin/{name}")
    blueprint = Blueprint.of("x", Fabric("diamond:delay=5ms"))
    host = blueprint.hosts[0]
    (port,) = host.ports
    assert links.differences(blueprint) == []
    lines = [line for _, line in links.veth_lines(blueprint)]
    own = f"link add eth0 address {port.mac} netns {host.namespace} type veth peer name d{port.link} "
    assert any(line.startswith(own) for line in lines)


@pytest.mark.parametrize(
    ("keys", "said"),
    [("loss=0.1", "loss= is for"), ("queues=2,red=5/15", "queues= and red= are for"), ("loss=0,queues=1", None)],
)
def test_keys_for_the_simulator_only_are_refused(cli: Cli, keys: str, said: str | None) -> None:
    outcome = cli("lab", "plan", f"{K4},{keys}")
    assert outcome.code == (0 if said is None else 2), outcome.err
    assert (said or "") in outcome.err
    assert len(outcome.err.splitlines()) == (0 if said is None else 1)


def test_what_a_killed_lab_has_left_is_shown_with_the_way_out(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lab, "RUN_DIRECTORY", tmp_path)
    monkeypatch.setattr(system, "NETNS", tmp_path / "none")
    (tmp_path / "old").mkdir()
    way_out = "parts of it are missing; `pathloom lab down --name old` removes the rest"
    assert cli("lab", "status").out == f"old: broken: {way_out}\n"
    (row,) = json.loads(cli("lab", "status", "--json", "-").out)["labs"]
    assert row == {"name": "old", "state": "broken", "way_out": way_out}
