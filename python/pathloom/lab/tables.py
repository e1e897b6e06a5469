"""The rules that switches have before the first flow."""

from __future__ import annotations

import json
from typing import Any

from pathloom import _core
from pathloom.experiments.schemes.loading import load_scheme
from pathloom.fabrics import Fabric
from pathloom.specs import is_python_spec

SwitchTables = tuple[int, list[Any], list[Any]]
"""Node number, rules and groups of a switch."""


def default_tables(fabric: Fabric, scheme: str) -> list[SwitchTables]:
    """Node number, rules and groups of every switch, as the controller sets them up before the first flow."""
    settings: dict[str, Any] = {
        "fabric": fabric.spec,
        "fabric_text": fabric.text,
        "traffic": "long-lived:pattern=random",
        "scheme": scheme,
        "transport": None,
        "control": None,
        "duration": "1s",
        "seed": 1,
        "faults": [],
        "pcap": None,
        "event_log": None,
    }
    instance = load_scheme(scheme).instance(1) if is_python_spec(scheme) else None
    rows: list[SwitchTables] = json.loads(_core.Simulation(json.dumps(settings), instance).switch_tables())
    return rows
