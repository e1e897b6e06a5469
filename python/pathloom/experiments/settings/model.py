"""The settings of an experiment, which decide its result: from options, from Python or from a TOML file."""

from __future__ import annotations

import math
import shlex
import tomllib
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator, model_validator

from pathloom import _core
from pathloom._core import PathloomError
from pathloom.errors import bad_input, reason
from pathloom.experiments.settings.min_rto import written_transport
from pathloom.quantities import time_spec
from pathloom.specs import LAB, SIM, is_python_spec, split_specs

WORLDS = (SIM, LAB)
"""All worlds."""
FINISHED = "finished"
"""The value of `until`: the drain lasts until every finite flow is finished."""
DRAIN = 5
"""Length of the drain in durations, unless `until` is set: the time that active flows have to finish."""
MOST_STEPS = 100_000
"""Maximum number of steps of a series in one run, drain included."""
LEAST_STEP_S = 1e-6
"""Shortest step of a series."""
LEAST_LAB_STEP_S = 0.1
"""Shortest step in the lab: reading the counters of its interfaces takes about 10 ms."""
MOST_RUNS = 10_000
"""Maximum number of runs of one scheme."""
MOST_SEED = 2**53 - MOST_RUNS
"""Largest seed, so that every JSON reader represents all seeds exactly."""


@dataclass(frozen=True)
class Job:
    """One run of one scheme in one world."""

    scheme: str
    run: int
    seed: int
    world: str = SIM
    label: str = ""
    """Name of the scheme in this world in tables."""


LAB_KEYS = {
    "hosts": ("newreno", "newreno, as simulated; linux, as the kernel has it; linux/NAME, another congestion control"),
    "controller": ("none", "pathloom, the native controller, or none: static routes, for spt and ecmp alone"),
    "pin": ("on", "on: rules send flows where the simulator's switches would; off: the lab's switches choose"),
    "daemons": ("as many as suit the machine", "processes of Open vSwitch over which the switches are spread"),
}
"""The keys of `--lab`: default and meaning of each."""


@dataclass(frozen=True)
class LabSettings:
    """Settings that only the lab needs."""

    hosts: str = "newreno"
    """TCP of the hosts' kernels: `newreno`, as in the simulator, or `linux` or `linux/NAME`."""
    controller: str = "none"
    """`pathloom`, the native controller, or `none`: static routes, for schemes that need nothing more."""
    pinned: bool = True
    """Whether rules send flows where the simulator's switches would hash them, or the lab's switches choose."""
    daemons: int | None = None
    """Number of Open vSwitch daemons over which the switches are spread; None for a number that suits the machine."""

    @classmethod
    def parse(cls, text: str | None) -> Self:
        """Reads `hosts=linux,pin=off`. Raises `PathloomError`.

        >>> LabSettings.parse("pin=off")
        LabSettings(hosts='newreno', controller='none', pinned=False, daemons=None)
        """
        values: dict[str, Any] = {}
        for part in text.split(",") if text is not None else []:
            key, _, value = (word.strip() for word in part.partition("="))
            if key == "hosts" and value:
                values["hosts"] = value
            elif key == "controller" and value in ("none", "pathloom"):
                values["controller"] = value
            elif key == "pin" and value in ("on", "off"):
                values["pinned"] = value == "on"
            elif key == "daemons" and value.isdecimal() and int(value) > 0:
                values["daemons"] = int(value)
            else:
                raise bad_input(
                    f"lab `{part}`: expected hosts=newreno, linux or linux/NAME, controller=none or pathloom, "
                    "pin=on or off, or daemons=1 or more"
                )
        return cls(**values)


