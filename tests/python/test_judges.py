"""Compares the packet simulator with ns-3's figures for the same dumbbells, recorded in benches/ns3/recorded.json."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

NS3 = Path(__file__).resolve().parents[2] / "benches" / "ns3"


def compare(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(NS3 / "compare.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_goodput_and_queues_agree_with_ns3() -> None:
    done = compare("--recorded", "--json", "-")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["dumbbell"]
    assert {int(row["setup"].split()[0]) for row in rows} == {1, 2, 8}
    assert all(row["pathloom"]["timeouts"] == row["ns3"]["timeouts"] == 0 for row in rows)


@pytest.mark.parametrize(
    ("field", "factor", "word"), [("goodput_bps", 1.04, "goodput differs by -3.8%"), ("mean_queue", 0.5, "mean queue")]
)
def test_a_difference_above_the_limit_is_reported(tmp_path: Path, field: str, factor: float, word: str) -> None:
    rows = json.loads((NS3 / "recorded.json").read_text(encoding="utf-8"))
    rows[0][field] *= factor
    record = tmp_path / "recorded.json"
    record.write_text(json.dumps(rows), encoding="utf-8")
    done = compare("--recorded", str(record))
    assert done.returncode == 1
    assert word in done.stdout
    assert "FAILED: 1 of the comparisons" in done.stdout


def test_an_unusable_record_is_named(tmp_path: Path) -> None:
    record = tmp_path / "recorded.json"
    for text in ("[]", "no JSON", "{}"):
        record.write_text(text, encoding="utf-8")
        done = compare("--recorded", str(record))
        assert done.returncode == 2
        assert done.stderr.startswith(f"compare: {record}: ")
        assert len(done.stderr.splitlines()) == 1


@pytest.mark.long
def test_ns3_gives_the_recorded_figures(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    done = compare("dumbbell", "--json", str(figures))
    assert done.returncode == 0, done.stdout + done.stderr
    recorded = json.loads((NS3 / "recorded.json").read_text(encoding="utf-8"))
    rows = json.loads(figures.read_text(encoding="utf-8"))["dumbbell"]
    assert [{"setup": row["setup"], **row["ns3"]} for row in rows] == recorded


def test_missing_sources_of_htsim_are_named(tmp_path: Path) -> None:
    done = compare("speed", "--htsim", str(tmp_path))
    assert done.returncode == 2
    assert done.stderr.startswith(f"compare: --htsim {tmp_path}: no sim/tcp.h")
    assert len(done.stderr.splitlines()) == 1
    assert "--htsim goes with speed" in compare("dumbbell", "--htsim", str(tmp_path)).stderr
