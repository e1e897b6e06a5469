"""Forks of running fabrics, what they are made from, and questions to them."""

from __future__ import annotations

import json
import statistics
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pathloom._core import PathloomError
from pathloom.cli.app import carry_out
from pathloom.experiments.running.simulation import RunFiles, simulation
from pathloom.experiments.running.threads import Threads
from pathloom.experiments.settings.model import Settings
from pathloom.fabrics import Fabric
from pathloom.remote import Controller
from pathloom.twin.ask import Plan, Question
from pathloom.twin.fork import Arrivals, Flows, Fork, read_fork
from pathloom.twin.from_controller import fork_of_controller, graph_of
from pathloom.twin.from_records import fork_of_records, read_records
from pathloom.twin.from_runs import fork_of_run, fork_of_simulation, job_of
from pathloom.twin.learning import burstiness, size_quantiles
from pathloom.twin.measures import MEASURES
from pathloom.twin.questions import parse_alternative, parse_alternatives, scenario_of
from pathloom.twin.report import unfinished_note

FABRIC = "fat-tree:k=4,rate=100Mbps"


def settings(traffic: str, duration: str, seed: int = 1, transport: str | None = None) -> Settings:
    values = {"fabric": FABRIC, "traffic": traffic, "schemes": ("ecmp",), "duration": duration, "seed": seed}
    return Settings.of({**values, "runs": 1, "transport": transport})


@pytest.fixture(scope="module")
def busy() -> Fork:
    """A fork of a busy run, with flows under way and arrivals."""
    of = settings("web-search:load=0.6", "3s")
    return fork_of_run(of, None, job_of(of, None, 1), 2.0)


def goes_on(fork: Fork, tmp_path: Path, duration_s: float, transport: str | None) -> dict[str, Any]:
    """The flows of a fork after some time."""
    path = tmp_path / "f.plf"
    fork.write(path)
    of = settings(f"fork:file={path}", f"{duration_s}s", seed=99, transport=transport)
    of = of.model_copy(update={"fabric": fork.fabric_name})
    run = simulation(of, json.dumps(fork.fabric), job_of(of, None, 1), RunFiles())
    run.advance(duration_s)
    flows: dict[str, Any] = run.outcome()["flows"]
    return flows


@pytest.mark.parametrize("transport", ["newreno", "cubic", "dctcp"])
def test_a_fork_goes_on_as_the_run_did(tmp_path: Path, transport: str) -> None:
    """Over 8 seeds, the mean rate of long-lived flows is that of the run, to 3 %, and of most flows to 25 %."""
    ratios, of_flows = [], []
    for seed in range(1, 9):
        of = settings("long-lived:pattern=permutation", "1s", seed, transport)
        run = simulation(of, None, job_of(of, None, 1), RunFiles())
        fork = fork_of_simulation(run, of, None, job_of(of, None, 1), 0.6)
        assert len(fork.flows) == 16 and all(fork.flows.endless) and all(fork.flows.path)
        before = run.outcome()["flows"]
        run.advance(1.0)
        after = run.outcome()["flows"]
        pairs = zip(after["src"], after["dst"], strict=True)
        went = dict(zip(pairs, after["delivered_bytes"] - before["delivered_bytes"], strict=True))
        again = goes_on(fork, tmp_path, 0.4, transport)
        ratios.append(float(again["delivered_bytes"].sum()) / sum(map(float, went.values())))
        for src, dst, delivered in zip(again["src"], again["dst"], again["delivered_bytes"], strict=True):
            of_flows.append(abs(float(delivered) / float(went[(src, dst)]) - 1))
    assert statistics.mean(ratios) == pytest.approx(1, abs=0.03), ratios
    assert statistics.median(of_flows) < 0.25, sorted(of_flows)


def test_a_fork_knows_no_sizes_of_flows_under_way(busy: Fork) -> None:
    assert len(busy.flows) > 5 and set(busy.flows.size_bytes) == {None}
    assert busy.arrivals.flows_per_s == pytest.approx(70, rel=0.4)
    assert busy.arrivals.sizes["share"][-1] == 1.0


def test_a_fork_can_be_written_and_read(busy: Fork, tmp_path: Path) -> None:
    path = tmp_path / "now.plf"
    busy.write(path)
    assert read_fork(path) == busy
    content = json.loads(path.read_text())
    assert (content["format"], content["version"]) == ("pathloom-fork", 1)


