"""Writes settings as TOML: the keys of an experiment or of a sweep."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def toml_text(values: Mapping[str, Any]) -> str:
    """The text of a TOML file. Lists of tables and tables are at the end, as TOML requires; None is left out.

    >>> print(toml_text({"runs": 2, "grid": {"k": [4, 8]}, "fabric": "fat-tree:k={k}", "points": [{"load": 0.2}]}))
    runs = 2
    fabric = "fat-tree:k={k}"
    <BLANKLINE>
    [grid]
    k = [4, 8]
    <BLANKLINE>
    [[points]]
    load = 0.2
    <BLANKLINE>
    """
    lines, tables = [], []
    for key, value in values.items():
        if isinstance(value, Mapping):
            tables.append((f"[{_key(key)}]", value))
        elif isinstance(value, list | tuple) and value and isinstance(value[0], Mapping):
            tables += [(f"[[{_key(key)}]]", row) for row in value]
        elif value is not None:
            lines.append(f"{_key(key)} = {_value(value)}")
    for heading, rows in tables:
        lines += ["", heading, *(f"{_key(key)} = {_value(value)}" for key, value in rows.items())]
    return "\n".join(lines) + "\n"


def _key(key: str) -> str:
    bare = key and all(letter.isascii() and (letter.isalnum() or letter in "_-") for letter in key)
    return key if bare else _value(key)


def _value(value: Any) -> str:
    """A value; texts of JSON are texts of TOML, except for the character DEL."""
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    return json.dumps(value, ensure_ascii=False, allow_nan=False).replace("\x7f", "\\u007f")
