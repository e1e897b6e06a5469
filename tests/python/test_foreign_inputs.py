"""Fabrics and traffic in the formats of other tools, and faults of cables: good and bad input."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

import networkx as nx
import polars as pl
import pytest

import pathloom
from conftest import Cli
from pathloom.experiments.settings.fault_times import fault_end_s
from pathloom.experiments.settings.input_files import named_files
from pathloom.fabrics import Fabric
from test_cli_errors import check

ROOT = Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / "shared/data"

TOPO = """# Two tiers
Nodes 8
Tiers 2
Podsize 8
Tier 0
Downlink_speed_Gbps 1
Radix_Down 4
Radix_Up 2
Downlink_Latency_ns 1000
Tier 1
Downlink_speed_Gbps 10
Radix_Down 2
Downlink_Latency_ns 500
"""
EDGES = "source,target,rate,delay\na,b,10Mbps,1ms\nb,a,5Mbps,1ms\nb,c,10Mbps,2ms\n"
SIMAI = """HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 4 ep: 1 pp: 1 vpp: 8 ga: 1 all_gpus: 4
1
layer -1 1000 ALLREDUCE 40000 1 NONE 0 1 NONE 0 1
"""


def varint(number: int) -> bytes:
    """Encodes a number as Protocol Buffers do."""
    low, rest = number & 0x7F, number >> 7
    return bytes([low | 0x80]) + varint(rest) if rest else bytes([low])


def field(tag: int, value: int | bytes) -> bytes:
    """Encodes a field of a message."""
    if isinstance(value, int):
        return varint(tag << 3) + varint(value)
    return varint(tag << 3 | 2) + varint(len(value)) + value


def message(*parts: bytes) -> bytes:
    """Encodes a message with its length before it."""
    whole = b"".join(parts)
    return varint(len(whole)) + whole


def node(number: int, kind: int, deps: Sequence[int] = (), **numbers: int) -> bytes:
    """Encodes a node of a Chakra trace; kind 5 sends, 6 receives, 4 computes."""
    attributes = [field(10, field(1, name.encode()) + field(9, value)) for name, value in numbers.items()]
    waits = [field(5, varint(of)) for of in deps]
    return message(field(1, number), field(2, f"n{number}".encode()), field(3, kind), *waits, *attributes)


HEAD = message(field(1, b"0.0.4"))
PING = [
    HEAD + node(0, 5, comm_dst=1, comm_size=5000) + node(1, 6, [0], comm_src=1, comm_size=7000),
    HEAD + node(0, 6, comm_src=0, comm_size=5000) + node(1, 5, [0], comm_dst=0, comm_size=7000),
]


def write_trace(folder: Path, ranks: list[bytes]) -> str:
    """Writes the files of a trace. Returns the specification that names it."""
    for rank, content in enumerate(ranks):
        (folder / f"ping.{rank}.et").write_bytes(content)
    return f"chakra:file={folder / 'ping.0.et'}"


def test_a_topology_of_htsim_carries_traffic(tmp_path: Path) -> None:
    (tmp_path / "two.topo").write_text(TOPO, encoding="utf-8")
    fabric = Fabric(str(tmp_path / "two.topo"))
    assert fabric.from_file
    assert [sum(n["tier"] == tier for n in fabric.nodes) for tier in ("host", "tor", "core")] == [8, 2, 2]
    result = pathloom.compare(
        fabric=fabric.spec, traffic="all-to-all:size=10KB", schemes=["ecmp"], duration="10ms", runs=1
    )
    assert result.flows["finished"].all()
    assert result.flows.height == 8 * 7


def test_servers_of_a_networkx_graph_are_hosts() -> None:
    graph = nx.Graph()
    for leaf in range(4):
        graph.add_edges_from((f"leaf{leaf}", f"spine{spine}", {"rate": "100Gbps"}) for spine in range(2))
        graph.add_edges_from((f"leaf{leaf}", f"x{4 * leaf + at}", {"rate": "25Gbps"}) for at in range(4))
    fabric = Fabric.from_networkx(graph)
    tiers = [node["tier"] for node in fabric.nodes]
    assert [tiers.count(tier) for tier in ("host", "tor", "core")] == [16, 4, 2]
    assert set(fabric.links["rate_bps"]) == {25_000_000_000, 100_000_000_000}, "no link is invented"
    assert any("nodes taken as hosts, because they have a single neighbour" in note for note in fabric.notes)


def test_directions_of_a_list_of_edges_keep_their_rates(tmp_path: Path) -> None:
    (tmp_path / "net.csv").write_text(EDGES, encoding="utf-8")
    spec = f"{tmp_path / 'net.csv'}:hosts=1"
    links = Fabric(spec).links
    names = Fabric(spec).names
    ends = zip(links["source"], links["target"], links["rate_bps"], strict=True)
    rates = {(names[source], names[target]): rate for source, target, rate in ends}
    assert (rates["a", "b"], rates["b", "a"], rates["c", "b"]) == (10_000_000, 5_000_000, 10_000_000)
    flows = "start_s,src,dst,size_bytes\n0,h0,h1,100000\n1,h1,h0,100000\n"
    (tmp_path / "flows.csv").write_text(flows, encoding="utf-8")
    result = pathloom.compare(
        fabric=spec, traffic=f"flows:file={tmp_path / 'flows.csv'}", schemes=["spt"], duration="2s", runs=1
    )
    fast, slow = result.flows.sort("src")["fct_s"].to_list()
    assert slow > 1.5 * fast, "the path from b to a has half the rate"


def test_a_chakra_trace_goes_back_and_forth(tmp_path: Path) -> None:
    traffic = write_trace(tmp_path, PING)
    assert named_files([traffic]) == [str(tmp_path / f"ping.{rank}.et") for rank in (0, 1)]
    result = pathloom.compare(fabric="diamond", traffic=traffic, schemes=["ecmp"], duration="10ms", runs=1)
    there, back = result.flows.sort("size_bytes").iter_rows(named=True)
    assert (there["size_bytes"], back["size_bytes"]) == (5000, 7000)
    assert back["start_s"] == pytest.approx(there["start_s"] + there["fct_s"], abs=1e-9)


def test_a_simai_workload_runs_its_all_reduce(tmp_path: Path) -> None:
    (tmp_path / "w.txt").write_text(SIMAI, encoding="utf-8")
    traffic = f"simai:file={tmp_path / 'w.txt'}"
    result = pathloom.compare(fabric="fat-tree:k=4", traffic=traffic, schemes=["ecmp"], duration="10ms", runs=1)
    assert result.flows.height == 4 * 6
    assert result.flows["finished"].all()
    assert result.flows["start_s"].min() == pytest.approx(1e-6)


@pytest.mark.parametrize("keys", ["", ",placement=striped"])
def test_bytes_on_the_wire_of_an_all_gather_of_simai(tmp_path: Path, keys: str) -> None:
    text = SIMAI.replace("group: 4", "group: 8").replace("all_gpus: 4", "all_gpus: 8")
    (tmp_path / "w.txt").write_text(text.replace("ALLREDUCE 40000", "ALLGATHER 80000"), encoding="utf-8")
    traffic = f"simai:file={tmp_path / 'w.txt'}{keys}"
    result = pathloom.compare(fabric="leaf-spine:hosts=8", traffic=traffic, schemes=["ecmp"], duration="1s", runs=1)
    # Each of 8 ranks sends its part, an eighth of the result, to the next one, and passes 6 others on.
    assert result.flows["delivered_bytes"].sum() == 8 * 7 * 10_000
    crossing = result.links.filter(pl.col("between_switches"))["sent_bytes"].sum()
    assert (crossing > 0) == bool(keys), "by default, the ranks of this example share one leaf, as a note says"
    notes = " ".join(result.summary["traffic"]["notes"])
    assert ("all 8 ranks are in one rack" in notes) == (not keys)


def test_flows_of_ns3_are_traffic(tmp_path: Path) -> None:
    (tmp_path / "flow.txt").write_text("2\n0 1 3 100 5000 2.001\n1 0 3 100 7000 2\n", encoding="utf-8")
    traffic = f"flows:file={tmp_path / 'flow.txt'}"
    result = pathloom.compare(fabric="diamond", traffic=traffic, schemes=["ecmp"], duration="10ms", runs=1)
    flows = result.flows.sort("start_s")
    assert flows["size_bytes"].to_list() == [7000, 5000]
    assert flows["start_s"].to_list() == pytest.approx([0.0, 0.001])


def test_the_commands_of_the_guide_to_other_simulators_work(cli: Cli, tmp_path: Path) -> None:
    guide = (ROOT / "docs/guides/other-simulators.md").read_text(encoding="utf-8")
    commands = re.findall(r"^(pathloom .*)$", guide, re.MULTILINE)
    (tmp_path / "perm.cm").write_text(
        "Nodes 16\nConnections 2\n0->9 id 1 start 0 size 100000\n4->1 id 2 start 0 size 100000\n", encoding="utf-8"
    )
    (tmp_path / "flow.txt").write_text("2\n0 9 3 100 5000 2.001\n1 12 3 100 7000 2\n", encoding="utf-8")
    (tmp_path / "microAllReduce.txt").write_text(SIMAI, encoding="utf-8")
    write_trace(tmp_path, PING)
    for rank in (0, 1):
        (tmp_path / f"ping.{rank}.et").rename(tmp_path / f"job.{rank}.et")
    assert [sum(kind in command for command in commands) for kind in ("perm.cm", "flow.txt", "simai:", "chakra:")] == [
        1
    ] * 4
    for command in commands:
        done = cli(*shlex.split(command)[1:])
        assert done.code == 0, (command, done.err)
        assert re.search(r"^unfinished +0( +0)*$", done.out, re.MULTILINE), done.out


def test_the_public_files_are_read() -> None:
    if not SHARED.is_dir():
        return  # The public files are not part of the project.
    for path in (SHARED / "topologies").glob("*.topo"):
        stated = next(line for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("Nodes"))
        assert sum(node["tier"] == "host" for node in Fabric(str(path)).nodes) == int(stated.split()[1]), path.name
    trace = SHARED / "collectives/astra_ring_allreduce_8npus_1MB.0.et"
    ring = pathloom.compare(
        fabric="leaf-spine:hosts=4", traffic=f"chakra:file={trace}", schemes=["ecmp"], duration="1s", runs=1
    )
    # A ring all-reduce of 8 ranks sends an eighth in each of 14 steps.
    assert (ring.flows.height, set(ring.flows["size_bytes"])) == (8 * 14, {131_072})
    assert ring.flows["finished"].all()


def test_windows_of_flows_are_in_the_series() -> None:
    result = pathloom.compare(
        fabric="dumbbell:rate=10Mbps,buffer=20",
        traffic="long-lived",
        schemes=["ecmp"],
        duration="1s",
        runs=1,
        series="20ms",
    )
    windows = result.flow_series.filter(pl.col("at_s") < 0.99)["window_bytes"]
    assert windows.min() >= 1448  # type: ignore[operator]
    assert windows.max() > 4 * 1448  # type: ignore[operator]
    assert windows.n_unique() > 10


def test_flapping_ends_with_its_last_repair() -> None:
    assert fault_end_s("1s:flap:a-b+c:10ms/20ms/1") == 1.01
    assert fault_end_s("3s:loss:c0:0.5") == 3.0


@pytest.mark.parametrize("fault", ["100ms:degrade:c0:1Mbps", "100ms:loss:c0:0.2", "100ms:flap:c0:50ms/50ms/3"])
def test_faults_of_cables_cost_throughput_and_are_repeatable(fault: str) -> None:
    def throughput(faults: list[str]) -> float:
        result = pathloom.compare(
            fabric="diamond:rate=10Mbps,hosts=4",
            traffic="long-lived",
            schemes=["ecmp"],
            duration="1s",
            runs=1,
            faults=faults,
        )
        return float(result.summary["schemes"][0]["throughput"]["mean"])

    assert throughput([fault]) == throughput([fault]) < throughput([])


def run(fabric: str = "diamond", traffic: str = "long-lived", fault: str | None = None) -> list[str]:
    """Returns the words of a command for one run."""
    faults = ["--fault", fault] if fault is not None else []
    return ["run", "--fabric", fabric, "--traffic", traffic, "--scheme", "ecmp", "--duration", "10ms", *faults]


TOPOS: list[tuple[Mapping[str, str], str]] = [
    ({TOPO: ""}, "has no tiers"),
    ({"Tiers 2": "Tiers 1"}, "line 3: Tiers: `1` is neither 2 nor 3"),
    ({"Tiers 2": "Tiers 3"}, "describes no tier 2"),
    ({"Nodes 8": "Nodes eight"}, "line 2: Nodes: `eight` is not a whole number"),
    ({"Nodes 8": "Nodes 9"}, "Nodes (9) is not a multiple of Podsize (8)"),
    ({"Podsize 8": "Podsize 4"}, "two tiers make one pod"),
    ({"Radix_Down 2": "Radix_Down 3"}, "not a multiple of Radix_Down of tier 1"),
    ({"Radix_Up 2\n": ""}, "tier 0 has no radix_up"),
    ({"Tier 1": "Tier 0"}, "tier 0 is described twice"),
    ({"Downlink_speed_Gbps 10": "Speed 10"}, "unknown key `Speed`"),
    ({"Downlink_Latency_ns 500": "Downlink_Latency_ns"}, "Downlink_Latency_ns has no value"),
]
LISTS: list[tuple[str, str]] = [
    ("", "is empty"),
    ("source,target\n", "no nodes"),
    ("source,rate\nx,1Gbps\n", "line 1: the heading has no column target"),
    ("source,target,rate\na,b\n", "line 2: has 2 cells"),
    ("source,target,rate\na,,1Gbps\n", "line 2: the target is empty"),
    ("source,target,rate\na,b,quick\n", "line 2: rate: `quick` is not a rate"),
    ("source,target,rate,rate\na,b,1Gbps,2Gbps\n", "two columns rate"),
    ("source,target,delay\na,b,-1ms\n", "line 2: delay"),
    ("source,target,back_rate\na,b,nothing\n", "line 2: rate: `nothing`"),
]
TRACES: list[tuple[list[bytes], str]] = [
    ([], "no such file"),
    ([b""], "ping.0.et: byte 0: is not the metadata"),
    ([b"\xff" * 20], "ping.0.et: byte 0: is not the metadata"),
    ([HEAD, PING[1]], "ping.1.et: node 0 (`n0`) is never done: rank 0 sends it no data with comm_tag 0"),
    ([PING[0][:-3], PING[1]], "is not a node of a Chakra trace"),
    ([HEAD, HEAD], "no rank of the trace sends anything"),
    ([*PING, HEAD], "the file has 3 ranks; the fabric has 2 hosts"),
    ([HEAD + node(0, 5, comm_dst=5, comm_size=1)], "comm_dst: 5 is not a rank"),
    ([HEAD + node(0, 5, comm_dst=0)], "has no comm_size"),
    ([HEAD + node(0, 9)], "type 9 is unknown; expected 0 to 7"),
    ([HEAD + node(0, 7, comm_type=5, comm_size=1)], "comm_type: 5 is not supported"),
    ([HEAD + node(0, 4, [3])], "waits for node 3, which does not exist"),
]
WORKLOADS: list[tuple[Mapping[str, str], str]] = [
    ({SIMAI: ""}, "line 1: is empty"),
    ({"HYBRID_TRANSFORMER_FWD_IN_BCKWD": "HYBRID_DLRM"}, "the parallelism `HYBRID_DLRM` is not supported"),
    ({"all_gpus: 4": "all_gpus: 3"}, "3 ranks are not a multiple of 4"),
    ({"pp: 1": "pp: 2"}, "pipelines of several stages are not supported"),
    ({"all_gpus: 4": "all_gpus: 400"}, "the file has 400 ranks; the fabric has 4 hosts"),
    ({"\n1\n": "\nx\n"}, "line 2: `x` is not a number of layers"),
    ({"ALLREDUCE": "ALLREDUC"}, "did you mean `ALLREDUCE`?"),
    ({"40000": "-1"}, "`-1` after ALLREDUCE is not a number of bytes"),
    ({" 1000 ": " 1e3 "}, "`1e3` is not a time in ns"),
    ({" 0 1\n": "\n"}, "a layer has 12 words; this one has 10"),
]
FAULTS: list[tuple[str, str]] = [
    ("1ms:degrade:c0", "the value is missing; expected TIME:degrade:WHAT:RATE"),
    ("1ms:degrade:c0:10", "`10`"),
    ("1ms:degrade:c0:2Gbps", "2Gbps is more than the 1 Gbit/s that c0 has"),
    ("1ms:degrade:c0:0Mbps", "`0Mbps`"),
    ("1ms:degrade:e0-e1:1Mbps", "e0 and e1 are not neighbours"),
    ("1ms:degrad:c0:1Mbps", "did you mean `degrade`?"),
    ("1ms:loss:c0", "the value is missing"),
    ("1ms:loss:c0:2", "`2` is not a share of packets from 0 to 1"),
    ("1ms:loss:c0:1%", "`1%` is not a share"),
    ("1ms:loss:c0:-0.1", "`-0.1` is not a share"),
    ("1ms:loss:c7:0.1", "no node is called `c7`"),
    ("1ms:restore", "expected TIME:restore:WHAT"),
    ("1ms:restore:e0-c0#4", "`#4` is not the number of a cable"),
    ("1ms:down:c0+", "no node is called ``"),
    ("1ms:down:c0+c9", "no node is called `c9`"),
    ("1ms:flap:c0", "expected TIME:flap:WHAT:DOWN/UP/TIMES"),
    ("1ms:flap:c0:1ms/1ms", "`1ms/1ms` is not DOWN/UP/TIMES"),
    ("1ms:flap:c0:0s/1ms/3", "`0s` must be more than 0s"),
    ("1ms:flap:c0:1/1ms/3", "`1`"),
    ("1ms:flap:c0:1ms/1ms/-3", "`-3` is not a number of times"),
    ("1ms:flap:c0:200d/200d/400000", "expected"),
    ("soon:flap:c0:1ms/1ms/3", "`soon` is not a time"),
]


def replaced(text: str, changes: Mapping[str, str]) -> str:
    """Returns a text with these replacements."""
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    return text


@pytest.mark.parametrize(("changes", "words"), TOPOS)
def test_bad_topologies(cli: Cli, tmp_path: Path, changes: Mapping[str, str], words: str) -> None:
    (tmp_path / "t.topo").write_text(replaced(TOPO, changes), encoding="utf-8")
    check(cli, tmp_path, run(fabric="t.topo"), ["t.topo", words])


@pytest.mark.parametrize(("text", "words"), LISTS)
def test_bad_lists_of_edges(cli: Cli, tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "net.csv").write_text(text, encoding="utf-8")
    check(cli, tmp_path, run(fabric="net.csv:hosts=2"), ["net.csv", words])


@pytest.mark.parametrize(("ranks", "words"), TRACES)
def test_bad_traces(cli: Cli, tmp_path: Path, ranks: list[bytes], words: str) -> None:
    write_trace(tmp_path, ranks)
    check(
        cli,
        tmp_path,
        run(traffic="chakra:file=ping.0.et"),
        ["ping.0.et" if ranks != [HEAD, PING[1]] else "ping.1.et", words],
    )


@pytest.mark.parametrize(("changes", "words"), WORKLOADS)
def test_bad_workloads(cli: Cli, tmp_path: Path, changes: Mapping[str, str], words: str) -> None:
    (tmp_path / "w.txt").write_text(replaced(SIMAI, changes), encoding="utf-8")
    check(cli, tmp_path, run(fabric="diamond:hosts=2", traffic="simai:file=w.txt"), ["w.txt", words])


@pytest.mark.parametrize(("fault", "words"), FAULTS)
def test_bad_faults(cli: Cli, tmp_path: Path, fault: str, words: str) -> None:
    check(cli, tmp_path, run(fault=fault), [f"fault `{fault}`", words])
