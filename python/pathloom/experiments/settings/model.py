"""The settings of an experiment, which decide its result: from options, from Python or from a TOML file."""

from __future__ import annotations

import math
import shlex
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator, model_validator

from pathloom import _core
from pathloom._core import PathloomError
from pathloom.errors import bad_input, nearest_hint
from pathloom.experiments.settings.min_rto import written_transport
from pathloom.experiments.settings.setting import NETWORK, OUTPUT, RUNS, WHAT, Setting
from pathloom.quantities import time_spec
from pathloom.specs import LAB, SIM, is_python_spec

WORLDS = (SIM, LAB)
"""All worlds."""
PACKETS, SKIP, FLUID = "packets", "skip", "fluid"
FIDELITIES = (PACKETS, SKIP, FLUID)
"""What the simulator can simulate."""
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
IN_PYTHON = "A scheme in Python is FILE.py:CLASS:key=value."
YES_OR_NO = "true or false"
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


ROUTED_SWITCHES = ("kernel", "frr", "frr:bfd=off")
"""Switches of the lab that are routers: static routes in the kernel, or BGP by FRR with or without BFD."""


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
    switches: str = "ovs"
    """`ovs`, Open vSwitch, or one of `ROUTED_SWITCHES`: each switch is a router."""

    @classmethod
    def parse(cls, text: str | None) -> Self:
        """Reads `hosts=linux,pin=off`. Raises `PathloomError`.

        >>> LabSettings.parse("pin=off")
        LabSettings(hosts='newreno', controller='none', pinned=False, daemons=None, switches='ovs')
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
            elif key == "switches" and value in ("ovs", *ROUTED_SWITCHES):
                values["switches"] = value
            else:
                raise bad_input(
                    f"lab `{part}`: expected hosts=newreno, linux or linux/NAME, controller=none or pathloom, "
                    "pin=on or off, daemons=1 or more, or switches=ovs, kernel, frr or frr:bfd=off"
                )
        return cls(**values)


class Settings(BaseModel):
    """Everything that decides a result. Threads and folders do not, so they are not settings.

    Run number r of every scheme has the seed `seed + r - 1`, so all schemes have the same flows. A single run can be
    repeated with its seed. For independent repetitions choose seeds at least `runs` apart.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    fabric: Annotated[
        str,
        Setting(
            "a specification such as fat-tree:k=4 (see `pathloom fabric list`)",
            WHAT,
            "SPEC",
            "fat-tree:k=4,rate=10Mbps or a file; see `pathloom fabric list`.",
            completion="fabrics",
        ),
    ]
    """A `Fabric`, a specification such as `"fat-tree:k=4"`, or a networkx graph."""
    traffic: Annotated[
        str,
        Setting(
            "a specification such as web-search:load=0.4 (see `pathloom traffic list`)",
            WHAT,
            "SPEC",
            "web-search:load=0.4,pattern=random; see `pathloom traffic list`. + joins several.",
            completion="traffics",
        ),
    ]
    """A specification, such as the result of `web_search(load=0.4)`."""
    schemes: Annotated[
        tuple[str, ...],
        Setting(
            "names such as ecmp,hedera (see `pathloom scheme list`) or FILE.py:CLASS",
            WHAT,
            "LIST",
            f"spt,ecmp,hedera:period=1s; see `pathloom scheme list`. {IN_PYTHON}",
            completion="schemes",
        ),
    ] = Field(min_length=1)
    """Names with keys, such as `["spt", "ecmp", "hedera:period=1s"]`; also schemes written in Python, as classes or as
    `"FILE.py:CLASS:key=value"`; see `pathloom.scheme`."""
    transport: Annotated[
        str | None,
        Setting(
            "a specification such as newreno:iw=12KB",
            WHAT,
            "SPEC",
            "Transport of hosts: newreno:min_rto=1ms; see `pathloom transport list`. By default the scheme's own.",
            completion="transports",
        ),
    ] = None
    """The transport of the hosts, such as `"newreno:iw=12KB"`; by default that of each scheme."""
    control: Annotated[
        str | None,
        Setting(
            "text such as delay=1ms,service=20us",
            NETWORK,
            "KEYS",
            "Control channel, controller and switches, joined by commas:\n"
            "delay=1ms,service=20us,install=100us: a message, its handling, a new rule\n"
            "tcam=2000 or rules=2000: the rules that a switch has room for\n"
            "snapshot=5s: how often the controller writes what it restarts from\n"
            "batch=1: messages that it takes at a time\n"
            "agents=0.5: half of the hosts have no agent, so they label, hold and pace no flow\n"
            "enforcement=host|meter|any: who keeps the rates of flows\n"
            "handover=begin: links hand packets on when sending begins, as the lab's do",
        ),
    ] = None
    """Control channel and controller, such as `"delay=1ms,service=20us"`."""
    duration: Annotated[
        str,
        Setting(
            "a time with its unit, such as 10s",
            RUNS,
            "TIME",
            "How long flows arrive, with its unit: 60s.  [default: 10s]",
        ),
    ] = "10s"
    """How long flows arrive, with its unit; active flows then have five times as long to finish."""
    until: Annotated[
        str | None,
        Setting(
            FINISHED,
            RUNS,
            "finished",
            "Let every finite flow finish, however long that takes. Without it, flows under way have five times the "
            "duration to finish.",
        ),
    ] = None
    """`"finished"` lets every finite flow finish instead, however long that takes."""
    runs: Annotated[
        int,
        Setting(
            f"a whole number from 1 to {MOST_RUNS}",
            RUNS,
            "N",
            "Runs of each scheme.  [default: 3 to compare, 1 to run]",
        ),
    ] = Field(default=3, ge=1, le=MOST_RUNS)
    """Runs per scheme; run r has the seed `seed + r - 1`, the same for every scheme."""
    seed: Annotated[
        int,
        Setting(
            f"a whole number from 0 to {MOST_SEED}", RUNS, "N", "Run number r has the seed N + r - 1.  [default: 1]"
        ),
    ] = Field(default=1, ge=0, le=MOST_SEED)
    """Decides, with `runs`, all random numbers."""
    faults: Annotated[
        tuple[str, ...],
        Setting(
            "texts such as 10s:down:e0_0-a0_1",
            NETWORK,
            "WHAT",
            "A failure or a repair at its time. May be given several times.\n"
            "10s:down:e0_0-a0_1 or 10s:up:c3+c4: cables and switches\n"
            "10s:flap:c3:100ms/400ms/5: down, up, and how often\n"
            "In the simulator also:\n"
            "10s:degrade:a0_1-c3:100Mbps, 10s:loss:a0_1-c3:0.01, 20s:restore:a0_1-c3\n"
            "10s:session-down:c3, session-up:c3, reboot:c3\n"
            "10s:controller-kill, controller-restart, controller-restart:snapshot",
            option="fault",
        ),
    ] = ()
    """Failures and repairs, such as `"10s:down:e0_0-a0_1"`."""
    fidelity: Annotated[
        str,
        Setting(
            "packets, skip or fluid",
            NETWORK,
            "packets|skip|fluid",
            "packets; skip: packets, but steady phases at once; or fluid: flows as fair rates; see docs/fidelity.md.",
        ),
    ] = "packets"
    """`"packets"`; `"skip"`: packets, but phases in which all rates have settled are advanced at once; or `"fluid"`:
    flows as max-min fair rates over their paths, with null for all figures about packets."""
    yardstick: Annotated[
        bool,
        Setting(
            YES_OR_NO,
            OUTPUT,
            "",
            "Also compute the exact optimum: the LP bound on throughput, and a lower bound of each flow's FCT.",
        ),
    ] = False
    """Whether the exact optimum is computed for each result, as `optimum` and `of_optimum`."""
    worlds: Annotated[
        tuple[str, ...],
        Setting("names such as sim,lab", NETWORK, "LIST", "sim, lab or sim,lab: simulate, run live as root, or both."),
    ] = Field(default=(SIM,), min_length=1)
    """`"sim"`, `"lab"` (network namespaces and Open vSwitch; needs root), or both."""
    lab: Annotated[
        str | None,
        Setting(
            "text such as hosts=newreno,pin=on",
            NETWORK,
            "KEYS",
            "For the lab, with commas and no spaces:\n"
            "hosts=newreno|linux|linux/NAME: TCP of the hosts\n"
            "controller=none|pathloom: static routes, or the native controller\n"
            "pin=on|off: rules send flows where the simulator would hash them\n"
            "daemons=N: Open vSwitch daemons that share the switches\n"
            "switches=ovs|kernel|frr|frr:bfd=off: Open vSwitch, or routers",
        ),
    ] = None
    """Settings of the lab, such as `"hosts=linux"`."""
    keep_going: Annotated[
        bool,
        Setting(
            YES_OR_NO,
            RUNS,
            "",
            "Continue when a scheme in Python fails, mark the result, and exit with 1. Otherwise stop.",
        ),
    ] = False
    """Whether runs continue when a scheme written in Python fails; the result is then marked."""
    fit_min_rto: Annotated[bool, Setting(YES_OR_NO)] = True
    """Whether the minimum retransmission time-out fits the fabric if the transport does not set it."""
    series: Annotated[
        str | None,
        Setting(
            "a time with its unit, such as 10ms",
            OUTPUT,
            "TIME",
            "Note rates and queues of links, goodput and windows of flows over time, in steps: 10ms.",
        ),
    ] = None
    """Length of the steps, such as `"10ms"`, of `Result.link_series` and `Result.flow_series`; None for no series."""

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
                hint = nearest_hint(world, WORLDS)
                raise bad_input(f"worlds: `{world}` is not one of {', '.join(WORLDS)}{hint}")
            if world in worlds[:index]:
                raise bad_input(f"worlds: `{world}` is given twice; name each world once")
        return worlds

    @field_validator("fidelity")
    @classmethod
    def _known_fidelity(cls, fidelity: str) -> str:
        if fidelity not in FIDELITIES:
            known = f"{', '.join(FIDELITIES[:-1])} or {FIDELITIES[-1]}"
            raise bad_input(f"fidelity: `{fidelity}` is not valid; expected {known}")
        return fidelity

    @field_validator("lab")
    @classmethod
    def _lab_settings(cls, text: str | None) -> str | None:
        LabSettings.parse(text)
        return text

    @field_validator("transport", "control")
    @classmethod
    def _not_empty(cls, text: str | None, info: ValidationInfo) -> str | None:
        if text is not None and not text.strip():
            expected = setting(info.field_name or "").expected
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
    def _lab_has_packets(self) -> Self:
        if self.fidelity != PACKETS and LAB in self.worlds:
            raise bad_input(f"fidelity: the lab carries packets; leave out `{self.fidelity}`, or simulate alone")
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
        words = ["pathloom", verb]
        for name, about in command_settings().items():
            value = written_transport(self.transport, self.fit_min_rto) if name == "transport" else getattr(self, name)
            is_default = value is None or (value == default_of(name) and name not in ("duration", "runs", "seed"))
            option = "--scheme" if name == "schemes" and verb != "compare" else option_name(name)
            if is_default:
                continue
            if isinstance(value, bool):
                words.append(option)
            elif about.option and isinstance(value, tuple):
                words += [word for one in value for word in (option, one)]
            else:
                words += [option, ",".join(value) if isinstance(value, tuple) else str(value)]
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


