"""Runs on the workers of a Dask cluster, with the same figures as on this machine.

If a worker dies, Dask gives its unfinished runs to other workers.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import multiprocessing
import re
import signal
import socket
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pathloom.errors import SchemeError, ToolError, bad_input, reason
from pathloom.experiments.running.cluster_worker import Answer, Parcel, carry_out
from pathloom.experiments.running.store import OutcomeCodec
from pathloom.experiments.running.threads import interruptible
from pathloom.experiments.running.work import Ended, Progress, Take, Work
from pathloom.experiments.schemes.modules import added_folders
from pathloom.experiments.settings.identity import program_digest
from pathloom.experiments.settings.input_files import named_files
from pathloom.extras import need
from pathloom.quantities import counted
from pathloom.specs import is_python_spec
from pathloom.waiting import await_event

if TYPE_CHECKING:
    from distributed import Client, LocalCluster

MOST_LOCAL = 256
"""Maximum number of workers that `local:N` starts."""
CONNECT_S = 10.0
"""Time within which a scheduler must answer, in seconds."""
WORKERS_S = 30.0
"""Time within which a scheduler must have its first worker, in seconds."""
START_S = 5.0
"""Additional time in which `local:N` must have all its workers, in seconds per worker."""
LOST_S = 30.0
"""Time without any worker after which a message says so, in seconds."""
PER_WORKER = 2
"""Runs that are handed out per thread of a worker, the run in progress included."""
LOOK_S = 0.5
"""Interval at which lost workers are noticed, in seconds."""
MOST_DEATHS = 3
"""Number of workers of `local:N` that may die during a run; one more, and Dask gives up the run."""

_LOCAL = re.compile("local:([0-9]{1,3})")
_REMOTE = re.compile(r"tcp://(?:[^\s/:@\[\]]+|\[[^\s/@\[\]]+\]):([0-9]{1,5})")


def local_workers(where: str) -> int | None:
    """The number of workers that `local:N` starts; None for `tcp://HOST:PORT`. Raises `PathloomError` on other text.

    >>> local_workers("local:4"), local_workers("tcp://[::1]:8786")
    (4, None)
    """
    local, remote = _LOCAL.fullmatch(where), _REMOTE.fullmatch(where)
    if local is not None and 1 <= int(local[1]) <= MOST_LOCAL:
        return int(local[1])
    if remote is not None and 0 < int(remote[1]) < 65536:
        return None
    raise bad_input(f"--cluster `{where}`: expected local:N with N from 1 to {MOST_LOCAL}, or tcp://HOST:PORT")


@contextlib.contextmanager
def connected(where: str, say: Callable[[str], None], has_logs: bool = False) -> Iterator[Cluster]:
    """The cluster that `--cluster` names. Workers started for it end with the context. Raises `PathloomError`.

    `say` prints a line for the user; it is called from another thread if all workers are lost. Unless `has_logs` is
    set, the logs of Dask are silenced in this process.
    """
    count = local_workers(where)
    need("cluster", f"--cluster `{where}`")
    import distributed
    from dask import config

    settings: dict[str, Any] = {
        "distributed.scheduler.allowed-failures": MOST_DEATHS,
        # Runs differ in length: idle workers take runs that wait at busy workers.
        "distributed.scheduler.work-stealing": True,
        "distributed.comm.timeouts.connect": f"{CONNECT_S}s",
        "distributed.worker.memory.terminate": 0.95,
    }
    if not has_logs:
        settings["distributed.logging"] = {"distributed": "critical", "distributed.worker": "critical"}
        _silence_logs()
    with config.set(settings), contextlib.ExitStack() as stack:
        if count is not None:
            made = _local_cluster(count)
            stack.callback(_close, made)
            client = distributed.Client(made)
        else:
            client = _client(where)
        stack.callback(_close, client)
        yield Cluster(client, where, say)


def _silence_logs() -> None:
    """Silences the logs of Dask and its libraries in this process: all that matters becomes an error of one line."""
    libraries = ("distributed", "tornado", "asyncio")
    for name in [*libraries, *logging.root.manager.loggerDict]:
        if name.partition(".")[0] in libraries:
            logging.getLogger(name).setLevel(logging.CRITICAL + 1)


def _close(one: Client | LocalCluster) -> None:
    # A failure would replace the error that ends the command.
    with contextlib.suppress(Exception):
        one.close(timeout=5)


def _local_cluster(count: int) -> LocalCluster:
    """Starts workers on this machine. Raises `PathloomError` if they do not start in time."""
    import distributed

    _start_tracker()
    with _ctrl_c_held():
        # The thread that starts workers begins here, and they inherit its signal mask: a terminal sends Ctrl-C to all
        # processes, but only this one must end the command.
        made = distributed.LocalCluster(
            n_workers=0,
            threads_per_worker=1,
            processes=True,
            memory_limit=1 / count,
            dashboard_address=None,
            # Even without a dashboard the scheduler has a web server. Its usual port may be taken by another scheduler.
            scheduler_kwargs={"dashboard_address": "127.0.0.1:0"},
            silence_logs=50,
        )
    wait_s = WORKERS_S + START_S * count
    try:
        made.scale(count)
        made.wait_for_workers(count, timeout=wait_s)
    except TimeoutError:
        _close(made)
        raise bad_input(f"--cluster `local:{count}`: some workers did not start in {wait_s:g} s; start fewer") from None
    except KeyboardInterrupt:
        _await_processes(count)
        raise
    return made


def _await_processes(count: int) -> None:
    """Waits until so many processes have begun: one that has not received its task prints an error if this one ends."""
    await_event(lambda: len(multiprocessing.active_children()) >= count, START_S, 0.01)


@contextlib.contextmanager
def _ctrl_c_held() -> Iterator[None]:
    """Holds Ctrl-C back from this thread until the context ends."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _start_tracker() -> None:
    """Starts Python's tracker of semaphores, which removes those of an interrupted process, so that it does not warn.

    It gets the filters of warnings that `sys.warnoptions` has when it starts.
    """
    from multiprocessing import resource_tracker

    quiet = "ignore:resource_tracker:UserWarning"
    sys.warnoptions.append(quiet)
    try:
        resource_tracker.ensure_running()
    finally:
        sys.warnoptions.remove(quiet)


