"""`benches/live/leaders.py` accepts histories that are linearizable, and refuses forged ones."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

CHECKER = Path(__file__).resolve().parents[2] / "benches/live/leaders.py"
GOOD = [("c0", 5, 0.0, 1.0), ("c0", 5, 2.0, 4.0), ("c1", 7, 3.0, 5.0), ("c1", 7, 6.0, 7.0), ("c0", 9, 8.0, 9.0)]
"""Name, election, begin and end of answers. Two of them overlap."""


def checked(place: Path, history: list[tuple[str, int, float, float]]) -> tuple[int, str]:
    keys = ("name", "election", "began_s", "ended_s")
    place.write_text("".join(json.dumps(dict(zip(keys, one, strict=True))) + "\n" for one in history), encoding="utf-8")
    done = subprocess.run([sys.executable, str(CHECKER), str(place)], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def test_a_linearizable_history_is_accepted(tmp_path: Path) -> None:
    assert checked(tmp_path / "good", GOOD) == (0, "5 answers, 3 elections, 0 violations\n")


def test_forged_histories_are_refused(tmp_path: Path) -> None:
    code, said = checked(tmp_path / "late", [*GOOD, ("c0", 5, 5.5, 6.5)])
    assert code == 1 and "election=5" in said and "election=7" in said
    code, said = checked(tmp_path / "two", [*GOOD, ("c2", 9, 8.0, 9.0)])
    assert code == 1 and "leads by election 9" in said
    assert checked(tmp_path / "none", [])[0] == 0
    # Elections of another etcd have numbers of their own.
    done = subprocess.run(
        [sys.executable, str(CHECKER), str(tmp_path / "late"), str(tmp_path / "two")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1 and "12 answers, 6 elections, 2 violations" in done.stdout
    (tmp_path / "else").write_text("{}\n", encoding="utf-8")
    assert subprocess.run([sys.executable, str(CHECKER), str(tmp_path / "else")], check=False).returncode == 2
