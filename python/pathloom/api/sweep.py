"""`sweep` for Python."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pathloom.api.results import SweepResult
from pathloom.errors import bad_input
from pathloom.experiments.running.runners import check_call, runner_of
from pathloom.experiments.running.store import locked_store
from pathloom.experiments.running.threads import default_threads
from pathloom.experiments.running.work import Progress, Work
from pathloom.experiments.sweeps.plan import SweepPlan
from pathloom.experiments.sweeps.precision import Precision
from pathloom.experiments.sweeps.sweep import Sweep


def sweep(
    settings: Mapping[str, Any] | str | Path,
    out: str | Path,
    *,
    until: str | None = None,
    jobs: int | None = None,
    cluster: str | None = None,
) -> SweepResult:
    """Compares schemes at every point of a grid; see docs/sweeps.md.

    Finished runs are kept in `out`, and another call carries out only missing runs. `SweepResult.save` writes tables,
    plots and report.

    Args:
        settings: what a sweep's file holds, with `grid` as a dict of lists, or `points` as a list of dicts; or the
            path of such a file.
        out: folder of finished runs.
        until: `"ci=2%"` adds runs until the confidence intervals of differences are that narrow.
        jobs: threads; by default one per core. The result does not depend on it.
        cluster: address of a scheduler of Dask, `"tcp://HOST:PORT"`, whose workers carry out the runs. The result does
            not depend on them.

    Raises:
        PathloomError: on bad input, or when another process uses the folder.
        SchemeError: when a scheme written in Python failed.
        KeyboardInterrupt: after a Ctrl-C.

    """
    check_call(cluster, jobs)
    if not isinstance(settings, Mapping | str | Path):
        raise bad_input(f"sweep: `{settings}` is not valid; expected a dict of settings, or the path of a file")
    if until is not None and not isinstance(until, str):
        raise bad_input(f'until: `{until}` is not valid; expected a text such as "ci=2%"')
    plan = SweepPlan.of(settings) if isinstance(settings, Mapping) else SweepPlan.read(Path(settings))
    precision = Precision.parse(until) if until is not None else None
    with locked_store(Path(out)) as store:
        ready = Sweep(plan, store, precision)
        ended = ready.carry_out(runner_of(cluster, jobs or default_threads()), _unwatched)
        if ended.failure is not None:
            raise ended.failure
        if ended.interrupted:
            raise KeyboardInterrupt
        return SweepResult.of(ready.result())


@contextmanager
def _unwatched(_sweep: Sweep, _works: Sequence[Work]) -> Iterator[Progress]:
    yield lambda _work, _share: None