def _client(where: str) -> Client:
    import distributed

    _check_scheduler(where)
    try:
        client = distributed.Client(where, timeout=CONNECT_S)
    except (OSError, ValueError, ImportError) as error:
        # An ImportError says that the scheduler has another version of a library.
        raise bad_input(f"--cluster `{where}`: the Dask scheduler refuses: {reason(error)}") from None
    try:
        client.wait_for_workers(1, timeout=WORKERS_S)
    except OSError as error:
        _close(client)
        if isinstance(error, TimeoutError):
            way_out = f"start some with `dask worker {where}`"
            raise bad_input(f"--cluster `{where}`: the scheduler has no workers; {way_out}") from None
        raise bad_input(f"--cluster `{where}`: the scheduler is gone; start it again") from None
    return client


def _check_scheduler(where: str) -> None:
    """Raises `PathloomError` if no Dask scheduler answers. `Client` waits for ever if another server is silent."""
    try:
        # On another thread, because a notebook has an event loop on this one.
        is_scheduler = "workers" in interruptible(lambda: asyncio.run(_identity(where)))
    except Exception:
        # Another server may send anything, which can fail in any way.
        is_scheduler = False
    if is_scheduler:
        return
    if _is_open(where):
        raise bad_input(
            f"--cluster `{where}`: what answers there is no Dask scheduler, or it hangs; expected the address that "
            "`dask scheduler` shows, not that of its dashboard or of a worker"
        )
    raise bad_input(
        f"--cluster `{where}`: no Dask scheduler answers there; start one with `dask scheduler` on that machine"
    )


async def _identity(where: str) -> Mapping[str, Any]:
    """What a server of Dask says about itself."""
    import distributed

    async with asyncio.timeout(CONNECT_S), distributed.rpc(where, timeout=CONNECT_S) as server:
        answer: Mapping[str, Any] = await server.identity()
        return answer


def _is_open(where: str) -> bool:
    host, _, port = where.removeprefix("tcp://").rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=1.0).close()
    except OSError:
        return False
    return True


