"""Checks histories of who leads: `python benches/live/leaders.py FILE…`. It prints a line for each violation.

The exit code is 1 if there is one. Each file is the history of one etcd. A line is a JSON object: a controller was
asked from `began_s` to `ended_s` and said then that it leads by `election`, and that etcd confirms it. `name` is the
controller. All times are of one clock. `takeover.py` writes such files in real runs.

Who leads is a register whose values, the numbers of elections, only grow. A history is linearizable if each answer can
be given a moment between its two times so that the numbers grow with these moments. That is so if no answer begins
after another one with a greater number has ended. In addition, one election has one leader.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Answer:
    """A controller says that it leads."""

    name: str
    election: int
    began_s: float
    ended_s: float


def violations(history: Iterable[Answer]) -> Iterator[str]:
    """Yields a line for each answer that contradicts an earlier one."""
    answers = sorted(history, key=lambda one: one.began_s)
    ended = sorted(answers, key=lambda one: one.ended_s)
    leaders: dict[int, str] = {}
    newest, at = None, 0
    for answer in answers:
        while ended[at].ended_s < answer.began_s:
            if newest is None or ended[at].election > newest.election:
                newest = ended[at]
            at += 1
        if newest is not None and answer.election < newest.election:
            yield f"{answer} although {newest} had ended"
        if (other := leaders.setdefault(answer.election, answer.name)) != answer.name:
            yield f"{answer} although {other} leads by election {answer.election}"


def read(file: Path) -> list[Answer]:
    """Reads a file. Raises `OSError`, `ValueError`, `TypeError`."""
    return [Answer(**json.loads(line)) for line in file.read_text(encoding="utf-8").splitlines()]


def main() -> int:
    """Checks files; returns the exit code."""
    if len(sys.argv) < 2:
        print("usage: leaders.py FILE…", file=sys.stderr)
        return 2
    answers = elections = wrong = 0
    for file in map(Path, sys.argv[1:]):
        try:
            history = read(file)
        except (OSError, ValueError, TypeError) as error:
            print(f"{file}: {error}; lines of takeover.py were expected", file=sys.stderr)
            return 2
        for line in violations(history):
            print(f"{file}: {line}")
            wrong += 1
        answers += len(history)
        elections += len({one.election for one in history})
    print(f"{answers} answers, {elections} elections, {wrong} violations")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
