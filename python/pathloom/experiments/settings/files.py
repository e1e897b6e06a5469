"""Settings in files: TOML, and lists that are written as one text."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pathloom.errors import bad_input, reason
from pathloom.experiments.settings.model import Settings, unknown_key
from pathloom.specs import split_specs


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
    except UnicodeDecodeError:
        raise bad_input(f"{source}: is not UTF-8 text; expected TOML") from None
    except tomllib.TOMLDecodeError as error:
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
