"""Runs on the workers of a Dask cluster, with the same figures as on this machine.

A worker gets the settings of a run, the files that it reads and its schemes in Python. It returns the outcome in the
format of the store. If a worker dies, Dask gives its unfinished runs to other workers.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from pathloom._core import PathloomError
from pathloom.errors import SchemeError, ToolError, bad_input, reason
from pathloom.experiments.execution import RunFiles, advance, simulation
from pathloom.experiments.identity import digest, program_digest
from pathloom.experiments.inputs import named_files, sha256
from pathloom.experiments.memory import check_room
from pathloom.experiments.python_schemes import PythonScheme, load_scheme
from pathloom.experiments.settings import Job, Settings
from pathloom.experiments.store import OutcomeCodec
from pathloom.experiments.workers import Ended, Progress, Take, Work
from pathloom.specs import is_python_spec

if TYPE_CHECKING:
    from distributed import Client

MOST_LOCAL = 256
"""Maximum number of workers that `local:N` starts."""
CONNECT_S = 10.0
"""Time within which a scheduler must answer, in seconds."""
WORKERS_S = 30.0
"""Time within which a scheduler must have its first worker, in seconds."""
PER_WORKER = 2
"""Runs that are handed out per thread of a worker, the run in progress included."""
LOOK_S = 0.5
"""Interval at which a run checks whether it should end, in seconds."""
MOST_DEATHS = 3
"""Number of workers that may die during a run; one more, and Dask gives up the run."""

_place_lock = threading.Lock()
"""Guards the working folder, which all threads of the process share."""


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


@contextlib.contextmanager
def connected(where: str) -> Iterator[Cluster]:
    """The cluster that `--cluster` names. Workers started for it end with the context. Raises `PathloomError`."""
    kind, _, rest = where.partition(":")
    local = kind == "local" and rest.isdecimal() and 1 <= int(rest) <= MOST_LOCAL
    host, colon, port = rest.removeprefix("//").rpartition(":")
    remote = kind == "tcp" and rest.startswith("//") and host and colon and port.isdecimal() and 0 < int(port) < 65536
    if not local and not remote:
        raise bad_input(f"--cluster `{where}`: expected local:N with N from 1 to {MOST_LOCAL}, or tcp://HOST:PORT")
    try:
        import distributed
        from dask import config
    except ImportError:
        raise bad_input(f"--cluster `{where}`: needs Dask; install it with pip install 'pathloom[cluster]'") from None
    quiet = {
        "distributed.logging": {"distributed": "critical", "distributed.worker": "critical"},
        "distributed.scheduler.allowed-failures": MOST_DEATHS,
        # Runs differ in length: idle workers take runs that wait at busy workers.
        "distributed.scheduler.work-stealing": True,
        "distributed.comm.timeouts.connect": f"{CONNECT_S}s",
        "distributed.worker.memory.terminate": 0.95,
    }
    with config.set(quiet), contextlib.ExitStack() as stack:
        if local:
            made = distributed.LocalCluster(
                n_workers=int(rest), threads_per_worker=1, processes=True, dashboard_address=None, silence_logs=50
            )
            stack.callback(made.close, timeout=5)
            client = distributed.Client(made)
        else:
            client = _client(where)
        stack.callback(client.close, timeout=5)
        yield Cluster(client, where)


def _client(where: str) -> Client:
    import distributed

    try:
        client = distributed.Client(where, timeout=CONNECT_S)
    except (OSError, TimeoutError, ValueError) as error:
        raise bad_input(f"--cluster `{where}`: no Dask scheduler answers there: {error or 'timed out'}") from None
    try:
        client.wait_for_workers(1, timeout=WORKERS_S)
    except TimeoutError:
        client.close()
        way_out = f"start some with `dask worker {where}`"
        raise bad_input(f"--cluster `{where}`: the scheduler has no workers; {way_out}") from None
    return client


class Cluster:
    """Runs on the workers of a cluster; see `pathloom.experiments.workers.Runner`."""

    def __init__(self, client: Client, where: str) -> None:
        self._client = client
        self._where = where

    def run(self, works: Sequence[Work], progress: Progress, take: Take) -> Ended:
        """Hands out runs in order, a few more than workers can carry out, and takes outcomes as they arrive."""
        import distributed

        stop = distributed.Event(f"pathloom-{uuid.uuid4().hex}", client=self._client)
        todo = iter(works)
        under_way: dict[Any, Work] = {}
        completed = distributed.as_completed([])
        try:
            for work in self._next(todo, self._room()):
                self._hand_out(work, stop.name, under_way, completed)
            for future in completed:
                work = under_way.pop(future)
                failure = self._take(future, work, progress, take)
                if failure is not None:
                    return Ended(failure=failure)
                for another in self._next(todo, self._room() - len(under_way)):
                    self._hand_out(another, stop.name, under_way, completed)
        except KeyboardInterrupt:
            return Ended(interrupted=True)
        finally:
            if under_way:
                with contextlib.suppress(Exception):
                    stop.set()
                    self._client.cancel(list(under_way), force=True)
        return Ended()

    def _next(self, todo: Iterator[Work], count: int) -> list[Work]:
        return list(islice(todo, max(count, 0)))

    @property
    def count(self) -> int:
        """Number of runs that the present workers carry out at once."""
        return int(sum(self._client.nthreads().values()))

    def _room(self) -> int:
        return max(PER_WORKER * self.count, 1)

    def _hand_out(self, work: Work, stop: str, under_way: dict[Any, Work], completed: Any) -> None:
        future = self._client.submit(carry_out, parcel_of(work, stop), pure=False, key=f"pathloom-{uuid.uuid4().hex}")
        under_way[future] = work
        completed.add(future)

    def _take(self, future: Any, work: Work, progress: Progress, take: Take) -> SchemeError | ToolError | None:
        import distributed

        job = work.job
        which = f"run {job.run} of {job.scheme} (seed {job.seed})"
        try:
            answer: Answer = future.result()
        except distributed.KilledWorker:
            return ToolError(
                f"{which}: {MOST_DEATHS + 1} workers died during it; it may need more memory than they have"
            )
        except Exception as error:
            return ToolError(f"{which}: the cluster {self._where} failed: {type(error).__name__}: {error}")
        if answer.bad_input is not None:
            raise bad_input(answer.bad_input)
        if answer.failure is not None:
            return SchemeError(*answer.failure)
        outcome = OutcomeCodec().decode(answer.outcome) if answer.outcome is not None else None
        if outcome is None:
            return ToolError(f"{which}: the cluster {self._where} sent an unreadable outcome")
        take(work, replace(outcome, job=job))
        progress(work, 1.0)
        return None


def parcel_of(work: Work, stop: str) -> Parcel:
    """Makes the parcel of a run. Raises `PathloomError` if a file cannot be read."""
    execution, job = work.execution, work.job
    settings = execution.settings
    in_python = execution.in_python.get(job.scheme)
    if in_python is not None and not is_python_spec(job.scheme):
        raise bad_input(f"scheme `{job.scheme}`: a class cannot be sent to another machine; name it as FILE.py:CLASS")
    alone = settings.model_copy(update={"schemes": (job.scheme,)})
    imported = in_python.files if in_python is not None else ()
    paths = [*named_files([alone.fabric, alone.traffic, job.scheme]), *imported]
    try:
        files = {path: Path(path).read_bytes() for path in paths}
    except OSError as error:
        raise bad_input(f"`{error.filename}`: {reason(error)}") from None
    return Parcel(
        alone.model_dump_json(), job, execution.fabric_text, execution.sample_at_s, files, program_digest(), stop
    )


def carry_out(parcel: Parcel) -> Answer:
    """Carries out a run on a worker."""
    job = parcel.job
    try:
        if program_digest() != parcel.program:
            raise bad_input(
                f"worker on {socket.gethostname()}: has another version of Pathloom; install the same on all machines"
            )
        settings = Settings.model_validate_json(parcel.settings)
        with _files_in_place(parcel.files):
            in_python = _scheme(job.scheme)
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


def _scheme(spec: str) -> PythonScheme | None:
    return load_scheme(spec) if is_python_spec(spec) else None


@contextlib.contextmanager
def _files_in_place(files: Mapping[str, bytes]) -> Iterator[None]:
    """Makes the files of a parcel available under their paths: as on this machine, or in a temporary folder."""
    with _place_lock:
        if all(Path(path).is_file() and digest(path) == sha256(content) for path, content in files.items()):
            _forget_modules(map(Path, files))
            yield
            return
        before, folder = Path.cwd(), Path(tempfile.mkdtemp(prefix="pathloom-"))
        try:
            for path, content in files.items():
                pure = PurePosixPath(path)
                if pure.is_absolute() or ".." in pure.parts:
                    raise bad_input(
                        f"worker on {socket.gethostname()}: has no `{path}` with the same content; put it on a shared "
                        "file system, or name it relative to the folder that you are in"
                    )
                target = folder / path
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(content)
            os.chdir(folder)
            yield
        finally:
            os.chdir(before)
            _forget_modules(folder / path for path in files)
            shutil.rmtree(folder, ignore_errors=True)


def _forget_modules(paths: Iterable[Path]) -> None:
    """Makes sure that modules are imported again: files may have changed since the worker's last run."""
    gone = {path.resolve() for path in paths}
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and file.endswith(".py") and Path(file).resolve() in gone:
            del sys.modules[name]


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

        self._next_look = time.monotonic() + LOOK_S
        try:
            return bool(distributed.Event(self._name).is_set())
        except (OSError, ValueError, TimeoutError):
            return False
