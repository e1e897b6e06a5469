"""The inputs of a result besides its settings: files, and schemes given as classes."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count, takewhile
from pathlib import Path
from typing import Self

from pathloom.experiments.schemes.loading import PythonScheme
from pathloom.experiments.settings.model import Settings
from pathloom.fabrics import Fabric
from pathloom.specs import is_python_spec

OWN_FABRIC = "fabric.json"
"""Name of the file in a results folder that holds a fabric built in Python."""


@dataclass(frozen=True)
class Inputs:
    """Files that were read, and schemes that a command line cannot name."""

    files: Mapping[str, str] = field(default_factory=dict)
    """SHA-256 of each file before the runs, in hexadecimal digits, by the path that was given."""
    classes: tuple[str, ...] = ()
    """Names of the schemes that were given as Python classes."""

    @classmethod
    def of(cls, settings: Settings, fabric: Fabric, in_python: Mapping[str, PythonScheme] | None = None) -> Self:
        """Reads the files that the settings name, and those that schemes in Python import from their folders."""
        schemes = in_python or {}
        words = [settings.traffic, *settings.schemes]
        # A fabric that was built in Python may have the name of an unrelated file.
        words += [settings.fabric] if fabric.text is None else []
        imported = (path for scheme in schemes.values() for path in scheme.files)
        paths = dict.fromkeys([*named_files(words), *imported])
        digests = {path: digest for path in paths if (digest := sha256_of_file(path)) is not None}
        own = {OWN_FABRIC: sha256(fabric.text.encode())} if fabric.text is not None else {}
        return cls({**own, **digests}, tuple(name for name in schemes if not is_python_spec(name)))

    def changed(self, own_fabric: bool) -> list[str]:
        """The files that have changed. `own_fabric` tells that the fabric did not come from a file."""
        return [
            path
            for path, digest in self.files.items()
            if not (own_fabric and path == OWN_FABRIC) and sha256_of_file(path) != digest
        ]


def named_files(specs: Iterable[str]) -> list[str]:
    """The files that exist among the words of specifications.

    >>> named_files(["web-search:load=0.4", "flows:file=/dev/null", f"{__file__}:Mine:x=1"]) == [__file__]
    True
    """
    # A `+` joins specifications of traffic, but may also be in the name of a file.
    joined = (part for spec in specs for part in (spec, *spec.split("+")))
    words = dict.fromkeys(word for spec in joined for word in _words(spec))
    # Unlike Path.is_file, this regards a file without permission as missing.
    return [path for word in words if os.path.isfile(word) for path in _with_ranks(word)]  # noqa: PTH113


def _words(spec: str) -> Iterator[str]:
    """The words of a specification that may name a file: a value of any form, and a word that looks like a file name.

    >>> list(_words("topo.csv:rate=1Gbps")), list(_words("flows:file=trace:1")), list(_words("ecmp"))
    (['topo.csv', 'topo.csv:rate=1Gbps', '1Gbps'], ['trace:1', 'trace'], [])
    """
    _, _, keys = spec.partition(":")
    parts = [*keys.split(","), *spec.replace(",", ":").split(":")]
    colons = (place for place, letter in enumerate(spec) if letter == ":")
    beginnings = (spec[:end].strip() for end in (*colons, len(spec)))
    values = (value.strip() for _, equals, value in (part.partition("=") for part in parts) if equals)
    plain = (part.strip() for part in parts if "=" not in part)
    yield from dict.fromkeys([*(word for word in (*beginnings, *plain) if "." in word), *values])


def _with_ranks(path: str) -> list[str]:
    """A file; for the trace of the first rank, `NAME.0.et`, also the traces of the other ranks."""
    name = path.removesuffix(".0.et")
    if name == path:
        return [path]
    ranks = (f"{name}.{rank}.et" for rank in count())
    return list(takewhile(os.path.isfile, ranks))


def sha256(content: bytes) -> str:
    """The digest in hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def sha256_of_file(path: str | Path) -> str | None:
    """The digest of a file's content; None if it cannot be read."""
    try:
        return sha256(Path(path).read_bytes())
    except OSError:
        return None


def listed_files(files: Collection[str]) -> str:
    """A list of file names for a sentence.

    >>> listed_files(["a.csv"]), listed_files(["a.csv", "b.py"])
    ('`a.csv`', '`a.csv`, `b.py`')
    """
    return ", ".join(f"`{name}`" for name in files)