class Cluster:
    """Runs on the workers of a cluster; see `pathloom.experiments.running.threads.Runner`."""

    def __init__(self, client: Client, where: str, say: Callable[[str], None]) -> None:
        self._client = client
        self._where = where
        self._say = say

    def run(self, works: Sequence[Work], progress: Progress, take: Take) -> Ended:
        """Hands out runs in order, a few more than workers can carry out, and takes outcomes as they arrive."""
        import distributed

        stop = distributed.Event(f"pathloom-{uuid.uuid4().hex}", client=self._client)
        todo = iter(works)
        under_way: dict[Any, Work] = {}
        completed = distributed.as_completed([])
        try:
            with self._losses_told():
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

    @contextlib.contextmanager
    def _losses_told(self) -> Iterator[None]:
        """Tells the user during the context when the cluster has had no workers for `LOST_S`, once for each loss."""
        ended = threading.Event()
        watcher = threading.Thread(target=self._tell_losses, args=[ended], name="workers", daemon=True)
        watcher.start()
        try:
            yield
        finally:
            ended.set()
            watcher.join(LOOK_S)

    def _tell_losses(self, ended: threading.Event) -> None:
        loss = Loss()
        while not ended.wait(LOOK_S):
            # Without a scheduler all runs fail, which is reported elsewhere.
            with contextlib.suppress(Exception):
                if loss.is_due(self.count, time.monotonic()):
                    more = "" if local_workers(self._where) else f", such as `dask worker {self._where}` starts"
                    said = f"no workers are left; waiting for a new one{more} (Ctrl-C ends)"
                    self._say(f"pathloom: --cluster `{self._where}`: {said}")

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
        except distributed.KilledWorker as error:
            # A scheduler on another machine has its own limit.
            deaths = counted(error.allowed_failures + 1, "worker")
            return ToolError(f"{which}: {deaths} died during it; it may need more memory than is there")
        except CancelledError:
            return ToolError(f"{which}: the connection to the cluster {self._where} was lost")
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


class Loss:
    """The time for which a cluster has had no workers."""

    def __init__(self) -> None:
        self._since_s: float | None = None
        self._told = False

    def is_due(self, count: int, now_s: float) -> bool:
        """Whether to tell the user now, at this number of workers: after `LOST_S` without any, once for each loss.

        >>> loss = Loss()
        >>> [loss.is_due(count, now_s) for count, now_s in [(0, 0.0), (0, LOST_S), (0, 99.0), (1, 100.0), (0, 101.0)]]
        [False, True, False, False, False]
        """
        if count > 0:
            self._since_s, self._told = None, False
            return False
        self._since_s = now_s if self._since_s is None else self._since_s
        due = not self._told and now_s - self._since_s >= LOST_S
        self._told = self._told or due
        return due


def parcel_of(work: Work, stop: str) -> Parcel:
    """Makes the parcel of a run. Raises `PathloomError` if a file cannot be read."""
    execution, job = work.execution, work.job
    settings = execution.settings
    in_python = execution.in_python.get(job.scheme)
    if in_python is not None and not is_python_spec(job.scheme):
        raise bad_input(f"scheme `{job.scheme}`: a class cannot be sent to another machine; name it as FILE.py:CLASS")
    if in_python is not None and in_python.files:
        _check_not_a_link(Path(job.scheme.partition(":")[0]), job.scheme)
    alone = settings.model_copy(update={"schemes": (job.scheme,)})
    imported = in_python.files if in_python is not None else ()
    paths = [*named_files([alone.fabric, alone.traffic, job.scheme]), *imported]
    try:
        files = {path: Path(path).read_bytes() for path in paths}
    except OSError as error:
        raise bad_input(f"`{error.filename}`: {reason(error)}") from None
    return Parcel(
        settings=alone.model_dump_json(),
        job=job,
        fabric_text=execution.fabric_text,
        sample_at_s=execution.sample_at_s,
        files=files,
        imported=imported,
        searched=added_folders(),
        program=program_digest(),
        stop=stop,
    )


def _check_not_a_link(file: Path, scheme: str) -> None:
    """Raises `PathloomError` if a scheme's file is a link: a worker gets a copy, which is not beside its modules."""
    target = file.resolve()
    if target.parent != file.parent.resolve():
        raise bad_input(f"scheme `{scheme}`: `{file}` is a link to a file in another folder; name `{target}` instead")
