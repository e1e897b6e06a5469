"""Priority-based flow control in results: figures, the table of links, and notes."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pathloom as pl
from pathloom.experiments.results.columns import figures_of
from pathloom.experiments.results.pauses import pauses_of, pauses_of_runs, victim_notes
from pathloom.quantities import count_text
from pathloom.report.tables import Table, control_table

RING = "torus:dims=5,hosts=2,rate=10Gbps,pfc=20KB"
CLOCKWISE = "long-lived:pattern=stride,stride=4"


def test_a_deadlock_is_counted_and_its_cycle_named() -> None:
    result = pl.compare(
        fabric=RING, traffic=CLOCKWISE, schemes=["spt"], transport="uec:entropy=single", duration="2ms", runs=1
    )
    pauses = result.summary_of_schemes[0]["pauses"]
    assert pauses["deadlocks"] == 1 and pauses["pauses"] > 10 and pauses["deadlock_stuck_links"] >= 5
    run = result.summary_of_schemes[0]["runs"][0]["pauses"]
    cycle = "e0 → e1, e1 → e2, e2 → e3, e3 → e4, e4 → e0"
    assert run["deadlock_cycle"] == cycle and 0 < run["deadlock_since_s"] < 2e-3
    [note] = [note for note in result.notes if "deadlock" in note]
    assert note.startswith("scheme spt: 1 of 1 run ended in deadlock") and cycle in note
    assert result.links["pauses"].sum() == pauses["pauses"]
    assert abs(result.links["paused_s"].sum() - pauses["paused_s"]) < 1e-6


def test_there_are_no_figures_without_flow_control() -> None:
    result = pl.compare(
        fabric=RING.replace(",pfc=20KB", ""), traffic=CLOCKWISE, schemes=["spt"], duration="2ms", runs=1
    )
    assert result.summary_of_schemes[0]["pauses"] is None and result.links["pauses"].sum() == 0


def test_packets_are_counted_by_kind_where_the_transport_acknowledges_packets() -> None:
    def kinds(transport: str) -> dict[str, int]:
        result = pl.compare(
            fabric="leaf-spine:spines=2,leaves=2,hosts=4,rate=10Gbps,trim=on,queue_bytes=40KB",
            traffic="incast:size=200KB,senders=5",
            schemes=["ecmp"],
            transport=transport,
            duration="5ms",
            runs=2,
        )
        row = result.summary_of_schemes[0]
        found: dict[str, int] = row.get("kinds", {})
        sums = {name: sum(run["kinds"][name] for run in row["runs"]) for name in found}
        assert found == sums
        assert all(row["packets"]["trimmed"] == found[name] for name in ("headers", "nacks") if found)
        tables.append(control_table(result.summary_of_schemes))
        return found

    tables: list[Table] = []

    ndp = kinds("ndp")
    assert ndp["headers"] > 0 and ndp["pulls"] > 0 and ndp["data"] > ndp["headers"]
    assert ndp["data_lost"] == ndp["requests"] == ndp["notices"] == 0
    assert kinds("newreno") == {}
    of_ndp, of_tcp = tables
    cells = dict(zip(of_ndp.headings, of_ndp.rows[0], strict=True))
    named = {"nacks": "negative acknowledgements", "headers": "trimmed headers", "pulls": "pulls"}
    assert {name: cells[name] for name in named.values()} == {
        name: count_text(ndp[kind] / 2) for kind, name in named.items()
    }
    unsent = {"requests to send", "congestion notices"}
    assert unsent.isdisjoint(of_ndp.headings)
    assert not {*named.values(), *unsent} & set(of_tcp.headings)


def test_flows_held_back_by_others_are_named(tmp_path: Path) -> None:
    # Hosts of racks 0 and 2 fill the cable of h8. A flow of rack 0 to rack 2 waits for the pauses of rack 1.
    rows = [f"0,h{host},h8,2000000" for host in (0, 1, 2, 16, 17, 18)] + ["0.0001,h4,h20,300000"]
    (tmp_path / "flows.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    result = pl.compare(
        fabric="leaf-spine:spines=1,leaves=3,hosts=8,host_rate=10Gbps,switch_rate=40Gbps,pfc=50KB",
        traffic=f"flows:file={tmp_path / 'flows.csv'}",
        schemes=["ecmp"],
        transport="roce:cc=none",
        duration="20ms",
        runs=2,
    )
    row = result.summary_of_schemes[0]
    assert row["pauses"]["victims"] == 2 and "victim_flows" not in row["pauses"]
    for run in row["runs"]:
        [victim] = run["pauses"]["victim_flows"]
        assert (victim["src"], victim["dst"], victim["because_of"]) == ("h4", "h20", "e1 → h8")
        assert victim["at"] in ("h4 → e0", "e0 → c0") and victim["paused_s"] > 1e-5
        assert run["pauses"]["victim_paused_s"] == victim["paused_s"] <= row["pauses"]["victim_paused_s"]
    [note] = [note for note in result.notes if "held back" in note]
    assert note.startswith("scheme ecmp: pauses held back 2 flows") and "h4 → h20" in note
    cells = control_table(result.summary_of_schemes)
    assert dict(zip(cells.headings, cells.rows[0], strict=True))["flows held back by others"] == "1"
    result.save(tmp_path / "out")
    assert (tmp_path / "out/result.json").is_file()


def test_the_longest_victim_is_named_and_runs_are_added() -> None:
    def run(number: int, times_s: list[float]) -> SimpleNamespace:
        flows = [
            {
                "src": "h4",
                "dst": f"h{place}",
                "src_port": 9,
                "paused_s": time_s,
                "at": "e0 → c0",
                "because_of": "e1 → h8",
            }
            for place, time_s in enumerate(times_s)
        ]
        pauses = {"victims": len(flows), "victim_paused_s": max(times_s, default=0.0), "victim_flows": flows}
        pauses |= {"pauses": 3, "deadlock_cycle": None, "deadlock_since_s": None, "deadlock_stuck_links": 0}
        return SimpleNamespace(job=SimpleNamespace(label="ecmp", run=number), outcome={"pauses": pauses})

    runs = [run(1, [2e-6]), run(2, [5e-6, 1e-6]), run(3, [])]
    figures = pauses_of_runs([{"pauses": pauses_of(one.outcome)} for one in runs])
    assert figures == {
        "victims": 3, "victim_paused_s": 5e-6, "pauses": 9, "deadlock_stuck_links": 0, "deadlocks": 0
    }  # fmt: skip
    result: Any = SimpleNamespace(settings=SimpleNamespace(labels=["spt", "ecmp"]), outcomes=runs)
    assert victim_notes(result) == [
        "scheme ecmp: pauses held back 3 flows that did not feed the queue of their root; the longest was "
        "h4 → h0 in run 2: 5 µs at e0 → c0, because of the queue of e1 → h8"
    ]
    assert "pauses_victim_flows" not in figures_of({"pauses": pauses_of(runs[1].outcome)})