class Settings(BaseModel):
    """Everything that decides a result. Threads and folders do not, so they are not settings.

    Run number r of every scheme has the seed `seed + r - 1`, so all schemes have the same flows. A single run can be
    repeated with its seed. For independent repetitions choose seeds at least `runs` apart.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    fabric: str
    traffic: str
    schemes: tuple[str, ...] = Field(min_length=1)
    transport: str | None = None
    control: str | None = None
    duration: str = "10s"
    until: str | None = None
    """`finished`: the drain has no fixed length; it lasts until every finite flow is finished."""
    runs: int = Field(default=3, ge=1, le=MOST_RUNS)
    seed: int = Field(default=1, ge=0, le=MOST_SEED)
    faults: tuple[str, ...] = ()
    yardstick: bool = False
    """Whether the exact optimum is computed for each result."""
    worlds: tuple[str, ...] = Field(default=(SIM,), min_length=1)
    lab: str | None = None
    keep_going: bool = False
    """Whether runs continue when a scheme written in Python fails; the result is then marked."""
    fit_min_rto: bool = True
    """Whether the minimum retransmission time-out fits the fabric if the transport does not set it."""
    series: str | None = None
    """Length of the steps in which links and flows are recorded over time; None for no series."""

    @field_validator("schemes")
    @classmethod
    def _no_scheme_twice(cls, schemes: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        in_python: Container[str] = info.context or ()
        for index, scheme in enumerate(schemes):
            if scheme not in in_python and not is_python_spec(scheme):
                _core.scheme_name(scheme)
            if scheme in schemes[:index]:
                raise bad_input(f"schemes: `{scheme}` is given twice; name each scheme once")
        return schemes

    @field_validator("worlds")
    @classmethod
    def _known_worlds(cls, worlds: tuple[str, ...]) -> tuple[str, ...]:
        for index, world in enumerate(worlds):
            if world not in WORLDS:
                near = _core.nearest(world, list(WORLDS))
                hint = f"; did you mean `{near}`?" if near else ""
                raise bad_input(f"worlds: `{world}` is not one of {', '.join(WORLDS)}{hint}")
            if world in worlds[:index]:
                raise bad_input(f"worlds: `{world}` is given twice; name each world once")
        return worlds

    @field_validator("lab")
    @classmethod
    def _lab_settings(cls, text: str | None) -> str | None:
        LabSettings.parse(text)
        return text

    @field_validator("transport", "control")
    @classmethod
    def _not_empty(cls, text: str | None, info: ValidationInfo) -> str | None:
        if text is not None and not text.strip():
            expected = _EXPECTED[info.field_name or ""]
            raise bad_input(f"{info.field_name}: is empty; expected {expected}, or leave it out")
        return text

    @field_validator("duration")
    @classmethod
    def _some_time(cls, duration: str) -> str:
        try:
            seconds = _core.parse_time_s(duration)
        except PathloomError as error:
            raise bad_input(f"duration: {error}") from None
        if seconds <= 0:
            raise bad_input(f"duration: `{duration}` is not a positive time; expected more than 0s, such as 10s")
        return duration

    @field_validator("until")
    @classmethod
    def _known_end(cls, until: str | None) -> str | None:
        if until is not None and until != FINISHED:
            precise = "; ci= is for pathloom sweep --until" if until.startswith("ci") else ""
            raise bad_input(f"until: `{until}` is not valid; expected {FINISHED}, or leave it out{precise}")
        return until

    @model_validator(mode="after")
    def _series_of_few_steps(self) -> Self:
        if self.series is None:
            return self
        try:
            step_s = _core.parse_time_s(self.series)
        except PathloomError as error:
            raise bad_input(f"series: {error}") from None
        least_s = max(self.duration_s * (1 + DRAIN) / MOST_STEPS, LEAST_STEP_S)
        if step_s == 0:
            raise bad_input(f"series: `{self.series}` is not a positive time; expected {_time_from(least_s)} or more")
        if step_s < least_s:
            raise bad_input(f"series: `{self.series}` gives too many steps; expected {_time_from(least_s)} or more")
        if LAB in self.worlds and step_s < LEAST_LAB_STEP_S:
            least = _time_from(LEAST_LAB_STEP_S)
            raise bad_input(f"series: `{self.series}` is too short for the lab; expected {least} or more")
        return self

    @model_validator(mode="after")
    def _lab_ends_by_the_clock(self) -> Self:
        if self.until is not None and LAB in self.worlds:
            raise bad_input(
                f"until: the lab ends each run {DRAIN} times the duration after the last arrival; leave out `until`, "
                "or run in the simulator alone"
            )
        return self

    @model_validator(mode="after")
    def _lab_is_there_to_be_told(self) -> Self:
        if self.lab is not None and LAB not in self.worlds:
            raise bad_input(f"lab `{self.lab}`: is for runs in the lab; add --worlds lab, or sim,lab, or leave it out")
        return self

    @property
    def duration_s(self) -> float:
        """Time during which flows arrive, in simulated seconds."""
        return _core.parse_time_s(self.duration)

    def run_seed(self, run: int) -> int:
        """The seed of run number `run`, counted from 1."""
        return self.seed + run - 1

    def label(self, scheme: str, world: str) -> str:
        """Name of a scheme in a world in tables. With two worlds, schemes in the lab are marked."""
        return scheme if world == SIM or len(self.worlds) == 1 else f"{scheme}@{world}"

    @property
    def labels(self) -> list[str]:
        """Names of the schemes in tables, world by world."""
        return [self.label(scheme, world) for world in self.worlds for scheme in self.schemes]

    def jobs(self, world: str) -> list[Job]:
        """All runs in a world, seed by seed: at any time, the finished runs compare all schemes on the same flows."""
        return [
            Job(scheme, run, self.run_seed(run), world, self.label(scheme, world))
            for run in range(1, self.runs + 1)
            for scheme in self.schemes
        ]

    def command(self, verb: str = "compare") -> str:
        """The command line that repeats this result."""
        options: list[tuple[str, str | None]] = [
            ("--fabric", self.fabric),
            ("--traffic", self.traffic),
            ("--schemes" if verb == "compare" else "--scheme", ",".join(self.schemes)),
            ("--transport", written_transport(self.transport, self.fit_min_rto)),
            ("--control", self.control),
            *(("--fault", fault) for fault in self.faults),
            ("--duration", self.duration),
            ("--until", self.until),
            ("--runs", str(self.runs)),
            ("--seed", str(self.seed)),
            ("--worlds", None if self.worlds == (SIM,) else ",".join(self.worlds)),
            ("--lab", self.lab),
            ("--series", self.series),
        ]
        words = ["pathloom", verb]
        for option, value in options:
            words += [option, value] if value is not None else []
        words += ["--yardstick"] if self.yardstick else []
        words += ["--keep-going"] if self.keep_going else []
        return shlex.join(words)

    @classmethod
    def of(cls, values: Mapping[str, Any], source: str = "settings", in_python: Container[str] = ()) -> Self:
        """Checks values. Errors begin with `source`; `in_python` are schemes given as classes.

        Raises `PathloomError` with one line that names the key, what was found and what was expected.
        """
        try:
            return cls.model_validate(dict(values), context=in_python)
        except ValidationError as error:
            raise bad_input(_one_line(error, source, list(cls.model_fields))) from None


def read_spec_file(path: Path) -> dict[str, Any]:
    """The settings in a TOML file. Keys are those of `Settings`; `scheme` and `fault` give a single member.

    Raises `PathloomError` if the file cannot be read, is not TOML, or has an unknown key.
    """
    source = f"experiment file `{path}`"
    return split_lists(validate_keys(read_toml(path, source), source))


def read_toml(path: Path, source: str) -> dict[str, Any]:
    """The content of a TOML file. Raises `PathloomError` with a line that begins with `source`."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise bad_input(f"{source}: {reason(error)}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise bad_input(f"{source}: is not TOML: {error}") from None


