"""Checks that pure crates are guarded, that crates depend on those that ARCHITECTURE.md says, and that tests are run.

A pure crate has no socket, file, thread or clock. It draws random numbers only from a generator that is passed in, and
does not iterate over collections whose order depends on a hash. Clippy checks that by `clippy.toml`, if the crate
denies its lints. `make lint` runs this script; it exits with 1 and one line per finding.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

IMPURE_CRATES = {
    "sim",
    "controller",
    "controller-bench",
    "fake-switch",
    "daemon-support",
    "hostd",
    "switchd",
    "python",
    "testkit",
    "preload",
    "delay",
    "net",
}
"""Crates that need not be pure. `sim` writes files through wrappers; only tests use `testkit`."""

TEST_ONLY = {"testkit", "testnet", "fake-switch", "host-agent", "openflow"}
TEST_ONLY |= {"schemes", "workload", "fabrics", "allocation"}
"""Crates that tests of any crate may use."""

PURE = """
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_macros, clippy::disallowed_methods, clippy::disallowed_types))]
"""
"""What the root of a pure crate begins with: clippy then finds what `clippy.toml` lists."""

Arrows = dict[str, set[str]]


def closure(arrows: Arrows, crate: str) -> set[str]:
    """Returns all crates on which a crate depends, directly or not."""
    found: set[str] = set()
    waiting = [crate]
    while waiting:
        new = arrows.get(waiting.pop(), set()) - found
        found |= new
        waiting.extend(new)
    return found


def arrows_of_the_map() -> Arrows:
    """Returns the dependencies of each crate by the table in ARCHITECTURE.md."""
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `crates/([\w-]+)` \|.*\| ([^|]+) \|$", text, re.MULTILINE)
    return {crate: set(named.split(", ")) - {"nothing"} for crate, named in rows}


def impure(crate: Path) -> Iterator[str]:
    """Yields a finding if a pure crate does not deny what a pure crate must not use."""
    root = crate / "src/lib.rs"
    if PURE not in root.read_text(encoding="utf-8"):
        yield f"{root.relative_to(ROOT)}: a pure crate needs these lines before its modules:{PURE}"


def wrong_arrows() -> Iterator[str]:
    """Yields differences between the dependencies of crates and those that the map has, and forbidden ones of tests."""
    command = ["cargo", "metadata", "--no-deps", "--format-version", "1", "--offline"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        yield f"cargo metadata: {done.stderr.strip()}"
        return
    normal: Arrows = {}
    of_tests: Arrows = {}
    for package in json.loads(done.stdout)["packages"]:
        crate = package["name"].removeprefix("pathloom-")
        for dependency in package["dependencies"]:
            arrows = of_tests if dependency["kind"] == "dev" else normal
            into = arrows.setdefault(crate, set())
            if dependency["name"].startswith("pathloom-"):
                into.add(dependency["name"].removeprefix("pathloom-"))
        normal.setdefault(crate, set())
    on_map = arrows_of_the_map()
    for crate in sorted(normal.keys() | on_map.keys()):
        used, said = closure(normal, crate), closure(on_map, crate)
        if crate not in on_map or used != said:
            words = ", ".join(sorted(used)) or "nothing"
            yield f"crates/{crate}: depends on {words}; ARCHITECTURE.md says {', '.join(sorted(said)) or 'nothing'}"
        for other in sorted(of_tests.get(crate, set()) - TEST_ONLY - used):
            yield f"crates/{crate}/Cargo.toml: its tests must not depend on {other}; see TEST_ONLY in purity.py"


def unlisted_tests() -> Iterator[str]:
    """Yields files of tests that no test program includes."""
    for listing in sorted((ROOT / "crates").glob("*/tests/all.rs")):
        crate = listing.parent.parent
        listed = set(re.findall(r"^mod (\w+);", listing.read_text(encoding="utf-8"), re.MULTILINE))
        listed |= set(re.findall(r'path = "tests/(\w+)\.rs"', (crate / "Cargo.toml").read_text(encoding="utf-8")))
        for path in sorted(listing.parent.glob("*.rs")):
            if path.stem not in listed:
                yield f"{path.relative_to(ROOT)}: is never run; add `mod {path.stem};` to {listing.relative_to(ROOT)}"


def main() -> int:
    """Prints all findings, or with `packages` cargo's options for the pure crates; returns the exit code."""
    crates = [path for path in sorted((ROOT / "crates").iterdir()) if path.name not in IMPURE_CRATES]
    if sys.argv[1:] == ["packages"]:
        print(" ".join(f"-p pathloom-{path.name}" for path in crates))
        return 0
    findings = [*(line for crate in crates for line in impure(crate)), *wrong_arrows(), *unlisted_tests()]
    for line in findings:
        print(line, file=sys.stderr)
    if not findings:
        print(f"purity: {len(crates)} pure crates, and all dependencies are allowed")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
