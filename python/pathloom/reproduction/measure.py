"""Carries out the runs of a figure and compares the measured with the published numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pathloom import _core
from pathloom.api.worlds import world
from pathloom.errors import bad_input
from pathloom.experiments.results.outcome import NOTED_STOLEN_SHARE, RunOutcome, stolen_text
from pathloom.experiments.results.stats import ci95, mean
from pathloom.experiments.results.summary import run_summary
from pathloom.experiments.results.tables import flow_table
from pathloom.experiments.running.estimate import work_s
from pathloom.experiments.running.threads import interruptible
from pathloom.experiments.running.work import JobProgress
from pathloom.experiments.running.world import RunOptions
from pathloom.experiments.schemes.loading import load_schemes
from pathloom.experiments.settings.min_rto import with_keys
from pathloom.experiments.settings.model import Job, Settings
from pathloom.fabrics import Fabric
from pathloom.quantities import counted, listed
from pathloom.reproduction.definitions import POINTS, Case, Figure, Form, Measure, Published, Row
from pathloom.reproduction.library import all_measures
from pathloom.reproduction.metrics import RunData
from pathloom.reproduction.runs import RunCache, StoredRun, key, measure_run, run_name, this_build
from pathloom.specs import LAB, SIM, is_python_spec

if TYPE_CHECKING:
    from pathloom.experiments.running.work import Runner

LIVE = "controller=pathloom"
"""Settings of the lab for figures: every scheme runs in the native controller."""
NOT_EXPLAINED = "not explained yet"
"""Text that is printed if no cause is known."""


class Stopped(KeyboardInterrupt):
    """Raised after Ctrl-C during runs."""


@dataclass(frozen=True)
class Planned:
    """One case of a figure with the settings of its runs."""

    case: Case
    settings: Settings
    unbuilt: tuple[str, ...]
    """Schemes of the case that are not in the registry."""
    sample_at_s: tuple[float, ...]
    templates: tuple[str, ...] = ()
    """The schemes of the settings as in the figure, with the placeholder `{x}` for the place on the x axis."""

    @property
    def schemes(self) -> tuple[str, ...]:
        """The schemes as in the figure, in the order of those in the settings."""
        return self.templates or self.settings.schemes

    def template(self, scheme: str) -> str:
        """A scheme of the settings as it is in the figure."""
        return self.schemes[self.settings.schemes.index(scheme)]

    @property
    def world(self) -> str:
        """World in which the case runs: the simulator or the lab."""
        return self.settings.worlds[0]


@dataclass(frozen=True)
class Value:
    """A measured number: mean and half width of the 95 % confidence interval over the runs."""

    mean: float | None
    ci95: float | None
    bound: str = "exactly"
    """`at least` or `at most` if the number is only a bound, because flows were not finished."""


@dataclass(frozen=True)
class Line:
    """A row of the result: what was published, what was measured, and why they differ."""

    label: str
    unit: str
    published: Published | None
    bound: str
    value: Value
    cause: str | None
    trend: str | None = None
    """The published direction of the value, which is a difference of two lines: `above`, `below` or `level`."""

    @property
    def difference(self) -> float | None:
        """Measured minus published; for a range the distance from its nearer end, 0 inside."""
        if self.published is None or self.value.mean is None:
            return None
        if isinstance(self.published, tuple):
            low, high = self.published
            return self.value.mean - min(max(self.value.mean, low), high)
        return self.value.mean - self.published

    def as_json(self) -> dict[str, Any]:
        """A row of `reproduce --json`."""
        return {
            "label": self.label,
            "unit": self.unit,
            "published": self.published,
            "bound": self.bound,
            "trend": self.trend,
            "measured": self.value.mean,
            "ci95": self.value.ci95,
            "measured_bound": self.value.bound,
            "difference": self.difference,
            "cause": self.cause,
        }


@dataclass(frozen=True)
class Reproduced:
    """A figure with its numbers."""

    figure: Figure
    form: Form
    seed: int
    plans: tuple[Planned, ...]
    data: dict[tuple[str, str], list[StoredRun]]
    """Stored runs, by label of the case and scheme."""
    lines: tuple[Line, ...]
    """The rows with published numbers, then every other point of the picture."""

    @property
    def world(self) -> str:
        """World in which the figure was run: the simulator or the lab."""
        return self.plans[0].world

    @property
    def schemes(self) -> list[str]:
        """Schemes that were run, in the order of the figure."""
        return list(dict.fromkeys(scheme for plan in self.plans for scheme in plan.schemes))

    @property
    def notes(self) -> list[str]:
        """The notes of the figure, and notes on its runs."""
        return [*self.figure.notes, *self.run_notes]

    @property
    def run_notes(self) -> list[str]:
        """Notes on runs that had problems, and on runs that are all the same."""
        shares = [run.stolen_share for runs in self.data.values() for run in runs]
        lacking = sum(share > NOTED_STOLEN_SHARE for share in shares)
        said = [f"{lacking} of {len(shares)} runs, at worst: {stolen_text(max(shares))}"] if lacking else []
        older = sum(run.build != this_build() for runs in self.data.values() for run in runs)
        said += [f"another build of Pathloom carried out {older} of {counted(len(shares), 'run')}"] if older else []
        return [*said, *_cut_notes(self), *_deterministic_notes(self)]

    @property
    def published(self) -> list[Line]:
        """The rows with published numbers."""
        return list(self.lines[: len(self.figure.rows)])

    def value(self, measure: Measure, case: str, scheme: str) -> Value:
        """Mean and confidence interval of a measure over the runs of a scheme in a case."""
        return _measured(measure, self.data.get((case, scheme), []))

    def as_json(self) -> dict[str, Any]:
        """An item of `reproduce --json`."""
        return {
            "id": self.figure.id,
            "title": self.figure.title,
            "quick": self.form.quick,
            "shorten": self.form.shorten,
            "world": self.world,
            "seed": self.seed,
            "runs": self.plans[0].settings.runs,
            "rows": [line.as_json() for line in self.lines],
        }


def plan(figure: Figure, form: Form, seed: int, world: str = SIM) -> list[Planned]:
    """The cases to run, with checked settings. Raises `PathloomError`.

    For the lab, `figure` must be the result of `Figure.in_lab`.
    """
    plans = []
    place: dict[str, Any] = {"worlds": (LAB,), "lab": LIVE} if world == LAB else {}
    for case in figure.all_cases():
        if form.quick and figure.quick.cases is not None and case.label not in figure.quick.cases:
            continue
        values = figure.setup.model_dump(exclude={"sample"})
        for layer in (case, *((figure.quick,) if form.quick else ())):
            given = layer.model_dump(exclude={"label", "x", "cases", "shorten"}, exclude_none=True)
            values.update(given)
        shorten = (figure.quick.shorten or 1.0) if form.quick else form.shorten
        if shorten != 1.0:
            values["duration"] = f"{_core.parse_time_s(values['duration']) / shorten:g}s"
        known, unbuilt = _split(values["schemes"])
        filled = tuple(_filled(scheme, case) for scheme in known)
        texts = {key: _filled(value, case) if isinstance(value, str) else value for key, value in values.items()}
        if world == SIM:
            texts["transport"] = _exact(texts["transport"])
        settings = Settings.of(
            # The papers use the time-outs of Linux.
            {**texts, **place, "schemes": filled or ("ecmp",), "seed": seed, "fit_min_rto": False},
            f"figure {figure.id}, case `{case.label}`",
        )
        settings = settings.model_copy(update={"schemes": filled})
        times = _sample_times(figure.setup.sample, settings.duration_s)
        plans.append(Planned(case, settings, unbuilt, times, known))
    return plans


def to_do(figures: Iterable[tuple[Figure, Sequence[Planned]]], cache: RunCache) -> tuple[int, float]:
    """Number of missing runs of these figures, and the estimated seconds that they take one after the other.

    Runs that figures share count once.
    """
    found = {
        run_name(one.settings, job, one.sample_at_s): (one.settings, job)
        for figure, plans in figures
        for one in plans
        for job in _missing(figure, one, cache)
    }
    return len(found), math.fsum(work_s(settings, [job]) for settings, job in found.values())


def weights(figure: Figure, plans: Sequence[Planned], cache: RunCache) -> dict[Job, float]:
    """The missing runs of a figure as `reproduce` reports their progress, with the estimated seconds of each."""
    return {_shown(one, job): work_s(one.settings, [job]) for one in plans for job in _missing(figure, one, cache)}


def reproduce(
    figure: Figure, plans: Sequence[Planned], form: Form, runner: Runner | int, cache: RunCache, progress: JobProgress
) -> Reproduced:
    """Carries out the missing runs and computes every row. Raises `PathloomError` and `Stopped`.

    `runner` carries out runs in the simulator; a number means this many threads.
    """
    data: dict[tuple[str, str], list[StoredRun]] = {}
    for one in plans:
        _fill(figure, one, runner, cache, progress)
        for job in one.settings.jobs(one.world):
            kept = cache.find(one.settings, job, one.sample_at_s, figure.measures())
            data.setdefault((one.case.label, one.template(job.scheme)), []).extend([kept] if kept is not None else [])
    seed = plans[0].settings.seed
    lines = [_line(figure, row, plans, data) for row in figure.rows]
    lines = with_trends(figure, [*lines, *_points(figure, plans, data)])
    return Reproduced(figure, form, seed, tuple(plans), data, tuple(lines))


def _exact(transport: str | None) -> str:
    """The transport with the keys that figures were measured with, unless the figure's file sets them.

    >>> _exact(None), _exact("newreno:sack=on,jitter=100us")
    ('newreno:jitter=0s,timers=exact,rack=off', 'newreno:sack=on,jitter=100us,timers=exact,rack=off')
    """
    transport = transport or "newreno"
    return with_keys(transport, {key: value for key, value in _EXACT.items() if f"{key}=" not in transport})


_EXACT = {"jitter": "0s", "timers": "exact", "rack": "off"}
"""No random delay of packets, no ticks of timers, and no detection of losses by time."""


def _split(schemes: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The schemes that are in the registry, and the others."""
    registry = {entry["name"] for entry in _core.schemes()}
    known = tuple(scheme for scheme in schemes if is_python_spec(scheme) or scheme.split(":", 1)[0] in registry)
    return known, tuple(scheme for scheme in schemes if scheme not in known)


