"""`compare` and `run`, for Python and for the command line."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

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


class SettingsOfRuns(TypedDict, total=False):
    """The arguments of `run` that `Settings` describes, for type checkers, which cannot read its fields.

    A test compares the names with those of `Settings`.
    """

    transport: str | None
    control: str | None
    duration: str
    until: str | None
    seed: int
    faults: Sequence[str]
    fidelity: str
    yardstick: bool
    worlds: Sequence[str]
    lab: str | None
    keep_going: bool
    fit_min_rto: bool
    series: str | None


class SettingsOfComparisons(SettingsOfRuns, total=False):
    """The arguments of `compare` that `Settings` describes."""

    runs: int


class HowToRun(SettingsOfRuns, total=False):
    """All further arguments of `run`."""

    jobs: int | None
    threads: int
    cluster: str | None


def compare(
    *,
    fabric: Fabric | str | nx.Graph[Any],
    traffic: str,
    schemes: Sequence[str | type | Callable[[], object]],
    jobs: int | None = None,
    threads: int = 1,
    cluster: str | None = None,
    **settings: Unpack[SettingsOfComparisons],
) -> Result:
    """Runs the same traffic under each scheme and compares them.

    Args:
        fabric: a `Fabric`, a specification such as `"fat-tree:k=4"`, or a networkx graph.
        traffic: a specification, such as the result of `web_search(load=0.4)`.
        schemes: names with keys, such as `["spt", "ecmp", "hedera:period=1s"]`; also schemes written in Python, as
            classes or as `"FILE.py:CLASS:key=value"`; see `pathloom.scheme`.
        jobs: runs at a time; by default the number of cores over `threads`. The result does not depend on it.
        threads: threads of each simulated run, where its scheme and its transport allow it. The result does not depend
            on it.
        cluster: address of a scheduler of Dask, `"tcp://HOST:PORT"`, whose workers carry out the runs. A scheme in
            Python must then be named as a text. The result does not depend on the workers.
        settings: the other fields of `Settings`, such as `duration="1s"` and `runs=5`, with the defaults there.

    Raises:
        PathloomError: on bad input, with one line that says what is wrong and what was expected.
        ToolError: when a tool of the system failed in the lab.
        SchemeError: when a scheme written in Python failed, unless the settings let runs go on.
        SchemeWarning: a warning, when a scheme written in Python failed and the runs went on.
        KeyboardInterrupt: after a Ctrl-C.

    >>> result = compare(fabric="diamond", traffic="long-lived", schemes=["spt", "ecmp"], duration="100ms", runs=2)
    >>> [scheme["flows"]["long_lived"] for scheme in result.summary["schemes"]]
    [4, 4]

    """
    names, in_python = name_schemes(schemes)
    given = {"fabric": _fabric_text(fabric), "traffic": traffic, "schemes": names, **_as_tuples(settings)}
    checked = Settings.of(given, in_python=in_python)
    if threads < 1:
        raise bad_input(f"threads: {threads} is not valid; expected 1 or more")
    check_call(cluster, jobs, checked.worlds, threads if threads > 1 else None)
    experiment = Experiment(checked, _as_fabric(fabric), in_python=in_python, threads=threads)
    at_a_time = default_jobs(threads) if jobs is None else jobs
    with runner_of(cluster, at_a_time) if cluster is not None else nullcontext() as runner:
        return _carried_out(experiment, at_a_time, runner)


def run(
    *,
    fabric: Fabric | str | nx.Graph[Any],
    traffic: str,
    scheme: str | type | Callable[[], object],
    runs: int = 1,
    **more: Unpack[HowToRun],
) -> Result:
    """Runs one scheme, by default once; all other arguments are those of `compare`.

    >>> result = run(scheme="ecmp", fabric="dumbbell", traffic="long-lived", duration="100ms")
    >>> result.summary["schemes"][0]["flows"]["unfinished"]
    0
    """
    return compare(fabric=fabric, traffic=traffic, schemes=[scheme], runs=runs, **more)


def _as_tuples(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings with tuples in place of other sequences, as `Settings` needs them."""
    known = Settings.model_fields
    for name in settings:
        if name not in known:
            raise TypeError(f"compare() got an unexpected keyword argument '{name}'")
    return {name: tuple(value) if isinstance(known[name].default, tuple) else value for name, value in settings.items()}


def _take_signature(function: Callable[..., Result], others: Iterable[inspect.Parameter]) -> None:
    """Replaces `**` in the signature of a function by the arguments that it stands for, for help and for editors."""
    own = inspect.signature(function)
    named = [one for one in own.parameters.values() if one.kind is not inspect.Parameter.VAR_KEYWORD]
    more = [one for one in others if one.name not in own.parameters]
    function.__signature__ = own.replace(parameters=[*named, *more])  # type: ignore[attr-defined]


_take_signature(
    compare,
    [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=field.annotation)
        for name, field in Settings.model_fields.items()
    ],
)
_take_signature(run, [one for one in inspect.signature(compare).parameters.values() if one.name != "schemes"])


def default_jobs(threads: int) -> int:
    """Default number of runs at a time, if each run uses this many threads.

    >>> default_jobs(10_000)
    1
    """
    return max(default_threads() // threads, 1)


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