def test_a_fork_keeps_the_ports_of_switches() -> None:
    of = Settings.of({"fabric": f"{FABRIC},queues=2,ecn=30KB", "traffic": "hadoop:load=0.5", "schemes": ("ecmp",)})
    fork = fork_of_run(of.model_copy(update={"duration": "20ms"}), None, job_of(of, None, 1), 0.01)
    assert fork.ports == "queues=2,ecn=30KB" and fork.graph().spec.endswith(fork.ports)


def test_anonymised_forks_have_no_names_of_hosts() -> None:
    graph = json.loads(Fabric("diamond").to_node_link())
    text = json.dumps(graph).replace('"h0"', '"db-prod"').replace('"h1"', '"web-prod"')
    flows = Flows(["db-prod"], ["web-prod"], [1.0], [1], [None], [False], [1], [1], [False], [None])
    fork = Fork(json.loads(text), "ecmp", flows, Arrivals.none(), source={"kind": "controller", "url": "http://ctl-7"})
    written = fork.anonymised().text()
    assert "prod" not in written and "ctl-7" not in written
    assert fork.anonymised().flows.src == ["h0"] and fork.anonymised().graph().names == fork.anonymised().graph().names


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda of: of.pop("flows"), "flows: is missing"),
        (lambda of: of.update(version=9), "version: 9 is not 1"),
        (lambda of: of.update(format="x"), "format: is not"),
        (lambda of: of["flows"].update(rate_bps=[]), "flows.rate_bps: has 0 values"),
        (lambda of: of["arrivals"].update(flows_per_s="many"), "arrivals.flows_per_s: is a str; expected int or float"),
        (lambda of: of["fabric"].update(nodes=[3]), "fabric.nodes: expected a list of objects"),
        (lambda of: of.update(scheme=None), "scheme: is a NoneType; expected str"),
    ],
)
def test_damaged_forks_are_refused_with_the_field(busy: Fork, tmp_path: Path, change: Any, words: str) -> None:
    content = json.loads(busy.text())
    change(content)
    path = tmp_path / "now.plf"
    path.write_text(json.dumps(content))
    with pytest.raises(PathloomError) as error:
        read_fork(path)
    assert words in str(error.value) and "now.plf" in str(error.value)
    path.write_text(busy.text()[:500])
    with pytest.raises(PathloomError, match="is damaged"):
        read_fork(path)


def test_sizes_of_flows_under_way_are_not_forgotten() -> None:
    """Of flows of 1 to 1000 bytes with equal shares, those above 400 are still under way, at what they have sent."""
    rng = np.random.default_rng(1)
    sizes = rng.integers(1, 1001, 4000)
    ended = [int(size) for size in sizes if size <= 400]
    found = size_quantiles(ended, [int(rng.integers(401, 402)) for size in sizes if size > 400])
    below = dict(zip(found["bytes"], found["share"], strict=True))  # type: ignore[call-overload]
    assert max(share for size, share in below.items() if size <= 400) == pytest.approx(0.4, abs=0.03)
    assert max(below) > 400


def test_bursts_are_found_and_poisson_arrivals_have_none() -> None:
    rng = np.random.default_rng(1)
    alone = rng.uniform(0, 100, 5000)
    together = np.repeat(rng.uniform(0, 100, 1000), 5)
    assert burstiness(list(alone), 0.0, 100.0)[0] == 1.0
    # Batches of exactly 5 have an index of dispersion of 5, as geometric ones of 3 on average.
    assert burstiness(list(together), 0.0, 100.0)[0] == pytest.approx(3, rel=0.35)


def test_records_of_flows_make_a_fork(tmp_path: Path) -> None:
    path = tmp_path / "flows.csv"
    rows = [
        f"{100 + number / 10},10.0.0.2,h5,{1000 * (number % 5 + 1)},{100.05 + number / 10}" for number in range(100)
    ]
    path.write_text("Start,SrcAddr,dst,Bytes,End\n" + "\n".join([*rows, "105,h1,h9,4000000,115", "104,h2,h3,1000,"]))
    fabric = Fabric("fat-tree:k=4,rate=100Mbps")
    fork = fork_of_records(read_records(path)[0], fabric, "ecmp", 8.0, None, [])
    assert sorted(zip(fork.flows.src, fork.flows.dst, fork.flows.rate_bps, strict=True)) == [
        ("h1", "h9", 3_200_000),
        ("h2", "h3", 2_000),
    ]
    assert fork.flows.sent_bytes[fork.flows.src.index("h1")] == 1_200_000
    assert fork.arrivals.flows_per_s == pytest.approx(82 / 8)
    path.write_text("start,src,bytes,end\n1,h0,2,3\n")
    with pytest.raises(PathloomError, match="has no column dst"):
        read_records(path)
    path.write_text("start,src,dst,bytes,end\n1,h0,h1,many,3\n")
    with pytest.raises(PathloomError, match="bytes"):
        read_records(path)