def _filled(text: str, case: Case) -> str:
    x = "" if case.x is None else f"{case.x:g}"
    return text.replace("{x}", x)


def _sample_times(every: str | None, duration_s: float) -> tuple[float, ...]:
    if every is None:
        return (duration_s,)
    step_s = _core.parse_time_s(every)
    return (*(round(step_s * step, 9) for step in range(int(duration_s / step_s - 1e-9) + 1)), duration_s)


def _missing(figure: Figure, one: Planned, cache: RunCache) -> list[Job]:
    """The runs of a case that have not been carried out yet."""
    asked = figure.measures()
    jobs = one.settings.jobs(one.world) if one.settings.schemes else []
    return [job for job in jobs if cache.find(one.settings, job, one.sample_at_s, asked) is None]


def _shown(one: Planned, job: Job) -> Job:
    """A run with the name of its case, for progress."""
    return Job(f"{one.case.label} {job.scheme}", job.run, job.seed)


def _fill(figure: Figure, one: Planned, runner: Runner | int, cache: RunCache, progress: JobProgress) -> None:
    """Carries out the missing runs of a case; each run is stored as soon as it is finished."""
    missing = _missing(figure, one, cache)
    if not missing:
        return
    settings = one.settings.model_copy(update={"schemes": tuple(dict.fromkeys(job.scheme for job in missing))})
    asked = {key(measure): measure for measure in (*all_measures(), *figure.measures())}

    def named(job: Job, share: float) -> None:
        progress(_shown(one, job), share)

    try:
        fabric = interruptible(lambda: Fabric(settings.fabric))
        access_bps = float(min(fabric.summary()["host_rate_bps"]))
        in_python = load_schemes(settings.schemes) if one.world != LAB else {}
        execution = world(one.world)(settings, fabric, RunOptions(in_python=in_python, sample_at_s=one.sample_at_s))
        execution.jobs = missing

        def take(outcome: RunOutcome) -> None:
            flows = flow_table(fabric, [outcome])
            data = RunData(flows, run_summary(outcome, flows), outcome.samples, access_bps)
            kept = measure_run(data, asked.values(), outcome.stolen_share)
            cache.add(one.settings, outcome.job, one.sample_at_s, kept)

        if isinstance(runner, int):
            execution.run(max(1, min(runner, len(missing))), named, take)
        else:
            execution.run(1, named, take, runner)
    except _core.PathloomError as error:
        raise bad_input(f"figure {figure.id}: {error}") from None
    if execution.failure is not None:
        raise execution.failure
    if execution.interrupted:
        raise Stopped


