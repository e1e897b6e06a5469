"""Priority-based flow control in results: figures, the table of links, and notes."""

import pathloom as pl
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