class Fake(Controller):
    """A controller whose answers are given: rows of flows at each look."""

    def __init__(self, looks: list[list[dict[str, Any]]]) -> None:
        super().__init__("http://127.0.0.1:1", "token")
        self.looks, self.asked = looks, Counter[str]()

    def ask(self, method: str, path: str, body: object = None) -> Any:
        assert method == "GET" and body is None, "a fork only reads"
        name = path.partition("?")[0]
        self.asked[name] += 1
        fabric = Fabric("diamond")
        links, names = fabric.links, fabric.names
        if name == "/v1/state":
            return {"fabric": "diamond", "scheme": "ecmp"}
        if name == "/v1/flows":
            return {"items": self.looks[min(self.asked[name], len(self.looks)) - 1], "next": None}
        if name == "/v1/switches":
            tiers = [node for node in fabric.nodes if node["tier"] != "host"]
            return {"items": [{"name": node["name"], "tier": node["tier"]} for node in tiers], "next": None}
        rows = [
            {
                "from": names[links["source"][link]],
                "to": names[links["target"][link]],
                "rate_bps": links["rate_bps"][link],
                "state": "drained" if "c1" in (names[links["source"][link]], names[links["target"][link]]) else "up",
                "load_bps": None,
            }
            for link in range(len(links["source"]))
        ]
        return {"items": rows, "next": None}


def flow_row(number: int, since_s: float, counted: int, size: int | None = None) -> dict[str, Any]:
    return {
        "id": str(number),
        "src_host": "h0",
        "dst_host": "h1",
        "path": None,
        "size_bytes": size,
        "bytes": counted,
        "rate_bps": 80_000_000,
        "since_s": since_s,
    }


def test_a_controller_makes_a_fork_by_reading_alone() -> None:
    now = [1000.0]
    first = [flow_row(1, 990.0, 5_000_000), flow_row(2, 999.0, 10_000)]
    later = [flow_row(1, 990.0, 9_000_000), flow_row(3, 1001.0, 5_000, size=50_000)]
    controller = Fake([first, [*first, *later[1:]], later])

    def sleep(seconds: float) -> None:
        now[0] += seconds

    fork = fork_of_controller(controller, 2.0, sleep=sleep, clock=lambda: now[0])
    assert fork.flows.src == ["h0", "h0"] and fork.flows.size_bytes == [None, 50_000]
    assert fork.flows.age_s == [12.0, 1.0] and fork.flows.slow_start == [False, True]
    assert fork.arrivals.flows_per_s == 0.5, "one flow has begun in two seconds"
    names = {frozenset((edge["source"], edge["target"])) for edge in fork.fabric["edges"] if edge.get("failed")}
    assert len(names) == 2 and all("c1" in one for one in names)
    assert fork.graph().names == Fabric("diamond").names


def test_an_unknown_fabric_is_taken_from_its_links() -> None:
    controller = Fake([[]])
    switches, links = list(controller.pages("/v1/switches")), list(controller.pages("/v1/links"))
    graph, notes = graph_of("elsewhere.json", switches, links)
    fabric = Fabric.from_node_link(json.dumps(graph), "fork.json")
    assert sorted(fabric.names) == sorted(Fabric("diamond").names) and "defaults" in notes[0]