def _vector(measure: Measure, runs: Iterable[StoredRun]) -> list[float]:
    values = [run.values[key(measure)] for run in runs]
    return [value for value in values if value is not None]


def _value(vector: Sequence[float], bound: str = "exactly") -> Value:
    return Value(mean(vector), ci95(vector), bound)


def _measured(measure: Measure, runs: Sequence[StoredRun]) -> Value:
    return _value(_vector(measure, runs), _bound(measure, runs))


def _bound(measure: Measure, runs: Iterable[StoredRun]) -> str:
    """Whether a mean over runs is exact or a bound. It is a bound if that of any run is."""
    return next((run.bounds[key(measure)] for run in runs if key(measure) in run.bounds), "exactly")


def _cut_notes(result: Reproduced) -> list[str]:
    """Notes on runs that ended before their flows, if this makes measures of the figure bounds."""
    asked = {key(measure) for measure in result.figure.measures()}
    cut: dict[str, list[str]] = {}
    for (case, scheme), runs in result.data.items():
        if count := sum(not asked.isdisjoint(run.bounds) for run in runs):
            where = f"{case} ({count} of {len(runs)})" if case else f"{count} of {len(runs)} runs"
            cut.setdefault(result.figure.name_of(scheme), []).append(where)
    if not cut:
        return []
    return [
        "flows of some runs were not finished when they ended. They count with the time they had. "
        "So ≥ and ≤ before measured figures mark bounds, and comparisons with these runs are not exact",
        *(f"unfinished under {name}: {', '.join(some)}" for name, places in cut.items() for some in _in_lines(places)),
    ]


