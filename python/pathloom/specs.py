"""Specifications as text: `name:key=value,key=value`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pathloom.errors import bad_input

SIM, LAB = "sim", "lab"
"""Worlds in which runs take place: the packet simulator, or network namespaces and Open vSwitch on this machine."""


def spec_text(name: str, **keys: object) -> str:
    """Joins a name and its keys. Keys that are None are left out, `True` and `False` become `on` and `off`.

    >>> spec_text("parallel-paths", rates=["10Mbps", "5Mbps"], buffer=None)
    'parallel-paths:rates=10Mbps/5Mbps'
    """
    given = {key: _value_text(value) for key, value in keys.items() if value is not None}
    pairs = ",".join(f"{key}={value}" for key, value in given.items())
    return f"{name}:{pairs}" if pairs else name


def split_specs(text: str) -> list[str]:
    """Splits a list of specifications at its commas; `key=value` belongs to the specification before it.

    >>> split_specs("spt,hedera:period=5s,share=0.1,ecmp")
    ['spt', 'hedera:period=5s,share=0.1', 'ecmp']
    """
    specs: list[str] = []
    for part in text.split(","):
        before_equals, equals, _ = part.partition("=")
        if specs and equals and ":" not in before_equals:
            specs[-1] += "," + part.strip()
        else:
            specs.append(part.strip())
    if "" in specs:
        raise bad_input(f"schemes `{text}`: a name is missing; expected a list such as spt,ecmp,hedera")
    return specs


def keys_of(text: str, entry: Mapping[str, Any]) -> dict[str, str]:
    """The keys of a specification that the core has checked, with the defaults of its registry `entry`.

    >>> entry = {"keys": [{"name": "paths", "default": "4"}, {"name": "a", "default": "1"}]}
    >>> keys_of("parallel-tcp:paths=2", entry)
    {'paths': '2', 'a': '1'}
    """
    keys = {key["name"]: key["default"] for key in entry["keys"]}
    for part in filter(None, text.partition(":")[2].split(",")):
        key, _, value = part.partition("=")
        keys[key.strip()] = value.strip()
    return keys


def is_python_spec(text: str) -> bool:
    """Whether a specification names a scheme in a Python file: `FILE.py:CLASS:key=value`.

    >>> is_python_spec("my/schemes.py:Greedy:least=1000"), is_python_spec("hedera:period=1s")
    (True, False)
    """
    return text.partition(":")[0].endswith(".py")


def _value_text(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, list | tuple):
        return "/".join(_value_text(member) for member in value)
    return str(value)
