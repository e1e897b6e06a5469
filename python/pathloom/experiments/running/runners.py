"""Where runs are carried out: on threads of this process, or on the workers of a cluster."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from pathloom.errors import bad_input
from pathloom.experiments.running.threads import Threads
from pathloom.experiments.running.work import Runner
from pathloom.specs import LAB


def check_cluster(
    cluster: str | None, jobs: int | None, worlds: Sequence[str] = (), threads: int | None = None
) -> None:
    """Raises `PathloomError` if a cluster is misspelt, or cannot be combined with the other settings.

    >>> check_cluster("local:2", None)
    """
    if cluster is None:
        return
    from pathloom.experiments.running.cluster import local_workers

    local_workers(cluster)
    if jobs is not None:
        raise bad_input("--jobs: is for this machine; the workers of --cluster have their own threads")
    if threads is not None:
        raise bad_input("--threads: is for this machine; the workers of --cluster give each run one thread")
    if LAB in worlds:
        raise bad_input("--cluster: is for the simulator; leave it out, or run in the simulator alone")


def check_call(cluster: str | None, jobs: int | None, worlds: Sequence[str] = (), threads: int | None = None) -> None:
    """Checks where a call from Python carries out its runs. Raises `PathloomError`.

    A cluster must be the address of a scheduler: each process that `local:N` starts would carry out the calling script
    again, up to this call.
    """
    if jobs is not None and jobs < 1:
        raise bad_input(f"jobs: {jobs} is not valid; expected 1 or more")
    if cluster is not None and (not isinstance(cluster, str) or not cluster.startswith("tcp://")):
        raise bad_input(
            f"cluster: `{cluster}` is not valid; expected tcp://HOST:PORT of a Dask scheduler, such as the "
            "scheduler_address of dask.distributed.LocalCluster"
        )
    check_cluster(cluster, jobs, worlds, threads)


@contextmanager
def runner_of(cluster: str | None, threads: int, say: Callable[[str], None] | None = None) -> Iterator[Runner]:
    """Yields the runner of the runs: this number of threads, or the named cluster. Raises `PathloomError`.

    `say` prints a line for the user of a command, which silences Dask's logs; it is called from another thread if the
    cluster has lost all its workers. Without `say`, for calls from Python, this line is a warning in a log.
    """
    if cluster is None:
        yield Threads(threads)
        return
    from pathloom.experiments.running.cluster import connected

    log = logging.getLogger("pathloom").warning
    with connected(cluster, say or log, has_logs=say is None) as runner:
        yield runner