def _in_lines(places: list[str]) -> list[list[str]]:
    """A long list in parts of three, each for a sentence of its own."""
    return [places] if len(places) <= 4 else [places[first : first + 3] for first in range(0, len(places), 3)]


def _deterministic_notes(result: Reproduced) -> list[str]:
    """A note on schemes whose runs are the same in everything measured, so that a mean over them has no interval."""
    same: dict[str, bool] = {}
    for (_case, scheme), runs in result.data.items():
        equal = len(runs) > 1 and all(run.values == runs[0].values for run in runs)
        same[scheme] = same.get(scheme, True) and equal
    names = [result.figure.name_of(scheme) for scheme, equal in same.items() if equal]
    if not names:
        return []
    return [f"the runs of {listed(names)} are deterministic: each gives the same, so there is no interval over them"]


def _line(figure: Figure, row: Row, plans: Sequence[Planned], data: dict[tuple[str, str], list[StoredRun]]) -> Line:
    if row.trend is not None:
        return Line(row.label, row.unit, None, row.bound, Value(None, None), None, row.trend)
    scheme = row.scheme or figure.schemes()[0]
    measure, unbuilt = row.measure, _split([scheme, *row.over])[1]
    if unbuilt or measure is None:
        reason = _unbuilt_text(figure, unbuilt) if unbuilt else row.cause
        return Line(row.label, row.unit, row.published, row.bound, Value(None, None), reason)
    vectors, bound = [], "exactly"
    for one in plans:
        if row.case not in (None, one.case.label) or scheme not in one.schemes:
            continue
        own = _vector(measure, data[one.case.label, scheme])
        if row.over_case is not None:
            other_case = data.get((row.over_case, row.over_scheme or scheme))
            vectors += [compared(row.compared, own, _vector(measure, other_case))] if other_case else []
            continue
        bound = _bound(measure, data[one.case.label, scheme]) if bound == "exactly" and not row.over else bound
        others = [_vector(measure, data[one.case.label, other]) for other in row.over if other in one.schemes]
        vectors += [compared(row.compared, own, other) for other in others] if row.over else [own]
    value = replace(_across(row.across, [vector for vector in vectors if vector]), bound=bound)
    if value.mean is None:
        reason = "not part of the quick form" if row.case is not None and not vectors else row.cause or NOT_EXPLAINED
        return Line(row.label, row.unit, row.published, row.bound, value, reason)
    return judged(figure, row, value)


