"""Runs the checks that few changes can break, if files changed that they depend on.

Each tier has the files that it depends on, and a command. `tests/tiers.json` has a digest of these files as they were
when the tier last passed. A tier whose files have that digest is left out, and this program says so.

    python scripts/tiers.py            run the tiers of the gate whose files changed
    python scripts/tiers.py --all      run all tiers, and record those that pass (`make test-long`)
    python scripts/tiers.py --all NAME run this tier, and record it if it passes
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RECORD = ROOT / "tests" / "tiers.json"


@dataclass(frozen=True)
class Tier:
    """Checks that belong together."""

    what: str
    paths: tuple[str, ...]
    """Files and folders that the checks depend on."""
    command: tuple[str, ...]
    in_gate: bool = True
    """Whether `make test` runs it. Tiers of ten minutes and more are left to `make test-long`."""

    def digest(self) -> str:
        """A digest of the names and contents of its files."""
        listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *self.paths]
        names = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
        total = hashlib.sha256()
        for name in sorted({name for name in names if name}):
            path = ROOT / name
            if path.is_file():
                total.update(name.encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
        return total.hexdigest()[:16]


PYTHON = ("python/pathloom", "pyproject.toml", "requirements.lock")
TIERS = {
    "clusters": Tier(
        "runs on clusters of Dask",
        (*PYTHON, "tests/python/conftest.py", "tests/python/test_cluster*.py"),
        ("pytest", "--numprocesses", "2", "--dist", "loadfile", "--durations", "10", "-m", "cluster"),
    ),
    "notebooks": Tier(
        "results in notebooks",
        (*PYTHON, "tests/python/conftest.py", "tests/python/test_notebook.py"),
        ("pytest", "--durations", "10", "-m", "notebook"),
    ),
    "site": Tier(
        "the documentation site, whose build executes the tutorials",
        (*PYTHON, "docs", "mkdocs.yml", "scripts/site", "examples", "*.md"),
        ("make", "--no-print-directory", "docs"),
    ),
    "page": Tier(
        "the interactive page in Chromium",
        (
            "web",
            "python/pathloom/web",
            "python/pathloom/show",
            "tests/page",
            "scripts/web.sh",
            "crates/controller/src/api",
        ),
        ("make", "--no-print-directory", "test-page"),
        in_gate=False,
    ),
    "packages": Tier(
        "the wheel and the Debian packages, installed and tried",
        (
            "packaging",
            "scripts/package.sh",
            "tests/packages",
            "pyproject.toml",
            "docs/*.service",
            "docs/*.example.toml",
        ),
        ("make", "--no-print-directory", "package-test"),
        in_gate=False,
    ),
}


def recorded() -> dict[str, dict[str, str]]:
    """Digest and date of each tier when it last passed."""
    found: dict[str, dict[str, str]] = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {}
    return found


def record(name: str, digest: str) -> None:
    """Records that a tier passed with these files."""
    passed = {**recorded(), name: {"digest": digest, "passed": time.strftime("%Y-%m-%d")}}
    RECORD.write_text(json.dumps(dict(sorted(passed.items())), indent=1) + "\n", encoding="utf-8")


def main(arguments: list[str]) -> int:
    """Runs tiers. Returns 1 if one failed."""
    everything, names = arguments[:1] == ["--all"], arguments[1:] or list(TIERS)
    if (arguments and not everything) or not set(names) <= set(TIERS):
        print(f"tiers: usage: tiers.py [--all [{'|'.join(TIERS)}]]", file=sys.stderr)
        return 2
    before, failed = recorded(), []
    for name in names:
        tier, digest = TIERS[name], TIERS[name].digest()
        last = before.get(name, {})
        if not everything and last.get("digest") == digest:
            print(f"left out: {tier.what}; its files are as on {last['passed']}, when it passed")
            continue
        if not everything and not tier.in_gate:
            print(f"left out: {tier.what}, which changed since it passed; run `scripts/tiers.py --all {name}`")
            continue
        print(f"\n==> {tier.what[0].upper()}{tier.what[1:]}", flush=True)
        if subprocess.run(tier.command, cwd=ROOT, check=False).returncode != 0:
            failed.append(name)
        elif everything:
            record(name, digest)
    if failed:
        print("failed: " + ", ".join(failed), file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