def validate_keys(
    values: Mapping[str, Any], source: str, more: Sequence[str] = (), unlisted: Sequence[str] = ()
) -> dict[str, Any]:
    """Values under the names of `Settings`: `scheme` and `fault` become lists with one member, as with options.

    `more` are further known keys. The caller rejects keys in `unlisted`, so no message suggests them. Raises
    `PathloomError` on an unknown key.
    """
    known = [*Settings.model_fields, *_SINGLE, *more]
    for key in values:
        if key not in known:
            raise bad_input(f"{source}: {unknown_key(key, [one for one in known if one not in unlisted])}")
    whole = dict(values)
    for single, several in _SINGLE.items():
        if single in whole and several in whole:
            raise bad_input(f"{source}: has both {single} and {several}; keep one of them")
        if single in whole:
            value = whole.pop(single)
            whole[several] = value if single == "fault" and isinstance(value, list) else [value]
    return whole


def split_lists(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values in which lists that are written as one text, such as `ecmp,spt`, are split."""
    whole = dict(values)
    if isinstance(whole.get("schemes"), str):
        whole["schemes"] = split_specs(whole["schemes"])
    if isinstance(whole.get("worlds"), str):
        whole["worlds"] = whole["worlds"].split(",")
    return {key: tuple(value) if isinstance(value, list) else value for key, value in whole.items()}


_SINGLE = {"scheme": "schemes", "fault": "faults"}
"""Keys for a single member of a list."""


def unknown_key(key: str, known: Sequence[str]) -> str:
    """Message for an unknown key, with the nearest known key."""
    near = _core.nearest(key, list(known))
    hint = f"; did you mean `{near}`?" if near else ""
    return f"unknown key `{key}`{hint} (known: {', '.join(known)})"


def _one_line(error: ValidationError, source: str, known: list[str]) -> str:
    """The first problem of a validation error in one line."""
    first = error.errors()[0]
    key = ".".join(str(part) for part in first["loc"])
    match first["type"]:
        case "extra_forbidden":
            return f"{source}: {unknown_key(key, known)}"
        case "missing":
            return f"{source}: {key} is missing; expected {_EXPECTED.get(key, 'a value')}"
        case "value_error":
            return str(first["ctx"]["error"])
        case _:
            expected = _EXPECTED.get(key.split(".", maxsplit=1)[0], "another value")
            if first["input"] == ():
                return f"{source}: {key} is empty; expected {expected}"
            return f"{source}: {key}: `{first['input']}` is not valid; expected {expected}"


_YES_OR_NO = "true or false"
_EXPECTED = {
    "fabric": "a specification such as fat-tree:k=4 (see `pathloom fabric list`)",
    "traffic": "a specification such as web-search:load=0.4 (see `pathloom traffic list`)",
    "schemes": "names such as ecmp,hedera (see `pathloom scheme list`) or FILE.py:CLASS",
    "duration": "a time with its unit, such as 10s",
    "runs": f"a whole number from 1 to {MOST_RUNS}",
    "seed": f"a whole number from 0 to {MOST_SEED}",
    "transport": "a specification such as newreno:iw=12KB",
    "control": "text such as delay=1ms,service=20us",
    "faults": "texts such as 10s:down:e0_0-a0_1",
    "worlds": "names such as sim,lab",
    "until": FINISHED,
    "series": "a time with its unit, such as 10ms",
    "lab": "text such as hosts=newreno,pin=on",
    "yardstick": _YES_OR_NO,
    "keep_going": _YES_OR_NO,
    "fit_min_rto": _YES_OR_NO,
}


def _time_from(seconds: float) -> str:
    """A time in the form of a specification, in two digits, rounded up.

    >>> [_time_from(seconds) for seconds in (0.00018, 1e-6, 0.1, 0.0123456, 6.0)]
    ['180us', '1us', '100ms', '13ms', '6s']
    """
    ns = math.ceil(round(seconds * 1e9, 3))
    step = 10 ** max(len(str(ns)) - 2, 0)
    return time_spec(-(-ns // step) * step)