def test_questions_change_the_fork(busy: Fork) -> None:
    def scenario(text: str) -> Any:
        return scenario_of(busy, parse_alternative(text))

    failed = [edge for edge in scenario("drain:c0").graph["edges"] if edge.get("failed")]
    assert len(failed) == 4 and all("c0" in (edge["source"], edge["target"]) for edge in failed)
    assert sum(bool(edge.get("failed")) for edge in scenario("cut:e0_0-a0_1+cut:c1-a0_0").graph["edges"]) == 2
    joined = scenario("fail:c0+load:x1.5+scheme:hedera:period=1s")
    assert (joined.faults, joined.load, joined.scheme) == (("2ms:down:c0",), 1.5, "hedera:period=1s")
    slow = [edge for edge in scenario("degrade:e0_0-a0_1=10Mbps").graph["edges"] if edge["rate_bps"] == 10_000_000]
    assert len(slow) == 1
    weighed = scenario("weights:e0_0-a0_0=3/e0_0-a0_1=0+scheme:wcmp+drain:c0+weights:a0_1-c2=2")
    assert weighed.scheme == "wcmp:weights=e0_0-a0_0:3/e0_0-a0_1:0/a0_1-c2:2"
    again = scenario_of(replace(busy, scheme=weighed.scheme), parse_alternative("weights:e0_0-a0_1=1"))
    assert again.scheme == f"{weighed.scheme}/e0_0-a0_1:1", "the later weight applies"
    more = Fabric.from_node_link(json.dumps(scenario("add:e0_0-a0_1").graph), "fork.json")
    assert len(more.links["source"]) == len(busy.graph().links["source"]) + 2
    assert scenario_of(busy, parse_alternative("nothing")).graph == busy.fabric, "the fork itself stays"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("drian:c0", "did you mean `drain`"),
        ("drain:", "names nothing"),
        ("drain:c9", "no node of the fork is called `c9`"),
        ("drain:e0_0", "has hosts"),
        ("drain:h0", "is a host"),
        ("cut:c0-c1", "not neighbours"),
        ("cut:e0_0-a0_1#2", "expected #1 to #1"),
        ("degrade:e0_0-a0_1=fast", "expected CABLE=RATE"),
        ("loss:e0_0-a0_1=2", "share from 0 to 1"),
        ("load:more", "expected a factor"),
        ("scheme:hedra", "hedera"),
        ("weights:e0_0-a0_0=2", "only wcmp does; add it: scheme:wcmp+weights:e0_0-a0_0=2"),
        ("weights:e0_0-a0_0=61", "a weight from 0 to 60"),
        ("weights:e0_0-c0=1", "not neighbours"),
        ("weights:h0-e0_0=1", "h0 is a host"),
        ("weights:c0=2", "no node of the fork"),
        ("add:h0-c0", "is a host"),
    ],
)
def test_wrong_questions_are_refused(busy: Fork, text: str, words: str) -> None:
    with pytest.raises(PathloomError) as error:
        scenario_of(busy, parse_alternative(text))
    assert words in str(error.value) and text in str(error.value)


def test_the_same_alternative_is_asked_once() -> None:
    with pytest.raises(PathloomError, match="is given twice"):
        parse_alternatives(["drain:c0", "drain:c0"])
    with pytest.raises(PathloomError, match="no question"):
        parse_alternatives(["nothing"])


def ask(fork: Fork, tmp_path: Path, texts: list[str], measure: str, **plan: Any) -> Any:
    path = tmp_path / "q.plf"
    fork.write(path)
    question = Question(fork, path, parse_alternatives(texts), Plan(MEASURES[measure], **plan))
    return question.carry_out(Threads(2))


@pytest.mark.parametrize("measure", list(MEASURES))
def test_what_changes_nothing_differs_in_nothing(busy: Fork, tmp_path: Path, measure: str) -> None:
    """All alternatives have the same flows, so the same settings under other names give the same figures."""
    answer = ask(busy, tmp_path, ["scheme:ecmp", "load:x1"], measure, duration="300ms", runs=2)
    values = {row.name: row.values for row in answer.rows}
    assert values["nothing"] == values["scheme:ecmp"] == values["load:x1"]
    assert not any(row.difference.told_apart for row in answer.rows if row.difference is not None)
    assert len(answer.undecided) == 3


def test_the_best_alternative_comes_first(tmp_path: Path) -> None:
    """Two flows share a cable of 10 Mbit/s, and a way around it is free."""
    graph = json.loads(Fabric("diamond:rate=100Mbps").to_node_link())
    for edge in graph["edges"]:
        if "c0" in (edge["source"], edge["target"]):
            edge["rate_bps"] = 10_000_000
    path = ["e0", "c0", "e1"]
    flows = Flows(["h0"], ["h1"], [1.0], [10**6], [None], [True], [9_000_000], [60_000], [False], [path])
    fork = Fork(graph, "ecmp", flows, Arrivals.none(), transport="cubic")
    answer = ask(fork, tmp_path, ["cut:e0-c0", "cut:e0-c1"], "worst-pair", duration="1s", runs=3)
    assert answer.rows[0].name == "cut:e0-c0" and answer.undecided == []
    best, others = answer.rows[0], answer.rows[1:]
    assert best.mean > 60e6 and all(7e6 < row.mean < 10e6 for row in others)
    # The estimate ranks them the same, without packets.
    assert best.estimate["worst_pair_bps"] > 90e6 and others[0].estimate["worst_pair_bps"] < 10e6


