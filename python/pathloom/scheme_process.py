"""The process of a scheme in Python beside a live controller: `python -m pathloom.scheme_process FILE.py:CLASS`.

The controller starts it, writes a line of JSON for each event to its standard input, and reads a line of actions for
each from its standard output (docs/python-schemes.md). What the scheme prints goes to standard error, and so into the
log of the controller. The process ends with its standard input.
"""

from __future__ import annotations

import os
import sys
from typing import TextIO

from pathloom import _core
from pathloom._core import PathloomError
from pathloom.experiments.schemes.loading import load_scheme


def serve(spec: str, lines: TextIO, answers: TextIO, errors: TextIO) -> None:
    """Answers the lines of a controller until they end. Raises `PathloomError` if the scheme or a line is unusable."""
    hello = lines.readline()
    if not hello:
        return
    scheme = load_scheme(spec).instance(_core.SchemeHost.seed_of(spec, hello))
    host = _core.SchemeHost(spec, scheme, hello)
    answers.write(host.greeting() + "\n")
    answers.flush()
    for line in lines:
        answer, traceback = host.answer(line)
        if traceback:
            errors.write(traceback)
            errors.flush()
        answers.write(answer + "\n")
        answers.flush()


def main(words: list[str]) -> int:
    """Serves a controller on standard input and output. Returns the exit code."""
    if len(words) != 1:
        sys.stderr.write("usage: python -m pathloom.scheme_process FILE.py:CLASS:key=value\n")
        return 2
    # Standard output is for the controller alone, whatever the scheme or one of its libraries prints.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    try:
        with answers:
            serve(words[0], sys.stdin, answers, sys.stderr)
    except PathloomError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    except (BrokenPipeError, KeyboardInterrupt):
        return 0
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
