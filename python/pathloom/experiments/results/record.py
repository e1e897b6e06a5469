"""Checks what a results folder holds, so that results of different kinds are never mixed."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

from pathloom._core import PathloomError
from pathloom.errors import bad_input, reason
from pathloom.experiments.settings.model import Settings
from pathloom.specs import LAB

RESULT = "result.json"
"""Name of the file in a results folder that tells what the folder holds."""
RUNS = "runs"
"""Name of the folder of finished runs in a results folder."""
SCHEMA = 1
"""Version of `result.json`. Keys may be added within a version, but not renamed or removed."""
SWEEP, COMPARISON = "sweep", "comparison"


def read_record(folder: Path) -> dict[str, Any] | None:
    """The content of a folder's `result.json`; None without one. Raises `PathloomError` if it is not a result."""
    path = folder / RESULT
    try:
        text = path.read_text(encoding="utf-8")
        # A power failure may leave a file of the right length and no content.
        if not text.strip("\0"):
            return None
        record = json.loads(text)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise bad_input(f"`{path}`: {reason(error)}") from None
    except ValueError as error:
        raise bad_input(f"`{path}`: is not JSON: {error}; remove it, or name another folder") from None
    if kind_of(record) is None:
        raise bad_input(
            f"`{path}`: is not a result of Pathloom: it has neither schemes nor points; name another folder"
        )
    return dict(record)


def kind_of(record: object) -> str | None:
    """Whether a `result.json` is that of a sweep or of a comparison; None if it is neither."""
    if not isinstance(record, dict) or not isinstance(record.get("settings"), dict):
        return None
    if isinstance(record.get("points"), list):
        return SWEEP
    return COMPARISON if isinstance(record.get("schemes"), list) else None


def check_kind(folder: Path, kind: str, place: str = "") -> None:
    """Raises `PathloomError` if a folder holds a result of another kind; its name in the message follows `place`."""
    try:
        record = read_record(folder)
    except PathloomError:
        return  # A damaged result cannot be used, so it may be replaced.
    found = kind_of(record)
    if found not in (None, kind):
        raise bad_input(f"{place}`{folder}`: holds the result of a {found}; name another folder")


def check_foreign_files(folder: Path, written: Collection[str], place: str = "") -> None:
    """Raises `PathloomError` if files that a result would replace are in a folder without a result.

    `written` are the names of the files; the name of the folder in the message follows `place`.
    """
    try:
        if (folder / RESULT).exists() or (folder / RUNS).is_dir():
            return
        found = sorted(name for name in written if (folder / name).exists())
    except OSError:
        return  # Whoever writes into the folder names the problem.
    if found:
        raise bad_input(
            f"{place}`{folder}`: has {', '.join(found)} but no {RESULT}, so they may not be Pathloom's; move them, or "
            "name another folder"
        )


def check_comparison_folder(folder: Path, settings: Settings, resume: bool) -> None:
    """Raises `PathloomError` if a comparison would replace another result in the folder without `resume`."""
    try:
        record = read_record(folder)
    except PathloomError:
        return  # Whether the folder can be written is checked later.
    if record is None:
        return
    check_kind(folder, COMPARISON, "--out ")
    # A setting that is missing in a result of an older version is assumed to be the default.
    mine = settings.model_dump(mode="json")
    differs = [key for key, value in record["settings"].items() if key in mine and value != mine[key]]
    if differs and not resume:
        # Runs in the lab are not stored, so --resume cannot use them.
        replace = "" if LAB in settings.worlds else "--resume replaces it and uses runs that are kept there, or "
        raise bad_input(
            f"--out `{folder}`: holds a result of other settings ({', '.join(differs)}); {replace}name another folder"
        )
