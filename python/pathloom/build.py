"""What was built: the version, the build, the commit of its sources, and how it was compiled."""

from __future__ import annotations

import re
from pathlib import Path

from pathloom import _core
from pathloom.experiments.settings.identity import program_digest

BUILD_DIGITS = 8
"""Shown digits of the digest of the program."""
COMMIT_DIGITS = 12
"""Shown digits of a commit."""
_COMMIT = re.compile(r"[0-9a-f]{40}")


def build_text() -> str:
    """The line of `pathloom --version`.

    >>> build_text().startswith(f"pathloom {_core.__version__} (build ")
    True
    """
    commit = _core.__commit__ or commit_of(Path(__file__).parents[2])
    of_commit = f", commit {commit[:COMMIT_DIGITS]}" if commit else ""
    return f"pathloom {_core.__version__} (build {program_digest()[:BUILD_DIGITS]}{of_commit}, {_core.__profile__})"


def commit_of(checkout: Path) -> str | None:
    """The commit that a checkout of Pathloom has; None if this is no checkout, or if it cannot be read."""
    git = checkout / ".git"
    if not (checkout / "crates/python/Cargo.toml").is_file():
        return None  # The folder of another project, in whose environment Pathloom is installed.
    try:
        head = (git / "HEAD").read_text(encoding="utf-8").strip()
        name = head.removeprefix("ref: ")
        if name == head:
            return head if _COMMIT.fullmatch(head) else None
        if (git / name).is_file():
            found = (git / name).read_text(encoding="utf-8").strip()
        else:
            packed = (git / "packed-refs").read_text(encoding="utf-8").splitlines()
            found = next((line.split()[0] for line in packed if line.endswith(f" {name}")), "")
    except (OSError, UnicodeDecodeError):
        return None
    return found if _COMMIT.fullmatch(found) else None
