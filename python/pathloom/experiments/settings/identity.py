"""Short names of runs, made from everything that a run depends on: equal names mean equal figures.

The name is a digest of the settings of the run, its seed, the content of the files that it reads, and the program.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from pathloom import _core
from pathloom.experiments.settings.input_files import named_files
from pathloom.experiments.settings.model import Job, Settings

NAME_LENGTH = 32
"""Length of a name."""

_digests: dict[tuple[str, int, int, int], str] = {}
"""Digests of files by path, inode, size and time of the last change."""


def identity(settings: Settings, job: Job, *parts: str) -> str:
    """The name of a run. `parts` are further things that it depends on.

    >>> settings = Settings.of({"fabric": "diamond", "traffic": "long-lived", "schemes": ("ecmp", "spt"), "runs": 2})
    >>> more = settings.model_copy(update={"runs": 5, "schemes": ("ecmp",)})
    >>> names = [identity(one, one.jobs("sim")[0]) for one in (settings, more)]
    >>> names[0] == names[1] != identity(settings, settings.jobs("sim")[1])
    True
    """
    return work_identity(settings, job, program_digest(), *parts)


def work_identity(settings: Settings, job: Job, *parts: str) -> str:
    """The name of a run without the digest of the program that carries it out."""
    alone = alone_settings(settings, job)
    files = named_files([alone.fabric, alone.traffic, *alone.schemes])
    return short_digest(alone.model_dump_json(), *map(digest, files), *parts)


def short_digest(*texts: str) -> str:
    """Digest of texts with the length of a name."""
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:NAME_LENGTH]


def alone_settings(settings: Settings, job: Job) -> Settings:
    """The settings that affect a run, without other runs and schemes and without the yardstick."""
    mine = {"schemes": (job.scheme,), "runs": 1, "seed": job.seed, "worlds": (job.world,), "yardstick": False}
    return settings.model_copy(update=mine)


def versions() -> dict[str, str]:
    """The version of Pathloom and the digest of its program, as results have them."""
    return {"pathloom": _core.__version__, "program": program_digest()}


@cache
def program_digest() -> str:
    """Digest of the program files that carry out a run in the simulator and keep it."""
    experiments = Path(__file__).parents[1]
    beside = (experiments.parent / f"{name}.py" for name in ("fabrics", "scheme", "specs", "traffic"))
    return short_digest(digests([str(_core.__file__), *map(str, sorted([*experiments.rglob("*.py"), *beside]))]))


def digests(paths: Iterable[str]) -> str:
    """Digests of files, concatenated."""
    return "".join(map(digest, paths))


def digest(path: str) -> str:
    """SHA-256 of a file in hexadecimal digits. The file is read again only if it has changed."""
    status = os.stat(path)  # noqa: PTH116
    known = (path, status.st_ino, status.st_size, status.st_mtime_ns)
    if known not in _digests:
        _digests[known] = hashlib.sha256(Path(path).read_bytes()).hexdigest()
    return _digests[known]
