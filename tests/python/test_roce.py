"""RoCE hosts on a lossless fabric: comparisons of schemes, and the note on schemes that reorder packets."""

import pathloom as pl

FABRIC = "leaf-spine:spines=4,leaves=2,hosts=4,rate=10Gbps,pfc=on,ecn=20KB/80KB/0.1"


def compared(transport: str, *schemes: str) -> pl.Result:
    return pl.compare(
        fabric=FABRIC,
        traffic="long-lived:pattern=stride",
        schemes=list(schemes),
        transport=transport,
        duration="2ms",
        runs=1,
    )


def test_schemes_run_with_roce_and_nothing_is_lost() -> None:
    result = compared("roce", "ecmp", "plb", "rps", "drb")
    rows = {row["scheme"]: row for row in result.summary_of_schemes}
    assert {row["packets"]["dropped"] for row in rows.values()} == {0}
    assert rows["ecmp"]["retransmits"] == rows["plb"]["retransmits"] == 0
    notes = [note for note in result.notes if "goes back" in note]
    assert notes[0].startswith("scheme rps: ")
    assert "use recovery=irn" in notes[0]


def test_hpcc_runs_beside_dcqcn_and_is_named_in_the_note() -> None:
    result = compared("hpcc", "ecmp", "rps")
    rows = {row["scheme"]: row for row in result.summary_of_schemes}
    assert {row["packets"]["dropped"] for row in rows.values()} == {0}
    assert rows["ecmp"]["throughput"]["mean"] > 0.4
    assert [note for note in result.notes if "goes back" in note and note.startswith("scheme rps: ") and "hpcc" in note]


def test_selective_recovery_gets_no_note() -> None:
    result = compared("dcqcn:recovery=irn", "rps")
    assert not [note for note in result.notes if "goes back" in note]
    assert result.summary_of_schemes[0]["throughput"]["mean"] > 0.3
