"""The files of an artefact, and its manifest: what is in the folder and what made it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from pathloom.errors import bad_input, reason
from pathloom.experiments.settings.input_files import sha256_of_file

MANIFEST = "artefact.json"
EXPERIMENTS, EXPECTED, RESULTS = "experiments", "expected", "results"
"""Folders of the settings with their input files, of the expected results, and of the results of a check."""
SETTINGS = "experiment.toml"
README, MAKEFILE, CITATION, ZENODO = "README.md", "Makefile", "CITATION.cff", ".zenodo.json"
LOCK = "requirements.lock"
SCHEMA = 1
"""Version of the manifest."""


@dataclass(frozen=True)
class Entry:
    """An experiment of an artefact."""

    name: str
    """Name of its folders in `experiments` and `expected`."""
    kind: str
    """`comparison` or `sweep`, as in `record.py`."""
    until: str | None = None
    """Value of `--until` of a sweep."""

    def command(self) -> str:
        """The command that carries it out, in the folder of its settings."""
        out = f"--out ../../{RESULTS}/{self.name}"
        if self.kind == "sweep":
            return f"pathloom sweep {SETTINGS} {f'--until {self.until} ' if self.until else ''}{out}"
        return f"pathloom compare --spec {SETTINGS} {out}"


@dataclass(frozen=True)
class Manifest:
    """The content of `artefact.json`."""

    title: str
    authors: tuple[str, ...]
    versions: dict[str, str]
    """Version and build of Pathloom that made the artefact, as in `result.json`."""
    experiments: tuple[Entry, ...]
    files: dict[str, str]
    """SHA-256 of each file of the artefact except the manifest, by its path in the folder."""

    def text(self) -> str:
        """The manifest as JSON."""
        return json.dumps({"schema": SCHEMA, **asdict(self)}, indent=2, ensure_ascii=False) + "\n"

    @classmethod
    def read(cls, folder: Path) -> Self:
        """The manifest of a folder. Raises `PathloomError` if the folder is not an artefact."""
        path = folder / MANIFEST
        try:
            found: Any = json.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise bad_input(
                f"`{path}`: {reason(error)}; expected a folder that `pathloom artefact new` has made"
            ) from None
        except ValueError as error:
            raise bad_input(f"`{path}`: is not JSON: {error}; take the file of the published artefact") from None
        try:
            if found["schema"] != SCHEMA:
                raise bad_input(
                    f"`{path}`: has schema {found['schema']}, and this version of Pathloom reads {SCHEMA}; use the "
                    f"version that made it, {found['versions']['pathloom']}"
                )
            entries = tuple(Entry(str(one["name"]), str(one["kind"]), one["until"]) for one in found["experiments"])
            if any(Path(entry.name).name != entry.name for entry in entries):
                raise ValueError("the name of an experiment is a path")
            return cls(
                str(found["title"]),
                tuple(map(str, found["authors"])),
                {str(key): str(value) for key, value in found["versions"].items()},
                entries,
                {str(key): str(value) for key, value in found["files"].items()},
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            what = f"{type(error).__name__}: {error}"
            raise bad_input(f"`{path}`: is damaged: {what}; take the file of the published artefact") from None

    def changed(self, folder: Path, *below: str) -> list[str]:
        """The files below these folders, or all, that are missing or have other content than the manifest says."""
        return [
            name
            for name, digest in self.files.items()
            if (not below or name.startswith(tuple(f"{one}/" for one in below)))
            and sha256_of_file(folder / name) != digest
        ]


def digests_of(folder: Path) -> dict[str, str]:
    """SHA-256 of each file below a folder, by its path in the folder."""
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    return {name: str(sha256_of_file(folder / name)) for name in names}
