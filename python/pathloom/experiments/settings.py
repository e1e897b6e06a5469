"""What an experiment is: the settings that decide its result, from options, from Python or from a TOML file."""

from __future__ import annotations

import shlex
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator

from pathloom import _core
from pathloom._core import PathloomError
from pathloom.errors import bad_input
from pathloom.specs import split_specs

MOST_RUNS = 10_000
"""Most runs of one scheme."""
MOST_SEED = 2**53 - MOST_RUNS
"""Seeds stay exact in every JSON reader."""


class Settings(BaseModel):
    """Everything that decides a result; what does not (threads, folders) is not here.

    Run number r of every scheme has the seed `seed + r - 1`, so all schemes meet the same flows, and a single run can
    be repeated alone by its own seed. For independent repetitions choose seeds at least `runs` apart.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    fabric: str
    traffic: str
    schemes: tuple[str, ...] = Field(min_length=1)
    transport: str | None = None
    control: str | None = None
    duration: str = "10s"
    runs: int = Field(default=3, ge=1, le=MOST_RUNS)
    seed: int = Field(default=1, ge=0, le=MOST_SEED)
    faults: tuple[str, ...] = ()

    @field_validator("schemes")
    @classmethod
    def _no_scheme_twice(cls, schemes: tuple[str, ...]) -> tuple[str, ...]:
        for index, scheme in enumerate(schemes):
            _core.scheme_name(scheme)
            if scheme in schemes[:index]:
                raise bad_input(f"schemes: `{scheme}` is given twice; name each scheme once")
        return schemes

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
            raise bad_input(f"duration: `{duration}` is no time at all; expected more than 0s, such as 10s")
        return duration

    @property
    def duration_s(self) -> float:
        """How long flows arrive, in simulated seconds."""
        return _core.parse_time_s(self.duration)

    def run_seed(self, run: int) -> int:
        """The seed of run number `run`, counted from 1."""
        return self.seed + run - 1

    def command(self, verb: str = "compare") -> str:
        """The command line that gives this result again."""
        options: list[tuple[str, str | None]] = [
            ("--fabric", self.fabric),
            ("--traffic", self.traffic),
            ("--schemes" if verb == "compare" else "--scheme", ",".join(self.schemes)),
            ("--transport", self.transport),
            ("--control", self.control),
            *(("--fault", fault) for fault in self.faults),
            ("--duration", self.duration),
            ("--runs", str(self.runs)),
            ("--seed", str(self.seed)),
        ]
        words = ["pathloom", verb]
        for option, value in options:
            words += [option, value] if value is not None else []
        return shlex.join(words)

    @classmethod
    def of(cls, values: Mapping[str, Any], source: str = "settings") -> Self:
        """Checks values; `source` is the word that errors begin with.

        Raises `PathloomError` with one line that names the key, what was found and what was expected.
        """
        try:
            return cls.model_validate(dict(values))
        except ValidationError as error:
            raise bad_input(_one_line(error, source, list(cls.model_fields))) from None


def read_spec_file(path: Path) -> dict[str, Any]:
    """The settings in a TOML file. Keys are those of `Settings`; `scheme` may stand for a single member of `schemes`.

    Raises `PathloomError` when the file cannot be read or is not TOML, or holds an unknown key.
    """
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise bad_input(f"experiment file `{path}`: {(error.strerror or str(error)).lower()}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise bad_input(f"experiment file `{path}`: is not TOML: {error}") from None
    known = [*Settings.model_fields, "scheme"]
    for key in values:
        if key not in known:
            raise bad_input(f"experiment file `{path}`: {_unknown_key(key, known)}")
    if "scheme" in values and "schemes" in values:
        raise bad_input(f"experiment file `{path}`: has both scheme and schemes; keep one of them")
    if "scheme" in values:
        values["schemes"] = [values.pop("scheme")]
    if isinstance(values.get("schemes"), str):
        values["schemes"] = split_specs(values["schemes"])
    return {key: tuple(value) if isinstance(value, list) else value for key, value in values.items()}


def _unknown_key(key: str, known: Sequence[str]) -> str:
    near = _core.nearest(key, list(known))
    hint = f"; did you mean `{near}`?" if near else ""
    return f"unknown key `{key}`{hint} (known: {', '.join(known)})"


def _one_line(error: ValidationError, source: str, known: list[str]) -> str:
    """The first problem of a validation error in one line."""
    first = error.errors()[0]
    key = ".".join(str(part) for part in first["loc"])
    match first["type"]:
        case "extra_forbidden":
            return f"{source}: {_unknown_key(key, known)}"
        case "missing":
            return f"{source}: {key} is missing; expected {_EXPECTED.get(key, 'a value')}"
        case "value_error":
            return str(first["ctx"]["error"])
        case _:
            found = str(first["input"])
            expected = _EXPECTED.get(key.split(".", maxsplit=1)[0])
            problem = f"expected {expected}" if expected else first["msg"].lower()
            return f"{source}: {key}: `{found}` will not do; {problem}"


_EXPECTED = {
    "fabric": "a specification such as fat-tree:k=4 (see `pathloom fabric list`)",
    "traffic": "a specification such as web-search:load=0.4 (see `pathloom traffic list`)",
    "schemes": "names such as ecmp,hedera (see `pathloom scheme list`)",
    "duration": "a time with its unit, such as 10s",
    "runs": f"a whole number from 1 to {MOST_RUNS}",
    "seed": f"a whole number from 0 to {MOST_SEED}",
    "transport": "a specification such as newreno:iw=12KB",
    "control": "text such as delay=1ms,service=20us",
    "faults": "texts such as 10s:down:e0_0-a0_1",
}
