"""What a worker of a cluster does: it carries out the run in a parcel.

A parcel holds the settings of a run, the files that it reads and its scheme in Python. The answer holds the outcome in
the format of the store.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pathloom._core import PathloomError
from pathloom.errors import SchemeError, bad_input
from pathloom.experiments.running.memory import check_room
from pathloom.experiments.running.simulation import RunFiles, advance, simulation
from pathloom.experiments.running.store import OutcomeCodec
from pathloom.experiments.schemes.loading import PythonScheme, load_scheme
from pathloom.experiments.schemes.modules import adopt, first_name, where_found
from pathloom.experiments.settings.identity import digest, program_digest
from pathloom.experiments.settings.input_files import sha256
from pathloom.experiments.settings.model import Job, Settings
from pathloom.specs import is_python_spec

LOOK_S = 0.5
"""Interval at which a run checks whether it should end, in seconds."""
ANSWER_S = 2.0
"""Time that a run waits for the scheduler's answer to this, in seconds."""

_place_lock = threading.Lock()
"""Guards the working folder and the loaded modules, which all threads of the process share."""


@dataclass(frozen=True)
class Parcel:
    """All that a worker needs to carry out a run."""

    settings: str
    """The settings of the run alone, as JSON."""
    job: Job
    fabric_text: str | None
    sample_at_s: tuple[float, ...]
    files: Mapping[str, bytes]
    """Contents of the files that the settings name and that schemes import, by path."""
    imported: tuple[str, ...]
    """Paths of the modules among them that belong to the scheme."""
    searched: tuple[str, ...]
    """Folders of schemes in which the sender searches for modules. The workers of `local:N` do so too at first."""
    program: str
    """Digest of the program that must carry out the run."""
    stop: str
    """Name of the event that ends the run early."""


@dataclass(frozen=True)
class Answer:
    """Answer of a worker to a parcel. All fields are None if the run was ended early."""

    outcome: bytes | None = None
    bad_input: str | None = None
    failure: tuple[str, str] | None = None
    """Message and traceback of a scheme that failed."""


def carry_out(parcel: Parcel) -> Answer:
    """Carries out a run on a worker."""
    job = parcel.job
    try:
        if program_digest() != parcel.program:
            raise _unusable("has another version of Pathloom; install the same on all machines")
        settings = Settings.model_validate_json(parcel.settings)
        with contextlib.ExitStack() as until_end:
            with _files_in_place(parcel.files, until_end):
                adopt(parcel.searched)
                in_python = _scheme(job.scheme, parcel.imported)
                try:
                    run = simulation(settings, parcel.fabric_text, job, RunFiles(), in_python)
                except PathloomError as error:
                    raise bad_input(f"run {job.run} of {job.scheme} (seed {job.seed}): {error}") from None
            check_room(run, job)
            outcome = advance(run, job, settings, parcel.sample_at_s, _RemoteStop(parcel.stop), lambda _share: None)
    except PathloomError as error:
        return Answer(bad_input=str(error))
    except SchemeError as error:
        return Answer(failure=(str(error), error.traceback))
    return Answer(outcome=OutcomeCodec().encode(outcome)) if outcome is not None else Answer()


def _unusable(text: str) -> PathloomError:
    """Makes an error about this worker."""
    return bad_input(f"worker on {socket.gethostname()}: {text}")


@contextlib.contextmanager
def _files_in_place(files: Mapping[str, bytes], until_end: contextlib.ExitStack) -> Iterator[None]:
    """Makes the files of a parcel available under their paths. Raises `PathloomError` if an absolute path has none.

    Files with relative paths are written to a temporary folder, unless all of them are in the working folder. This
    folder exists until `until_end` ends, because methods of schemes may import modules.
    """
    with _place_lock:
        relative = {path: content for path, content in files.items() if not Path(path).is_absolute()}
        for path in files.keys() - relative.keys():
            if not _is_here(path, files[path]):
                raise _unusable(
                    f"has no `{path}` with the same content; put it on a shared file system, or name it relative to "
                    "the folder that you are in"
                )
        here = all(_is_here(path, content) for path, content in relative.items())
        with contextlib.nullcontext() if here else _written(relative, until_end):
            yield


def _is_here(path: str, content: bytes) -> bool:
    try:
        return digest(path) == sha256(content)
    except OSError:
        return False


@contextlib.contextmanager
def _written(files: Mapping[str, bytes], until_end: contextlib.ExitStack) -> Iterator[None]:
    """Writes files with relative paths to a temporary folder, which contains the working folder meanwhile."""
    before, folder = Path.cwd(), Path(tempfile.mkdtemp(prefix="pathloom-", dir=_scratch()))
    until_end.callback(shutil.rmtree, folder, ignore_errors=True)
    try:
        # Paths that begin with `..` must stay in the temporary folder.
        depth = max(Path(path).parts.count("..") for path in files)
        place = folder.joinpath(*["inside"] * depth)
        place.mkdir(parents=True, exist_ok=True)
        for path, content in files.items():
            (place / path).parent.mkdir(parents=True, exist_ok=True)
            (place / path).write_bytes(content)
        os.chdir(place)
        yield
    finally:
        os.chdir(before)


def _scratch() -> str | None:
    """The folder of this worker for temporary files. If the worker is killed, the next one to start removes it."""
    import distributed

    try:
        directory: str = distributed.get_worker().local_directory
    except ValueError:
        return None
    return directory


def _scheme(spec: str, modules: Sequence[str]) -> PythonScheme | None:
    """Loads a scheme in Python. Raises `PathloomError` if it would import others than these modules."""
    if not is_python_spec(spec):
        return None
    found = load_scheme(spec, modules)
    folder = found.place.resolve()
    for path, name in zip(found.files, found.names, strict=True):
        place = where_found(first_name(Path(name)), folder)
        if place is not None:
            raise _unusable(f"scheme `{spec}` imports `{place}` instead of `{path}`; rename one of them")
    return found


class _RemoteStop:
    """Tells whether a run should end, by asking the scheduler every `LOOK_S`."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._next_look = time.monotonic() + LOOK_S

    def is_set(self) -> bool:
        """Whether the run should end now."""
        if time.monotonic() < self._next_look:
            return False
        import distributed

        worker = distributed.get_worker()
        if worker.status in (distributed.Status.closing, distributed.Status.closed):
            return True
        try:
            # `Event.is_set` would connect a client, which prints errors if this worker is being closed.
            ask = worker.scheduler.event_is_set
            return bool(distributed.sync(worker.loop, ask, name=self._name, callback_timeout=ANSWER_S))
        except (OSError, ValueError, RuntimeError):
            return False
        finally:
            self._next_look = time.monotonic() + LOOK_S