def judged(figure: Figure, row: Row, value: Value) -> Line:
    """The line of a row with its measured value, and with the cause if the value differs from what was published."""
    bare = Line(row.label, row.unit, row.published, row.bound, value, None, row.trend)
    return replace(bare, cause=(row.cause or figure.cause or NOT_EXPLAINED) if is_far(bare) else None)


def with_trends(figure: Figure, lines: Sequence[Line]) -> list[Line]:
    """The lines of a figure, rows first, with the values of its trends filled in from the other lines."""
    known = {line.label: line.value for line in lines}
    filled = list(lines)
    for place, row in enumerate(figure.rows):
        if row.trend is None:
            continue
        one, other = known.get(row.of or ""), known.get(row.than or "")
        if one is not None and other is not None and one.mean is not None and other.mean is not None:
            halves = [half for half in (one.ci95, other.ci95) if half is not None]
            # The runs of both lines may differ, so the interval is that of independent means.
            value = Value(one.mean - other.mean, math.hypot(*halves) if len(halves) == 2 else None)
            filled[place] = judged(figure, row, value)
    return filled


def _unbuilt_text(figure: Figure, unbuilt: Sequence[str]) -> str:
    families = dict.fromkeys(scheme.split(":", 1)[0] for scheme in unbuilt)
    called = {"ofpt": "OFPT", "lessor": "LESSOR"}
    names = [called.get(family, figure.name_of(family)) for family in families]
    return f"{' and '.join(names)} {'is' if len(names) == 1 else 'are'} not built yet"


def compared(how: str, own: Sequence[float], other: Sequence[float]) -> list[float]:
    """Compares run by run: all schemes have the same flows in a run."""
    pairs = [(a, b) for a, b in zip(own, other, strict=False) if b]
    return [100.0 * (a / b - 1.0) if how == "gain" else 100.0 * (1.0 - a / b) for a, b in pairs]


def _across(how: str, vectors: Sequence[Sequence[float]]) -> Value:
    if not vectors:
        return Value(None, None)
    if how == "mean":
        runs = min(len(vector) for vector in vectors)
        return _value([sum(vector[run] for vector in vectors) / len(vectors) for run in range(runs)])
    choose: Callable[..., Sequence[float]] = min if how == "least" else max
    return _value(choose(vectors, key=lambda vector: mean(vector) or 0.0))


def is_far(line: Line) -> bool:
    """Whether a difference needs a cause.

    From a single number it is one of more than `POINTS` points. The ends of ranges and bounds have no such tolerance,
    only the interval of the measurement, and a trend must show beyond its interval.
    """
    half = line.value.ci95 or 0.0
    if line.trend is not None:
        shown = line.value.mean
        return (
            shown is not None
            and not {
                "above": shown > half,
                "below": shown < -half,
                "level": abs(shown) <= max(half, POINTS),
            }[line.trend]
        )
    difference = line.difference
    if difference is None or line.published is None:
        return False
    if isinstance(line.published, tuple):
        return abs(difference) > half
    if line.bound in ("at least", "at most"):
        return (-difference if line.bound == "at least" else difference) > half
    points = abs(difference) if line.unit == "%" else 100.0 * abs(difference) / max(abs(line.published), 1e-12)
    return points > POINTS


def _points(figure: Figure, plans: Sequence[Planned], data: dict[tuple[str, str], list[StoredRun]]) -> list[Line]:
    """Lines for the points of a bar or line picture that have no row: measured, but without a published number."""
    if figure.plot.kind not in ("bars", "lines"):
        return []
    taken = {
        (key(row.measure), row.case, row.scheme or figure.schemes()[0])
        for row in figure.rows
        if row.measure is not None and not row.over and row.over_case is None
    }
    lines = []
    for label, measure in figure.plot.measures():
        for one in plans:
            for scheme in one.schemes:
                if (key(measure), one.case.label or None, scheme) in taken:
                    continue
                value = _measured(measure, data[one.case.label, scheme])
                lines.append(
                    Line(point_label(figure, scheme, one.case, label), figure.plot.unit, None, "exactly", value, None)
                )
    return lines


def point_label(figure: Figure, scheme: str, case: Case, variant: str) -> str:
    """Label of the line of a point of a picture."""
    place = f"{figure.plot.x} {case.label}".strip() if case.x is not None else case.label
    return ", ".join(part for part in (figure.name_of(scheme), place, variant) if part)
