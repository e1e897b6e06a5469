"""`compare` and `run`, for Python and for the command line."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from pathloom.api.experiment import Experiment
from pathloom.api.results import Result
from pathloom.errors import SchemeWarning, bad_input
from pathloom.experiments.running.runners import check_call, runner_of
from pathloom.experiments.running.threads import default_threads
from pathloom.experiments.running.work import Runner
from pathloom.experiments.schemes.loading import name_schemes
from pathloom.experiments.settings.model import Settings
from pathloom.fabrics import Fabric
from pathloom.progress import showing_progress

if TYPE_CHECKING:
    import networkx as nx


def compare(
    *,
    fabric: Fabric | str | nx.Graph[Any],
    traffic: str,
    schemes: Sequence[str | type | Callable[[], object]],
    duration: str = "10s",
    runs: int = 3,
    seed: int = 1,
    jobs: int | None = None,
    threads: int = 1,
    cluster: str | None = None,
    transport: str | None = None,
    control: str | None = None,
    faults: Sequence[str] = (),
    yardstick: bool = False,
    worlds: Sequence[str] = ("sim",),
    lab: str | None = None,
    until: str | None = None,
    keep_going: bool = False,
    series: str | None = None,
) -> Result:
    """Runs the same traffic under each scheme and compares them.

    Args:
        fabric: a `Fabric`, a specification such as `"fat-tree:k=4"`, or a networkx graph.
        traffic: a specification, such as the result of `web_search(load=0.4)`.
        schemes: names with keys, such as `["spt", "ecmp", "hedera:period=1s"]`; also schemes written in Python, as
            classes or as `"FILE.py:CLASS:key=value"`; see `pathloom.scheme`.
        duration: how long flows arrive, with its unit; active flows then have five times as long to finish.
        until: `"finished"` lets every finite flow finish instead, however long that takes.
        runs: runs per scheme; run r has the seed `seed + r - 1`, the same for every scheme.
        seed: decides, with `runs`, all random numbers.
        jobs: runs at a time; by default the number of cores over `threads`. The result does not depend on it.
        threads: threads of each simulated run, where its scheme and its transport allow it. The result does not depend
            on it.
        cluster: address of a scheduler of Dask, `"tcp://HOST:PORT"`, whose workers carry out the runs. A scheme in
            Python must then be named as a text. The result does not depend on the workers.
        transport: the transport of the hosts, such as `"newreno:iw=12KB"`; by default that of each scheme.
        control: control channel and controller, such as `"delay=1ms,service=20us"`.
        faults: failures and repairs, such as `"10s:down:e0_0-a0_1"`.
        yardstick: whether the exact optimum is computed for each result, as `optimum` and `of_optimum`.
        worlds: `"sim"`, `"lab"` (network namespaces and Open vSwitch; needs root), or both.
        lab: settings of the lab, such as `"hosts=linux"`.
        keep_going: whether runs continue when a scheme written in Python fails; the result is then marked.
        series: length of the steps, such as `"10ms"`, of `Result.link_series` and `Result.flow_series`.

    Raises:
        PathloomError: on bad input, with one line that says what is wrong and what was expected.
        ToolError: when a tool of the system failed in the lab.
        SchemeError: when a scheme written in Python failed, without `keep_going`.
        SchemeWarning: a warning, when a scheme written in Python failed, with `keep_going`.
        KeyboardInterrupt: after a Ctrl-C.

    >>> result = compare(fabric="diamond", traffic="long-lived", schemes=["spt", "ecmp"], duration="100ms", runs=2)
    >>> [scheme["flows"]["long_lived"] for scheme in result.summary["schemes"]]
    [4, 4]

    """
    names, in_python = name_schemes(schemes)
    settings = Settings.of(
        {
            "fabric": _fabric_text(fabric),
            "traffic": traffic,
            "schemes": names,
            "transport": transport,
            "control": control,
            "duration": duration,
            "runs": runs,
            "seed": seed,
            "faults": tuple(faults),
            "yardstick": yardstick,
            "worlds": tuple(worlds),
            "lab": lab,
            "until": until,
            "keep_going": keep_going,
            "series": series,
        },
        in_python=in_python,
    )
    if threads < 1:
        raise bad_input(f"threads: {threads} is not valid; expected 1 or more")
    check_call(cluster, jobs, settings.worlds, threads if threads > 1 else None)
    experiment = Experiment(settings, _as_fabric(fabric), in_python=in_python, threads=threads)
    at_a_time = default_jobs(threads) if jobs is None else jobs
    with runner_of(cluster, at_a_time) if cluster is not None else nullcontext() as runner:
        return _carried_out(experiment, at_a_time, runner)


def default_jobs(threads: int) -> int:
    """Default number of runs at a time, if each run uses this many threads.

    >>> default_jobs(10_000)
    1
    """
    return max(default_threads() // threads, 1)


def run(
    *,
    fabric: Fabric | str | nx.Graph[Any],
    traffic: str,
    scheme: str | type | Callable[[], object],
    duration: str = "10s",
    runs: int = 1,
    seed: int = 1,
    jobs: int | None = None,
    threads: int = 1,
    cluster: str | None = None,
    transport: str | None = None,
    control: str | None = None,
    faults: Sequence[str] = (),
    yardstick: bool = False,
    worlds: Sequence[str] = ("sim",),
    lab: str | None = None,
    until: str | None = None,
    keep_going: bool = False,
    series: str | None = None,
) -> Result:
    """Runs one scheme; all other arguments are those of `compare`.

    >>> result = run(scheme="ecmp", fabric="dumbbell", traffic="long-lived", duration="100ms")
    >>> result.summary["schemes"][0]["flows"]["unfinished"]
    0
    """
    return compare(
        fabric=fabric,
        traffic=traffic,
        schemes=[scheme],
        duration=duration,
        runs=runs,
        seed=seed,
        jobs=jobs,
        threads=threads,
        cluster=cluster,
        transport=transport,
        control=control,
        faults=faults,
        yardstick=yardstick,
        worlds=worlds,
        lab=lab,
        until=until,
        keep_going=keep_going,
        series=series,
    )


def _carried_out(experiment: Experiment, jobs: int, runner: Runner | None) -> Result:
    """Carries out an experiment and returns its result. Warns about each scheme that failed with `keep_going`."""
    settings = experiment.settings
    with showing_progress("pathloom", settings.runs * len(settings.labels)) as progress:
        result = experiment.carry_out(jobs, progress, runner)
    for text in result.troubles:
        warnings.warn(text, SchemeWarning, stacklevel=3)
    return _whole(result)


def _whole(result: Result) -> Result:
    """Returns the result if it has all its runs. Otherwise raises the cause of the early end."""
    if result.failure is not None:
        raise result.failure
    if not result.complete:
        raise KeyboardInterrupt
    return result


def _fabric_text(fabric: object) -> str:
    if isinstance(fabric, Fabric):
        return fabric.spec
    return fabric if isinstance(fabric, str) else "fabric.json"


def _as_fabric(fabric: Fabric | str | nx.Graph[Any]) -> Fabric | None:
    if isinstance(fabric, str):
        return None
    return fabric if isinstance(fabric, Fabric) else Fabric.from_networkx(fabric)
