"""Finished runs in a folder, one file each, so that long computations can be interrupted and resumed.

A file is complete or it does not exist, and its name is the `identity` of its run. So a stored run is never carried out
again, and a run with changed settings, files or program is never confused with the stored one.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from pathloom.errors import bad_input
from pathloom.experiments.results.outcome import RunOutcome, Sample
from pathloom.experiments.results.output_files import PARTIAL, OutFolder, write_bytes
from pathloom.experiments.results.record import RUNS
from pathloom.experiments.settings.model import Job

Value = TypeVar("Value")

_ARRAY = "array"
"""Key of the number of an array, which replaces the array in JSON."""


class Codec(Protocol[Value]):
    """The file format of the runs of a store."""

    suffix: str

    def encode(self, value: Value) -> bytes:
        """The content of a file."""
        ...

    def decode(self, content: bytes) -> Value | None:
        """The run in a file; None if the file is incomplete or damaged."""
        ...


class Store(Generic[Value]):
    """Runs by name, in a folder."""

    def __init__(self, folder: Path, codec: Codec[Value]) -> None:
        self.folder = folder
        self._codec = codec

    def find(self, name: str) -> Value | None:
        """A stored run; None if it is missing or incomplete, so that it must be carried out again."""
        try:
            content = (self.folder / f"{name}{self._codec.suffix}").read_bytes()
        except OSError:
            return None
        return self._codec.decode(content)

    def add(self, name: str, value: Value) -> None:
        """Stores a run. Raises `PathloomError` when its file cannot be written."""
        write_bytes(self.folder / f"{name}{self._codec.suffix}", self._codec.encode(value))


class OutcomeCodec:
    """Outcomes of runs as NumPy's zip files, without loss: columns of flows and links, and all else as JSON."""

    suffix = ".npz"

    def encode(self, value: RunOutcome) -> bytes:
        """The content of the file of an outcome."""
        columns: dict[str, Any] = {}
        record = {**vars(value), "outcome": _packed(value.outcome, columns)}
        record["job"] = asdict(value.job)
        record["samples"] = [asdict(sample) for sample in value.samples]
        buffer = io.BytesIO()
        # Numbers in JSON are read back exactly.
        np.savez_compressed(buffer, record=np.array(json.dumps(record)), **columns)
        return buffer.getvalue()

    def decode(self, content: bytes) -> RunOutcome | None:
        """The outcome in a file; None if the file is incomplete or damaged."""
        try:
            with np.load(io.BytesIO(content), allow_pickle=False) as file:
                arrays = {name: file[name] for name in file.files}
            record: dict[str, Any] = json.loads(str(arrays.pop("record")))
            record["outcome"] = _unpacked(record["outcome"], arrays)
            record["job"] = Job(**record["job"])
            record["samples"] = tuple(Sample(**sample) for sample in record["samples"])
            record["notes"] = tuple(record["notes"])
            record["trouble"] = tuple(record["trouble"]) if record["trouble"] is not None else None
            return RunOutcome(**record)
        except Exception:
            # Damage can raise almost anything in the readers of zip files and of NumPy's headers.
            return None


def _packed(value: Any, arrays: dict[str, Any]) -> Any:
    """The value as JSON can represent it; its arrays are moved to `arrays`."""
    if isinstance(value, np.ndarray):
        name = str(len(arrays))
        arrays[name] = value
        return {_ARRAY: name}
    if isinstance(value, dict):
        return {name: _packed(part, arrays) for name, part in value.items()}
    return [_packed(part, arrays) for part in value] if isinstance(value, list | tuple) else value


def _unpacked(value: Any, arrays: Mapping[str, Any]) -> Any:
    if isinstance(value, dict):
        if value.keys() == {_ARRAY}:
            return arrays[value[_ARRAY]]
        return {name: _unpacked(part, arrays) for name, part in value.items()}
    return [_unpacked(part, arrays) for part in value] if isinstance(value, list) else value


def run_store(folder: Path) -> Store[RunOutcome]:
    """The store of complete outcomes of runs in a folder."""
    return Store(folder, OutcomeCodec())


@contextlib.contextmanager
def locked_store(path: Path) -> Iterator[Store[RunOutcome]]:
    """The store of finished runs in a results folder, for one process at a time.

    Partial files of a process that was killed are removed. At the end, the folder of runs is removed if it is empty.
    Raises `PathloomError` if another process uses the folder, or if it cannot be written.
    """
    runs = OutFolder(path / RUNS)
    try:
        with folder_lock(path):
            _remove_partial(runs.path)
            yield run_store(runs.path)
    finally:
        runs.remove_if_empty()


@contextlib.contextmanager
def folder_lock(path: Path) -> Iterator[None]:
    """Locks a results folder for this process, so that two commands do not mix their results in it.

    Partial files of a process that was killed are removed. Raises `PathloomError` if another process uses the folder.
    """
    # The system releases the lock when the process ends, in whatever way.
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise bad_input(
                f"--out `{path}`: another command is using it; wait for it, or name another folder"
            ) from None
        _remove_partial(path)
        yield
    finally:
        os.close(handle)


def _remove_partial(folder: Path) -> None:
    for path in folder.glob(f"{PARTIAL}*"):
        with contextlib.suppress(OSError):
            if path.is_dir():
                for file in path.iterdir():
                    file.unlink()
                path.rmdir()
            else:
                path.unlink()
