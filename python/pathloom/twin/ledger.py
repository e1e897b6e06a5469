"""The ledger: what was asked, predicted, decided, and what came of it, in an SQLite file."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pathloom.errors import bad_input, reason
from pathloom.twin.ask import Answer

VERSION = 2
WATCHES = """
CREATE TABLE watches (
    decision INTEGER PRIMARY KEY REFERENCES decisions, state TEXT, end TEXT, why TEXT, at_s REAL
);
"""
"""What version 2 added: the watch of each decision, and how it ended; `end` is null while it is followed."""
TABLES = """
CREATE TABLE questions (
    id INTEGER PRIMARY KEY, at_s REAL NOT NULL, fork TEXT NOT NULL, fork_sha256 TEXT NOT NULL, measure TEXT NOT NULL,
    more_is_better INTEGER NOT NULL, duration TEXT NOT NULL, runs INTEGER NOT NULL, seed INTEGER NOT NULL
);
CREATE TABLE predictions (
    question INTEGER NOT NULL REFERENCES questions, name TEXT NOT NULL, rank INTEGER NOT NULL, mean REAL NOT NULL,
    low REAL, high REAL, PRIMARY KEY (question, name)
);
CREATE TABLE decisions (
    id INTEGER PRIMARY KEY, question INTEGER NOT NULL REFERENCES questions, name TEXT NOT NULL, at_s REAL NOT NULL,
    back INTEGER NOT NULL, steps TEXT NOT NULL, before TEXT NOT NULL
);
CREATE TABLE outcomes (
    question INTEGER NOT NULL REFERENCES questions, name TEXT NOT NULL, at_s REAL NOT NULL, value REAL NOT NULL,
    PRIMARY KEY (question, name)
);
"""


@dataclass(frozen=True)
class Prediction:
    """What was predicted for an alternative, and its outcome if it is known."""

    question: int
    name: str
    rank: int
    """1 is the best."""
    mean: float
    low: float | None
    high: float | None
    more_is_better: bool
    outcome: float | None


class Ledger:
    """A ledger in a file, which is made if there is none."""

    def __init__(self, path: Path, make: bool = True) -> None:
        """Raises `PathloomError` if the file is no ledger, or does not exist and `make` is false."""
        self.path = path
        if not make and not path.exists():
            raise bad_input(f"--ledger `{path}`: no such file; `pathloom twin ask --ledger {path}` makes one")
        with self._open() as ledger:
            version = ledger.execute("PRAGMA user_version").fetchone()[0]
            empty = ledger.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0
            if version == 0 and empty:
                ledger.executescript(TABLES + WATCHES + f"PRAGMA user_version = {VERSION};")
            elif version == 1 and self._is_first(ledger):
                ledger.executescript(WATCHES + f"PRAGMA user_version = {VERSION};")
            elif version != VERSION:
                raise bad_input(f"--ledger `{path}`: is not a ledger of version {VERSION}; name another file")

    @staticmethod
    def _is_first(ledger: sqlite3.Connection) -> bool:
        """Whether a file of version 1 is a ledger: other programs count versions too."""
        found = {name for (name,) in ledger.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        return {"questions", "predictions", "decisions", "outcomes"} <= found

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        try:
            ledger = sqlite3.connect(self.path)
            ledger.row_factory = sqlite3.Row
            try:
                with ledger:
                    yield ledger
            finally:
                ledger.close()
        except sqlite3.Error as error:
            raise bad_input(f"--ledger `{self.path}`: {reason(error)}; name another file") from None

    def add_answer(self, answer: Answer, fork: Path, fork_sha256: str, at_s: float) -> int:
        """Stores the predictions of an answer, and returns the number of the question."""
        plan = answer.plan
        head = (at_s, str(fork), fork_sha256, plan.measure.name, plan.measure.more_is_better, plan.duration)
        with self._open() as ledger:
            cursor = ledger.execute(
                "INSERT INTO questions (at_s, fork, fork_sha256, measure, more_is_better, duration, runs, seed) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (*head, answer.runs, plan.seed),
            )
            question = int(cursor.lastrowid or 0)
            ledger.executemany(
                "INSERT INTO predictions VALUES (?, ?, ?, ?, ?, ?)",
                [
                    (question, row.name, rank, row.mean, *(row.interval or (None, None)))
                    for rank, row in enumerate(answer.rows, start=1)
                ],
            )
        return question

    def question(self, number: int) -> Mapping[str, Any]:
        """A question by its number. Raises `PathloomError` if there is none."""
        with self._open() as ledger:
            row = ledger.execute("SELECT * FROM questions WHERE id = ?", (number,)).fetchone()
        if row is None:
            raise bad_input(f"--ledger `{self.path}`: has no question {number}")
        return dict(row)

    def check_alternative(self, question: int, name: str) -> None:
        """Raises `PathloomError` if nothing was predicted for this alternative of a question."""
        self.question(question)
        names = [one.name for one in self.predictions() if one.question == question]
        if name not in names:
            raise bad_input(f"question {question}: `{name}` was not asked; expected one of {', '.join(names)}")

    def add_decision(
        self, question: int, name: str, at_s: float, steps: Sequence[Any], before: Mapping[str, Any], back: bool
    ) -> int:
        """Stores that an alternative was carried out, or taken back, and how it was before. Returns its number."""
        with self._open() as ledger:
            cursor = ledger.execute(
                "INSERT INTO decisions (question, name, at_s, back, steps, before) VALUES (?, ?, ?, ?, ?, ?)",
                (question, name, at_s, back, json.dumps(steps), json.dumps(before)),
            )
        return int(cursor.lastrowid or 0)

    def last_decision(self, question: int, name: str) -> Mapping[str, Any] | None:
        """The last decision for an alternative."""
        with self._open() as ledger:
            row = ledger.execute(
                "SELECT * FROM decisions WHERE question = ? AND name = ? ORDER BY id DESC LIMIT 1", (question, name)
            ).fetchone()
        return None if row is None else {**dict(row), "before": json.loads(row["before"])}

    def unfollowed(self) -> list[Mapping[str, Any]]:
        """Decisions that were carried out and whose watch has not ended, with `measure`, `duration`, and `watch`."""
        with self._open() as ledger:
            rows = ledger.execute(
                "SELECT d.*, q.measure, q.duration, w.state FROM decisions d JOIN questions q ON q.id = d.question "
                "LEFT JOIN watches w ON w.decision = d.id WHERE d.back = 0 AND w.end IS NULL ORDER BY d.id"
            ).fetchall()
        return [
            {
                **dict(row),
                "before": json.loads(row["before"]),
                "watch": None if row["state"] is None else json.loads(row["state"]),
            }
            for row in rows
        ]

    def store_watch(self, decision: int, state: Mapping[str, Any]) -> None:
        """Stores the state of the watch of a decision."""
        with self._open() as ledger:
            ledger.execute(
                "INSERT INTO watches (decision, state) VALUES (?, ?) "
                "ON CONFLICT (decision) DO UPDATE SET state = excluded.state",
                (decision, json.dumps(state)),
            )

    def end_watch(self, decision: int, end: str, why: str, at_s: float) -> None:
        """Stores how a decision ended. The state of its watch is no longer needed."""
        with self._open() as ledger:
            ledger.execute(
                "INSERT OR REPLACE INTO watches (decision, state, end, why, at_s) VALUES (?, NULL, ?, ?, ?)",
                (decision, end, why, at_s),
            )

    def ends(self) -> dict[str, int]:
        """How many decisions ended in each way."""
        with self._open() as ledger:
            rows = ledger.execute("SELECT end, count(*) FROM watches WHERE end IS NOT NULL GROUP BY end").fetchall()
        return dict(rows)

    def last_end(self) -> Mapping[str, Any] | None:
        """The decision that ended last, with its `end`."""
        with self._open() as ledger:
            row = ledger.execute(
                "SELECT d.question, d.name, w.end FROM watches w JOIN decisions d ON d.id = w.decision "
                "WHERE w.end IS NOT NULL ORDER BY w.at_s DESC, d.id DESC LIMIT 1"
            ).fetchone()
        return None if row is None else dict(row)

    def taken_back(self) -> int:
        """How many decisions were taken back."""
        with self._open() as ledger:
            return int(ledger.execute("SELECT count(*) FROM decisions WHERE back = 1").fetchone()[0])

    def add_outcome(self, question: int, name: str, value: float, at_s: float) -> None:
        """Stores what was measured after an alternative. Raises `PathloomError` if it was not asked."""
        self.check_alternative(question, name)
        with self._open() as ledger:
            ledger.execute("INSERT OR REPLACE INTO outcomes VALUES (?, ?, ?, ?)", (question, name, at_s, value))

    def predictions(self) -> list[Prediction]:
        """All predictions, with their outcomes."""
        with self._open() as ledger:
            rows = ledger.execute(
                "SELECT p.question, p.name, p.rank, p.mean, p.low, p.high, q.more_is_better, o.value "
                "FROM predictions p JOIN questions q ON q.id = p.question "
                "LEFT JOIN outcomes o ON o.question = p.question AND o.name = p.name ORDER BY p.question, p.rank"
            ).fetchall()
        return [
            Prediction(question, name, rank, mean, low, high, bool(more), outcome)
            for question, name, rank, mean, low, high, more, outcome in rows
        ]