def test_weights_of_next_hops_move_flows(tmp_path: Path) -> None:
    """Eight flows go over two spines, one of which has a hundredth of the rate; weights keep them off it."""
    graph = json.loads(Fabric("diamond:rate=100Mbps,hosts=4").to_node_link())
    for edge in graph["edges"]:
        if "c0" in (edge["source"], edge["target"]):
            edge["rate_bps"] = 1_000_000
    names = [str(node["id"]) for node in graph["nodes"] if node["tier"] == "host"]
    src, dst, count = names[:4] * 2, [*names[4:], *names[5:], names[4]], 8
    flows = Flows(
        src, dst, [1.0] * count, [1000] * count, [None] * count, [True] * count, [10**6] * count, [20_000] * count
    )
    flows = replace(flows, slow_start=[False] * count, path=[None] * count)
    fork = Fork(graph, "wcmp:weights=e0-c0:1/e0-c1:1", flows, Arrivals.none(), transport="cubic")
    found = ask(fork, tmp_path, ["weights:e0-c0=0", "weights:e0-c1=0"], "worst-pair", duration="200ms", runs=2)
    means = {row.name: row.mean for row in found.rows}
    assert found.rows[0].name == "weights:e0-c0=0", means
    assert means["weights:e0-c0=0"] > 10 * means["weights:e0-c1=0"]
    with pytest.raises(PathloomError, match="no node is called `e7`"):
        ask(replace(fork, scheme="wcmp:weights=e7-c0:1"), tmp_path, ["drain:c0"], "mean-throughput", runs=2)


def test_flows_that_do_not_finish_are_named(tmp_path: Path) -> None:
    """One of two flows has too much to send for 50 ms and five times as long again."""
    graph = json.loads(Fabric("diamond:rate=100Mbps").to_node_link())
    sizes: list[int | None] = [10**9, 2 * 10**6]
    flows = Flows(
        ["h0"] * 2,
        ["h1"] * 2,
        [1.0] * 2,
        [10**6] * 2,
        sizes,
        [False] * 2,
        [10**7] * 2,
        [60_000] * 2,
        [False] * 2,
        [None] * 2,
    )
    fork = Fork(graph, "ecmp", flows, Arrivals.none(), transport="cubic")
    found = ask(fork, tmp_path, ["cut:e0-c0"], "completion", duration="50ms", runs=2)
    assert [row.unfinished for row in found.rows] == [0.5, 0.5]
    assert "nothing 50.0 %" in str(unfinished_note(found))


def test_a_budget_ends_early_with_two_forks(busy: Fork, tmp_path: Path) -> None:
    answer = ask(busy, tmp_path, ["drain:c0"], "mean-throughput", duration="50ms", runs=9, budget_s=0.0)
    assert answer.runs == 2 and all(row.interval is not None for row in answer.rows)


def test_the_commands_fork_and_ask(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    options = ["--fabric", FABRIC, "--traffic", "hadoop:load=0.5", "--scheme", "ecmp", "--duration", "100ms"]
    assert carry_out(["run", *options, "--runs", "1", "--out", "base"]) == 0
    assert carry_out(["twin", "fork", "--from", "base", "--at", "50ms"]) == 0
    capsys.readouterr()
    asked = ["twin", "ask", "now.plf", "drain:c0", "load:x2", "--runs", "2", "--duration", "20ms", "--out", "a"]
    assert carry_out([*asked, "--json", "-"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert {row["name"] for row in answer["alternatives"]} == {"nothing", "drain:c0", "load:x2"}
    assert json.loads((tmp_path / "a/answer.json").read_text())["alternatives"] == answer["alternatives"]
    assert carry_out(asked) == 0
    assert "difference to nothing" in capsys.readouterr().out
    for wrong, words in [
        (["twin", "fork"], "expected one of --controller, --from and --records"),
        (["twin", "fork", "--from", "base"], "needs --at"),
        (["twin", "fork", "--from", "base", "--at", "5s"], "within the 100ms"),
        (["twin", "fork", "--from", "none", "--at", "5s"], "no result.json"),
        (["twin", "ask", "none.plf", "drain:c0"], "no such file"),
        (["twin", "ask", "now.plf", "drain:c0", "--for", "best"], "is not one of p99-fct-small"),
    ]:
        assert carry_out(wrong) == 2
        assert words in capsys.readouterr().err
