"""Checks that pure crates are pure, that crates depend only on allowed crates, and that every test is run.

A pure crate has no socket, file, thread or clock. It draws random numbers only from a generator that is passed in, and
does not iterate over collections whose order depends on a hash. `make lint` runs this script; it exits with 1 and one
line per finding.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

IMPURE_CRATES = {"sim", "controller", "daemon-support", "hostd", "switchd", "python", "testkit", "preload", "delay"}
"""Crates that need not be pure. `sim` writes files through wrappers; only tests use `testkit`."""

ARROWS = {
    "model": set[str](),
    "fabrics": {"model"},
    "workload": {"model"},
    "allocation": set[str](),
    "transport": {"model"},
    "switching": {"model"},
    "scheme": {"model"},
    "schemes": {"model", "allocation", "transport", "switching", "scheme"},
    "control": {"model", "scheme"},
    "sim": {"model", "fabrics", "workload", "allocation", "transport", "switching", "scheme", "schemes", "control"},
    "openflow": {"model"},
    "discovery": {"model"},
    "controller": {"model", "fabrics", "allocation", "scheme", "schemes", "control", "openflow", "discovery"},
    "daemon-support": set[str](),
    "hostd": {"model", "daemon-support"},
    "switchd": {"model", "openflow", "switching", "daemon-support"},
    "preload": set[str](),
    "delay": set[str](),
    "faults": {"model", "fabrics", "workload", "transport", "scheme", "schemes", "control", "sim"},
    "python": {
        "model",
        "fabrics",
        "workload",
        "allocation",
        "transport",
        "scheme",
        "schemes",
        "control",
        "sim",
        "faults",
    },
    "testnet": {"model", "openflow", "switching"},
    "testkit": {"model", "fabrics", "scheme", "schemes", "control", "openflow", "switching"},
}
"""Crates on which each crate may depend; tests may also use those of `TEST_ONLY`. `control` knows the contract of a
scheme, not the schemes. `openflow`, and crates that use it, do not depend on the simulator."""

TEST_ONLY = {"testkit", "testnet", "schemes", "workload", "fabrics"}

FORBIDDEN = [
    (r"\bstd::net::(?!Ipv4Addr|Ipv6Addr|IpAddr)", "a socket"),
    (r"\bstd::fs\b", "a file"),
    (r"\bstd::thread\b|\bthread_local!|\brayon\b|\btokio\b", "a thread"),
    (r"\bstd::process\b|\bstd::env\b", "the world outside"),
    (r"\btime::Instant\b|\bInstant::now\b|\bSystemTime\b|\bUNIX_EPOCH\b|\bchrono\b", "a clock"),
    (r"\bHashMap\b|\bHashSet\b|\bRandomState\b|\bDefaultHasher\b", "an order that depends on a hash"),
    (r"\brand::(rng|random|thread_rng)\b|\bThreadRng\b|\bOsRng\b|\bSysRng\b|\bgetrandom\b|\bfrom_os_rng\b", "chance"),
    (r"\b(e?println|e?print|dbg)!", "output"),
    (r"\bunsafe\b", "unsafe code"),
]

COMMENTS_AND_TEXTS = re.compile(r"//.*|\"(?:[^\"\\]|\\.)*\"")
"""Comments and texts, which may contain any word. Braces in texts would also disturb the search for test modules."""


def without_tests(lines: list[str]) -> Iterator[tuple[int, str]]:
    """Yields the numbered lines of a file, without comments, texts, and items marked `#[cfg(test)]`."""
    depth, skip_from = 0, None
    waiting = False
    for number, line in enumerate(lines, start=1):
        code = COMMENTS_AND_TEXTS.sub("", line)
        if "#[cfg(test)]" in code:
            waiting = True
            continue
        opened, closed = code.count("{"), code.count("}")
        if waiting and (opened or code.rstrip().endswith(";")):
            waiting = False
            if opened:
                skip_from = depth
        depth += opened - closed
        if skip_from is not None:
            if depth <= skip_from:
                skip_from = None
            continue
        if not waiting:
            yield number, code


def impurities(crate: Path) -> Iterator[str]:
    """Yields forbidden words in the sources of a crate, without its tests."""
    for path in sorted((crate / "src").rglob("*.rs")):
        if path.stem.endswith("tests") or "tests" in path.relative_to(crate).parts:
            continue
        for number, code in without_tests(path.read_text(encoding="utf-8").splitlines()):
            for pattern, what in FORBIDDEN:
                # Hash maps with a fixed hash are allowed for look-ups, under their own name.
                found = re.search(pattern, re.sub(r"\bFxHash(Map|Set)\b", "", code))
                if found:
                    place = path.relative_to(ROOT)
                    yield f"{place}:{number}: `{found.group()}`: a pure crate must not use {what}"


def wrong_arrows() -> Iterator[str]:
    """Yields dependencies between crates that `ARROWS` does not allow."""
    command = ["cargo", "metadata", "--no-deps", "--format-version", "1", "--offline"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        yield f"cargo metadata: {done.stderr.strip()}"
        return
    for package in json.loads(done.stdout)["packages"]:
        crate = package["name"].removeprefix("pathloom-")
        if crate not in ARROWS:
            yield f"crates/{crate}: is not in the table of arrows in {Path(__file__).name}; add it there"
            continue
        for dependency in package["dependencies"]:
            target = dependency["name"]
            if not target.startswith("pathloom-"):
                continue
            allowed = ARROWS[crate] | (TEST_ONLY if dependency["kind"] == "dev" else set())
            if target.removeprefix("pathloom-") not in allowed:
                yield f"crates/{crate}/Cargo.toml: must not depend on {target}; see ARROWS in purity.py"


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
    """Prints all findings; returns the exit code."""
    crates = [path for path in sorted((ROOT / "crates").iterdir()) if path.name not in IMPURE_CRATES]
    findings = [*(line for crate in crates for line in impurities(crate)), *wrong_arrows(), *unlisted_tests()]
    for line in findings:
        print(line, file=sys.stderr)
    if not findings:
        print(f"purity: {len(crates)} pure crates, and all dependencies are allowed")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