def setting(name: str) -> Setting:
    """What the setting of this name tells about itself."""
    return next(one for one in Settings.model_fields[name].metadata if isinstance(one, Setting))


def command_settings() -> dict[str, Setting]:
    """The settings that have an option, by name."""
    return {name: one for name in Settings.model_fields if (one := setting(name)).group}


def option_name(name: str) -> str:
    """The option of a setting.

    >>> option_name("keep_going"), option_name("faults")
    ('--keep-going', '--fault')
    """
    return f"--{(setting(name).option or name).replace('_', '-')}"


def default_of(name: str) -> Any:
    """The default of a setting; None if there is none."""
    field = Settings.model_fields[name]
    return None if field.is_required() else field.default


def _expected(name: str, otherwise: str) -> str:
    return setting(name).expected if name in Settings.model_fields else otherwise


def unknown_key(key: str, known: Sequence[str]) -> str:
    """Message for an unknown key, with the nearest known key."""
    return f"unknown key `{key}`{nearest_hint(key, known)} (known: {', '.join(known)})"


def _one_line(error: ValidationError, source: str, known: list[str]) -> str:
    """The first problem of a validation error in one line."""
    first = error.errors()[0]
    key = ".".join(str(part) for part in first["loc"])
    match first["type"]:
        case "extra_forbidden":
            return f"{source}: {unknown_key(key, known)}"
        case "missing":
            return f"{source}: {key} is missing; expected {_expected(key, 'a value')}"
        case "value_error":
            return str(first["ctx"]["error"])
        case _:
            expected = _expected(key.split(".", maxsplit=1)[0], "another value")
            if first["input"] == ():
                return f"{source}: {key} is empty; expected {expected}"
            return f"{source}: {key}: `{first['input']}` is not valid; expected {expected}"


def _time_from(seconds: float) -> str:
    """A time in the form of a specification, in two digits, rounded up.

    >>> [_time_from(seconds) for seconds in (0.00018, 1e-6, 0.1, 0.0123456, 6.0)]
    ['180us', '1us', '100ms', '13ms', '6s']
    """
    ns = math.ceil(round(seconds * 1e9, 3))
    step = 10 ** max(len(str(ns)) - 2, 0)
    return time_spec(-(-ns // step) * step)
