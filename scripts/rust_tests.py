"""Runs the test programs of the workspace, two at a time, and prints the ten slowest tests.

`cargo test` runs one test program after another, so a processor is idle at the end of each. It does not say how long a
test took either. The test programs can say it, by an option that is unstable in name only: it is as old as 2020.

Property tests draw the same cases in each run, so that the same code has the same result. PROPTEST_RNG_SEED=N draws
others; PROPTEST_CASES=N draws more where a test does not say how many.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ["cargo", "test", "--workspace", "--exclude", "pathloom-python", "--lib", "--bins", "--tests"]
TIMED = re.compile(r"^test (.+) \.\.\. ok <([0-9.]+)s>$", re.MULTILINE)
SLOWEST = 10
SEED = "1"
"""Seed of the cases of property tests, unless the environment has another one."""


def programs() -> Iterator[tuple[str, Path]]:
    """Compiles all tests. Yields each test program, with the folder of its crate, in which it runs."""
    command = [*BUILD, "--no-run", "--message-format", "json-render-diagnostics"]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        sys.exit(done.returncode)
    for line in done.stdout.splitlines():
        message = json.loads(line)
        if message["reason"] == "compiler-artifact" and message["profile"]["test"] and message["executable"]:
            yield message["executable"], Path(message["manifest_path"]).parent


def run(program: str, folder: Path) -> tuple[str, int, str]:
    """Runs a test program. Returns its name, its exit code and its output."""
    environment = {"PROPTEST_RNG_SEED": SEED, **os.environ, "RUSTC_BOOTSTRAP": "1"}
    done = subprocess.run(
        [program, "-Zunstable-options", "--report-time"],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    return f"{folder.name} {Path(program).name.rpartition('-')[0]}", done.returncode, done.stdout


def main() -> int:
    """Runs all test programs. Returns 1 if a test failed."""
    failed, times = [], []
    with ThreadPoolExecutor(max_workers=2) as pool:
        for name, code, output in pool.map(lambda one: run(*one), [*programs()]):
            if code == 0:
                print(name, next((line for line in output.splitlines() if line.startswith("test result:")), ""))
            else:
                failed.append(name)
                print(f"==== {name}: exit code {code}\n{output}")
            times += [(float(time_s), f"{name}: {test}") for test, time_s in TIMED.findall(output)]
    print(f"cases of property tests: PROPTEST_RNG_SEED={os.environ.get('PROPTEST_RNG_SEED', SEED)}")
    print(f"the {SLOWEST} slowest of {len(times)} tests:")
    for time_s, test in sorted(times, reverse=True)[:SLOWEST]:
        print(f"{time_s:8.1f} s  {test}")
    if failed:
        print("failed: " + ", ".join(failed), file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
