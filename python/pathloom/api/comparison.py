"""`compare` and `run`, for Python and for the command line."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from pathloom.errors import SchemeWarning, bad_input
from pathloom.experiments.results.result import Result
from pathloom.experiments.running.execution import Execution, Progress, RunFiles, RunOutcome
from pathloom.experiments.running.runners import check_call, runner_of
from pathloom.experiments.running.threads import Runner, default_threads, interruptible
from pathloom.experiments.schemes.loading import PythonScheme, load_schemes, name_schemes
from pathloom.experiments.settings.input_files import Inputs
from pathloom.experiments.settings.model import Settings
from pathloom.fabrics import Fabric
from pathloom.progress import showing_progress
from pathloom.specs import SIM

if TYPE_CHECKING:
    import networkx as nx

    from pathloom.experiments.running.store import Store
    from pathloom.lab.runs import LabExecution


class Experiment:
    """An experiment that is checked and ready: the constructor finds bad input."""

    def __init__(
        self,
        settings: Settings,
        fabric: Fabric | None = None,
        run_files: RunFiles | None = None,
        in_python: Mapping[str, PythonScheme] | None = None,
        store: Store[RunOutcome] | None = None,
        threads: int = 1,
    ) -> None:
        """Prepares the first run of every scheme.

        `fabric` replaces `settings.fabric` if it is given; `in_python` are schemes given as classes. Runs in the store
        are not carried out again. Each simulated run uses up to `threads` threads.
        """
        self._threads = threads
        self.settings = settings
        self.fabric = fabric or interruptible(lambda: Fabric(settings.fabric))
        self._in_python = {**load_schemes(settings.schemes), **(in_python or {})}
        self.inputs = Inputs.of(settings, self.fabric, self._in_python)
        self._store = store
        self._executions = [self._prepare(world, run_files or RunFiles()) for world in settings.worlds]

    def _prepare(self, world: str, run_files: RunFiles) -> Execution | LabExecution:
        if world == SIM:
            files = self._in_python
            return Execution(
                self.settings, self.fabric.text, run_files, files, store=self._store, threads=self._threads
            )
        for label in self._in_python:
            raise bad_input(f"scheme `{label}`: is written in Python; the lab cannot run it, so use --worlds sim")
        from pathloom.lab.runs import LabExecution

        return LabExecution(self.settings, self.fabric, run_files)

    def missing(self) -> int:
        """Number of runs in the simulator that have not been carried out yet."""
        return sum(len(execution.missing()) for execution in self._executions if isinstance(execution, Execution))

    def on_one_thread(self) -> dict[str, str]:
        """Schemes that were given several threads but use only one, and why."""
        executions = [execution for execution in self._executions if isinstance(execution, Execution)]
        return {scheme: why for execution in executions for scheme, why in execution.on_one_thread.items()}

    def carry_out(
        self,
        jobs: int | None = None,
        progress: Progress = lambda _job, _share: None,
        runner: Runner | None = None,
    ) -> Result:
        """Carries out all runs on `jobs` threads, by default one per core, or by `runner` if they are simulated.

        After Ctrl-C or a `failure` the result holds the finished runs and is not `complete`.
        """
        for execution in self._executions:
            # One world after the other, because the lab needs the machine for itself.
            if isinstance(execution, Execution):
                execution.run(jobs or default_threads(), progress, runner=runner)
            else:
                execution.run(jobs or default_threads(), progress)
            if execution.interrupted or execution.failure is not None:
                break
        return Result(self.settings, self.fabric, self._executions, self.inputs)


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
